"""Reading the ledger: everything that tables, charts and checks need of one study."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from sqlalchemy import func, select

from assay.ledger.schema import (
    AttemptRow,
    BlockRow,
    CandidateRow,
    CellRow,
    CheckRow,
    EventRow,
    HostRow,
    LabRow,
    StudyRow,
    WorkloadRow,
)
from assay.ledger.store import Ledger
from assay.model.baseline import Baselines
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
    given_up: frozenset[str] = frozenset()  # cells that the campaign stopped running before their time
    baselines: Baselines | None = None  # of the lab; None: not measured


@dataclass(frozen=True)
class Counts:
    """How many attempts of a study there are by status and verdict."""

    study: StudyRow
    cells: int
    blocks: int
    by_status: dict[tuple[str, str], int]

    def of(self, status: str | None = None, verdict: str | None = None) -> int:
        """Attempts of that status and verdict; None means any."""
        return sum(
            n
            for (s, v), n in self.by_status.items()
            if (status is None or s == status) and (verdict is None or v == verdict)
        )


def count_studies(ledger: Ledger, study_id: str | None = None) -> list[Counts]:
    """Counts for one study or all, newest first; one grouped query, whatever the number of attempts."""
    with ledger.reading() as session:
        chosen = select(StudyRow).order_by(StudyRow.created_at.desc())
        grouped = select(AttemptRow.study_id, AttemptRow.status, AttemptRow.verdict, func.count()).group_by(
            AttemptRow.study_id, AttemptRow.status, AttemptRow.verdict
        )
        cells = select(CellRow.study_id, func.count()).group_by(CellRow.study_id)
        blocks = select(BlockRow.study_id, func.count()).group_by(BlockRow.study_id)
        if study_id is not None:
            chosen = chosen.where(StudyRow.id == study_id)
            grouped = grouped.where(AttemptRow.study_id == study_id)
            cells = cells.where(CellRow.study_id == study_id)
            blocks = blocks.where(BlockRow.study_id == study_id)
        by_study: dict[str, dict[tuple[str, str], int]] = {}
        for owner, status, verdict, n in session.execute(grouped):
            by_study.setdefault(owner, {})[(status, verdict)] = n
        n_cells = {owner: n for owner, n in session.execute(cells)}  # noqa: C416 (typed rows)
        n_blocks = {owner: n for owner, n in session.execute(blocks)}  # noqa: C416
        return [
            Counts(row, n_cells.get(row.id, 0), n_blocks.get(row.id, 0), by_study.get(row.id, {}))
            for row in session.scalars(chosen)
        ]


_ATTEMPT_COLUMNS = (
    "id", "cell_id", "block", "try_number", "status", "verdict", "broken_rules", "started_at", "ended_at",
    "bandwidth", "iops", "latency_mean", "latency_p50", "latency_p95", "latency_p99", "samples_hash",
)  # fmt: skip


def load_study(ledger: Ledger, study_id: str) -> StudyData:
    """All of one study, evidence and samples on demand. Raises LedgerError, KeyError when there is no such study."""
    import json

    import polars as pl

    with ledger.reading() as session:
        study = session.get(StudyRow, study_id)
        if study is None:
            raise KeyError(study_id)

        def rows(table: Any, *order: Any) -> list[Any]:
            return list(session.scalars(select(table).where(table.study_id == study_id).order_by(*order)))

        lab = rows(LabRow)[0]
        hosts = list(session.scalars(select(HostRow).where(HostRow.lab_id == lab.id)))
        candidates = rows(CandidateRow, CandidateRow.position)
        workloads = rows(WorkloadRow, WorkloadRow.position)
        cells = rows(CellRow, CellRow.id)
        blocks = rows(BlockRow, BlockRow.number)
        found = session.execute(
            select(*(getattr(AttemptRow, c) for c in _ATTEMPT_COLUMNS))
            .where(AttemptRow.study_id == study_id)
            .order_by(AttemptRow.started_at, AttemptRow.block, AttemptRow.try_number)
        ).all()
        checks = session.execute(
            select(
                CheckRow.subject,
                CheckRow.rule,
                CheckRow.scope,
                CheckRow.verdict,
                CheckRow.message,
                CheckRow.evidence,
            ).where(CheckRow.study_id == study_id)
        ).all()

        gave_up = select(EventRow.data).where(EventRow.study_id == study_id, EventRow.kind == "gave-up")
        given_up = frozenset(str(data["cell"]) for data in session.scalars(gave_up))

    of_cell = {c.id: c for c in cells}
    of_label = {c.label: c for c in candidates}
    text, whole, real = pl.String, pl.Int64, pl.Float64
    attempts = pl.DataFrame(
        [
            (a[0], a[1], of_cell[a[1]].candidate, of_label[of_cell[a[1]].candidate].role,
             of_label[of_cell[a[1]].candidate].system, of_cell[a[1]].workload_id, *a[2:])
            for a in found
        ],
        schema={
            "id": text, "cell_id": text, "candidate": text, "role": text, "system": text, "workload_id": text,
            "block": whole, "try_number": whole, "status": text, "verdict": text, "broken_rules": pl.List(text),
            "started_at": real, "ended_at": real, "bandwidth": real, "iops": real, "latency_mean": real,
            "latency_p50": real, "latency_p95": real, "latency_p99": real, "samples_hash": text,
        },
        orient="row",
    )  # fmt: skip
    table = pl.DataFrame(
        [(*c[:5], json.dumps(c[5])) for c in checks],
        schema={
            "subject": text,
            "rule": text,
            "scope": text,
            "verdict": text,
            "message": text,
            "evidence": text,
        },
        orient="row",
    )
    hashes = {a[0]: a[-1] for a in found}

    def evidence(attempt_id: str) -> AttemptEvidence:
        with ledger.reading() as session:
            return AttemptEvidence.model_validate(session.get_one(AttemptRow, attempt_id).evidence)

    def samples(attempt_id: str) -> Samples | None:
        return ledger.files.get_samples(hashes[attempt_id]) if hashes.get(attempt_id) else None

    return StudyData(
        study,
        lab,
        hosts,
        candidates,
        workloads,
        cells,
        blocks,
        attempts,
        table,
        evidence,
        samples,
        ledger.files.get_artefact,
        given_up,
        _baselines(lab),
    )


def load_baselines(ledger: Ledger, study_id: str) -> Baselines | None:
    """What was measured of a study's lab; None when nothing was. Raises LedgerError."""
    with ledger.reading() as session:
        lab = session.scalars(select(LabRow).where(LabRow.study_id == study_id)).first()
    return _baselines(lab) if lab is not None else None


def _baselines(lab: LabRow) -> Baselines | None:
    return Baselines.model_validate(lab.baselines) if lab.baselines is not None else None
