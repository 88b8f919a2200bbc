"""Steady state: MSER against brute force, Mann-Kendall against pymannkendall, Pettitt, SNIA, and the whole."""

from __future__ import annotations

import math
import time
from typing import Any
from unittest.mock import patch

import numpy as np
import pymannkendall
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from stats_simulations import ar1, measured

from assay.stats import mann_kendall, mser_cut, pettitt, snia_steady, steady_window
from assay.stats.steady import _first_order_factor

series = st.lists(st.integers(0, 1000), min_size=1, max_size=60)


# ------------------------------------------------------------------------------------------------------- MSER


def brute_force_mser(x: np.ndarray, batch: int) -> int:
    """The definition, in O(n^2): the cut of the first half with the least var / (n - d)."""
    means = np.array([x[i : i + batch].mean() for i in range(0, x.size - batch + 1, batch)])
    if means.size < 2:
        return 0
    scores = [means[d:].var() / (means.size - d) for d in range(means.size // 2 + 1)]
    return int(np.argmin(scores)) * batch


@pytest.mark.parametrize("batch", [1, 5])
@pytest.mark.parametrize("n", [2, 9, 10, 47, 200])
def test_mser_equals_brute_force(n: int, batch: int) -> None:
    rng = np.random.default_rng(n)
    for scale in (1.0, 1e9):
        for _ in range(30):
            x = scale * (10 + rng.normal(0, 1, n) - 8 * np.exp(-np.arange(n) / rng.uniform(1, n)))
            assert mser_cut(x, batch) == brute_force_mser(x, batch)


def test_mser_finds_the_end_of_a_warm_up() -> None:
    x = np.r_[np.linspace(0, 100, 30), 100 + np.random.default_rng(1).normal(0, 1, 100)]
    assert 28 <= mser_cut(x) <= 32
    assert mser_cut(x, batch=5) == 30


def test_mser_edge_cases() -> None:
    assert mser_cut([]) == 0
    assert mser_cut([1.0]) == 0
    assert mser_cut([5.0] * 50) == 0
    assert mser_cut([0.1] * 50) == 0, "rounding of a constant is no warm-up"
    assert mser_cut([1.0, 2.0, 3.0], batch=5) == 0
    with pytest.raises(ValueError, match="batch"):
        mser_cut([1.0], batch=0)
    with pytest.raises(ValueError, match="finite"):
        mser_cut([1.0, math.nan])


def test_mser_keeps_its_digits_when_the_level_dwarfs_the_noise() -> None:
    x = np.r_[np.zeros(20), np.ones(80)] + np.random.default_rng(2).normal(0, 0.1, 100)
    assert mser_cut(x + 1e9) == mser_cut(x) == 20


@given(series, st.sampled_from([1, 5]))
def test_mser_never_cuts_more_than_half_and_ignores_level_and_unit(values: list[int], batch: int) -> None:
    x = np.asarray(values, dtype=float)
    cut = mser_cut(x, batch)
    assert 0 <= cut <= x.size / 2
    assert cut % batch == 0
    # Powers of two and batches of one are exact, so ties stay ties.
    if batch == 1:
        assert mser_cut(x * 1024) == cut


# ----------------------------------------------------------------------------------------------- Mann-Kendall


def samples() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    # An even number of pairs: otherwise Sen's slope is that of one pair, whose detrended values then tie.
    made = [ar1(rng, phi, 1, n)[0] for phi in (0.0, 0.5, 0.9) for n in (12, 40, 152)]
    made += [x + np.linspace(0, 2, x.size) for x in made]
    made += [np.round(2 * x) for x in made]  # ties
    return made


def test_uncorrected_equals_pymannkendall() -> None:
    for x in samples():
        ours, oracle = mann_kendall(x, None), pymannkendall.original_test(x)
        assert ours.tau == pytest.approx(oracle.Tau)
        assert ours.slope == pytest.approx(oracle.slope)
        assert ours.z == pytest.approx(oracle.z)
        assert ours.p == pytest.approx(oracle.p, abs=1e-12)


def test_hamed_rao_equals_pymannkendall_wherever_its_factor_is_above_one() -> None:
    compared, floored = 0, 0
    for x in samples():
        ours, oracle = mann_kendall(x, "hamed-rao"), pymannkendall.hamed_rao_modification_test(x)
        plain = pymannkendall.original_test(x)
        if oracle.var_s >= plain.var_s:
            # Ties among detrended values are ties up to rounding, which changes single ranks by a half.
            tied = np.unique(x).size < x.size
            assert ours.z == pytest.approx(oracle.z, rel=3e-2 if tied else 1e-9)
            assert ours.p == pytest.approx(oracle.p, rel=0.15 if tied else 1e-6, abs=1e-12)
            compared += 1
        else:  # the documented difference: noise must not shrink the variance
            assert ours.z == pytest.approx(plain.z)
            floored += 1
    assert compared >= 15, "the comparison must not be empty"
    assert floored >= 3


def test_the_gate_is_never_more_eager_than_hamed_rao() -> None:
    for x in samples():
        assert mann_kendall(x, "hamed-rao+ar1").p >= mann_kendall(x, "hamed-rao").p


def test_the_gate_sees_correlation_at_longer_lags_too() -> None:
    # A flush every fifth sample: neighbours are independent, so the first-order factor alone sees nothing.
    rng = np.random.default_rng(10)
    noise = rng.standard_normal((100, 125))
    series = noise[:, 5:] + noise[:, :-5]
    gate = [mann_kendall(x, "hamed-rao+ar1") for x in series]
    textbook = [mann_kendall(x, "hamed-rao") for x in series]
    assert all(g.p >= t.p for g, t in zip(gate, textbook, strict=True))
    plain = [mann_kendall(x, None) for x in series]
    shrunk = np.mean([abs(g.z) for g in gate]) / np.mean([abs(t.z) for t in plain])
    assert shrunk < 0.85, "the true variance is twice that of independent samples: about 0.71"


def test_the_first_order_factor_is_corrected_for_bias() -> None:
    # r = (0 · 23 + 2 - 1) / (23 - 3) = 0.05 after a line was fitted; one more for each further parameter.
    assert _first_order_factor(0.0, 23, fitted=2) == pytest.approx(1.05 / 0.95)
    assert _first_order_factor(0.0, 23, fitted=3) == pytest.approx(1.10 / 0.90)
    assert _first_order_factor(-0.9, 23, fitted=2) == 1.0
    assert _first_order_factor(1.0, 23, fitted=2) == pytest.approx(45)
    # The gate removes a line, Pettitt's test two levels.
    x = ar1(np.random.default_rng(11), 0.6, 1, 40)[0]
    with patch("assay.stats.steady._first_order_factor", return_value=1.0) as factor:
        mann_kendall(x, "hamed-rao+ar1")
        pettitt(x)
    assert [call.kwargs["fitted"] for call in factor.call_args_list] == [2, 3]


def test_white_noise_alarms_are_nominal() -> None:
    for n in (30, 120, 300):
        for correction in ("uncorrected", "hamed-rao", "hamed-rao+ar1"):
            rate = measured(f"trend, {correction}, phi = 0.0, n = {n}")
            assert rate.at_most(0.05)
            assert rate.hits > 0


def test_autocorrelation_fools_the_uncorrected_test_and_the_gate_much_less() -> None:
    for n in (30, 120, 300):
        uncorrected = measured(f"trend, uncorrected, phi = 0.6, n = {n}")
        textbook = measured(f"trend, hamed-rao, phi = 0.6, n = {n}")
        gate = measured(f"trend, hamed-rao+ar1, phi = 0.6, n = {n}")
        assert uncorrected.at_least(0.25) and not uncorrected.at_most(0.15)
        # Measured truth: Hamed and Rao's sum alone is far from its 5 %.
        assert not textbook.at_most(0.05)
        assert gate.at_most(0.10 if n < 100 else 0.07)
        assert gate.value < textbook.value < uncorrected.value


def test_strong_autocorrelation_in_a_short_series_is_beyond_every_correction() -> None:
    assert not measured("trend, hamed-rao+ar1, phi = 0.9, n = 30").at_most(0.05)
    assert measured("trend, hamed-rao+ar1, phi = 0.9, n = 300").at_most(0.10)
    assert measured("trend, uncorrected, phi = 0.9, n = 300").at_least(0.6)


def test_real_trends_are_found() -> None:
    assert measured("real trend of 2 sd found, hamed-rao+ar1, phi = 0.6, n = 300").at_least(0.95)
    assert measured("real trend of 2 sd found, hamed-rao+ar1, phi = 0.6, n = 120").at_least(0.8)


def test_mann_kendall_edge_cases() -> None:
    for correction in (None, "hamed-rao", "hamed-rao+ar1"):
        for x in ([], [1.0], [1.0, 2.0], [1.0, 2.0, 3.0]):
            assert mann_kendall(x, correction).p == 1.0
        constant = mann_kendall([4.0] * 30, correction)
        assert (constant.tau, constant.slope, constant.z, constant.p) == (0.0, 0.0, 0.0, 1.0)
        for n in range(4, 12):
            rising = mann_kendall(np.arange(float(n)), correction)
            assert rising.tau == pytest.approx(1.0)
            assert rising.slope == pytest.approx(1.0)
            assert 0 < rising.p < (0.1 if correction is None else 0.3)
    assert mann_kendall([1.0, 2.0, 3.0]).slope == pytest.approx(1.0)
    with pytest.raises(ValueError, match="unknown"):
        mann_kendall([1.0], "newey-west")  # pyright: ignore[reportArgumentType]
    with pytest.raises(ValueError, match="finite"):
        mann_kendall([1.0, math.inf])


def test_the_slope_of_a_long_series_is_per_sample() -> None:
    rng = np.random.default_rng(4)
    x = 50 + 0.003 * np.arange(20_000) + rng.normal(0, 5, 20_000)
    assert mann_kendall(x).slope == pytest.approx(0.003, rel=0.02)


@settings(deadline=None)
@given(st.lists(st.integers(-50, 50), max_size=40))
def test_reversing_time_or_sign_reverses_the_trend(values: list[int]) -> None:
    for correction in (None, "hamed-rao", "hamed-rao+ar1"):
        one = mann_kendall(values, correction)
        assert 0.0 <= one.p <= 1.0
        negated = mann_kendall([-v for v in values], correction)
        assert (negated.tau, negated.slope) == pytest.approx((-one.tau, -one.slope))
        backwards = mann_kendall(values[::-1], None)
        assert backwards.tau == pytest.approx(-one.tau)


# ---------------------------------------------------------------------------------------------------- Pettitt


def test_pettitt_statistic_by_definition() -> None:
    x = np.random.default_rng(5).integers(0, 8, 40).astype(float)
    sums = [np.sign(x[t:, None] - x[None, :t]).sum() for t in range(1, 40)]
    shift = pettitt(x)
    assert shift.statistic == pytest.approx(np.abs(sums).max())
    assert shift.index == int(np.argmax(np.abs(sums))) + 1


@pytest.mark.parametrize("at", [30, 60, 90])
@pytest.mark.parametrize("sign", [1, -1])
def test_pettitt_finds_a_planted_shift(at: int, sign: int) -> None:
    x = 100 + ar1(np.random.default_rng(6), 0.3, 1, 120)[0] + sign * 10.0 * (np.arange(120) >= at)
    shift = pettitt(x)
    assert abs(shift.index - at) <= 1, "a noisy last sample may be ranked with the other side"
    assert shift.p < 1e-3
    assert shift.relative_change == pytest.approx(sign * 0.1, abs=0.01)


def test_pettitt_alarms() -> None:
    for n in (30, 120, 300):
        for phi in (0.0, 0.6):
            assert measured(f"shift, phi = {phi}, n = {n}").at_most(0.08 if n < 100 else 0.05)
    assert measured("shift, phi = 0.9, n = 30").at_most(0.12)
    assert measured("shift, phi = 0.6, n = 120").hits > 0
    assert measured("real shift of 2 sd found, phi = 0.6, n = 120").at_least(0.85)


def test_pettitt_edge_cases() -> None:
    for x in ([], [1.0], [1.0, 2.0, 3.0], [7.0] * 20):
        assert (pettitt(x).p, pettitt(x).relative_change) == (1.0, 0.0)
    clean = pettitt([1.0] * 20 + [2.0] * 20)
    assert (clean.index, clean.p < 1e-4) == (20, True)
    with pytest.raises(ValueError, match="finite"):
        pettitt([1.0, math.nan])


# ------------------------------------------------------------------------------------------------------- SNIA


@pytest.mark.parametrize(
    ("rounds", "steady"),
    [
        ([100, 100, 100, 100, 100], True),
        ([90, 110, 90, 110, 100], True),  # excursion 20 % exactly, slope 2 per round: 8 %
        ([89, 111, 100, 100, 100], False),  # excursion 22 %
        ([95, 97.5, 100, 102.5, 105], True),  # line moves 10 % exactly
        ([94, 97, 100, 103, 106], False),  # 12 %, though the excursion of 12 % is allowed
        ([10, 500, 100, 100, 100, 100, 100], True),  # only the last five rounds count
        ([100, 100, 100, 100], False),  # too few rounds
        ([0, 0, 0, 0, 0], False),
        ([], False),
    ],
)
def test_snia_wording(rounds: list[float], steady: bool) -> None:
    assert snia_steady(rounds) is steady
    assert snia_steady([7e8 * r for r in rounds]) is steady


def test_snia_slope_limit_binds_where_the_excursion_does_not() -> None:
    rounds = np.array([93.0, 98.0, 100.0, 102.0, 107.0])
    line: Any = stats.linregress(np.arange(5), rounds)
    assert np.ptp(rounds) <= 0.2 * rounds.mean()
    assert 4 * line.slope > 0.1 * rounds.mean()
    assert not snia_steady(rounds)


def test_snia_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match="window"):
        snia_steady([1.0], window=1)
    with pytest.raises(ValueError, match="negative"):
        snia_steady([1.0, -1.0])


# -------------------------------------------------------------------------------------------------- the whole

NOISE = np.random.default_rng(7).normal(0, 3, 200)


def test_a_steady_series_with_warm_up() -> None:
    x = 100 - 80 * np.exp(-np.arange(200) / 10) + NOISE
    state = steady_window(x, 2.0)
    assert state.found
    assert 20 <= state.start <= 60
    assert state.stop == 200
    assert state.steady_mean == pytest.approx(x[state.start :].mean())
    assert state.total_mean == pytest.approx(x.mean())
    assert state.steady_mean is not None and state.steady_mean > state.total_mean
    assert state.cov == pytest.approx(0.03, abs=0.01)
    assert f"after {2 * state.start} s cut off as warm-up" in state.reason
    assert "slower" in state.reason and "400 s" in state.reason


def test_a_drift_has_no_steady_state() -> None:
    state = steady_window(100 - 0.15 * np.arange(200) + NOISE, 1.0)
    assert not state.found
    assert state.steady_mean is None
    assert "still falls" in state.reason
    assert state.trend.slope == pytest.approx(-0.15, rel=0.2)
    assert "still rises" in steady_window(70 + 0.15 * np.arange(200) + NOISE, 1.0).reason


def test_a_significant_but_small_drift_is_tolerated() -> None:
    x = 100 - 0.01 * np.arange(200) + NOISE / 10
    state = steady_window(x, 1.0)
    assert state.trend.p < 1e-6
    assert state.found
    assert not steady_window(x, 1.0, effect_floor=0.005).found


def test_a_level_shift_has_no_steady_state() -> None:
    state = steady_window(np.where(np.arange(200) < 140, 100.0, 80.0) + NOISE, 1.0)
    assert not state.found
    assert abs(state.shift.index - 140) <= 1, "counted from the start of the series"
    assert state.shift.relative_change == pytest.approx(-0.2, abs=0.05)
    assert state.reason.startswith(("the rate drops", "the rate still falls"))


def test_a_shift_that_leaves_the_trend_test_alone_is_named() -> None:
    # A dip in the middle third has no monotonic trend over the whole.
    x = 100 + NOISE / 3
    x[170:] -= 20
    state = steady_window(x, 0.5)
    assert "the rate drops by" in state.reason
    assert "at 85 s" in state.reason


def test_two_levels_of_half_a_run_each_are_not_warm_up_and_steady_state() -> None:
    state = steady_window(np.where(np.arange(200) < 100, 100.0, 80.0) + NOISE, 1.0)
    assert not state.found
    assert "half of the run" in state.reason
    assert "faster" in state.reason


def test_what_was_cut_off_is_always_in_the_reason() -> None:
    x = np.where(np.arange(200) < 50, 150.0, 100.0) + NOISE
    state = steady_window(x, 1.0)
    assert state.found and state.start == 50
    ahead = 100 * (x[:50].mean() / x[50:].mean() - 1)
    assert f"50 s cut off as warm-up, {ahead:.1f}% faster" in state.reason


def test_erratic_series() -> None:
    x = np.random.default_rng(8).exponential(100, 200)
    state = steady_window(x, 1.0)
    assert not state.found
    assert "erratic" in state.reason
    assert steady_window(x, 1.0, max_cov=None).found


def test_short_constant_and_empty_series() -> None:
    short = steady_window([5.0] * 19, 1.0)
    assert (short.found, short.reason) == (False, "only 19 samples, at least 20 needed")
    assert short.total_mean == 5.0
    empty = steady_window([], 1.0)
    assert (empty.found, empty.reason) == (False, "only 0 samples, at least 20 needed")
    constant = steady_window([5.0] * 20, 1.0)
    assert (constant.found, constant.start, constant.stop, constant.cov) == (True, 0, 20, 0.0)
    zero = steady_window(np.zeros(100), 1.0)
    assert not zero.found
    assert "all values are zero" in zero.reason
    died = steady_window(np.r_[np.full(40, 100.0), np.zeros(60)], 1.0)
    assert not died.found
    assert "after the warm-up are zero" in died.reason


@pytest.mark.parametrize(
    "wrong",
    [
        {"interval_seconds": 0.0},
        {"min_samples": 7},
        {"alpha": 0.0},
        {"effect_floor": -0.1},
        {"max_cov": -0.1},
    ],
)
def test_nonsense_is_refused(wrong: dict[str, float]) -> None:
    arguments = {"interval_seconds": 1.0} | wrong
    with pytest.raises(ValueError):
        steady_window([1.0] * 50, **arguments)  # pyright: ignore[reportArgumentType]


def test_negative_rates_are_refused() -> None:
    with pytest.raises(ValueError, match="negative"):
        steady_window([-1.0] * 50, 1.0)


def test_long_series_are_fast() -> None:
    x = 100 + ar1(np.random.default_rng(9), 0.5, 1, 20_000)[0]
    started = time.process_time()
    assert steady_window(x, 1.0).found
    assert time.process_time() - started < 1.0


def test_rates_of_the_whole_gate() -> None:
    assert measured("steady window, steady").at_least(0.95)
    assert measured("steady window, warm-up, then steady").at_least(0.95)
    assert measured("steady window, drift of 2 %").at_least(0.85)
    assert measured("steady window, drift of 20 %").at_most(0.05)
    assert measured("steady window, drop of 20 % at half").at_most(0.02)
    assert measured("steady window, drop of 20 % at two thirds").at_most(0.02)
    # The two honest weaknesses: an early drop is taken for a warm-up, a short drifting series passes.
    assert measured("steady window, drop of 20 % at one third").at_least(0.8)
    assert measured("steady window, drift of 20 %, only 30 samples").at_least(0.3)


@settings(deadline=None)
@given(st.lists(st.integers(0, 1000), max_size=60), st.sampled_from([2.0**-10, 1024.0]))
def test_always_an_answer_and_the_unit_does_not_matter(values: list[int], factor: float) -> None:
    x = np.asarray(values, dtype=float)
    one, other = steady_window(x, 1.0), steady_window(x * factor, 1.0)
    assert (one.found, one.start, one.stop, one.reason) == (other.found, other.start, other.stop, other.reason)
    assert 0 <= one.start <= one.stop == x.size
    assert one.found == (one.steady_mean is not None)
    assert one.reason
