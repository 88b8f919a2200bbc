"""Confidence intervals of one positive quantity (throughput, latency, duration) over repeated attempts.

Too few values give an infinite interval, never a wrong one (the rule of asv, `asv/_stats.py`): a reader who
sees "0 to infinity" knows that the attempt was not repeated often enough.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from assay.stats._input import FloatArray, check_fraction, non_negative, positive


@dataclass(frozen=True)
class Interval:
    """An estimate and its confidence interval, in the unit of the values it was computed from.

    low = 0 and high = inf mean that n is too small for the confidence asked for; estimate is NaN when n = 0.
    n is the number of values (attempts or blocks), confidence the nominal coverage, method its name in words.
    """

    estimate: float
    low: float
    high: float
    n: int
    confidence: float
    method: str

    @property
    def is_finite(self) -> bool:
        """Whether both ends are numbers that the data determined."""
        return self.low > 0.0 and math.isfinite(self.high)

    @property
    def relative_half_width(self) -> float:
        """exp((ln high - ln low) / 2) - 1: 0.05 reads "within a factor of 1.05"; inf for an infinite
        interval."""
        if not self.is_finite:
            return math.inf
        return math.expm1((math.log(self.high) - math.log(self.low)) / 2)


def from_logs(centre: float, half_width: float, n: int, confidence: float, method: str) -> Interval:
    """Turn an interval on the log scale into one on the original scale (an overflow becomes 0 or inf)."""
    with np.errstate(over="ignore", under="ignore"):
        low, estimate, high = np.exp([centre - half_width, centre, centre + half_width])
    return Interval(float(estimate), float(low), float(high), n, confidence, method)


def infinite(logs: FloatArray, confidence: float, method: str) -> Interval:
    """The interval that says "too few values"; its estimate is still the geometric mean where there is
    one."""
    estimate = float(np.exp(logs.mean())) if logs.size else math.nan
    return Interval(estimate, 0.0, math.inf, int(logs.size), confidence, method)


def log_t_interval(x: ArrayLike, confidence: float = 0.95) -> Interval:
    """Geometric mean of x with Student's t interval on the logarithms.

    x: shape (n,), one value per attempt. Exact when ln x is normal; its measured coverage on other shapes
    is in docs/methodology.md. Infinite when n < 2. Equal values give an interval of width 0: the data
    showed no variation, which for small n says more about the resolution of the tool than about the system.

    Raises ValueError when a value is not positive and finite, or confidence is outside (0, 1).
    Source: Student 1908 on logs, as in Hoefler & Belli, SC'15, section 3.1.2 and rule 3 (ratios: geometric
    mean).
    """
    check_fraction(confidence, "confidence")
    logs = np.log(positive(x))
    method = "t on logs"
    if logs.size < 2:
        return infinite(logs, confidence, method)
    half_width = float(stats.t.isf((1 - confidence) / 2, logs.size - 1) * stats.sem(logs))
    return from_logs(float(logs.mean()), half_width, logs.size, confidence, method)


def median_interval(x: ArrayLike, confidence: float = 0.95) -> Interval:
    """Median of x with the order-statistic interval, which needs no assumption about the distribution.

    x: shape (n,), values of at least 0. The interval runs from the k-th smallest to the k-th largest value
    with the largest k whose binomial coverage reaches the confidence (at n = 9: 2nd to 8th, 96.1 %), hence
    coverage is at least nominal. Infinite (0 to inf) when not even smallest..largest reaches it: n < 6 at
    95 %.

    Raises ValueError when a value is negative or not finite, or confidence is outside (0, 1).
    Source: Hoefler & Belli, SC'15, section 3.1.3 (after Le Boudec 2010).
    """
    check_fraction(confidence, "confidence")
    values = non_negative(x)
    method = "order statistics"
    estimate = float(np.median(values)) if values.size else math.nan
    n = values.size
    ranks = np.arange(1, n // 2 + 1)
    # Ranks k and n + 1 - k miss the median with this probability; rounding must not lose the 75 % of n = 3.
    misses = 2 * stats.binom.cdf(ranks - 1, n, 0.5)
    k = int((misses <= 1 - confidence + 1e-12).sum())
    low, high = 0.0, math.inf
    if k > 0:
        ordered = np.sort(values)
        low, high = float(ordered[k - 1]), float(ordered[n - k])
    return Interval(estimate, low, high, n, confidence, method)


def stein_interval(x: ArrayLike, pilot: int, confidence: float = 0.95) -> Interval:
    """Interval after Stein's two-stage rule: geometric mean of all n values, spread of the pilot only.

    x: shape (n,), in the order measured, the first `pilot` of them taken before n was fixed by
    blocks_needed(). Because n depends on the data only through the pilot's variance, t with pilot - 1
    degrees of freedom is exact on log-normal data; an ordinary t over all n values is not, since n was
    chosen by looking at half of them. Infinite when the pilot is not complete (n < pilot). A cap on n keeps
    the coverage and loses only the width.

    Raises ValueError when pilot < 2, a value is not positive and finite, or confidence is outside (0, 1).
    Source: Stein 1945, Ann. Math. Statist. 16(3), theorem 1.
    """
    check_fraction(confidence, "confidence")
    if pilot < 2:
        raise ValueError(f"the pilot needs at least 2 values, not {pilot}")
    logs = np.log(positive(x))
    method = f"Stein two-stage, pilot of {pilot}"
    if logs.size < pilot:
        return infinite(logs, confidence, method)
    spread = float(logs[:pilot].std(ddof=1))
    half_width = float(stats.t.isf((1 - confidence) / 2, pilot - 1)) * spread / math.sqrt(logs.size)
    return from_logs(float(logs.mean()), half_width, logs.size, confidence, method)
