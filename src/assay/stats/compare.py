"""Statements about two candidates: ratio with interval, p value, and one of four decisions with its reason.

Candidates are compared by the ratio of their values within the same block (same hour, same fill level, same
neighbours); the ratios are averaged on the log scale, so swapping the two candidates inverts the answer
exactly.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from assay.stats._input import LOG_RESOLUTION, FloatArray, check_fraction, positive
from assay.stats.intervals import Interval, from_logs, infinite

Adjustment = Literal["holm", "benjamini-hochberg"]


class Decision(StrEnum):
    """What the data say about candidate a against candidate b (a faster: ratio above 1)."""

    FASTER = "faster"
    SLOWER = "slower"
    EQUIVALENT = "equivalent"
    UNDECIDED = "undecided"


@dataclass(frozen=True)
class PairedComparison:
    """Candidate a against candidate b on one cell.

    ratio: geometric mean of a/b with its interval (no unit; above 1: a is faster). p_value: two-sided, of
    "the ratio is 1". p_adjusted: the same within its family, None before adjust(). n: blocks (for an unpaired
    comparison the smaller of the two counts). decision is UNDECIDED until decide() has looked at it.
    """

    ratio: Interval
    p_value: float
    p_adjusted: float | None
    n: int
    decision: Decision
    reason: str


def log_ratios(a: ArrayLike, b: ArrayLike) -> FloatArray:
    """ln(a/b) per block, shape (n,): what paired_ratio() averages and blocks_needed_paired() takes.

    Raises ValueError when the lengths differ or a value is not positive and finite.
    """
    log_a, log_b = np.log(positive(a, "a")), np.log(positive(b, "b"))
    if log_a.size != log_b.size:
        raise ValueError(f"a has {log_a.size} blocks and b has {log_b.size}: pairs need the same blocks")
    # The difference of logs, not the log of the quotient: swapping a and b then flips the sign exactly.
    return log_a - log_b


def paired_ratio(a: ArrayLike, b: ArrayLike, confidence: float = 0.95) -> PairedComparison:
    """Compare values of the same blocks in the same order, larger meaning better.

    a, b: shape (n,), positive, in the same unit (bytes/s, operations/s); for durations swap the arguments.
    The interval is Student's t on ln(a/b) and p its t test. n < 2 gives an infinite interval and p = 1.
    Ratios that are all equal give an interval of width 0 and p = 0 (p = 1 when they all are 1): the
    arithmetic is right, but variation of exactly zero usually means that a limit (rate cap, clock step) was
    measured.

    Raises ValueError when the lengths differ or a value is not positive and finite.
    Source: Hoefler & Belli, SC'15, rules 3 and 7; Student's paired t test on logs.
    """
    check_fraction(confidence, "confidence")
    logs = log_ratios(a, b)
    method = "paired t on logs"
    if logs.size < 2:
        return _too_few(logs, logs.size, confidence, method)
    spread = float(logs.std(ddof=1))
    if spread <= LOG_RESOLUTION:
        return _no_variation(float(logs.mean()), logs.size, confidence, method)
    error = spread / math.sqrt(logs.size)
    return _t_comparison(float(logs.mean()), error, logs.size - 1, logs.size, confidence, method)


def unpaired_ratio(a: ArrayLike, b: ArrayLike, confidence: float = 0.95) -> PairedComparison:
    """Compare values whose blocks do not match, such as two studies: Welch's t on logs.

    a: shape (m,), b: shape (n,), positive, same unit, larger meaning better. Anything that changed between
    the two studies (weather of the cluster included) is part of this ratio; prefer paired_ratio() where
    blocks match. Fewer than 2 values on either side give an infinite interval and p = 1; no variation on
    both sides is treated as in paired_ratio().

    Raises ValueError when a value is not positive and finite. Source: Welch 1947, Biometrika 34.
    """
    check_fraction(confidence, "confidence")
    log_a, log_b = np.log(positive(a, "a")), np.log(positive(b, "b"))
    n = min(log_a.size, log_b.size)
    method = "Welch t on logs"
    if n < 2:
        centre = np.array([log_a.mean() - log_b.mean()]) if n else np.empty(0)
        return _too_few(centre, n, confidence, method)
    centre = float(log_a.mean() - log_b.mean())
    if max(log_a.std(ddof=1), log_b.std(ddof=1)) <= LOG_RESOLUTION:
        return _no_variation(centre, n, confidence, method)
    part_a, part_b = float(log_a.var(ddof=1) / log_a.size), float(log_b.var(ddof=1) / log_b.size)
    freedom = (part_a + part_b) ** 2 / (part_a**2 / (log_a.size - 1) + part_b**2 / (log_b.size - 1))
    return _t_comparison(centre, math.sqrt(part_a + part_b), freedom, n, confidence, method)


def _t_comparison(
    centre: float, error: float, freedom: float, n: int, confidence: float, method: str
) -> PairedComparison:
    """The comparison whose log ratio has this centre, standard error and degrees of freedom."""
    ratio = from_logs(centre, float(stats.t.isf((1 - confidence) / 2, freedom)) * error, n, confidence, method)
    p_value = float(2 * stats.t.sf(abs(centre) / error, freedom))
    return PairedComparison(ratio, p_value, None, n, Decision.UNDECIDED, "not decided yet")


def _too_few(logs: FloatArray, n: int, confidence: float, method: str) -> PairedComparison:
    ratio = replace(infinite(logs, confidence, method), n=n)
    return PairedComparison(ratio, 1.0, None, n, Decision.UNDECIDED, _too_few_reason(n))


def _too_few_reason(n: int) -> str:
    return f"{n} block{'' if n == 1 else 's'}: at least 2 are needed to tell a difference from noise"


def _no_variation(centre: float, n: int, confidence: float, method: str) -> PairedComparison:
    # Rounding leaves 1e-16 where the ratio is 1; only a centre beyond that resolution is a difference.
    centre = 0.0 if abs(centre) <= LOG_RESOLUTION else centre
    ratio = from_logs(centre, 0.0, n, confidence, method + ", no variation")
    return PairedComparison(ratio, 1.0 if centre == 0.0 else 0.0, None, n, Decision.UNDECIDED, "not decided yet")


def decide(comparison: PairedComparison, margin: float = 0.05, alpha: float = 0.05) -> PairedComparison:
    """Fill in the decision and its reason.

    equivalent: the whole interval lies within [1/(1+margin), 1+margin]. Otherwise faster or slower: p (the
    adjusted one if present) is below alpha and the interval excludes 1. Otherwise undecided, which is a
    result: the data fit both "no difference" and a difference beyond the margin.

    Containment of the 1 - alpha interval is the two one-sided tests procedure at level alpha/2 each, stricter
    than usual; it is per comparison, not adjusted for the family. Raises ValueError when margin <= 0 or
    alpha is outside (0, 1). Source: Schuirmann 1987 (equivalence).
    """
    check_fraction(alpha, "alpha")
    if not margin > 0:
        raise ValueError(f"margin must be positive, not {margin}")
    decision, reason = _decision(comparison, margin, alpha)
    return replace(comparison, decision=decision, reason=reason)


def _decision(comparison: PairedComparison, margin: float, alpha: float) -> tuple[Decision, str]:
    ratio = comparison.ratio
    if comparison.n < 2:
        return Decision.UNDECIDED, _too_few_reason(comparison.n)
    adjusted = comparison.p_adjusted is not None
    p = comparison.p_adjusted if comparison.p_adjusted is not None else comparison.p_value
    p_words = f"p = {p:.2g}{' after adjustment' if adjusted else ''}"
    span = f"the {ratio.confidence:.0%} interval of the ratio is {ratio.low:.3g} to {ratio.high:.3g}"
    bounds = f"{1 / (1 + margin):.3g} to {1 + margin:.3g}"
    if 1 / (1 + margin) <= ratio.low and ratio.high <= 1 + margin:
        return Decision.EQUIVALENT, f"{span}, wholly within the margin of {bounds}"
    excludes_one = ratio.low > 1 or ratio.high < 1
    if p < alpha and excludes_one:
        if ratio.estimate > 1:
            return Decision.FASTER, f"faster by at least {_percent(ratio.low - 1)}: {span}, {p_words}"
        return Decision.SLOWER, f"slower by at least {_percent(1 - ratio.high)}: {span}, {p_words}"
    if excludes_one:
        return Decision.UNDECIDED, f"{span}, but {p_words} is not below {alpha:g}"
    return Decision.UNDECIDED, f"{span}: it includes 1 and reaches beyond the margin of {bounds}"


def _percent(share: float) -> str:
    return f"{100 * share:.2g} %"


def can_reject(n: int, alpha: float = 0.05, family_size: int = 1, test: Literal["t", "sign-flip"] = "t") -> bool:
    """Whether a two-sided test of n pairs could ever reach significance within a family.

    "t": from n = 2 on, since a spread small enough makes any p. "sign-flip": the exact permutation test of
    the signs and Wilcoxon's signed-rank test have 2^n equally likely outcomes, hence p >= 2 / 2^n; n = 6 is
    the least at 0.05, and a family of 20 needs n = 10. The hardest threshold of Holm and
    Benjamini-Hochberg, alpha / family_size, must be reachable.

    Raises ValueError when alpha is outside (0, 1) or family_size < 1. Source: asv,
    `asv/_stats.py:is_different`.
    """
    check_fraction(alpha, "alpha")
    if family_size < 1:
        raise ValueError(f"family_size must be at least 1, not {family_size}")
    if test == "t":
        return n >= 2
    return n >= 1 and 2.0 ** (1 - n) < alpha / family_size


def adjust(p_values: ArrayLike, method: Adjustment = "holm") -> FloatArray:
    """Adjusted p values of one family, comparable with alpha directly.

    p_values: shape (m,), within [0, 1]; returns shape (m,) in the same order. "holm" bounds the chance of
    even one false alarm in the family, under any dependence; "benjamini-hochberg" bounds the expected share
    of false alarms among the differences reported, under independence or positive dependence.

    Raises ValueError for a p outside [0, 1] or an unknown method. Sources: Holm 1979; Benjamini & Hochberg
    1995.
    """
    p = np.asarray(p_values, dtype=np.float64)
    if p.ndim != 1 or not ((p >= 0) & (p <= 1)).all():
        raise ValueError("p values must be one-dimensional and lie within 0 and 1")
    if p.size == 0:
        return p
    if method == "benjamini-hochberg":
        return stats.false_discovery_control(p, method="bh")
    if method != "holm":
        raise ValueError(f"unknown adjustment {method!r}")
    order = np.argsort(p, kind="stable")
    steps = np.maximum.accumulate(p[order] * np.arange(p.size, 0, -1))
    adjusted = np.empty_like(p)
    adjusted[order] = np.minimum(steps, 1.0)
    return adjusted


def compare_family(
    pairs: Sequence[tuple[ArrayLike, ArrayLike]],
    margin: float = 0.05,
    confidence: float = 0.95,
    method: Adjustment = "holm",
) -> list[PairedComparison]:
    """Compare, adjust and decide a whole matrix of cells at once, with alpha = 1 - confidence.

    pairs: one (a, b) per cell as in paired_ratio(). Pairs with too few blocks stay in the family with p = 1:
    the family is what the study declared, not what happened to finish.

    Raises ValueError as paired_ratio() and decide() do.
    """
    comparisons = [paired_ratio(a, b, confidence) for a, b in pairs]
    adjusted = adjust([c.p_value for c in comparisons], method)
    # 1 - 0.95 is 0.050000000000000044; a p of exactly 0.05 must not pass as smaller.
    alpha = round(1 - confidence, 12)
    return [
        decide(replace(comparison, p_adjusted=float(p)), margin, alpha)
        for comparison, p in zip(comparisons, adjusted, strict=True)
    ]
