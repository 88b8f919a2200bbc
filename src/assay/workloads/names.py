"""What clients carry out for the metadata workload, through :meth:`assay.lab.host.Host.call`.

Plain values only; the extension is loaded when it is first used.
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple


class Worked(NamedTuple):
    """What one thread has done."""

    seconds: float
    cpu_seconds: float
    latencies: bytes  # ns, little-endian unsigned 64-bit integers
    error: int | None  # errno of the operation that ended it


def stage(directory: Path, operation: str, threads: int, files: int) -> None:
    """Make the directory anew with what the operation needs. Raises OSError."""
    from assay import _core

    directory.parent.mkdir(parents=True, exist_ok=True)
    _core.metadata_stage(directory, operation, threads, files)


def work(directory: Path, operation: str, threads: int, files: int, limit_seconds: float) -> list[Worked]:
    """Carry the operation out; one entry per thread."""
    from assay import _core

    return [Worked(*thread) for thread in _core.metadata_run(directory, operation, threads, files, limit_seconds)]
