"""Comparisons: the arithmetic against scipy and statsmodels, the four decisions, false alarms and power."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from stats_simulations import decisions, measured
from statsmodels.stats.multitest import multipletests
from statsmodels.stats.weightstats import CompareMeans, DescrStatsW

from assay.stats import (
    Decision,
    Interval,
    PairedComparison,
    adjust,
    can_reject,
    compare_family,
    decide,
    log_ratios,
    paired_ratio,
    unpaired_ratio,
)

B = np.array([100.0, 140.0, 90.0, 200.0, 120.0, 111.0])
JITTER = np.array([1.01, 0.99, 1.02, 0.98, 1.0, 1.005])
blocks = st.lists(st.tuples(st.floats(1e-3, 1e9), st.floats(1e-3, 1e9)), min_size=1, max_size=12)
p_lists = st.lists(st.floats(0, 1), min_size=1, max_size=25)


def comparison(low: float, high: float, p: float = 0.5, p_adjusted: float | None = None) -> PairedComparison:
    ratio = Interval(math.sqrt(low * high), low, high, 6, 0.95, "planted")
    return PairedComparison(ratio, p, p_adjusted, 6, Decision.UNDECIDED, "")


# ------------------------------------------------------------------------------------------------- arithmetic


def test_paired_ratio_equals_the_t_test_on_log_ratios() -> None:
    a = B * JITTER * 0.9
    made = paired_ratio(a, B, 0.9)
    logs = np.log(a / B)
    low, high = np.exp(DescrStatsW(logs).tconfint_mean(0.1))
    assert (made.ratio.low, made.ratio.high) == pytest.approx((low, high))
    assert made.ratio.estimate == pytest.approx(stats.gmean(a) / stats.gmean(B))
    assert made.p_value == pytest.approx(DescrStatsW(logs).ttest_mean(0)[1])
    assert (made.n, made.p_adjusted, made.decision) == (6, None, Decision.UNDECIDED)


def test_pairing_cancels_what_a_block_shares() -> None:
    a = B * JITTER * 0.9
    assert decide(paired_ratio(a, B)).decision is Decision.SLOWER
    assert decide(unpaired_ratio(a, B)).decision is Decision.UNDECIDED


def test_unpaired_ratio_equals_welch() -> None:
    a = np.random.default_rng(5).lognormal(4, 0.3, 9)
    made = unpaired_ratio(a, B, 0.99)
    oracle = CompareMeans(DescrStatsW(np.log(a)), DescrStatsW(np.log(B)))
    low, high = np.exp(oracle.tconfint_diff(0.01, usevar="unequal"))
    assert (made.ratio.low, made.ratio.high) == pytest.approx((low, high))
    assert made.p_value == pytest.approx(oracle.ttest_ind(usevar="unequal")[1])
    assert made.n == 6


@pytest.mark.parametrize("function", [paired_ratio, unpaired_ratio])
@pytest.mark.parametrize("values", [[], [5.0]])
def test_fewer_than_two_blocks_decide_nothing(function, values: list[float]) -> None:
    made = decide(function(values, [2 * v for v in values]))
    assert (made.ratio.low, made.ratio.high, made.p_value) == (0.0, math.inf, 1.0)
    assert made.decision is Decision.UNDECIDED
    assert "at least 2" in made.reason
    assert made.n == len(values)


@pytest.mark.parametrize("function", [paired_ratio, unpaired_ratio])
def test_no_variation(function) -> None:
    same = decide(function([3.0, 3.0, 3.0], [3.0, 3.0, 3.0]))
    assert (same.ratio.low, same.ratio.estimate, same.ratio.high) == (1.0, 1.0, 1.0)
    assert (same.p_value, same.decision) == (1.0, Decision.EQUIVALENT)
    twice = decide(function([6.0, 6.0], [3.0, 3.0]))
    assert twice.ratio.low == pytest.approx(2.0) == twice.ratio.high
    assert (twice.p_value, twice.decision) == (0.0, Decision.FASTER)


def test_rounding_noise_is_no_variation() -> None:
    b = np.array([0.1, 0.7, 1.3, 2.9])
    made = paired_ratio(b * 1.1, b)
    assert made.ratio.relative_half_width == 0.0
    assert paired_ratio(b / 3 * 3, b).p_value == 1.0


def test_unequal_blocks_are_refused() -> None:
    with pytest.raises(ValueError, match="same blocks"):
        paired_ratio([1.0, 2.0], [1.0])


@pytest.mark.parametrize("bad", [0.0, -1.0, math.nan, math.inf])
def test_values_that_are_no_rates_are_refused(bad: float) -> None:
    for function in (paired_ratio, unpaired_ratio, log_ratios):
        with pytest.raises(ValueError):
            function([1.0, bad], [1.0, 2.0])
        with pytest.raises(ValueError):
            function([1.0, 2.0], [1.0, bad])


# -------------------------------------------------------------------------------------------------- decisions


@pytest.mark.parametrize(
    ("low", "high", "p", "decision"),
    [
        (0.97, 1.03, 0.9, Decision.EQUIVALENT),
        (1.01, 1.04, 0.001, Decision.EQUIVALENT),  # real but smaller than anybody cares about
        (1 / 1.05, 1.05, 0.9, Decision.EQUIVALENT),
        (0.95, 1.03, 0.9, Decision.UNDECIDED),  # 0.95 is below 1/1.05: the margin is symmetric in logs
        (0.97, 1.06, 0.9, Decision.UNDECIDED),
        (1.06, 1.20, 0.001, Decision.FASTER),
        (1.01, 1.20, 0.01, Decision.FASTER),
        (0.80, 0.99, 0.01, Decision.SLOWER),
        (1.06, 1.20, 0.05, Decision.UNDECIDED),  # p must be below alpha
        (0.99, 1.20, 0.001, Decision.UNDECIDED),  # the interval must exclude 1
        (0.5, 2.0, 0.9, Decision.UNDECIDED),
    ],
)
def test_the_four_decisions(low: float, high: float, p: float, decision: Decision) -> None:
    made = decide(comparison(low, high, p), margin=0.05, alpha=0.05)
    assert made.decision is decision
    assert len(made.reason) > 20
    assert f"{low:.3g} to {high:.3g}" in made.reason


def test_the_adjusted_p_counts_when_there_is_one() -> None:
    made = decide(comparison(1.06, 1.2, p=0.01, p_adjusted=0.2))
    assert made.decision is Decision.UNDECIDED
    assert "p = 0.2 after adjustment is not below 0.05" in made.reason
    assert decide(comparison(1.06, 1.2, p=0.01, p_adjusted=0.02)).decision is Decision.FASTER


def test_reasons_state_the_least_effect() -> None:
    assert "slower by at least 10 %" in decide(comparison(0.8, 0.9, 0.001)).reason
    assert "faster by at least 20 %" in decide(comparison(1.2, 1.3, 0.001)).reason


def test_decisions_are_plain_strings() -> None:
    assert [str(d) for d in Decision] == ["faster", "slower", "equivalent", "undecided"]


def test_decide_refuses_nonsense() -> None:
    with pytest.raises(ValueError, match="margin"):
        decide(comparison(0.9, 1.1), margin=0.0)
    with pytest.raises(ValueError, match="alpha"):
        decide(comparison(0.9, 1.1), alpha=1.0)


def test_can_reject() -> None:
    assert not can_reject(1)
    assert can_reject(2)
    assert can_reject(2, 0.001, 1000)
    # asv's and Wilcoxon's arithmetic: 2 / 2^5 = 0.0625, 2 / 2^6 = 0.03125.
    assert not can_reject(5, 0.05, test="sign-flip")
    assert can_reject(6, 0.05, test="sign-flip")
    assert not can_reject(9, 0.05, 20, test="sign-flip")
    assert can_reject(10, 0.05, 20, test="sign-flip")
    assert not can_reject(0, 0.05, test="sign-flip")
    with pytest.raises(ValueError, match="family_size"):
        can_reject(6, 0.05, 0)


@pytest.mark.parametrize("n", [4, 5, 6, 7])
def test_can_reject_knows_the_least_p_of_wilcoxon(n: int) -> None:
    wilcoxon: Any = stats.wilcoxon(np.arange(1.0, n + 1), method="exact")
    least = wilcoxon.pvalue
    for alpha in (0.01, 0.02, 0.04, 0.1, 0.2):
        assert can_reject(n, alpha, test="sign-flip") == (least < alpha)


# -------------------------------------------------------------------------------------------------- adjustment


@settings(max_examples=40, deadline=None)  # statsmodels is slow
@given(p_lists)
def test_adjustments_equal_statsmodels(p_values: list[float]) -> None:
    for ours, theirs in (("holm", "holm"), ("benjamini-hochberg", "fdr_bh")):
        oracle = multipletests(p_values, method=theirs)[1]
        assert adjust(p_values, ours) == pytest.approx(oracle)  # pyright: ignore[reportArgumentType]


@given(p_lists, st.randoms(use_true_random=False))
def test_adjustment_follows_its_p_value(p_values: list[float], random) -> None:
    order = random.sample(range(len(p_values)), len(p_values))
    assert adjust([p_values[i] for i in order]) == pytest.approx(adjust(p_values)[order])


def test_adjust_edge_cases() -> None:
    assert adjust([]).size == 0
    assert adjust([0.03]).tolist() == [0.03]
    for bad in ([-0.1], [1.1], [math.nan]):
        with pytest.raises(ValueError, match="p values"):
            adjust(bad)
    with pytest.raises(ValueError, match="unknown"):
        adjust([0.5], "bonferoni")  # pyright: ignore[reportArgumentType]


def test_holm_keeps_the_familywise_rate_and_benjamini_hochberg_the_false_discovery_rate() -> None:
    rng = np.random.default_rng(6)
    trials, cells, false = 4000, 20, 15
    # Five true differences with p below 0.01, fifteen without: uniform p.
    p = np.hstack([rng.random((trials, false)), rng.random((trials, cells - false)) * 0.01])
    holm = np.array([adjust(row, "holm") < 0.05 for row in p])
    bh = np.array([adjust(row, "benjamini-hochberg") < 0.05 for row in p])
    limit = stats.binom.ppf(1 - 1e-4, trials, 0.05) / trials
    assert holm[:, :false].any(axis=1).mean() <= limit
    shares = bh[:, :false].sum(axis=1) / np.maximum(bh.sum(axis=1), 1)
    # BH holds the rate at 0.05 × 15/20 exactly for independent tests; far less would mean lost power.
    assert shares.mean() == pytest.approx(0.05 * false / cells, abs=5 * shares.std() / math.sqrt(trials))
    assert bh[:, :false].any(axis=1).mean() > limit, "BH does not promise the familywise rate, and the docs say so"


# -------------------------------------------------------------------------------------- the whole, with real noise


def test_family_false_alarms() -> None:
    assert measured("20 equal cells, unadjusted, any false alarm").agrees_with(1 - 0.95**20)
    for method in ("holm", "benjamini-hochberg"):
        rate = measured(f"20 equal cells, {method}, any false alarm")
        assert rate.at_most(0.05)
        assert rate.hits > 0, "a rule that never alarms would pass as well"


def test_family_with_real_differences() -> None:
    assert measured("5 of 20 cells slower, holm, false among reported").at_most(0.05)
    assert measured("5 of 20 cells slower, benjamini-hochberg, false among reported").at_most(0.05)
    assert measured("5 of 20 cells slower, benjamini-hochberg, true ones found").at_least(0.9)
    assert measured("5 of 20 cells slower, holm, true ones found").at_least(0.6)


def test_a_slowdown_of_ten_percent_is_found() -> None:
    assert measured("ratio 0.9, noise 3%, n = 6: slower").at_least(0.99)
    assert measured("ratio 0.9, noise 5%, n = 6: slower").at_least(0.75)
    assert measured("ratio 0.9, noise 5%, n = 12: slower").at_least(0.98)
    for setting in ("noise 3%, n = 6", "noise 5%, n = 6", "noise 5%, n = 12"):
        assert measured(f"ratio 0.9, {setting}: faster").hits == 0
        assert measured(f"ratio 0.9, {setting}: equivalent").at_most(0.001)


def test_equal_candidates_are_called_equivalent_and_those_at_the_margin_are_not() -> None:
    assert measured("ratio 1.0, noise 2%, n = 6: equivalent").at_least(0.8)
    assert measured("ratio 1.05, noise 2%, n = 6: equivalent").agrees_with(0.025)


def test_power_agrees_with_the_noncentral_t() -> None:
    noise, n = 0.05, 6
    rate = decisions(1000, 0.9, noise, n)[Decision.SLOWER]
    shift = math.log(0.9) / (noise * math.sqrt(2) / math.sqrt(n))
    assert rate.agrees_with(float(stats.nct.cdf(-stats.t.isf(0.025, n - 1), n - 1, shift)))


def test_compare_family_adjusts_and_decides() -> None:
    slower = (B * JITTER * 0.9, B)
    same = (B * JITTER, B)
    pairs = [slower, same, ([1.0], [2.0])]
    made = compare_family(pairs)
    raw = [paired_ratio(a, b).p_value for a, b in pairs]
    assert [c.p_adjusted for c in made] == pytest.approx(adjust(raw))
    assert [c.decision for c in made] == [Decision.SLOWER, Decision.EQUIVALENT, Decision.UNDECIDED]
    assert compare_family([]) == []
    assert all(c.ratio.confidence == 0.9 for c in compare_family(pairs, confidence=0.9))


def test_a_larger_family_is_stricter() -> None:
    weak = (B * np.array([0.97, 0.9, 0.99, 0.93, 1.0, 0.94]), B)
    assert compare_family([weak], margin=0.01)[0].decision is Decision.SLOWER
    many = compare_family([weak] + [(B, B * JITTER)] * 30, margin=0.01)
    assert many[0].decision is Decision.UNDECIDED
    assert "after adjustment" in many[0].reason


# -------------------------------------------------------------------------------------------------- properties

FLIPPED = {Decision.FASTER: Decision.SLOWER, Decision.SLOWER: Decision.FASTER}


@given(blocks)
def test_swapping_the_candidates_inverts_the_answer(pairs: list[tuple[float, float]]) -> None:
    a, b = zip(*pairs, strict=True)
    for function in (paired_ratio, unpaired_ratio):
        one, other = decide(function(a, b)), decide(function(b, a))
        assert math.log(other.ratio.estimate) == pytest.approx(-math.log(one.ratio.estimate), abs=1e-9)
        assert other.p_value == pytest.approx(one.p_value)
        assert other.decision is FLIPPED.get(one.decision, one.decision)
        if one.ratio.is_finite:
            assert math.log(other.ratio.low) == pytest.approx(-math.log(one.ratio.high), abs=1e-9)


@given(blocks, st.floats(1e-3, 1e3), st.randoms(use_true_random=False))
def test_unit_and_order_of_blocks_do_not_matter(pairs: list[tuple[float, float]], factor: float, random) -> None:
    shuffled = random.sample(pairs, len(pairs))
    one = paired_ratio([a for a, _ in pairs], [b for _, b in pairs])
    other = paired_ratio([a * factor for a, _ in shuffled], [b * factor for _, b in shuffled])
    assert math.log(other.ratio.estimate) == pytest.approx(math.log(one.ratio.estimate), abs=1e-9)
    if one.ratio.relative_half_width > 1e-6:  # below, rounding decides whether there is variation at all
        assert other.p_value == pytest.approx(one.p_value, rel=1e-3, abs=1e-9)


@given(blocks)
def test_interval_and_p_value_tell_the_same_story(pairs: list[tuple[float, float]]) -> None:
    made = paired_ratio([a for a, _ in pairs], [b for _, b in pairs])
    excludes_one = made.ratio.low > 1 or made.ratio.high < 1
    if abs(made.p_value - 0.05) > 1e-9:
        assert excludes_one == (made.p_value < 0.05)
    assert made.ratio.low <= made.ratio.estimate <= made.ratio.high
