"""Writing a report and judging what has been written."""

from __future__ import annotations

import sys
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.campaign.analysis import Analysis
    from assay.ledger.queries import StudyData
    from assay.ledger.store import Ledger


def write_and_judge(
    ledger: Ledger, data: StudyData, analysis: Analysis, directory: Path, formats: Iterable[str]
) -> tuple[list[Path], bool]:
    """Write the report, read it back, put the verdicts of the rules on what it shows into the ledger, and tell of broken
    ones on stderr. Returns the files and whether the rules hold. Raises ValueError, OSError, LedgerError."""
    from assay.campaign.rendered import judge_rendered, record
    from assay.report.export import write_report
    from assay.report.readback import read_back

    written = write_report(data, analysis, directory, formats)
    broken = record(ledger, data.study.id, judge_rendered(data, analysis, read_back(written, analysis.baseline)))
    for line in broken:
        print(f"assay: {directory}: {line}", file=sys.stderr)
    return written, not broken
