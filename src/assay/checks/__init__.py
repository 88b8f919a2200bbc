"""Validity rules: pure functions of what the ledger holds, in one registry. docs/checks.md lists them."""

from assay.checks.registry import Finding, Rule, Scope, Weight, all_rules, attempt_verdict, reference, run_rules
from assay.checks.subjects import (
    AggregateView,
    AttemptSubject,
    CellSubject,
    ComparisonView,
    StudySubject,
    TableView,
)

__all__ = [
    "AggregateView",
    "AttemptSubject",
    "CellSubject",
    "ComparisonView",
    "Finding",
    "Rule",
    "Scope",
    "StudySubject",
    "TableView",
    "Weight",
    "all_rules",
    "attempt_verdict",
    "reference",
    "run_rules",
]
