"""What goes wrong with labs."""

from __future__ import annotations


class LabError(Exception):
    """A lab cannot be made or removed; the message is one clear line with what would help."""
