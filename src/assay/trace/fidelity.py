"""Checks T1 to T5: was a replay what was recorded? Pure functions of its fidelity figures."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

ISSUE_ERROR_SECONDS = 100e-6  # below this an issue-time error is noise to any file system behind a network
DRIFT_SHARE = 0.001
MISMATCH_SHARE = 0.001
SKIPPED_SHARE = 0.001
OUTSIDE = "outside the replayed directories"  # left out on request: no loss


@dataclass(frozen=True)
class Finding:
    """One check's verdict; ``passed`` is None where it does not apply."""

    check: str
    title: str
    passed: bool | None
    detail: str


def judge(fidelity: dict[str, Any]) -> list[Finding]:
    """The five findings. T1 issue times, T2 drift, T3 results, T4 nothing left out, T5 whole trace and order kept."""
    return [_timing(fidelity), _drift(fidelity), _results(fidelity), _left_out(fidelity), _whole(fidelity)]


def faithful(findings: list[Finding]) -> bool:
    """Whether no check failed."""
    return all(finding.passed is not False for finding in findings)


def _timing(f: dict[str, Any]) -> Finding:
    title = "operations are issued at their time"
    errors = f["issue_error_seconds"]
    if not errors:
        return Finding("T1", title, None, "no times to keep (asap)")
    limit = max(ISSUE_ERROR_SECONDS, f["think_time_median_seconds"])
    detail = (
        f"issue error p50 {errors['50'] * 1e6:.2f} us, p99 {errors['99'] * 1e6:.1f} us (limit {limit * 1e6:.0f} us), "
        f"{f['late']} operations more than 100 us late"
    )
    return Finding("T1", title, errors["99"] <= limit, detail)


def _drift(f: dict[str, Any]) -> Finding:
    title = "the replay keeps the trace's pace"
    if not f["issue_error_seconds"]:
        return Finding("T2", title, None, "no pace to keep (asap)")
    return Finding("T2", title, f["drift"] <= DRIFT_SHARE, f"drift {f['drift']:.4%} (limit {DRIFT_SHARE:.1%})")


def _results(f: dict[str, Any]) -> Finding:
    share = f["mismatches"] / max(1, f["reached"])
    kinds = ", ".join(f"{kind} ({count})" for kind, count in f["mismatch_kinds"][:3])
    detail = f"{f['mismatches']} of {f['reached']} results differ" + (f": {kinds}" if kinds else "")
    return Finding("T3", "the file system answers as recorded", share <= MISMATCH_SHARE, detail)


def _left_out(f: dict[str, Any]) -> Finding:
    skipped = {kind: count for kind, count in f["skipped"].items() if kind != OUTSIDE}
    missing = sum(skipped.values()) + f["operations"] - f["reached"]
    share = missing / max(1, f["operations"] + sum(skipped.values()))
    kinds = ", ".join(f"{kind} ({count})" for kind, count in sorted(skipped.items(), key=lambda item: -item[1])[:3])
    detail = f"{missing} operations not replayed" + (f": {kinds}" if kinds else "")
    return Finding("T4", "nothing is left out", share <= SKIPPED_SHARE, detail)


def _whole(f: dict[str, Any]) -> Finding:
    problems = []
    if f["trace_dropped"]:
        problems.append(f"the recorder lost {f['trace_dropped']} operations")
    if not f["trace_whole"]:
        problems.append("the trace has no end: its recorder was killed or the file is cut off")
    if not f["order_kept"]:
        problems.append("a thread's operations changed their order")
    return Finding("T5", "the trace is whole and its order kept", not problems, "; ".join(problems) or "as recorded")
