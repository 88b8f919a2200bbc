"""Every rule: a clean subject that it applies to, planted violations, and missing data. The cases are in cases_*.py, one
file for each family of rules."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from typing import Any

import builders as b
import cases_after
import cases_before
import cases_cache
import cases_comparison
import cases_during
import pytest
from builders import attempt, broken, changed, study, subject
from cases_common import Case, Subject
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import friedmanchisquare

from assay.checks import Finding, after, all_rules, run_rules
from assay.model.evidence import Samples
from assay.model.verdict import Verdict

CASES: dict[str, Case] = {
    **cases_before.CASES,
    **cases_cache.CASES,
    **cases_during.CASES,
    **cases_after.CASES,
    **cases_comparison.CASES,
}


def judge(rule: str, of: Subject) -> Finding:
    """The finding of one rule, which must survive JSON."""
    (finding,) = run_rules(all_rules()[rule].scope, of, [rule])
    json.dumps(finding.evidence, allow_nan=False)
    assert finding.message and "\n" not in finding.message
    return finding


def _each(kind: str) -> list[Any]:
    pick: Callable[[Case], dict[str, Any]] = lambda case: getattr(case, kind)  # noqa: E731
    return [pytest.param(r, s, id=f"{r}: {name}") for r, case in CASES.items() for name, s in pick(case).items()]


@pytest.mark.parametrize(("rule", "clean"), _each("valid"))
def test_clean_case_is_valid_and_the_rule_was_applied(rule: str, clean: Subject) -> None:
    finding = judge(rule, clean)
    assert finding.verdict is Verdict.VALID, finding
    assert finding.evidence.get("applies") is not False, finding


@pytest.mark.parametrize(("rule", "planted"), _each("invalid"))
def test_planted_violation_is_found_and_named(rule: str, planted: tuple[Subject, str]) -> None:
    finding = judge(rule, planted[0])
    assert finding.verdict is Verdict.INVALID, finding
    assert planted[1] in finding.message


@pytest.mark.parametrize(("rule", "incomplete"), _each("unknown"))
def test_missing_data_is_unknown(rule: str, incomplete: Subject) -> None:
    finding = judge(rule, incomplete)
    assert finding.verdict is Verdict.UNKNOWN, finding


@pytest.mark.parametrize(("rule", "exempt"), _each("exempt"))
def test_rule_with_nothing_to_say_is_valid_and_says_so(rule: str, exempt: Subject) -> None:
    finding = judge(rule, exempt)
    assert finding.verdict is Verdict.VALID, finding
    assert finding.evidence == {"applies": False}


def test_what_is_missing_of_the_counters_is_said() -> None:
    none = broken({"before/devices": None, "after/devices": None})
    assert "has no byte counters" in judge("K3", none).message
    for side in ("before", "after"):
        assert "on one side of the attempt only" in judge("K3", broken({f"{side}/devices": None})).message
    assert (
        "has no byte counters, so they were not cross-checked"
        in judge("A1", replace(none, evidence=changed(none.evidence, {"point/direct": True}))).message
    )


def test_why_a_rule_does_not_apply_is_said() -> None:
    assert "does not read" in judge("K3", subject(attempt("write"))).message
    assert "claims nothing" in judge("K3", subject(attempt(cache="any"))).message


def test_balance_is_friedmans_test() -> None:
    orders = study().blocks
    positions = [[order.index(cell) for order in orders] for cell in b.CELLS]
    assert judge("C5", study()).evidence["balance_p"] == pytest.approx(friedmanchisquare(*positions).pvalue)


@given(
    st.lists(st.tuples(st.integers(1, 10**9), st.integers(1, 50)), min_size=1, max_size=30, unique_by=lambda b: b[0]),
    st.sampled_from([0.5, 0.9, 0.95, 0.99]),
)
def test_recomputed_percentiles_enclose_the_nearest_rank(bins: list[tuple[int, int]], q: float) -> None:
    """Against sorting every single operation, with the histogram split over two clients."""
    clients = [
        {
            "client": str(i),
            "histograms": {"read": {"latency_ns": [ns for ns, _ in part], "counts": [n for _, n in part]}},
        }
        for i, part in enumerate((sorted(bins), sorted(bins)[::2]))
    ]
    every = sorted(ns for part in (bins, sorted(bins)[::2]) for ns, n in part for _ in range(n))
    nearest = every[max(math.ceil(round(q * len(every), 9)), 1) - 1] / 1e9
    latency, counts = after._merged(Samples.model_validate({"clients": clients}), "read")
    low, high = after._percentile(latency, counts, q)
    assert low <= nearest <= high
