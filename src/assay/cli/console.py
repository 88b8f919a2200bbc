"""One console for tables on stdout: as wide as the terminal, wide enough for the tables elsewhere."""

from __future__ import annotations

import sys

from rich.console import Console

WIDTH_OF_FILES = 140  # columns when stdout is no terminal: logs and pipes have no edge


def stdout() -> Console:
    """A console on stdout."""
    return Console() if sys.stdout.isatty() else Console(width=WIDTH_OF_FILES)
