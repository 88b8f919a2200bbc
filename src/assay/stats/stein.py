"""How many blocks a cell needs: Stein's two-stage sample size.

The number is fixed once, from the spread of a pilot, before the remaining blocks run. Rules that stop "when
the numbers look stable" (a CV threshold checked after every run) stop on lucky streaks and promise nothing
about the error of the mean; this one promises a half width at a confidence.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from assay.stats._input import FloatArray, check_fraction, finite, positive


def blocks_needed(pilot_values: ArrayLike, half_width: float, confidence: float, minimum: int, maximum: int) -> int:
    """Blocks in total (pilot included) for a relative half width of the geometric mean.

    pilot_values: shape (n0,), one value per block, n0 >= 2. half_width 0.05 means within a factor of 1.05.
    The answer lies within [minimum, maximum] and is never below n0, since blocks already run are kept. Pass
    the final values to stein_interval(x, pilot=n0), whose relative_half_width is then at most half_width
    unless maximum cut the number down.

    Raises ValueError when n0 < 2, a value is not positive and finite, half_width <= 0, confidence is outside
    (0, 1), or not 1 <= minimum <= maximum. Source: Stein 1945, Ann. Math. Statist. 16(3).
    """
    return _two_stage(np.log(positive(pilot_values)), half_width, confidence, minimum, maximum)


def blocks_needed_paired(
    log_ratios: ArrayLike, half_width: float, confidence: float, minimum: int, maximum: int
) -> int:
    """Blocks in total for a relative half width of the ratio of two candidates.

    log_ratios: shape (n0,), ln(a_k / b_k) of the pilot's blocks. What the two candidates share within a block
    cancels, so this often needs far fewer blocks than either candidate alone. Otherwise as blocks_needed().

    Raises ValueError as blocks_needed() does, except that a log ratio may be negative or zero.
    """
    return _two_stage(finite(log_ratios, "log_ratios"), half_width, confidence, minimum, maximum)


def _two_stage(logs: FloatArray, half_width: float, confidence: float, minimum: int, maximum: int) -> int:
    check_fraction(confidence, "confidence")
    if logs.size < 2:
        raise ValueError(f"a pilot of {logs.size} shows no spread: at least 2 values needed")
    if not half_width > 0:
        raise ValueError(f"half_width must be positive, not {half_width}")
    if not 1 <= minimum <= maximum:
        raise ValueError(f"minimum {minimum} must be at least 1 and not above maximum {maximum}")
    quantile = float(stats.t.isf((1 - confidence) / 2, logs.size - 1))
    root = quantile * float(logs.std(ddof=1)) / math.log1p(half_width)
    # Compared before squaring: a tiny half width would overflow.
    needed = maximum if root >= math.sqrt(maximum) else math.ceil(root**2)
    return max(needed, minimum, int(logs.size))
