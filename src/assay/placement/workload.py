"""What is laid over a file system: accesses as columns, from a trace, a fio pattern or a set of files."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.placement.errors import PlacementError

READ, WRITE, OTHER = 0, 1, 2
CLASSES = ("read", "write")
_NS = 1_000_000_000


@dataclass(frozen=True)
class Accesses:
    """Columns, one entry per access; files by their place in ``names``. Times in nanoseconds from the start."""

    at: NDArray[np.uint64]
    op: NDArray[np.uint8]
    file: NDArray[np.uint32]
    offset: NDArray[np.uint64]
    length: NDArray[np.uint64]
    names: tuple[str, ...]

    def __len__(self) -> int:
        return len(self.at)

    @property
    def sizes(self) -> NDArray[np.uint64]:
        """Bytes of each file, as far as it is accessed; at least 1."""
        sizes = np.ones(len(self.names), np.uint64)
        np.maximum.at(sizes, self.file, self.offset + self.length)
        return sizes


def from_columns(columns: Mapping[str, Sequence[object] | NDArray[np.generic]]) -> Accesses:
    """A trace from columns ``time`` (seconds), ``op``, ``file``, ``offset`` and ``bytes`` (both bytes).

    ``op`` is read or write; other operations move no data and are passed over. Raises PlacementError naming what is
    missing or negative.
    """
    missing = [c for c in ("time", "op", "file", "offset", "bytes") if c not in columns]
    if missing:
        raise PlacementError(f"the trace has no column {', '.join(missing)}; it has {', '.join(columns)}")
    op = np.array([{"read": READ, "write": WRITE}.get(str(o).lower(), OTHER) for o in columns["op"]], np.uint8)
    keep = op != OTHER
    names, file = np.unique(np.asarray(columns["file"], str)[keep], return_inverse=True)
    try:
        time = np.asarray(columns["time"], float)[keep]
        offset, length = (np.asarray(columns[c], np.int64)[keep] for c in ("offset", "bytes"))
    except (TypeError, ValueError) as error:
        raise PlacementError(f"the trace has something that is no number: {error}") from None
    if not keep.any():
        raise PlacementError("the trace has no read and no write")
    if not np.isfinite(time).all() or min(time.min(), offset.min(), length.min()) < 0:
        raise PlacementError("the trace has a time, offset or number of bytes that is negative or missing")
    at = np.round((time - time.min()) * _NS).astype(np.uint64)
    return Accesses(
        at, op[keep], file.astype(np.uint32), offset.astype(np.uint64), length.astype(np.uint64), tuple(names.tolist())
    )


def fio_pattern(
    pattern: str,
    *,
    block_size: int,
    size: int,
    threads: int = 1,
    operations_per_second: float = 100.0,
    seconds: float = 60.0,
    seed: int = 0,
) -> Accesses:
    """The accesses of a fio job: ``threads`` files of ``size`` bytes, each accessed in blocks at a fixed rate (per thread).

    ``pattern`` is fio's ``rw``: read, write, randread, randwrite, rw or randrw (half of each). RANDOM offsets and mixes come
    from ``seed``. Raises PlacementError.
    """
    known = {"read": 0.0, "randread": 0.0, "write": 1.0, "randwrite": 1.0, "rw": 0.5, "randrw": 0.5}
    blocks, each = size // block_size if block_size > 0 else 0, int(operations_per_second * seconds)
    if pattern not in known:
        raise PlacementError(f"unknown pattern {pattern!r}; known: {', '.join(known)}")
    if min(blocks, each, threads) < 1:
        raise PlacementError("a pattern needs a block size within the size, a rate, a time and threads")
    rng = np.random.default_rng(seed)
    n = each * threads
    step = np.arange(n, dtype=np.uint64) // threads
    block = rng.integers(blocks, size=n).astype(np.uint64) if pattern.startswith("rand") else step % np.uint64(blocks)
    share = known[pattern]
    op = np.full(n, int(share), np.uint8) if share in (0.0, 1.0) else (rng.random(n) < share).astype(np.uint8)
    return Accesses(
        (step * (_NS / operations_per_second)).astype(np.uint64), op, (np.arange(n) % threads).astype(np.uint32),
        block * np.uint64(block_size), np.full(n, block_size, np.uint64),
        tuple(f"{pattern}.{i}.0" for i in range(threads)),
    )  # fmt: skip


def fileset(sizes: Sequence[int], *, bytes_per_second: float, request: int = 1 << 20) -> Accesses:
    """Files written whole, one after the other, in requests of ``request`` bytes, at a steady rate.

    Empty files are left out: they hold no data. Raises PlacementError.
    """
    lengths = np.asarray([s for s in sizes if s > 0], np.uint64)
    if not len(lengths) or request < 1 or bytes_per_second <= 0:
        raise PlacementError("a file set needs files with data, a request size and a rate")
    counts = -(-lengths.astype(np.int64) // request)
    file = np.repeat(np.arange(len(lengths), dtype=np.uint32), counts)
    first = np.repeat(np.cumsum(counts) - counts, counts)
    offset = ((np.arange(len(file)) - first) * request).astype(np.uint64)
    length = np.minimum(np.uint64(request), lengths[file] - offset)
    done = np.cumsum(length) - length
    at = (done.astype(float) / bytes_per_second * _NS).astype(np.uint64)
    names = tuple(f"file-{i:07d}" for i in range(len(lengths)))
    return Accesses(at, np.full(len(file), WRITE, np.uint8), file, offset, length, names)
