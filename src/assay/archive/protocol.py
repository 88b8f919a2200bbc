"""What the reading of a fileset says: a rate with its interval, service times per bucket, and the paper's comparison.

Rates come from bytes per read call, never from finished files: the first files to finish are small, and counted by them the
first half of a pass would look half as fast (1079 against 1475 MB/s in the prototype).
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from assay.archive import ArchiveError

FloatArray = NDArray[np.float64]
BATCHES = 20
RAMP_SHARE = 0.1  # of the time, left out at the start
PAPER_SECONDS = 1800.0  # the paper reads for at least 30 minutes
SCALED_SECONDS = 600.0
HALF_WIDTH = 0.03  # relative, at which scaled reading stops

#: Random-read MB/s of the paper's Table 1 by utilisation: ext4 on six disks of 2 TB, 512 threads.
TABLE_1: dict[str, dict[float, float]] = {
    name: dict(zip((0.01, 0.05, 0.20, 0.40), row, strict=True))
    for name, row in {
        "arsc-nanu1": (55.4, 42.3, 35.9, 31.1), "arsc-seau2": (58.3, 35.9, 32.9, 37.6),
        "arsc-seau1": (69.8, 43.6, 41.3, 36.8), "pnnl-nwfs": (58.7, 36.2, 31.2, 29.7),
        "generalized gamma median": (61.5, 41.9, 32.7, 33.8), "generalized gamma lower": (51.3, 4.8, 2.7, 2.0),
        "generalized gamma upper": (47.2, 34.7, 36.0, 36.0), "spline median": (66.1, 41.7, 34.3, 35.5),
        "spline lower": (60.1, 39.8, 38.6, 33.2), "spline upper": (59.1, 39.9, 34.7, 31.9),
    }.items()
}  # fmt: skip
ARCHIVES_2008 = ("arsc-nanu1", "arsc-seau2", "arsc-seau1", "pnnl-nwfs")
#: Table 2: fixed sizes.
TABLE_2: dict[str, dict[float, float]] = {
    name: dict(zip((0.01, 0.05, 0.20, 0.40), row, strict=True))
    for name, row in {
        "128/256KB": (14.8, 12.7, 4.1, 3.2), "1MB": (35.5, 22.9, 21.1, 24.8), "2/4MB": (46.6, 34.3, 30.3, 22.2),
        "32MB": (52.2, 45.6, 39.7, 38.0), "64MB": (56.6, 47.5, 45.0, 39.7), "2/4GB": (92.0, 19.2, 17.4, 11.7),
    }.items()
}  # fmt: skip
#: The same mixtures as bytes and shares, for baselines of one's own.
FIXED_SIZES: dict[str, tuple[tuple[int, float], ...]] = {
    "128/256KB": ((2**17, 0.5), (2**18, 0.5)), "1MB": ((2**20, 1.0),), "2/4MB": ((2**21, 0.5), (2**22, 0.5)),
    "32MB": ((2**25, 1.0),), "64MB": ((2**26, 1.0),), "2/4GB": ((2**31, 0.5), (2**32, 0.5)),
}  # fmt: skip


@dataclass(frozen=True)
class Rate:
    """Bytes per second with its interval by batch means; ``half_width`` is infinite when there were too few batches."""

    mean: float
    half_width: float
    batches: int
    confidence: float

    @property
    def relative_half_width(self) -> float:
        """0.03 reads "plus or minus 3 %"."""
        return self.half_width / self.mean if self.mean > 0 else math.inf

    def as_dict(self) -> dict[str, Any]:
        """JSON-able: an infinite half-width is null."""
        finite = math.isfinite(self.half_width)
        return {
            "bytes_per_second": self.mean, "half_width": self.half_width if finite else None, "batches": self.batches,
            "confidence": self.confidence,
        }  # fmt: skip


def rate(
    bins: Sequence[int] | NDArray[np.uint64], bin_seconds: float, end_seconds: float, *, seconds: float,
    batches: int = BATCHES, confidence: float = 0.95,
) -> Rate:  # fmt: skip
    """Mean rate between the ramp (the first tenth) and ``end_seconds`` (when threads begin to run dry), and a t interval
    of batch means. A reading of ``seconds`` too short for batches has the mean over all of it, which no width of bins
    rounds. Raises ArchiveError when nothing was read."""
    values = np.asarray(bins, dtype=float)
    if values.sum() <= 0:
        raise ArchiveError("nothing was read")
    last = min(values.size, max(1, int(end_seconds / bin_seconds)))
    first = min(int(last * RAMP_SHARE), last - 1)
    used = values[first:last]
    per = used.size // batches
    if per < 1:
        return Rate(float(values.sum()) / seconds, math.inf, 0, confidence)
    mean = float(used.mean()) / bin_seconds
    means = used[: per * batches].reshape(batches, per).mean(axis=1) / bin_seconds
    half = float(stats.t.isf((1 - confidence) / 2, batches - 1) * stats.sem(means))
    return Rate(mean, half, batches, confidence)


def by_bucket(
    sizes: NDArray[np.uint64], service_ns: NDArray[np.uint64], first_byte_ns: NDArray[np.uint64]
) -> list[dict[str, float]]:
    """Service time and time to first byte in seconds per power of two of the size, [2^(k-1), 2^k) bytes."""
    out = []
    k = np.array([int(s).bit_length() for s in sizes], dtype=int)
    total = float(sizes.sum(dtype=np.uint64)) or 1.0
    for bucket in np.unique(k):
        chosen = k == bucket
        service = service_ns[chosen].astype(float) * 1e-9
        median, p95, p99 = np.percentile(service, [50, 95, 99])
        out.append(
            {
                "bucket_min_bytes": float(0 if bucket == 0 else 2 ** (int(bucket) - 1)),
                "bucket_max_bytes": float(2 ** int(bucket)), "files": float(chosen.sum()),
                "bytes_share": float(sizes[chosen].sum(dtype=np.uint64)) / total,
                "service_median": float(median), "service_p95": float(p95), "service_p99": float(p99),
                "first_byte_median": float(np.median(first_byte_ns[chosen])) * 1e-9,
            }
        )  # fmt: skip
    return out


@dataclass(frozen=True)
class Difference:
    """A result against those of the empirical archives."""

    percent: float  # to their mean: the paper's metric
    z: float | None  # (m - mean) / (s sqrt(1 + 1/A)); None for one archive
    inside: bool | None  # within the 95 % prediction interval of one more archive (Student's t, A - 1 df)


def difference(value: float, empirical: Sequence[float], confidence: float = 0.95) -> Difference:
    """Compare a rate with the archives'. A difference below their own scatter is no finding."""
    y = np.asarray(empirical, dtype=float)
    if y.size == 0 or not (y > 0).all():
        raise ArchiveError("a comparison needs the rates of the empirical archives, all above 0")
    mean = float(y.mean())
    percent = 100 * (value / mean - 1)
    spread = float(y.std(ddof=1)) if y.size > 1 else 0.0
    if spread == 0:
        return Difference(percent, None, None)
    z = (value - mean) / (spread * math.sqrt(1 + 1 / y.size))
    return Difference(percent, z, abs(z) <= float(stats.t.isf((1 - confidence) / 2, y.size - 1)))


def paper_comparison() -> dict[str, dict[str, Any]]:
    """Every row of Tables 1 and 2 against the four archives, with the mean absolute difference in per cent."""
    out: dict[str, dict[str, Any]] = {}
    rows: Mapping[str, Mapping[float, float]] = {k: v for k, v in TABLE_1.items() if k not in ARCHIVES_2008} | TABLE_2
    for name, row in rows.items():
        found = {u: difference(m, [TABLE_1[a][u] for a in ARCHIVES_2008]) for u, m in row.items()}
        out[name] = {
            "difference": found,
            "mean_absolute_percent": sum(abs(d.percent) for d in found.values()) / len(found),
        }
    return out


class StopWhenNarrow:
    """Ends a reading once its interval is narrow enough: the scaled mode. A callback for the engine's ``read``."""

    def __init__(
        self, minimum_seconds: float = SCALED_SECONDS, half_width: float = HALF_WIDTH, batches: int = BATCHES
    ) -> None:
        self.minimum_seconds = minimum_seconds
        self.half_width = half_width
        self.batches = batches
        self._seconds: list[float] = [0.0]
        self._bytes: list[int] = [0]

    def __call__(self, files: int, done: int, seconds: float) -> bool:  # noqa: ARG002 (the engine gives it)
        """False once enough was read; called four times a second."""
        self._seconds.append(seconds)
        self._bytes.append(done)
        if seconds < self.minimum_seconds or len(self._seconds) < 2 * self.batches:
            return True
        edges = np.linspace(seconds * RAMP_SHARE, seconds, self.batches + 1)
        at = np.interp(edges, self._seconds, self._bytes)
        means = np.diff(at) / np.diff(edges)
        mean = float(means.mean())
        if mean <= 0:
            return True
        half = float(stats.t.isf(0.025, self.batches - 1) * stats.sem(means))
        return half / mean > self.half_width
