"""Directories of a lab outside its own, perhaps on a file system under test: what a helper process does there, since it may
never return. Standard library only, like :mod:`assay.lab.remote`."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

MARK = ".assay-lab"  # file in every directory that Assay made outside its own; holds the lab's id


def real_and_owner(path: Path) -> tuple[Path, str | None]:
    """The real path and whose it is: a lab's id, "" when it is there and has no mark, None when it is not there."""
    real = Path(os.path.realpath(path))
    return real, (owner(real) or "") if real.exists() else None


def owner(path: Path) -> str | None:
    """The id of the lab whose mark a directory bears."""
    try:
        return (path / MARK).read_text()
    except OSError:
        return None


def make(path: Path, lab_id: str) -> None:
    """Make a directory that bears the lab's mark. Raises OSError."""
    path.mkdir()
    (path / MARK).write_text(lab_id)


def remove(path: Path, lab_id: str) -> None:
    """Remove a directory if the lab made it. Raises OSError."""
    # the mark proves that Assay made it; without it the crash came between noting and making
    if path.is_dir() and (owner(path) == lab_id or not _has_content(path)):
        shutil.rmtree(path)


def allocated(path: Path, mounts: frozenset[str] = frozenset()) -> int:
    """Bytes on disk of the files below a directory, without what is mounted there."""
    total = 0
    for root, directories, files in os.walk(path):
        directories[:] = [d for d in directories if str(Path(root) / d) not in mounts]
        for name in files:
            try:
                total += (Path(root) / name).lstat().st_blocks * 512
            except OSError:
                continue
    return total


def _has_content(path: Path) -> bool:
    """Whether there is more than a mark that a crash has left empty."""
    return any(child.name != MARK or child.stat().st_size for child in path.iterdir())
