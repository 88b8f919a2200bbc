from __future__ import annotations

from typing import Any

import pytest

from assay.trace.fidelity import faithful, judge


def figures(**changes: Any) -> dict[str, Any]:
    good = {
        "issue_error_seconds": {"50": 1e-7, "99": 2e-5},
        "think_time_median_seconds": 1e-5,
        "late": 0,
        "drift": 0.0001,
        "mismatches": 0,
        "mismatch_kinds": [],
        "reached": 10_000,
        "operations": 10_000,
        "skipped": {},
        "trace_dropped": 0,
        "trace_whole": True,
        "order_kept": True,
    }
    return {**good, **changes}


def test_a_good_replay_is_faithful() -> None:
    findings = judge(figures())
    assert [f.check for f in findings] == ["T1", "T2", "T3", "T4", "T5"]
    assert faithful(findings)


@pytest.mark.parametrize(
    ("check", "changes"),
    [
        ("T1", {"issue_error_seconds": {"50": 1e-7, "99": 2e-4}}),
        ("T2", {"drift": 0.0011}),
        ("T3", {"mismatches": 11, "mismatch_kinds": [("open: EIO instead of success", 11)]}),
        ("T4", {"skipped": {"unknown file": 11}}),
        ("T4", {"reached": 9_980}),
        ("T5", {"trace_dropped": 1}),
        ("T5", {"trace_whole": False}),
        ("T5", {"order_kept": False}),
    ],
)
def test_a_planted_fault_is_found_by_its_check(check: str, changes: dict[str, Any]) -> None:
    assert [f.check for f in judge(figures(**changes)) if f.passed is False] == [check]


def test_asap_has_no_times_to_judge() -> None:
    findings = judge(figures(issue_error_seconds={}, drift=9.0))
    assert [f.passed for f in findings[:2]] == [None, None]
    assert faithful(findings)


def test_what_was_left_out_on_request_is_no_loss() -> None:
    assert faithful(judge(figures(skipped={"outside the replayed directories": 50_000})))
