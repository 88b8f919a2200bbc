"""Several archives on one grid: F_a(x_i) at x_i = 2^i KiB, i = 1..I, the form that models are fitted to."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.archive import ArchiveError
from assay.archive.histogram import KIB, Histogram, show

FloatArray = NDArray[np.float64]
NEGLIGIBLE = 1e-6  # a tail below this share in every archive is folded into the last bucket
_LARGEST_I = 50  # 1 EiB


@dataclass(frozen=True)
class Panel:
    """``cdf[a, i-1]`` = share of archive a's files below x_i; the last column is 1 because larger files are folded into
    the last bucket. ``files[a]`` is the number of files; ``bucket_means[i-1]`` the pooled mean size in KiB of the files
    in bucket i, or NaN where no archive gives volumes."""

    names: tuple[str, ...]
    cdf: FloatArray
    files: FloatArray
    bucket_means: FloatArray
    folded: FloatArray  # share of each archive's files at or above x_I, now in the last bucket
    empty: FloatArray  # share of files of zero bytes, NaN when unknown

    @property
    def archives(self) -> int:
        """Number of archives A."""
        return self.cdf.shape[0]

    @property
    def cut(self) -> int:
        """I: the last bucket is [2^(I-1), 2^I) KiB."""
        return self.cdf.shape[1]

    @property
    def t(self) -> FloatArray:
        """log2(x_i / KiB) = 1..I."""
        return np.arange(1.0, self.cut + 1)

    @property
    def mean_cdf(self) -> FloatArray:
        """The archives' mean; archives weigh equally."""
        return self.cdf.mean(axis=0)

    def subset(self, rows: Sequence[int]) -> Panel:
        """Only these archives."""
        index = list(rows)
        return Panel(
            tuple(self.names[i] for i in index), self.cdf[index], self.files[index], self.bucket_means,
            self.folded[index], self.empty[index],
        )  # fmt: skip


def from_cdf(cdf: ArrayLike, names: Sequence[str] | None = None, files: ArrayLike | None = None) -> Panel:
    """A panel from CDF values at x_1..x_I; without ``files`` archives count as very large."""
    y = np.atleast_2d(np.asarray(cdf, dtype=float))
    if not np.isfinite(y).all() or (np.diff(y, axis=1) < -1e-12).any() or (y < 0).any() or (y > 1).any():
        raise ArchiveError("each row of a panel is a CDF: non-decreasing values between 0 and 1")
    a, size = y.shape
    return Panel(
        tuple(names or (f"archive-{i + 1}" for i in range(a))), y,
        np.full(a, 1e12) if files is None else np.asarray(files, dtype=float),
        np.full(size, np.nan), np.zeros(a), np.full(a, np.nan),
    )  # fmt: skip


def make_panel(histograms: Sequence[Histogram], x_max: int | None = None) -> Panel:
    """Histograms on the common grid. ``x_max``: bytes, the end of the last bucket; default: where every archive has less
    than 1e-6 of its files above. Raises ArchiveError when x_max cuts off more than half of an archive's files."""
    if not histograms:
        raise ArchiveError("no archives given")
    if x_max is not None and (x_max < 8 * KIB or x_max & (x_max - 1)):
        raise ArchiveError(f"x_max {show(x_max)} is not a power of two of at least 8 KiB")
    curves = [_cumulative(h) for h in histograms]
    cut = _default_cut(curves) if x_max is None else int(math.log2(x_max / KIB))
    rows, folded = [], []
    for histogram, curve in zip(histograms, curves, strict=True):
        y = np.array([curve[i] for i in range(1, cut + 1)])
        if y[-1] < 0.5:
            raise ArchiveError(
                f"x_max {show(2.0**cut * KIB)} lies below the data: {100 * (1 - y[-1]):.0f} % of the files of "
                f"{histogram.name} are larger; raise it"
            )
        folded.append(1 - y[-1])
        y[-1] = 1.0
        rows.append(y)
    return Panel(
        tuple(_distinct([h.name for h in histograms])), np.array(rows), np.array([h.files for h in histograms]),
        _bucket_means(histograms, cut), np.array(folded),
        np.array([np.nan if h.empty_files is None else h.empty_files / h.files for h in histograms]),
    )  # fmt: skip


def _distinct(names: Sequence[str]) -> list[str]:
    return [n if names.count(n) == 1 else f"{n} ({names[:i].count(n) + 1})" for i, n in enumerate(names)]


def _share_below(low: float, high: float, edge: float) -> float:
    """Share of a bucket's files below an edge inside it: uniform in log2 of the size; below 1 KiB nothing is split
    off, so a bucket that starts at 0 is split as if it started at 1 KiB (i = 1 is [0, 2) KiB)."""
    start = max(low, KIB)
    if edge >= high:
        return 1.0
    if edge <= start:
        return 0.0
    end = high if math.isfinite(high) else max(2 * start, 2.0 ** (_LARGEST_I + 10))
    return math.log2(edge / start) / math.log2(end / start)


def _cumulative(histogram: Histogram) -> list[float]:
    """F(2^i KiB) for i = 0..50."""
    total = histogram.files
    out = []
    for i in range(_LARGEST_I + 1):
        edge = 2.0**i * KIB
        below = math.fsum(
            b.count if b.high <= edge else b.count * _share_below(b.low, b.high, edge)
            for b in histogram.buckets
            if b.low < edge
        )
        out.append(min(1.0, below / total))
    return out


def _default_cut(curves: Sequence[list[float]]) -> int:
    for i in range(3, _LARGEST_I):
        if all(1 - curve[i] < NEGLIGIBLE for curve in curves):
            return i
    return _LARGEST_I


def _bucket_means(histograms: Sequence[Histogram], cut: int) -> FloatArray:
    """Pooled bytes / count per grid bucket in KiB, archives weighing equally, from buckets that lie inside one."""
    means = np.full(cut, np.nan)
    for i in range(1, cut + 1):
        low, high = (0.0 if i == 1 else 2.0 ** (i - 1) * KIB), 2.0**i * KIB
        of_each = []
        for h in histograms:
            inside = [b for b in h.buckets if b.low >= low and b.high <= high and b.count and b.bytes is not None]
            if inside:
                of_each.append(math.fsum(b.bytes or 0 for b in inside) / math.fsum(b.count for b in inside) / KIB)
        if of_each:
            means[i - 1] = min(max(float(np.mean(of_each)), low / KIB), high / KIB)
    return means
