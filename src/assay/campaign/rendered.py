"""Judging reports by what they really show: rules C1 and C9 on documents that were read back after they were written."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from assay.campaign.conclude import check_rows
from assay.campaign.subjects import DIFFERENCES, study_subject
from assay.checks.registry import Finding, Scope, run_rules
from assay.checks.subjects import ComparisonView, TableView
from assay.model.verdict import Verdict

if TYPE_CHECKING:
    from assay.campaign.analysis import Analysis
    from assay.ledger.queries import StudyData
    from assay.ledger.store import Ledger


@dataclass(frozen=True)
class Rendered:
    """What a finished document shows."""

    name: str  # of the file
    tables: tuple[TableView, ...]  # of decisions
    text: str | None  # all visible words, white space collapsed; None: a document without words


def unlike_words(a: str, b: str, what: str) -> str:
    """The words by which a report says that two candidates differ (rule C1); ``what`` is a key of DIFFERENCES."""
    return f"{a} and {b} differ in {DIFFERENCES[what]}"


def judge_rendered(data: StudyData, analysis: Analysis, documents: Sequence[Rendered]) -> list[Finding]:
    """The findings of C9 (no decision is left out of a table) and C1 (what is not like with like is said) on finished
    documents. Empty when there is nothing to judge: no comparison, or no document with tables or words."""
    subject = study_subject(data, analysis)
    tables = [replace(t, name=f"{d.name}: {t.name}") for d in documents for t in d.tables]
    texts = [d.text for d in documents if d.text is not None]
    if not subject.comparisons:
        return []
    rules = (["C1"] if texts else []) + (["C9"] if texts or tables else [])
    comparisons = [replace(c, said=_said(c, texts)) for c in subject.comparisons]
    return run_rules(Scope.STUDY, replace(subject, tables=tables, comparisons=comparisons), rules)


def _said(comparison: ComparisonView, texts: Sequence[str]) -> tuple[str, ...]:
    """Differences that every document states."""
    words = {what: " ".join(unlike_words(comparison.a, comparison.b, what).split()) for what in DIFFERENCES}
    return tuple(what for what, sentence in words.items() if all(sentence in text for text in texts))


def record(ledger: Ledger, study_id: str, findings: Sequence[Finding]) -> list[str]:
    """Write the findings over those that were judged before there was a report; returns what is broken, a line for each.
    Raises LedgerError."""
    if findings:
        ledger.replace_checks(check_rows(study_id, study_id, findings))
    return [f"rule {f.rule} is broken: {f.message}" for f in findings if f.verdict is Verdict.INVALID]
