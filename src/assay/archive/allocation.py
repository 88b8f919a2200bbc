"""Exact filesets: whole numbers of files per bucket with exactly the count and volume that were asked for.

Files are allocated, never drawn: the volume of C drawn files has a relative standard deviation of 5.4 / sqrt(C).
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.archive import ArchiveError, curves

FloatArray = NDArray[np.float64]
IntArray = NDArray[np.int64]
Sizes = Literal["pow2", "bucket-mean", "log-uniform"]
SIZES: tuple[Sizes, ...] = ("pow2", "bucket-mean", "log-uniform")
_RULE: dict[Sizes, curves.SizeRule] = {"pow2": "upper", "bucket-mean": "bucket-mean", "log-uniform": "log-uniform"}
KIB = 1024


@dataclass(frozen=True)
class Allocation:
    """``counts[i-1]`` files in bucket i and the sizes of all files in bytes, ascending by bucket."""

    counts: IntArray
    sizes: NDArray[np.uint64]
    expected: FloatArray  # P_i C
    moved: int  # files that were moved between buckets to make the volume exact
    notes: tuple[str, ...] = ()

    @property
    def files(self) -> int:
        """Number of files."""
        return int(self.sizes.size)

    @property
    def volume(self) -> int:
        """Bytes."""
        return int(self.sizes.sum(dtype=np.uint64))

    def ks_to(self, probabilities: ArrayLike) -> float:
        """KS distance of the counts from the target."""
        return curves.ks_distance(np.cumsum(self.counts) / max(1, self.files), np.cumsum(probabilities))


def largest_remainder(probabilities: FloatArray, files: int) -> IntArray:
    """Whole counts that sum to ``files``, each within one of its share (Hamilton's method; ties to smaller buckets)."""
    shares = probabilities / probabilities.sum() * files
    counts = np.floor(shares + 1e-9).astype(np.int64)
    missing = files - int(counts.sum())
    order = np.argsort(-(shares - counts), kind="stable")
    counts[order[:missing]] += 1
    return counts


def allocate(
    probabilities: ArrayLike,
    *,
    volume: int | None = None,
    files: int | None = None,
    sizes: Sizes = "pow2",
    bucket_means: ArrayLike | None = None,
) -> Allocation:
    """Files for bucket probabilities P_i: ``volume`` bytes (the count becomes round(V / E)), or ``files``, or both.

    ``pow2``: 2^i KiB as in the paper, volumes in multiples of 2 KiB (a rest below 2 KiB is left out and noted);
    ``bucket-mean`` and ``log-uniform``: sizes inside [2^(i-1), 2^i) KiB, exact to the byte.
    """
    p = np.asarray(probabilities, dtype=float)
    if p.ndim != 1 or not np.isfinite(p).all() or (p < -1e-12).any() or p.sum() <= 0:
        raise ArchiveError("bucket probabilities must be finite, at 0 or above, and not all 0")
    p = np.maximum(p, 0) / np.maximum(p, 0).sum()
    if sizes not in SIZES:
        raise ArchiveError(f"unknown sizes {sizes!r}; known: {', '.join(SIZES)}")
    of_bucket = curves.sizes(p.size, _RULE[sizes], bucket_means)
    mean = float(p @ of_bucket) * KIB
    notes: list[str] = []
    if volume is None and files is None:
        raise ArchiveError("a fileset needs a volume or a number of files")
    if volume is not None:
        volume = _whole_volume(volume, sizes, mean, files, notes)
    fixed = files is not None
    if files is None:
        files = max(1, round((volume or 0) / mean))
    if files < 1:
        raise ArchiveError("a fileset needs at least one file")
    counts = largest_remainder(p, files)
    expected = p * files
    moved = 0
    if sizes == "pow2":
        if volume is not None:
            counts, moved = _exact_powers(counts, volume // KIB, files, fixed)
            if int(counts.sum()) != files:
                notes.append(f"{int(counts.sum())} files instead of {files}: no other set has this volume exactly")
        made = np.repeat(2.0 ** np.arange(1, p.size + 1) * KIB, counts).astype(np.uint64)
    else:
        if volume is not None:
            counts, moved = _near(counts, of_bucket * KIB, volume)
        made = _inside(counts, of_bucket, sizes)
        if volume is not None:
            made = _trim(made, counts, volume)
    notes += _small_buckets(p, files, of_bucket)
    return Allocation(counts, made, expected, moved, tuple(notes))


def _whole_volume(volume: int, sizes: Sizes, mean: float, files: int | None, notes: list[str]) -> int:
    if volume < 1:
        raise ArchiveError("a fileset needs a volume above 0 bytes")
    if sizes == "pow2" and volume % (2 * KIB):
        notes.append(
            f"{volume % (2 * KIB)} bytes of the volume are left out: power-of-two sizes come in steps of 2 KiB"
        )
        volume -= volume % (2 * KIB)
    smallest = (files or 1) * (2 * KIB if sizes == "pow2" else 1)
    if volume < smallest or (files is None and volume < 0.5 * mean):
        raise ArchiveError(
            f"{volume} bytes are less than {'the smallest fileset' if volume < smallest else 'half a mean file'} "
            f"(mean size {mean / 2**20:.3g} MiB); ask for more, or lower x_max with --x-max"
        )
    return volume


def _exact_powers(counts: IntArray, volume_kib: int, files: int, fixed: bool) -> tuple[IntArray, int]:
    """Moves files between neighbours until the volume is exact; the count stays. Moving one file from bucket i to i + 1
    adds 2^i KiB, so the missing volume is decomposed greedily from the top."""
    c = [int(n) for n in counts]
    size = [2 ** (i + 1) for i in range(len(c))]
    if not len(c) or files * size[-1] < volume_kib:
        raise ArchiveError(f"{files} files of at most {size[-1]} KiB cannot hold {volume_kib} KiB")
    missing = volume_kib - sum(n * s for n, s in zip(c, size, strict=True))
    moved = 0
    for i in range(len(c) - 2, -1, -1):
        steps = int(missing / size[i])  # towards zero; moving from i up adds size[i]
        take = min(steps, c[i]) if steps > 0 else -min(-steps, c[i + 1])
        c[i] -= take
        c[i + 1] += take
        missing -= take * size[i]
        moved += abs(take)
    if missing:
        moved += _add_and_remove(c, size, missing)
        moved += _restore_count(c, files, fixed)
    return np.array(c, dtype=np.int64), moved


def _add_and_remove(c: list[int], size: list[int], missing: int) -> int:
    """Makes the volume exact when neighbours had no file to give: whole files go and come."""
    changed = 0
    while missing < 0:  # remove the smallest file that overshoots, or the largest there is
        held = [i for i in range(len(c)) if c[i]]
        chosen = next((i for i in held if size[i] >= -missing), held[-1])
        c[chosen] -= 1
        missing += size[chosen]
        changed += 1
    for i in range(len(c) - 1, -1, -1):
        n, missing = divmod(missing, size[i])
        c[i] += n
        changed += n
    return changed


def _restore_count(c: list[int], files: int, fixed: bool) -> int:
    """Merges pairs or splits files, which leaves the volume alone, until the count is right, or as near as can be when it
    is not ``fixed``."""
    changed = 0
    while sum(c) != files:
        if sum(c) > files:
            i = max((i for i in range(len(c) - 1) if c[i] >= 2), key=lambda i: c[i], default=None)
            if i is None and not fixed:
                break
            if i is None:
                raise ArchiveError(
                    f"no set of exactly {files} files of these sizes has this volume; change one of them"
                )
            c[i] -= 2
            c[i + 1] += 1
        else:
            i = max((i for i in range(1, len(c)) if c[i]), key=lambda i: c[i], default=None)
            if i is None and not fixed:
                break
            if i is None:
                raise ArchiveError(
                    f"no set of exactly {files} files of these sizes has this volume; change one of them"
                )
            c[i] -= 1
            c[i - 1] += 2
        changed += 1
    return changed


def _limits(counts: IntArray) -> tuple[FloatArray, FloatArray]:
    """Smallest and largest size in bytes of each file, by bucket; bucket 1 is written as [1, 2048) bytes."""
    i = np.repeat(np.arange(1, counts.size + 1), counts)
    low = np.where(i == 1, 1.0, 2.0 ** (i - 1) * KIB)
    return low.astype(np.float64), (np.exp2(i) * KIB - 1).astype(np.float64)


def _near(counts: IntArray, of_bucket: FloatArray, volume: int) -> tuple[IntArray, int]:
    """Moves files between neighbouring buckets until sizes inside the buckets can make up for the rest."""
    c = counts.copy()
    moved = 0
    for i in range(c.size - 2, -1, -1):
        missing = volume - float(c @ of_bucket)
        steps = int(missing / (of_bucket[i + 1] - of_bucket[i]))
        take = min(steps, int(c[i])) if steps > 0 else -min(-steps, int(c[i + 1]))
        c[i] -= take
        c[i + 1] += take
        moved += abs(take)
    low = np.where(np.arange(c.size) == 0, 1.0, 2.0 ** np.arange(c.size) * KIB)
    high = 2.0 ** np.arange(1, c.size + 1) * KIB - 1
    if not c.sum() <= volume <= c.sum() * high[-1]:
        raise ArchiveError(f"{c.sum()} files in these buckets cannot have {volume} bytes together; change the volume")
    while (lack := volume - float(c @ high)) > 0:  # few files: neighbours were not enough, the smallest becomes larger
        i = int(np.flatnonzero(c)[0])
        j = min(c.size - 1, int(np.searchsorted(high, high[i] + lack)))
        c[i] -= 1
        c[j] += 1
        moved += 1
    while (excess := float(c @ low) - volume) > 0:
        i = int(np.flatnonzero(c)[-1])
        j = max(0, int(np.searchsorted(low, low[i] - excess, side="right")) - 1)
        c[i] -= 1
        c[j] += 1
        moved += 1
    return c, moved


def _inside(counts: IntArray, of_bucket: FloatArray, sizes: Sizes) -> NDArray[np.uint64]:
    if sizes == "bucket-mean":
        low, high = _limits(counts)
        return np.clip(np.repeat(np.round(of_bucket * KIB), counts), low, high).astype(np.uint64)
    parts = [
        2.0 ** (i + (np.arange(n) + 0.5) / n) * KIB  # the quantiles of a density 1/x on [2^i, 2^(i+1)) KiB
        for i, n in enumerate(counts)
        if n
    ]
    return np.floor(np.concatenate(parts)).astype(np.uint64)


def _trim(made: NDArray[np.uint64], counts: IntArray, volume: int) -> NDArray[np.uint64]:
    """Changes sizes inside their buckets, each in proportion to its room, until the volume is exact to the byte."""
    missing = volume - int(made.sum(dtype=np.uint64))
    low, high = _limits(counts)
    now = made.astype(np.float64)
    room = high - now if missing > 0 else now - low
    total = float(room.sum())
    if total < abs(missing):
        raise ArchiveError(f"{made.size} files in these buckets cannot have {volume} bytes together; change the volume")
    change = np.minimum(np.floor(room * (abs(missing) / total)), room) if total else np.zeros_like(room)
    rest = abs(missing) - int(change.sum())  # less than one byte per file
    for k in np.argsort(-(room - change), kind="stable"):
        step = min(rest, int(room[k] - change[k]))
        change[k] += step
        rest -= step
        if rest == 0:
            break
    return (now + np.sign(missing) * change).astype(np.uint64)


def _small_buckets(p: FloatArray, files: int, of_bucket: FloatArray) -> list[str]:
    """Buckets that the fileset is too small for."""
    expected = p * files
    few = (expected < 1) & (p > 0)
    if not few.any():
        return []
    share = p * of_bucket / float(p @ of_bucket)
    lost = float(share[(expected < 0.5) & (p > 0)].sum())
    first = int(np.argmax(few)) + 1
    enough = math.ceil(1 / float(p[few].min()))
    return [
        f"{int(few.sum())} buckets (the first: up to 2^{first} KiB) expect less than one file; those below 0.5 hold "
        f"{100 * lost:.1f} % of the target's volume; {enough} files would be enough for all, or lower --x-max"
    ]


def cap(cdf: ArrayLike, cut: int, rule: curves.LeftoverRule = "renormalise") -> FloatArray:
    """The CDF with a smaller x_max = 2^cut KiB, as probabilities under a rule for what lies above it."""
    f = np.asarray(cdf, dtype=float)
    if not 1 <= cut <= f.size:
        raise ArchiveError(f"x_max 2^{cut} KiB is outside the profile, which ends at 2^{f.size} KiB")
    if f[cut - 1] <= 0:
        raise ArchiveError("no files lie below this x_max; raise it")
    return curves.settle(f[:cut], rule)
