"""Does an attempt's time series have a steady state, and where?

The window is chosen by precision (MSER), never by the value it yields, so it cannot flatter anybody. It is
then judged by three gates that each name their reason: a trend (Mann-Kendall with correction for
autocorrelation), a level shift (Pettitt), and erratic values. "No steady state" is a result. The shape
follows mlcommons/endpoints, `docs/steady-state-detection.md`, which explains why a low coefficient of
variation alone certifies slow drifts.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import fft, special, stats

from assay.stats._input import FloatArray, check_fraction, finite, non_negative

Correction = Literal["hamed-rao", "hamed-rao+ar1"]

#: Above this length Sen's slope, quadratic in time and memory, is taken from means of consecutive samples.
_SEN_SAMPLES = 500

#: White's MSER-5 needs enough batches to choose from; shorter series are cut sample by sample.
_MSER5_FROM = 50


@dataclass(frozen=True)
class Trend:
    """Outcome of mann_kendall(): Kendall's tau (a), Sen slope in units of x per sample, normal z, two-sided
    p."""

    tau: float
    slope: float
    z: float
    p: float


@dataclass(frozen=True)
class Shift:
    """Outcome of pettitt(): x[:index] and x[index:] are the two levels; statistic is Pettitt's K; p
    two-sided.

    relative_change is (mean after - mean before) / mean of all, 0 when there is nothing to split.
    """

    index: int
    statistic: float
    p: float
    relative_change: float = 0.0


@dataclass(frozen=True)
class SteadyState:
    """Outcome of steady_window(): x[start:stop] is the window examined, steady only if found.

    total_mean is the mean of all of x and is always reported beside steady_mean; steady_mean is None when
    there is no steady state. cov is the standard deviation over the mean within the window (None for a
    series too short or all zero). shift.index counts from the start of x.
    """

    found: bool
    start: int
    stop: int
    reason: str
    total_mean: float
    steady_mean: float | None
    cov: float | None
    trend: Trend
    shift: Shift


NO_TREND = Trend(tau=0.0, slope=0.0, z=0.0, p=1.0)
NO_SHIFT = Shift(index=0, statistic=0.0, p=1.0)


def mser_cut(x: ArrayLike, batch: int = 1) -> int:
    """Number of leading samples to drop as warm-up: the cut d minimising var(x[d:]) / (n - d).

    x: shape (n,); batch = 5 works on means of 5 samples (MSER-5) and returns a multiple of 5, ignoring a last
    incomplete batch. The cut is at most half of the series: beyond that the criterion compares a handful of
    values and finds accidental agreement. O(n). Fewer than 2 batches: 0. Ties go to the earliest cut.

    Raises ValueError when a value is not finite or batch < 1.
    Source: White 1997, Simulation 69(6); MSER-5: White, Cobb & Spratt, WSC 2000.
    """
    if batch < 1:
        raise ValueError(f"batch must be at least 1, not {batch}")
    values = finite(x)
    batches = values.size // batch
    if batches < 2:
        return 0
    means = values[: batches * batch].reshape(batches, batch).mean(axis=1)
    # Sums of squares lose digits when the level dwarfs the noise: centre first. (Constant input becomes 0.)
    means = means - means[-1]
    cuts = np.arange(batches // 2 + 1)
    left = batches - cuts
    suffix_sum = np.cumsum(means[::-1])[::-1][cuts]
    suffix_squares = np.cumsum(np.square(means)[::-1])[::-1][cuts]
    squared_error = np.maximum(suffix_squares - suffix_sum**2 / left, 0.0) / left**2
    return int(np.argmin(squared_error)) * batch


def mann_kendall(x: ArrayLike, correction: Correction | None = "hamed-rao") -> Trend:
    """Test for a monotonic trend by the signs of all pairwise differences.

    x: shape (n,). n < 4 gives p = 1 (no arrangement of 3 values is significant); constant x gives p = 1. Ties
    are in the variance. Takes O(n log n) plus a slope from at most 500 points: longer series are averaged
    over consecutive samples first, which leaves a linear slope unchanged.

    Correction of the variance of S for autocorrelation:
    None: independent samples assumed. Per-second throughput is not independent; false alarms are then 3 to
        13 times too many.
    "hamed-rao": Hamed & Rao 1998 over all significant lags, as pymannkendall 1.4.3 does it, except that the
        factor is never below 1: noise in the estimated autocorrelation otherwise shrinks the variance (even
        below 0, where pymannkendall returns NaN) and makes the test alarm on white noise.
    "hamed-rao+ar1": the larger of that factor and the factor of a first-order process with bias-corrected
        lag-one correlation. Hamed & Rao's sum misses what single lags cannot show in a short series; this is
        close to nominal there (measured in docs/methodology.md) and what steady_window() uses.

    Raises ValueError when a value is not finite or the correction is unknown.
    Sources: Mann 1945; Kendall 1975; Sen 1968; Hamed & Rao 1998, J. Hydrology 204; Bayley & Hammersley 1946.
    """
    if correction not in (None, "hamed-rao", "hamed-rao+ar1"):
        raise ValueError(f"unknown correction {correction!r}")
    values = finite(x)
    n = values.size
    if n < 2 or np.ptp(values) == 0:
        return NO_TREND
    pairs = n * (n - 1) / 2
    _, ties = np.unique(values, return_counts=True)
    score = _kendall_score(values, ties)
    slope = _sen_slope(values)
    tau = score / pairs
    if n < 4 or score == 0:
        return Trend(tau, slope, 0.0, 1.0)
    variance = (n * (n - 1) * (2 * n + 5) - float((ties * (ties - 1) * (2 * ties + 5)).sum())) / 18
    if correction is not None:
        variance *= _variance_factor(values - slope * np.arange(n), correction)
    z = math.copysign(abs(score) - 1, score) / math.sqrt(variance)
    return Trend(tau, slope, z, float(2 * stats.norm.sf(abs(z))))


def _kendall_score(values: FloatArray, ties: NDArray[np.int_]) -> int:
    """Number of rising pairs minus number of falling pairs, in O(n log n); ties: counts of equal values."""
    n = values.size
    if n == 2:  # scipy divides by n - 2
        return int(np.sign(values[1] - values[0]))
    pairs = n * (n - 1) / 2
    untied = pairs - float((ties * (ties - 1) / 2).sum())
    # scipy divides by sqrt(pairs * untied pairs) (tau-b); undoing that gives back the integer.
    kendall: Any = stats.kendalltau(np.arange(n), values, method="asymptotic")
    return round(float(kendall.statistic) * math.sqrt(pairs * untied))


def _sen_slope(values: FloatArray) -> float:
    """Median of the slopes of all pairs of samples, in units of x per sample."""
    group = math.ceil(values.size / _SEN_SAMPLES)
    groups = values.size // group
    thinned = values[: groups * group].reshape(groups, group).mean(axis=1)
    fit: Any = stats.theilslopes(thinned)
    return float(fit.slope) / group


def _autocorrelation(y: FloatArray) -> FloatArray:
    """Biased autocorrelation of y at lags 0..n-1 (all 0 beyond lag 0 for constant y)."""
    centred = y - y.mean()
    size = fft.next_fast_len(2 * y.size, real=True)
    spectrum = np.abs(np.fft.rfft(centred, size)) ** 2
    covariance = np.fft.irfft(spectrum, size)[: y.size]
    return covariance / covariance[0] if covariance[0] > 0 else np.eye(1, y.size)[0]


def _variance_factor(residuals: FloatArray, correction: Correction) -> float:
    """By how much autocorrelation inflates the variance of Kendall's score: 1 for independent samples."""
    n = residuals.size
    rho = _autocorrelation(stats.rankdata(residuals))
    lags = np.arange(1, n)
    significant = np.abs(rho[1:]) > special.ndtri(0.975) / math.sqrt(n)
    weights = (n - lags) * (n - lags - 1.0) * (n - lags - 2.0)
    hamed_rao = 1 + 2 / (n * (n - 1.0) * (n - 2.0)) * float((weights * rho[1:])[significant].sum())
    if correction == "hamed-rao":
        return max(1.0, hamed_rao)
    return max(1.0, hamed_rao, _first_order_factor(float(rho[1]), n, fitted=2))


def _first_order_factor(lag_one: float, n: int, fitted: int) -> float:
    """n over the effective sample size of a first-order process: (1 + r) / (1 - r), r corrected for bias.

    The estimate of r is too low by about (1 + 3r + fitted - 1) / n after `fitted` parameters were removed
    from the series (Kendall 1954; Marriott & Pope 1954), which is most of r in a short series.
    """
    r = (lag_one * n + fitted - 1) / (n - 3) if n > 4 else lag_one
    r = min(max(r, 0.0), 1 - 1 / n)
    return (1 + r) / (1 - r)


def pettitt(x: ArrayLike) -> Shift:
    """Test for one change of level at an unknown time, by ranks.

    x: shape (n,). The index is the first sample of the new level; n < 4 or constant x gives p = 1.

    Pettitt's p assumes independent samples. Here the variance of the statistic is inflated by the factor of a
    first-order process, estimated from the ranks after the two levels were removed (or the shift itself would
    count as autocorrelation), which keeps false alarms of AR(1) noise near nominal from about 100 samples
    on; measured in docs/methodology.md. p is Pettitt's approximation 2 exp(-6 K^2 / (n^3 + n^2)), capped at
    1, good below 0.5. A steady slope also "shifts": read the trend first.

    Raises ValueError when a value is not finite. Source: Pettitt 1979, Applied Statistics 28(2).
    """
    values = finite(x)
    n = values.size
    if n < 4 or np.ptp(values) == 0:
        return NO_SHIFT
    ranks = stats.rankdata(values)
    sums = 2 * np.cumsum(ranks)[:-1] - np.arange(1, n) * (n + 1.0)
    index = int(np.argmax(np.abs(sums))) + 1
    statistic = float(abs(sums[index - 1]))
    residuals = ranks.copy()
    residuals[:index] -= residuals[:index].mean()
    residuals[index:] -= residuals[index:].mean()
    factor = _first_order_factor(float(_autocorrelation(residuals)[1]), n, fitted=3)
    p = min(1.0, 2 * math.exp(-6 * statistic**2 / (factor * (n**3 + n**2))))
    mean = float(values.mean())
    change = float(values[index:].mean() - values[:index].mean())
    return Shift(index, statistic, p, change / abs(mean) if mean else 0.0)


def snia_steady(rounds: ArrayLike, window: int = 5) -> bool:
    """SNIA's steady-state rule on the last `window` rounds: the name customers know from SSD data sheets.

    rounds: shape (n,), the averages of equally long rounds (SNIA: one minute). Steady when max - min is at
    most 20 % of the average and the least-squares line moves by at most 10 % of the average over the
    window. Fewer rounds than the window, or an average of 0: not steady.

    Raises ValueError when a value is negative or not finite, or window < 2.
    Source: SNIA Solid State Storage Performance Test Specification 2.0.x, 2.1.24 (window of 5: 2.1.13).
    """
    if window < 2:
        raise ValueError(f"window must be at least 2 rounds, not {window}")
    values = non_negative(rounds, "rounds")[-window:]
    average = float(values.mean()) if values.size else 0.0
    if values.size < window or average == 0:
        return False
    line: Any = stats.linregress(np.arange(window), values)
    line_excursion = abs(float(line.slope)) * (window - 1)
    # The rule says "no more than": rounding must not turn an excursion of exactly 20 % into more.
    slack = 1 + 1e-12
    return bool(np.ptp(values) <= 0.20 * average * slack and line_excursion <= 0.10 * average * slack)


def steady_window(
    x: ArrayLike,
    interval_seconds: float,
    *,
    min_samples: int = 20,
    alpha: float = 0.05,
    effect_floor: float = 0.05,
    max_cov: float | None = 0.5,
) -> SteadyState:
    """Find the steady part of an attempt, or say in plain words why there is none.

    x: shape (n,), rates of at least 0 (bytes/s, operations/s) in consecutive intervals of interval_seconds;
    leave out a last incomplete interval. The window is x[cut:] with the cut from MSER (MSER-5 from 50 samples
    on), hence at least half of the series. It is steady when x has min_samples and none of these holds:

    * no cut: MSER took the last cut allowed and the half cut off differs by effect_floor of the mean, so the
      run may have two levels or may still be warming up;
    * trend: Mann-Kendall with "hamed-rao+ar1" has p < alpha and Sen's slope moves the level by at least
      effect_floor of the mean across the window (a significant 1 % in an hour is true and irrelevant);
    * level shift: Pettitt has p < alpha and the two levels differ by at least effect_floor of the mean;
    * erratic: the coefficient of variation exceeds max_cov (None: no limit).

    A constant series is steady; a series of zeros is not (nothing was measured). Absence of a significant
    trend is no proof of flatness in a short, noisy series; the power is tabled in docs/methodology.md.

    Raises ValueError when a value is negative or not finite, interval_seconds <= 0, min_samples < 8, alpha is
    outside (0, 1), or effect_floor or max_cov is negative.
    """
    check_fraction(alpha, "alpha")
    if not interval_seconds > 0:
        raise ValueError(f"interval_seconds must be positive, not {interval_seconds}")
    if min_samples < 8:
        raise ValueError(f"min_samples must be at least 8 (half may be cut off), not {min_samples}")
    if effect_floor < 0 or (max_cov is not None and max_cov < 0):
        raise ValueError("effect_floor and max_cov must not be negative")
    values = non_negative(x)
    n = values.size
    total = float(values.mean()) if n else math.nan
    nothing = SteadyState(False, 0, n, "", total, None, None, NO_TREND, NO_SHIFT)
    if n < min_samples:
        return replace(nothing, reason=f"only {n} samples, at least {min_samples} needed")
    batch = 5 if n >= _MSER5_FROM else 1
    start = mser_cut(values, batch)
    window = values[start:]
    mean = float(window.mean())
    if mean == 0:
        zeros = "all values are zero" if total == 0 else "all values after the warm-up are zero"
        return replace(nothing, start=start, reason=f"{zeros}: nothing was measured")
    shift = pettitt(window)
    examined = replace(
        nothing,
        start=start,
        cov=float(window.std(ddof=1) / mean) if window.size > 1 else None,
        trend=mann_kendall(window, "hamed-rao+ar1"),
        shift=replace(shift, index=shift.index + start),
    )
    warm_up = _warm_up(values, start, mean, interval_seconds)
    objection = _objection(examined, mean, interval_seconds, alpha, effect_floor, max_cov)
    if objection is not None:
        return replace(examined, reason=f"{objection}, {warm_up}")
    at_limit = start // batch == n // batch // 2
    if at_limit and abs(float(values[:start].mean()) - mean) >= effect_floor * mean:
        # White's advice: a cut at the limit means that no cut was found, only the last one allowed.
        return replace(examined, reason=f"half of the run and still no steady window: {warm_up}")
    last = n * interval_seconds
    reason = f"steady until the end at {last:g} s, {warm_up}"
    return replace(examined, found=True, steady_mean=mean, reason=reason)


def _warm_up(values: FloatArray, start: int, mean: float, interval_seconds: float) -> str:
    """What was cut off, with its level: a fast first part is a cache or a burst: readers must see it."""
    if start == 0:
        return "without warm-up"
    ahead = float(values[:start].mean()) / mean - 1
    direction = "faster" if ahead > 0 else "slower"
    return f"after {start * interval_seconds:g} s cut off as warm-up, {abs(ahead):.1%} {direction}"


def _objection(
    examined: SteadyState,
    mean: float,
    interval_seconds: float,
    alpha: float,
    effect_floor: float,
    max_cov: float | None,
) -> str | None:
    """Why the examined window is not a steady state, in plain words; None when nothing speaks against it."""
    trend, shift, cov = examined.trend, examined.shift, examined.cov
    drift = trend.slope * (examined.stop - examined.start - 1) / mean
    if trend.p < alpha and abs(drift) >= effect_floor:
        verb = "rises" if drift > 0 else "falls"
        return f"the rate still {verb} by {abs(drift):.1%} of its mean (p = {trend.p:.2g})"
    if shift.p < alpha and abs(shift.relative_change) >= effect_floor:
        verb = "jumps up" if shift.relative_change > 0 else "drops"
        when = f"at {shift.index * interval_seconds:g} s"
        return f"the rate {verb} by {abs(shift.relative_change):.1%} of its mean {when} (p = {shift.p:.2g})"
    if max_cov is not None and cov is not None and cov > max_cov:
        return f"the rate is erratic: it varies by {cov:.0%} of its mean, more than {max_cov:.0%}"
    return None
