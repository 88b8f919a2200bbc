"""The one list of rules: what they are called, what they look at, what a broken one means, and how they are run."""

from __future__ import annotations

import importlib
import inspect
import math
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from enum import Enum, StrEnum
from typing import Any

from assay.checks.common import Outcome, not_applicable, unknown
from assay.checks.subjects import AttemptSubject, CellSubject, StudySubject
from assay.model.evidence import AttemptStatus
from assay.model.verdict import Verdict, worst

Subject = AttemptSubject | CellSubject | StudySubject

#: Modules that register rules, in the order of the reference.
FAMILIES = ("before", "cache", "during", "after", "comparison")


class Scope(StrEnum):
    """What a rule looks at."""

    ATTEMPT = "attempt"
    CELL = "cell"
    STUDY = "study"


class Weight(StrEnum):
    """What a broken rule does."""

    VOID = "void"  # the attempt, cell or study is invalid
    FLAG = "flag"  # recorded and shown, excludes nothing


@dataclass(frozen=True)
class Finding:
    """The verdict of one rule on one subject. ``message`` is one plain sentence; ``evidence`` survives JSON."""

    rule: str
    scope: Scope
    verdict: Verdict
    message: str
    evidence: dict[str, Any]


@dataclass(frozen=True)
class Rule:
    """A registered rule."""

    id: str
    scope: Scope
    weight: Weight
    family: str
    function: Callable[[Any], Outcome]
    finished_only: bool  # says nothing about attempts that did not end by themselves
    not_for: frozenset[str]  # roles of candidates that it says nothing about

    @property
    def doc(self) -> str:
        """What it demands and which past mistake it prevents."""
        return inspect.getdoc(self.function) or ""


_RULES: dict[str, Rule] = {}
_SUBJECTS: dict[Scope, type] = {
    Scope.ATTEMPT: AttemptSubject,
    Scope.CELL: CellSubject,
    Scope.STUDY: StudySubject,
}


def rule(
    id: str,
    *,
    scope: Scope,
    weight: Weight,
    finished_only: bool = False,
    not_for: frozenset[str] = frozenset(),
) -> Callable[[Callable[[Any], Outcome]], Callable[[Any], Outcome]]:
    """Register a function under the id of a rule in the methodology. ValueError when the id is taken."""

    def register(function: Callable[[Any], Outcome]) -> Callable[[Any], Outcome]:
        if id in _RULES:
            raise ValueError(f"rule {id} is registered twice")
        family = function.__module__.rpartition(".")[2]
        _RULES[id] = Rule(id, scope, weight, family, function, finished_only, not_for)
        return function

    return register


def all_rules() -> dict[str, Rule]:
    """Every rule by id, in the order of the methodology: before, cache, during, after, comparison."""
    for family in FAMILIES:
        importlib.import_module(f"assay.checks.{family}")
    return {r.id: r for r in sorted(_RULES.values(), key=_position)}


def _position(r: Rule) -> tuple[int, int]:
    family = FAMILIES.index(r.family) if r.family in FAMILIES else len(FAMILIES)
    return family, int(r.id[1:])


def run_rules(scope: Scope, subject: Subject, rules: Iterable[str] | None = None) -> list[Finding]:
    """Apply every rule of the scope (or those named) and return one finding for each, in order.

    An exception inside a rule is a finding with verdict unknown and does not touch the others. Raises TypeError
    when the subject is not of the scope and KeyError for a rule that does not exist.
    """
    if not isinstance(subject, _SUBJECTS[scope]):
        raise TypeError(f"scope {scope} needs a {_SUBJECTS[scope].__name__}, not a {type(subject).__name__}")
    known = all_rules()
    chosen = known.values() if rules is None else [known[r] for r in rules]
    return [_apply(r, subject) for r in chosen if r.scope is scope]


def _apply(r: Rule, subject: Subject) -> Finding:
    try:
        outcome = _out_of_reach(r, subject) or r.function(subject)
        if not isinstance(outcome, Outcome):
            raise TypeError(f"rule {r.id} returned {type(outcome).__name__} instead of an outcome")
        evidence = _plain(outcome.evidence)
    except Exception as error:  # noqa: BLE001 - whatever a check throws means "unknown", never "valid"
        text = " ".join(str(error).split())[:300]
        outcome = unknown(f"the check could not be done: {type(error).__name__}: {text}")
        evidence = {"exception": type(error).__name__, "text": text}
    return Finding(r.id, r.scope, outcome.verdict, outcome.message, evidence)


def _out_of_reach(r: Rule, subject: Subject) -> Outcome | None:
    if not isinstance(subject, AttemptSubject):
        return None
    status, role = subject.evidence.status, subject.evidence.role
    if status is AttemptStatus.NOT_APPLICABLE:
        return not_applicable("the candidate lacks a capability that the cell needs")
    if role in r.not_for:
        return not_applicable(f"a {role} target has nothing that this rule could look at")
    if r.finished_only and status is not AttemptStatus.FINISHED:
        return not_applicable(f"the attempt is {status} and has no measurement")
    return None


def _plain(value: Any) -> Any:
    """The value as JSON can hold it; NaN and infinities become text, since PostgreSQL's JSON has neither."""
    if isinstance(value, dict):
        return {str(k): _plain(v) for k, v in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        items = sorted(value, key=str) if isinstance(value, set | frozenset) else value
        return [_plain(v) for v in items]
    if isinstance(value, Enum):
        return _plain(value.value)
    if hasattr(value, "tolist"):  # NumPy scalars and arrays
        return _plain(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, bool | int | float | str):
        return value
    return str(value)


def attempt_verdict(findings: Iterable[Finding]) -> tuple[Verdict, list[str]]:
    """Verdict of an attempt (or cell, or study) and the ids of the rules that made it so.

    Only rules of weight VOID count. Without any such finding the answer is unknown: nothing was shown.
    """
    rules = all_rules()
    decisive = [f for f in findings if rules[f.rule].weight is Weight.VOID]
    verdict = worst(f.verdict for f in decisive)
    broken = [] if verdict is Verdict.VALID else [f.rule for f in decisive if f.verdict is verdict]
    return verdict, broken


_MEANING = {
    "before": "Before a cell",
    "cache": "Cache state",
    "during": "While it runs",
    "after": "After it ran",
    "comparison": "Comparisons",
}


def reference() -> str:
    """docs/checks.md: every rule with its demand and the mistake it prevents, from the docstrings."""
    rules = all_rules()
    lines = [
        "# Checks",
        "",
        "<!-- Generated: .venv/bin/python -m assay.checks > docs/checks.md -->",
        "",
        "Every attempt, cell and study is judged by these rules. A verdict is *valid*, *invalid* or *unknown*; an exception",
        "inside a rule and missing data mean *unknown*, never *valid*. A broken **void** rule makes its attempt, cell or study",
        "invalid; a broken **flag** is recorded and shown and excludes nothing. A rule that has nothing to say about a subject",
        'counts as valid, with the evidence `{"applies": false}`. The ids are those of the checklist in the methodology.',
        "",
        "| rule | looks at | weight | demands |",
        "|---|---|---|---|",
    ]
    for r in rules.values():
        lines.append(f"| [{r.id}](#{r.id.lower()}) | {r.scope} | {r.weight} | {r.doc.splitlines()[0]} |")
    for family in FAMILIES:
        lines += ["", f"## {_MEANING[family]}"]
        for r in rules.values():
            if r.family == family:
                lines += ["", f"### {r.id}", "", f"*{r.scope}, {r.weight}{_reach(r)}.* {r.doc}"]
    return "\n".join(lines) + "\n"


def _reach(r: Rule) -> str:
    words = ""
    if r.finished_only:
        words += ", finished attempts only"
    if r.not_for:
        words += f", not for {' and '.join(sorted(r.not_for))} targets"
    return words
