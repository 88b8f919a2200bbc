"""What goes wrong here."""

from __future__ import annotations


class PlacementError(ValueError):
    """A map, layout or workload cannot be used; the message is one clear line that names the place."""
