"""What follows from the attempts: comparisons and the verdicts on cells and study, derived anew each time."""

from __future__ import annotations

from collections.abc import Iterable

from assay.campaign.analysis import Analysis, analyse, comparison_rows
from assay.campaign.subjects import cell_subjects, study_subject
from assay.checks.registry import Finding, Scope, run_rules
from assay.ledger.queries import StudyData, load_study
from assay.ledger.schema import CheckRow
from assay.ledger.store import Ledger


def check_rows(study_id: str, subject: str, findings: Iterable[Finding]) -> list[CheckRow]:
    """Findings as rows of the ledger."""
    return [
        CheckRow(
            study_id=study_id,
            subject=subject,
            rule=f.rule,
            scope=f.scope.value,
            verdict=f.verdict.value,
            message=f.message,
            evidence=f.evidence,
        )
        for f in findings
    ]


def conclude(ledger: Ledger, study_id: str) -> tuple[StudyData, Analysis]:
    """Analyse the study as it stands and write comparisons, cell verdicts and study verdicts. Raises LedgerError."""
    data = load_study(ledger, study_id)
    analysis = analyse(data)
    rows: list[CheckRow] = []
    for subject in cell_subjects(data, analysis):
        rows += check_rows(study_id, subject.cell_id, run_rules(Scope.CELL, subject))
    rows += check_rows(study_id, study_id, run_rules(Scope.STUDY, study_subject(data, analysis)))
    ledger.replace_conclusions(study_id, comparison_rows(analysis), rows)
    data = load_study(ledger, study_id)
    return data, analyse(data)
