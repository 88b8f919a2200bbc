"""What clients carry out for the workloads that copy whole files: one command at a time, with its time and CPU use.

Standard library and plain values only, as in :mod:`assay.lab.remote`.
"""

from __future__ import annotations

import filecmp
import os
import random
import subprocess
import time
from pathlib import Path
from typing import NamedTuple

_CHUNK = 1 << 20


class Timed(NamedTuple):
    """One finished command. Times are Unix seconds; CPU times are the command's own."""

    argv: list[str]
    exit_code: int
    started_at: float
    seconds: float
    user_seconds: float
    system_seconds: float
    words: str  # the end of stdout and stderr


def run(argv: list[str]) -> Timed:
    """Run a command to its end. Raises OSError when it cannot be started."""
    started_at, began = time.time(), time.monotonic()
    with subprocess.Popen(argv, stdin=subprocess.DEVNULL, stdout=subprocess.PIPE, stderr=subprocess.STDOUT) as process:
        assert process.stdout is not None
        words = process.stdout.read()
        _, status, usage = os.wait4(process.pid, 0)
        seconds = time.monotonic() - began
        process.returncode = os.waitstatus_to_exitcode(status)
    text = words.decode(errors="replace")[-20_000:]
    return Timed(argv, process.returncode, started_at, seconds, usage.ru_utime, usage.ru_stime, text)


def make_source(path: Path, size: int, content: str, seed: int) -> None:
    """Make a file of that content unless it is there, complete. Raises OSError."""
    if path.exists() and path.stat().st_size == size:
        return
    path.parent.mkdir(parents=True, exist_ok=True)
    chance = random.Random(seed)
    unfinished = path.with_name(path.name + ".unfinished")
    with unfinished.open("wb") as file:
        for start in range(0, size, _CHUNK):
            length = min(_CHUNK, size - start)
            file.write(chance.randbytes(length) if content == "random" else bytes(length))
    unfinished.rename(path)


def read_through(path: Path) -> None:
    """Read a file once, so that copying it does not wait for the disk that it lies on. Raises OSError."""
    with path.open("rb") as file:
        while file.read(_CHUNK):
            pass


def same(one: Path, other: Path) -> bool:
    """Whether two files hold the same bytes. Raises OSError."""
    return filecmp.cmp(one, other, shallow=False)


def make_directory(path: Path) -> None:
    """Make it and its parents; no error when it is there. Raises OSError."""
    path.mkdir(parents=True, exist_ok=True)


def remove(paths: list[Path]) -> None:
    """Remove files; no error for those that are not there. Raises OSError."""
    for path in paths:
        path.unlink(missing_ok=True)


def sizes(paths: list[Path]) -> list[int]:
    """Bytes of each file, -1 when it is not there. Raises OSError."""
    return [path.stat().st_size if path.exists() else -1 for path in paths]
