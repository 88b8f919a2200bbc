"""Stein's sample size: the formula, its bounds, and the promise it makes."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from stats_simulations import lucky_streak_coverage, measured, stein

from assay.stats import blocks_needed, blocks_needed_paired

PILOT = [95.0, 100.0, 104.0, 99.0, 110.0]


def test_the_formula() -> None:
    spread = np.log(PILOT).std(ddof=1)
    wanted = (stats.t.ppf(0.975, 4) * spread / math.log(1.02)) ** 2
    assert blocks_needed(PILOT, 0.02, 0.95, 3, 1000) == math.ceil(wanted)
    assert wanted > len(PILOT)


def test_bounds() -> None:
    assert blocks_needed(PILOT, 0.5, 0.95, 3, 1000) == len(PILOT)
    assert blocks_needed(PILOT, 0.5, 0.95, 8, 1000) == 8
    assert blocks_needed(PILOT, 0.001, 0.95, 3, 20) == 20
    assert blocks_needed(PILOT, 1e-300, 0.95, 3, 20) == 20
    assert blocks_needed(PILOT, 0.001, 0.95, 2, 3) == len(PILOT), "blocks already run are kept"
    assert blocks_needed([5.0, 5.0], 0.01, 0.95, 2, 100) == 2


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (([1.0], 0.05, 0.95, 2, 10), "pilot"),
        (([], 0.05, 0.95, 2, 10), "pilot"),
        ((PILOT, 0.0, 0.95, 2, 10), "half_width"),
        ((PILOT, math.nan, 0.95, 2, 10), "half_width"),
        ((PILOT, 0.05, 1.0, 2, 10), "confidence"),
        ((PILOT, 0.05, 0.95, 11, 10), "minimum"),
        ((PILOT, 0.05, 0.95, 0, 10), "minimum"),
        (([1.0, 0.0], 0.05, 0.95, 2, 10), "positive"),
    ],
)
def test_nonsense_is_refused(arguments, message: str) -> None:
    with pytest.raises(ValueError, match=message):
        blocks_needed(*arguments)


def test_paired_is_the_same_rule_on_log_ratios() -> None:
    assert blocks_needed_paired(np.log(PILOT), 0.02, 0.95, 3, 1000) == blocks_needed(PILOT, 0.02, 0.95, 3, 1000)
    assert blocks_needed_paired([-0.1, 0.0, 0.1], 0.05, 0.95, 3, 1000) > 3


def test_pairing_saves_blocks_when_the_block_is_the_noise() -> None:
    rng = np.random.default_rng(3)
    block = rng.normal(0, 0.3, 6)
    a, b = block + rng.normal(0, 0.01, 6), block + rng.normal(0, 0.01, 6)
    alone = blocks_needed(np.exp(a), 0.05, 0.95, 3, 10_000)
    paired = blocks_needed_paired(a - b, 0.05, 0.95, 3, 10_000)
    assert paired <= 6 < 100 < alone


@pytest.mark.parametrize("sigma", [0.02, 0.1, 0.2])
def test_coverage_is_nominal_and_the_width_is_kept(sigma: float) -> None:
    assert measured(f"Stein, log sd {sigma}, coverage").agrees_with(0.95)
    kept = measured(f"Stein, log sd {sigma}, width kept")
    assert kept.hits == kept.trials


def test_noisier_cells_get_more_blocks() -> None:
    quiet, noisy = stein(600, 0.1)[2], stein(600, 0.2)[2]
    # Four times the variance: four times the blocks, up to the minimum of the quiet cell and the rounding up.
    assert noisy / quiet == pytest.approx(4, rel=0.1)


def test_stopping_on_a_narrow_interval_covers_less_than_promised() -> None:
    # The rule this one replaces; if it covered 95 % there would be no reason for a two-stage rule.
    assert not lucky_streak_coverage(20_000).at_least(0.95)


@given(
    st.lists(st.floats(1e-3, 1e9), min_size=2, max_size=12),
    st.floats(1e-6, 10),
    st.integers(1, 50),
    st.integers(0, 100),
)
def test_always_within_bounds(values: list[float], half_width: float, minimum: int, extra: int) -> None:
    n = blocks_needed(values, half_width, 0.95, minimum, minimum + extra)
    assert max(minimum, len(values)) <= n <= max(minimum + extra, len(values))
