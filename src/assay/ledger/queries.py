"""Reading the ledger: everything that tables, charts and checks need of one study."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.ledger.schema import BlockRow, CandidateRow, CellRow, HostRow, LabRow, StudyRow, WorkloadRow
from assay.model.evidence import AttemptEvidence, Samples

if TYPE_CHECKING:
    import polars as pl


@dataclass(frozen=True)
class StudyData:
    """One study as the ledger holds it; rows are detached from the session.

    ``attempts`` has one row per attempt in order of start: id, cell_id, candidate, role, system, workload_id, block,
    try_number, status, verdict, broken_rules (list[str]), started_at, ended_at (Unix seconds), bandwidth (bytes/s), iops
    (1/s), latency_mean, latency_p50, latency_p95, latency_p99 (seconds), samples_hash.
    ``checks`` has one row per verdict: subject, rule, scope, verdict, message, evidence (JSON text).
    """

    study: StudyRow
    lab: LabRow
    hosts: list[HostRow]
    candidates: list[CandidateRow]  # by position
    workloads: list[WorkloadRow]  # by position
    cells: list[CellRow]
    blocks: list[BlockRow]
    attempts: pl.DataFrame
    checks: pl.DataFrame
    evidence: Callable[[str], AttemptEvidence]  # by attempt id, read on demand
    samples: Callable[[str], Samples | None]  # by attempt id; None when the attempt has none
    artefact: Callable[[str], bytes | None]  # by content hash (AttemptEvidence.artefacts values)
