"""Intervals: exact small cases, and coverage where it is nominal and where it is not."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy import stats
from stats_simulations import MEDIAN, autocorrelated, bimodal, lognormal, measured, normal, rare_slow, t_coverage
from statsmodels.stats.weightstats import DescrStatsW

from assay.stats import Interval, log_t_interval, median_interval, stein_interval

positive_values = st.lists(st.floats(1e-6, 1e12), min_size=1, max_size=30)


def test_log_t_interval_equals_statsmodels_on_logs() -> None:
    x = np.random.default_rng(1).lognormal(5, 0.3, 12)
    low, high = np.exp(DescrStatsW(np.log(x)).tconfint_mean(0.1))
    interval = log_t_interval(x, 0.9)
    assert (interval.low, interval.high) == pytest.approx((low, high))
    assert interval.estimate == pytest.approx(stats.gmean(x))
    assert (interval.n, interval.confidence) == (12, 0.9)


@pytest.mark.parametrize("function", [log_t_interval, median_interval])
def test_one_value_gives_an_infinite_interval(function) -> None:
    interval = function([7.0])
    assert interval.estimate == pytest.approx(7.0)
    assert (interval.low, interval.high, interval.n) == (0.0, math.inf, 1)
    assert interval.relative_half_width == math.inf
    assert not interval.is_finite


@pytest.mark.parametrize("function", [log_t_interval, median_interval])
def test_no_values_give_no_estimate(function) -> None:
    interval = function([])
    assert math.isnan(interval.estimate)
    assert (interval.low, interval.high, interval.n) == (0.0, math.inf, 0)


@pytest.mark.parametrize("function", [log_t_interval, lambda x: stein_interval(x, 2)])
@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_values_without_a_logarithm_are_refused(function, bad: float) -> None:
    with pytest.raises(ValueError):
        function([1.0, bad, 2.0])


@pytest.mark.parametrize("bad", [-1.0, math.nan, math.inf])
def test_median_refuses_what_is_no_rate(bad: float) -> None:
    with pytest.raises(ValueError):
        median_interval([1.0, bad, 2.0])


@pytest.mark.parametrize("confidence", [0.0, 1.0, 95.0, -0.1])
def test_confidence_is_a_fraction(confidence: float) -> None:
    for function in (log_t_interval, median_interval):
        with pytest.raises(ValueError, match="confidence"):
            function([1.0, 2.0], confidence)


def test_two_dimensional_input_is_refused() -> None:
    with pytest.raises(ValueError, match="one-dimensional"):
        log_t_interval(np.ones((3, 2)))


def test_equal_values_give_zero_width() -> None:
    interval = log_t_interval([4.0, 4.0, 4.0])
    assert interval.relative_half_width == pytest.approx(0.0, abs=1e-12)
    assert interval.estimate == pytest.approx(4.0)


def test_relative_half_width_is_a_factor() -> None:
    assert Interval(100, 100 / 1.05, 105, 9, 0.95, "").relative_half_width == pytest.approx(0.05)


# Hoefler & Belli's examples: 95 % needs n >= 6, n = 9 reaches it from the 2nd to the 8th value.
@pytest.mark.parametrize(
    ("n", "confidence", "ranks"),
    [
        (3, 0.95, None),
        (5, 0.95, None),
        (6, 0.95, (1, 6)),
        (8, 0.95, (1, 8)),
        (9, 0.95, (2, 8)),
        (3, 0.75, (1, 3)),
        (3, 0.76, None),
        (7, 0.99, None),
        (8, 0.99, (1, 8)),
    ],
)
def test_median_ranks(n: int, confidence: float, ranks: tuple[int, int] | None) -> None:
    interval = median_interval(np.random.default_rng(2).permutation(np.arange(1.0, n + 1)), confidence)
    assert (interval.low, interval.high) == (ranks or (0.0, math.inf))


@pytest.mark.parametrize("n", [2, 5, 6, 17, 50, 1001])
@pytest.mark.parametrize("confidence", [0.8, 0.95, 0.99])
def test_median_interval_equals_scipy(n: int, confidence: float) -> None:
    x = np.random.default_rng(n).lognormal(3, 1, n)
    oracle = stats.quantile_test(x, p=0.5).confidence_interval(confidence)
    interval = median_interval(x, confidence)
    if math.isnan(oracle.low):
        assert (interval.low, interval.high) == (0.0, math.inf)
    else:
        assert (interval.low, interval.high) == (oracle.low, oracle.high)


@pytest.mark.parametrize("n", range(6, 40))
def test_median_ranks_are_the_tightest_that_reach_the_confidence(n: int) -> None:
    interval = median_interval(np.arange(1.0, n + 1))
    k = int(interval.low)
    assert interval.high == n + 1 - k

    def coverage(rank: int) -> float:
        return float(1 - 2 * stats.binom.cdf(rank - 1, n, 0.5))

    assert coverage(k) >= 0.95 > coverage(k + 1)


def test_stein_uses_the_spread_of_the_pilot_only() -> None:
    pilot = np.array([90.0, 100.0, 110.0])
    wild = np.array([50.0, 200.0, 100.0])
    x = np.concatenate([pilot, wild])
    half = stats.t.ppf(0.975, 2) * np.log(pilot).std(ddof=1) / math.sqrt(6)
    interval = stein_interval(x, 3)
    assert math.log(interval.high / interval.low) / 2 == pytest.approx(half)
    assert interval.estimate == pytest.approx(stats.gmean(x))


def test_stein_without_a_complete_pilot_is_infinite() -> None:
    assert stein_interval([1.0, 2.0], pilot=5).relative_half_width == math.inf
    with pytest.raises(ValueError, match="pilot"):
        stein_interval([1.0, 2.0], pilot=1)


@pytest.mark.parametrize("sampler", [lognormal, normal])
@pytest.mark.parametrize("n", [5, 10, 30])
def test_t_coverage_is_nominal(sampler, n: int) -> None:
    rate = measured(f"t on logs, {sampler.__name__}, n = {n}")
    assert rate.agrees_with(0.95)


@pytest.mark.parametrize("confidence", [0.5, 0.9, 0.99])
def test_t_coverage_follows_the_confidence(confidence: float) -> None:
    assert t_coverage(1000, lognormal, 6, confidence).agrees_with(confidence)


def test_t_coverage_of_two_equal_modes_at_5_is_the_chance_of_seeing_both() -> None:
    # With all five in one mode (chance 2 / 2^5) the interval cannot reach the middle; otherwise it does.
    rate = measured(f"t on logs, {bimodal.__name__}, n = 5")
    assert rate.agrees_with(1 - 2 / 2**5)
    assert not rate.agrees_with(0.80)


def test_t_coverage_with_rare_slow_attempts_is_not_nominal() -> None:
    # Without a slow attempt among n (chance 0.9^n: 59 % at 5) nothing in the data hints at them.
    for n, unseen in ((5, 0.9**5), (10, 0.9**10)):
        rate = measured(f"t on logs, {rare_slow.__name__}, n = {n}")
        assert rate.agrees_with(1 - unseen)
        assert not rate.at_least(0.95)


def test_t_coverage_of_autocorrelated_attempts_is_not_nominal_and_more_attempts_do_not_help() -> None:
    rates = [measured(f"t on logs, {autocorrelated.__name__}, n = {n}") for n in (5, 10, 30)]
    assert all(0.6 < rate.value < 0.8 and not rate.at_least(0.9) for rate in rates)


@pytest.mark.parametrize("sampler", [lognormal, normal, rare_slow])
@pytest.mark.parametrize("n", [6, 9, 20])
def test_median_coverage_is_the_binomial_one_for_any_distribution(sampler, n: int) -> None:
    assert sampler in MEDIAN
    k = int(median_interval(np.arange(1.0, n + 1)).low)
    exact = float(1 - 2 * stats.binom.cdf(k - 1, n, 0.5))
    assert measured(f"median, {sampler.__name__}, n = {n}").agrees_with(exact)


def test_median_coverage_of_autocorrelated_attempts_is_not_nominal() -> None:
    for n in (6, 9, 20):
        assert not measured(f"median, autocorrelated, n = {n}").at_least(0.9)


@given(positive_values, st.floats(1e-3, 1e3))
def test_intervals_scale_with_the_unit(values: list[float], factor: float) -> None:
    scaled = [v * factor for v in values]
    for function in (log_t_interval, median_interval):
        one, other = function(values), function(scaled)
        assert other.estimate == pytest.approx(one.estimate * factor)
        # Logs of an interval's ends carry the rounding of a wide spread, so compare them, not the ends.
        if one.is_finite and other.is_finite:
            assert math.log(other.high) == pytest.approx(math.log(one.high) + math.log(factor), abs=1e-9)
            assert math.log(other.low) == pytest.approx(math.log(one.low) + math.log(factor), abs=1e-9)


@given(positive_values, st.randoms(use_true_random=False))
def test_order_of_attempts_does_not_matter(values: list[float], random) -> None:
    shuffled = random.sample(values, len(values))
    for function in (log_t_interval, median_interval):
        one, other = function(values), function(shuffled)
        assert other.estimate == pytest.approx(one.estimate)
        assert other.relative_half_width == pytest.approx(one.relative_half_width)


@given(positive_values)
def test_the_estimate_lies_within_the_interval(values: list[float]) -> None:
    for interval in (log_t_interval(values), median_interval(values), stein_interval(values, 2)):
        assert 0 <= interval.low <= interval.estimate <= interval.high
        assert interval.n == len(values)


@given(st.lists(st.floats(1e-3, 1e3), min_size=6, max_size=30), st.floats(0.55, 0.9))
def test_more_confidence_is_never_narrower(values: list[float], confidence: float) -> None:
    for function in (log_t_interval, median_interval):
        narrow, wide = function(values, confidence), function(values, confidence + 0.05)
        assert wide.low <= narrow.low * (1 + 1e-12)
        assert wide.high >= narrow.high * (1 - 1e-12)
