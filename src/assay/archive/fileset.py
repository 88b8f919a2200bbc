"""The plan of a fileset: which file has which size, directory, time and place in the order of writing.

Everything follows from the specification and its seed, so that several hosts can share one fileset and any run can be
repeated: numpy's PCG64 with named streams.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.archive import ArchiveError
from assay.archive.allocation import Allocation, largest_remainder
from assay.archive.histogram import SideTable

CONTENTS = ("random", "tagged", "compressible", "zero")
FILES_PER_DIRECTORY = 1000
_FAN_OUT = 1000  # directories per directory, once there are more
SLACK_BLOCK = 4096  # bytes that a file's last block is rounded up to


@dataclass(frozen=True)
class Content:
    """What files hold; ``zero_share`` is the compressible share of each 4 KiB."""

    kind: str
    zero_share: float = 0.0

    @property
    def text(self) -> str:
        """As it is written on the command line."""
        return f"compressible:{self.zero_share:g}" if self.kind == "compressible" else self.kind


def parse_content(text: str) -> Content:
    """``random``, ``tagged``, ``zero``, ``compressible:0.5``; raises ArchiveError."""
    kind, colon, share = text.partition(":")
    if kind not in CONTENTS or (bool(colon) != (kind == "compressible")):
        raise ArchiveError(f"unknown content {text!r}; known: random, tagged, compressible:SHARE, zero")
    if not colon:
        return Content(kind)
    try:
        value = float(share)
    except ValueError:
        value = math.nan
    if not 0 <= value <= 1:
        raise ArchiveError(f"{text!r}: the compressible share lies between 0 and 1, for example compressible:0.5")
    return Content(kind, value)


@dataclass(frozen=True)
class Plan:
    """A fileset, complete: file i has ``sizes[i]`` bytes in ``directories[directory_of[i]]``; ``order`` is the shuffled
    order of writing, ``times[k]`` (seconds since the epoch, or empty) belongs to ``order[k]``."""

    sizes: NDArray[np.uint64]
    directories: tuple[str, ...]
    directory_of: NDArray[np.uint64]
    order: NDArray[np.uint64]
    times: NDArray[np.uint64]
    content: Content
    seed: int

    @property
    def files(self) -> int:
        """Number of files."""
        return int(self.sizes.size)

    @property
    def volume(self) -> int:
        """Bytes of all files."""
        return int(self.sizes.sum(dtype=np.uint64))

    @property
    def needed(self) -> int:
        """Bytes on a file system with blocks of 4 KiB: a file of 2 KiB costs 4, a directory entry about 64 bytes."""
        blocks = (self.sizes + np.uint64(SLACK_BLOCK - 1)) // np.uint64(SLACK_BLOCK)
        return int(blocks.sum(dtype=np.uint64)) * SLACK_BLOCK + 64 * self.files + SLACK_BLOCK * len(self.directories)

    @property
    def inodes(self) -> int:
        """Files and directories."""
        return self.files + sum(1 for d in self.directories if d)

    def share(self, number: int, of: int) -> Plan:
        """The part that one of several hosts writes: every ``of``-th file of the order, from ``number`` (1..of)."""
        if not 1 <= number <= of:
            raise ArchiveError(f"share {number}/{of}: write for example 2/4, the second of four hosts")
        part = slice(number - 1, None, of)
        return Plan(
            self.sizes, self.directories, self.directory_of, self.order[part],
            self.times[part] if self.times.size else self.times, self.content, self.seed,
        )  # fmt: skip

    @property
    def digest(self) -> str:
        """SHA-256 over sizes, directories and seed: equal plans have equal digests."""
        h = hashlib.sha256(f"{self.seed} {self.content.text}".encode())
        for part in (self.sizes.tobytes(), "\0".join(self.directories).encode(), self.directory_of.tobytes()):
            h.update(part)
        return h.hexdigest()


def stream(seed: int, name: str) -> np.random.Generator:
    """A random stream of its own for each purpose: a change of one does not shift the others."""
    return np.random.default_rng([seed & (2**63 - 1), *name.encode()])


def make_plan(
    allocation: Allocation,
    *,
    content: Content,
    seed: int,
    directories: str | int = FILES_PER_DIRECTORY,
    per_directory: SideTable | None = None,
    ages: SideTable | None = None,
    now: int = 0,
) -> Plan:
    """A plan from allocated sizes. ``directories``: files per directory, ``flat`` for one directory, ``scan`` for the
    distribution ``per_directory`` of a scan. ``ages``: a scan's table of days since modification, counted from ``now``.

    Sizes are shuffled over file numbers, so that names and places say nothing about sizes.
    """
    count = allocation.files
    sizes = stream(seed, "sizes").permutation(allocation.sizes)
    paths, directory_of = _directories(count, directories, per_directory, seed)
    order = stream(seed, "order").permutation(count).astype(np.uint64)
    times = _times(count, ages, now, seed) if ages is not None else np.zeros(0, dtype=np.uint64)
    return Plan(sizes, tuple(paths), directory_of, order, times, content, seed)


def _directories(
    count: int, shape: str | int, table: SideTable | None, seed: int
) -> tuple[list[str], NDArray[np.uint64]]:
    if shape == "flat":
        return [""], np.zeros(count, dtype=np.uint64)
    if shape == "scan":
        if table is None:
            raise ArchiveError("--directories scan needs a scan that has counted files per directory")
        fill = _scanned_directories(count, table, seed)
    else:
        if not str(shape).isdecimal() or int(shape) < 1:
            raise ArchiveError(f"--directories {shape}: a number of files per directory, flat or scan")
        per = int(shape)
        full, rest = divmod(count, per)
        fill = np.array([per] * full + ([rest] if rest else []), dtype=np.int64)
    paths, leaves = _paths(fill.size)
    return paths, np.repeat(np.array(leaves, dtype=np.uint64), fill)


def _paths(leaves: int) -> tuple[list[str], list[int]]:
    """Paths, parents first, and the numbers of those that hold files; two levels once one would be too wide."""
    if leaves <= _FAN_OUT:
        return [f"d{i:04d}" for i in range(leaves)], list(range(leaves))
    paths: list[str] = []
    numbers: list[int] = []
    for i in range(leaves):
        if i % _FAN_OUT == 0:
            paths.append(f"d{i // _FAN_OUT:06d}")
        numbers.append(len(paths))
        paths.append(f"d{i // _FAN_OUT:06d}/d{i % _FAN_OUT:04d}")
    return paths, numbers


def _scanned_directories(count: int, table: SideTable, seed: int) -> NDArray[np.int64]:
    """Directory fills with the scan's distribution, by largest remainder, log-uniform inside a bucket."""
    rows = [r for r in table.rows if r[0] >= 1 and r[2] > 0]
    if not rows:
        raise ArchiveError("the scan has no directory with files")
    typical = np.array([math.sqrt(low * (high - 1)) if high > low + 1 else low for low, high, *_ in rows])
    weight = np.array([r[2] for r in rows], dtype=float)
    wanted = max(1, round(count / float(typical @ weight / weight.sum())))
    numbers = largest_remainder(weight, wanted)
    fill = np.concatenate(
        [
            np.floor(low * (high / low) ** ((np.arange(n) + 0.5) / n))
            for (low, high, *_), n in zip(rows, numbers, strict=True)
            if n
        ]
    ).astype(np.int64)
    fill = stream(seed, "directories").permutation(
        np.maximum(1, np.floor(fill * (count / fill.sum()))).astype(np.int64)
    )
    running = np.cumsum(fill)
    cut = int(np.searchsorted(running, count, side="left"))
    if cut < fill.size:
        fill = fill[: cut + 1]
        fill[cut] -= int(running[cut]) - count
    else:
        fill = np.append(fill, count - int(running[-1]))
    return fill[fill > 0]


def _times(count: int, ages: SideTable, now: int, seed: int) -> NDArray[np.uint64]:
    rows = [r for r in ages.rows if r[2] > 0]
    if not rows:
        raise ArchiveError("the age histogram holds no files")
    numbers = largest_remainder(np.array([r[2] for r in rows], dtype=float), count)
    days = np.concatenate(
        [
            np.maximum(low, 0.01) * (high / np.maximum(low, 0.01)) ** ((np.arange(n) + 0.5) / n)
            for (low, high, *_), n in zip(rows, numbers, strict=True)
            if n
        ]
    )
    seconds = np.maximum(0, now - np.round(days * 86400)).astype(np.uint64)
    return stream(seed, "times").permutation(seconds)


def histogram_of(sizes: Sequence[int] | NDArray[np.uint64]) -> NDArray[np.int64]:
    """Counts per power-of-two bucket of bytes, 0 first, as the scanner counts: for comparing the two."""
    s = np.asarray(sizes, dtype=np.uint64)
    k = np.zeros(s.size, dtype=np.int64)
    positive = s > 0
    # frexp is exact for a power of two, log2 of a 64-bit integer is not
    k[positive] = np.frexp(s[positive].astype(np.longdouble))[1]
    return np.bincount(k, minlength=65)


def describe(plan: Plan) -> dict[str, Any]:
    """The plan in figures, for manifests and tables."""
    return {
        "files": plan.files, "bytes": plan.volume, "directories": sum(1 for d in plan.directories if d),
        "content": plan.content.text, "seed": plan.seed, "digest": plan.digest,
        "mean_bytes": plan.volume / max(1, plan.files),
    }  # fmt: skip
