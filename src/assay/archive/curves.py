"""What a CDF on the grid x_i = 2^i KiB says: probabilities, mean size, leftover, distances; and how to make one valid."""

from __future__ import annotations

from typing import Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.archive import ArchiveError

FloatArray = NDArray[np.float64]
SizeRule = Literal["upper", "bucket-mean", "log-uniform"]
LeftoverRule = Literal["clamp", "renormalise", "drop"]
SIZE_RULES: tuple[SizeRule, ...] = ("upper", "bucket-mean", "log-uniform")
LEFTOVER_RULES: tuple[LeftoverRule, ...] = ("clamp", "renormalise", "drop")


def upper_edges(cut: int) -> FloatArray:
    """x_i in KiB."""
    return np.exp2(np.arange(1.0, cut + 1))


def sizes(cut: int, rule: SizeRule, bucket_means: ArrayLike | None = None) -> FloatArray:
    """The size in KiB that a file of each bucket counts with.

    ``upper``: the bucket's end, as in the paper, which inflates the mean by about 1.4. ``bucket-mean``: the mean size
    that the data have in the bucket, log-uniform where they say nothing. ``log-uniform``: the mean of a density 1/x on
    the bucket, x_i / (2 ln 2); for [0, 2) KiB the same factor is used.
    """
    upper = upper_edges(cut)
    uniform = upper / (2 * np.log(2))
    if rule == "upper":
        return upper
    if rule == "log-uniform":
        return uniform
    if rule != "bucket-mean":
        raise ArchiveError(f"unknown size rule {rule!r}; known: {', '.join(SIZE_RULES)}")
    if bucket_means is None:
        raise ArchiveError("bucket-mean needs the volume per bucket, which none of the archives gives; use log-uniform")
    known = np.asarray(bucket_means, dtype=float)[:cut]
    if not np.isfinite(known).any():
        raise ArchiveError("bucket-mean needs the volume per bucket, which none of the archives gives; use log-uniform")
    return np.where(np.isfinite(known), known, uniform)


def leftover(cdf: ArrayLike) -> float:
    """Probability above x_max."""
    return float(1 - np.asarray(cdf, dtype=float)[-1])


def settle(cdf: ArrayLike, rule: LeftoverRule = "clamp") -> FloatArray:
    """Probabilities per bucket under a rule for the leftover: ``clamp`` puts it into the last bucket, ``renormalise``
    spreads it in proportion, ``drop`` (the paper's) leaves it out, so that the sum is below 1."""
    f = np.asarray(cdf, dtype=float)
    p = np.diff(f, prepend=0.0)
    if rule == "clamp":
        p[-1] += 1 - f[-1]
    elif rule == "renormalise":
        if f[-1] <= 0:
            raise ArchiveError("no probability below x_max to renormalise")
        p = p / f[-1]
    elif rule != "drop":
        raise ArchiveError(f"unknown rule for the leftover {rule!r}; known: {', '.join(LEFTOVER_RULES)}")
    return p


def mean_size(probabilities: ArrayLike, of_bucket: ArrayLike) -> float:
    """E[X] in MiB (2^20 bytes, the paper's MB): sum of P_i times the size of bucket i in KiB."""
    return float(np.dot(np.asarray(probabilities, dtype=float), np.asarray(of_bucket, dtype=float))) / 1024


def expected(cdf: ArrayLike, rule: SizeRule = "upper", leftover_rule: LeftoverRule = "clamp",
             bucket_means: ArrayLike | None = None) -> float:  # fmt: skip
    """E[X] in MiB of a CDF."""
    p = settle(cdf, leftover_rule)
    return mean_size(p, sizes(p.size, rule, bucket_means))


def lower_monotone(curve: ArrayLike) -> FloatArray:
    """The largest CDF nowhere above ``curve``: max(0, min over j >= i). The paper prints min(0, ...), which is always 0,
    and looks at one neighbour only, which is not enough."""
    f = np.asarray(curve, dtype=float)
    return np.clip(np.minimum.accumulate(f[::-1])[::-1], 0.0, 1.0)


def upper_monotone(curve: ArrayLike) -> FloatArray:
    """The smallest CDF nowhere below ``curve``: min(1, max over j <= i)."""
    return np.clip(np.maximum.accumulate(np.asarray(curve, dtype=float)), 0.0, 1.0)


def pairwise_lower(curve: ArrayLike) -> FloatArray:
    """The paper's rule with only its sign mended: max(0, min(F_i, F_i+1)). Kept to show what it does."""
    f = np.asarray(curve, dtype=float)
    return np.maximum(0.0, np.minimum(f, np.append(f[1:], f[-1])))


def is_cdf(curve: ArrayLike, tolerance: float = 1e-12) -> bool:
    """Whether values are finite, within [0, 1] and do not decrease."""
    f = np.asarray(curve, dtype=float)
    return bool(
        np.isfinite(f).all() and f.min() >= -tolerance and f.max() <= 1 + tolerance and (np.diff(f) >= -tolerance).all()
    )


def ks_distance(a: ArrayLike, b: ArrayLike) -> float:
    """Largest difference of two CDFs on the same grid."""
    return float(np.abs(np.asarray(a, dtype=float) - np.asarray(b, dtype=float)).max())


def pava(values: FloatArray) -> FloatArray:
    """Isotonic regression of each row, equal weights (pool adjacent violators, by the max-min formula).

    Rows of a spline have about ten coefficients: the quadratic formula is vectorised over all rows and so faster than
    a loop over them. f_i = max over j <= i of min over k >= i of mean(v_j..v_k).
    """
    v = np.atleast_2d(values)
    size = v.shape[1]
    sums = np.concatenate([np.zeros((v.shape[0], 1)), np.cumsum(v, axis=1)], axis=1)
    out = np.full(v.shape, -np.inf)
    for j in range(size):
        means = (sums[:, j + 1 :] - sums[:, j : j + 1]) / np.arange(1, size - j + 1)
        tails = np.minimum.accumulate(means[:, ::-1], axis=1)[:, ::-1]
        out[:, j:] = np.maximum(out[:, j:], tails)
    return out.reshape(np.shape(values))
