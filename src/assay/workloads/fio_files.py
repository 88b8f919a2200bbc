"""What hosts carry out for the data set of fio's points, by :meth:`assay.lab.host.Host.call`: any of it may never return.

Standard library and plain values only, like :mod:`assay.lab.remote`. The marker's part is told in
:mod:`assay.workloads.fio_data`.
"""

from __future__ import annotations

import errno
import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path

MARKER = ".assay-complete.json"


def complete_files(directory: Path) -> dict[str, int]:
    """Names and sizes of the files that are proven complete."""
    try:
        marker = json.loads((directory / MARKER).read_bytes())
        recorded = {str(name): int(size) for name, size in marker["files"].items()}
    except (OSError, ValueError, KeyError, TypeError, AttributeError):
        return {}
    sizes = file_sizes(directory, list(recorded))
    return {name: size for name, size in recorded.items() if sizes[name] == size}


def file_sizes(directory: Path, names: Sequence[str]) -> dict[str, int | None]:
    """Sizes in bytes, None for what is not there."""
    found: dict[str, int | None] = {}
    for name in names:
        try:
            found[name] = (directory / name).stat().st_size
        except OSError:
            found[name] = None
    return found


def begin(directory: Path, kept: Mapping[str, int], anew: Sequence[str]) -> None:
    """Strike the files that are laid out anew from the marker, then remove them: an old, shorter file would keep its old
    extents. Raises OSError."""
    directory.mkdir(parents=True, exist_ok=True)
    write_marker(directory, kept)
    remove(directory, anew)


def remove(directory: Path, names: Sequence[str]) -> None:
    """Remove files; no error when they are not there. Raises OSError."""
    for name in names:
        (directory / name).unlink(missing_ok=True)


def write_marker(directory: Path, files: Mapping[str, int]) -> None:
    """Say durably which files are complete, with their sizes. Raises OSError."""
    temporary = directory / f"{MARKER}.new"
    with temporary.open("w") as file:
        json.dump({"files": dict(files)}, file)
        file.flush()
        os.fsync(file.fileno())
    temporary.replace(directory / MARKER)


def direct_works(directory: Path) -> bool:
    """Whether the file system takes O_DIRECT: tmpfs before Linux 6.6 and some FUSE file systems refuse it. Raises OSError."""
    probe = directory / ".assay-probe"
    try:
        os.close(os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_DIRECT, 0o600))
    except OSError as error:
        if error.errno != errno.EINVAL:
            raise
        return False
    finally:
        probe.unlink(missing_ok=True)
    return True


def read(directory: Path, names: Sequence[str], size: int) -> None:
    """Read the first ``size`` bytes of each file. Raises OSError."""
    for name in names:
        with (directory / name).open("rb", buffering=0) as stream:
            left = size
            while left > 0 and (chunk := stream.read(min(1 << 20, left))):
                left -= len(chunk)
