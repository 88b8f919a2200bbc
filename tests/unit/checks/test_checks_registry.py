"""The registry: coverage of the checklist, three-valued running, and the page made from it."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from builders import attempt, broken, cell, changed, samples, study, subject
from hypothesis import given, settings
from hypothesis import strategies as st
from test_checks_rules import CASES

from assay.checks import AttemptSubject, Scope, Weight, all_rules, attempt_verdict, reference, registry, run_rules
from assay.checks.common import Outcome, valid
from assay.model.evidence import AttemptEvidence
from assay.model.verdict import Verdict

CHECKLIST = [
    "W1",
    "W3",
    "W5",
    "W6",
    "W7",
    "W9",
    "K1",
    "K2",
    "K3",
    "K4",
    "K5",
    "R3",
    "R4",
    "R5",
    "R6",
    "A1",
    "A2",
    "A3",
    "A4",
    "A5",
    "A6",
    "A7",
    "A8",
    "A9",
    "A10",
    "C1",
    "C2",
    "C3",
    "C4",
    "C5",
    "C6",
    "C7",
    "C8",
    "C9",
]
ROOT = Path(__file__).parents[3]


def test_every_rule_of_the_checklist_is_registered_once_and_nothing_else() -> None:
    assert list(all_rules()) == CHECKLIST


@pytest.mark.parametrize("rule", CHECKLIST)
def test_every_rule_is_documented_and_tested(rule: str) -> None:
    doc = all_rules()[rule].doc
    assert "\n\nPrevents" in doc, "the docstring says which past mistake the rule prevents"
    assert len(doc.splitlines()[0]) > 20
    case = CASES[rule]
    assert case.valid and case.invalid and case.unknown


def test_an_id_cannot_be_taken_twice() -> None:
    all_rules()
    with pytest.raises(ValueError, match="K3 is registered twice"):
        registry.rule("K3", scope=Scope.ATTEMPT, weight=Weight.FLAG)(lambda _: valid("x"))


@pytest.mark.parametrize(("scope", "clean"), [(Scope.ATTEMPT, subject()), (Scope.CELL, cell()), (Scope.STUDY, study())])
def test_clean_subjects_break_no_rule(scope: Scope, clean: Any) -> None:
    findings = run_rules(scope, clean)
    assert [f.rule for f in findings] == [r.id for r in all_rules().values() if r.scope is scope]
    assert [f for f in findings if f.verdict is not Verdict.VALID] == []


def test_an_exception_is_unknown_and_stops_no_other_rule(monkeypatch: pytest.MonkeyPatch) -> None:
    def explode(_: Any) -> Outcome:
        raise ZeroDivisionError("planted\nin two lines")

    monkeypatch.setitem(registry._RULES, "K1", replace(all_rules()["K1"], function=explode))
    findings = {f.rule: f for f in run_rules(Scope.ATTEMPT, subject())}
    assert findings["K1"].verdict is Verdict.UNKNOWN
    assert "ZeroDivisionError: planted in two lines" in findings["K1"].message
    assert all(f.verdict is Verdict.VALID for rule, f in findings.items() if rule != "K1")
    assert attempt_verdict(findings.values()) == (Verdict.UNKNOWN, ["K1"])


def test_a_rule_that_returns_nothing_is_unknown(monkeypatch: pytest.MonkeyPatch) -> None:
    silent: Any = lambda _: None  # noqa: E731
    monkeypatch.setitem(registry._RULES, "K1", replace(all_rules()["K1"], function=silent))
    (finding,) = run_rules(Scope.ATTEMPT, subject(), ["K1"])
    assert finding.verdict is Verdict.UNKNOWN


def test_wrong_subject_and_wrong_rule_are_programming_errors() -> None:
    with pytest.raises(TypeError, match="CellSubject"):
        run_rules(Scope.CELL, subject())
    with pytest.raises(KeyError):
        run_rules(Scope.ATTEMPT, subject(), ["K9"])


def test_flags_do_not_exclude_and_void_rules_do() -> None:
    flagged = run_rules(Scope.ATTEMPT, broken({"summary/steady/found": False, "settle": None}))
    assert {f.rule for f in flagged if f.verdict is not Verdict.VALID} == {"A3", "R6"}
    assert attempt_verdict(flagged) == (Verdict.VALID, [])
    void = run_rules(Scope.ATTEMPT, broken({"clients/0/exit_code": 1, "clients/0/tool_version": "", "cold": None}))
    assert attempt_verdict(void) == (Verdict.INVALID, ["K1", "R3"])
    assert attempt_verdict([]) == (Verdict.UNKNOWN, [])


def test_a_failed_attempt_is_invalid_by_r3_alone() -> None:
    evidence = changed(
        attempt(), {"status": "failed", "error": "fio was killed", "clients": [], "summary": None, "after": None}
    )
    findings = run_rules(Scope.ATTEMPT, AttemptSubject(evidence, None))
    assert attempt_verdict(findings) == (Verdict.INVALID, ["R3"])


def test_a_lost_attempt_is_invalid() -> None:
    evidence = changed(
        attempt(), {"status": "lost", "clients": [], "summary": None, "after": None, "observed": {}, "cold": None}
    )
    verdict, rules = attempt_verdict(run_rules(Scope.ATTEMPT, AttemptSubject(evidence, None)))
    assert verdict is Verdict.INVALID and "R3" in rules


def test_a_cell_that_is_not_applicable_breaks_nothing() -> None:
    evidence = changed(attempt(), {"status": "not-applicable", "clients": [], "observed": {}, "expected": {}})
    findings = run_rules(Scope.ATTEMPT, AttemptSubject(evidence, None))
    assert all(f.evidence == {"applies": False} for f in findings)


def test_the_null_target_is_valid_without_device_cache_and_mount() -> None:
    evidence = changed(
        attempt(direct=True),
        {
            "role": "null",
            "system": "null",
            "before/devices": None,
            "after/devices": None,
            "cold": None,
            "settle": None,
            "before/free_bytes": None,
            "after/free_bytes": None,
            "before/mount": {},
            "after/mount": {},
            "clients/0/user_cpu_share": 0.9,
            "clients/0/totals/read/runtime_seconds": 9.999,
            "point/runtime": 60.0,
        },
    )
    findings = run_rules(Scope.ATTEMPT, AttemptSubject(evidence, samples()))
    assert [f for f in findings if f.verdict is not Verdict.VALID] == []


def _paths(value: Any, path: str = "") -> list[str]:
    """Paths of everything in the evidence that may be absent: list items' and mappings' values included."""
    items = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    below = [p for key, item in items for p in _paths(item, f"{path}/{key}" if path else str(key))]
    return [*([path] if path else []), *below]


PATHS = _paths(attempt().model_dump(mode="json"))


@settings(max_examples=150, deadline=None)
@given(st.lists(st.sampled_from(PATHS), min_size=1, max_size=4), st.sampled_from([None, 0, -1.0, "", [], {}, 1e300]))
def test_no_damage_to_the_evidence_stops_the_rules(paths: list[str], value: Any) -> None:
    evidence: AttemptEvidence = attempt()
    for path in paths:
        try:
            evidence = changed(evidence, {path: value})
        except (ValueError, KeyError, IndexError, TypeError):
            continue  # the model itself refuses it
    findings = run_rules(Scope.ATTEMPT, AttemptSubject(evidence, samples()))
    assert len(findings) == sum(r.scope is Scope.ATTEMPT for r in all_rules().values())
    json.dumps([f.evidence for f in findings], allow_nan=False)


def test_evidence_survives_json() -> None:
    plain = registry._plain({1: float("nan"), "a": {2.5, 1.5}, "b": (Verdict.VALID, float("-inf")), "c": Path("/x")})
    assert plain == {"1": "nan", "a": [1.5, 2.5], "b": ["valid", "-inf"], "c": "/x"}


def test_the_committed_page_is_the_registry() -> None:
    page = (ROOT / "docs" / "checks.md").read_text()
    assert page == reference(), "run: .venv/bin/python -m assay.checks > docs/checks.md"
