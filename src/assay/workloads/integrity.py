"""Files of known content, to prove that a system still has all of it after hosts were lost, healed, added or removed.

fio's own verification knows the blocks that one run has written; these files are written once, stay, and are checked again
and again: names, sizes and every byte. They are small, and of sizes around the units in which systems split files.
"""

from __future__ import annotations

import os
import random
from collections.abc import Iterator
from pathlib import Path

DIRECTORY = "assay-integrity"
SIZES = (0, 1, 511, 4096, 65_537, (128 << 10) - 1, (1 << 20) + 7, (4 << 20) + 513)  # bytes
FILES = 24
_SHOWN = 5


def write_files(directory: Path, seed: int, files: int = FILES) -> int:
    """Write and fsync the files below ``directory``; returns their bytes. Raises OSError."""
    place = directory / DIRECTORY
    place.mkdir(exist_ok=True)
    total = 0
    for name, size in _names(files):
        with (place / name).open("wb") as file:
            file.write(_content(seed, name, size))
            file.flush()
            os.fsync(file.fileno())
        total += size
    handle = os.open(place, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)
    return total


def check_files(directory: Path, seed: int, files: int = FILES) -> list[str]:
    """What is wrong, one line per file: missing, unreadable, of another size or content, or not ours. Empty: all is right.

    This host's pages of the files are dropped first: what is checked comes from the system.
    """
    place = directory / DIRECTORY
    # by name before the listing: after a listing GlusterFS finds files that a lookup alone does not (after bricks were removed)
    found = {name: _read_dropped(place / name) for name, _ in _names(files)}
    try:
        listed = {entry.name for entry in os.scandir(place)}
    except OSError as error:
        return [f"{DIRECTORY} cannot be listed: {error.strerror}"]
    wrong = []
    for name, size in _names(files):
        content = found[name]
        if isinstance(content, OSError):
            seen = "is listed but" if name in listed else "is not listed and"
            wrong.append(f"{name} {seen} cannot be read: {content.strerror}")
            continue
        if name not in listed:
            wrong.append(f"{name} can be read but is not listed")
        if len(content) != size:
            wrong.append(f"{name} has {len(content)} of {size} bytes")
        elif content != _content(seed, name, size):
            wrong.append(f"{name} has {_differing(content, _content(seed, name, size))} wrong bytes of {size}")
    return wrong + [f"{name} should not be there" for name in sorted(listed - set(found))]


def summary(problems: list[str]) -> str:
    """One line for people."""
    more = f" and {len(problems) - _SHOWN} more" if len(problems) > _SHOWN else ""
    return "; ".join(problems[:_SHOWN]) + more


def _names(files: int) -> Iterator[tuple[str, int]]:
    for number in range(files):
        yield f"f{number:04d}", SIZES[number % len(SIZES)]


def _content(seed: int, name: str, size: int) -> bytes:
    return random.Random(f"{seed}:{name}").randbytes(size)


def _read_dropped(path: Path) -> bytes | OSError:
    try:
        with path.open("rb", buffering=0) as file:
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
            return file.readall()
    except OSError as error:
        return error


def _differing(a: bytes, b: bytes) -> int:
    return sum(x != y for x, y in zip(a, b, strict=True))
