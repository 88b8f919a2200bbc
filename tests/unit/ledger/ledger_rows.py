"""Small studies for the tests of the ledger."""

from __future__ import annotations

import time

from assay.ledger.schema import CandidateRow, CellRow, CheckRow, HostRow, LabRow, StudyRow, WorkloadRow
from assay.ledger.store import Ledger
from assay.model.baseline import Baselines, LinkFigure
from assay.model.evidence import (
    AttemptEvidence,
    AttemptStatus,
    ClientSamples,
    DirectionSummary,
    Histogram,
    Samples,
    Series,
    Snapshot,
    Summary,
)

BASELINES = Baselines(
    measured_at=1.5,
    seconds=19.0,
    links=[LinkFigure(source="s1", target="c1", bytes_per_second=0.1 + 0.2, retransmits=3)],
)


def add_study(ledger: Ledger, study_id: str = "s1", cells: int = 2, name: str = "test") -> list[str]:
    """A study with one candidate and ``cells`` cells; returns their ids."""
    ids = [f"{study_id}c{i}" for i in range(cells)]
    ledger.add_study(
        StudyRow(
            id=study_id, name=name, declaration_hash="h" + study_id, declaration={"study": name}, text="study: test\n",
            seed=2**62, scale=1.0, assay_version="0", created_at=time.time(), state="running",
        ),
        LabRow(id=study_id, study_id=study_id, kind="local", shape={}, baselines=BASELINES.model_dump(mode="json")),
        [HostRow(lab_id=study_id, name="localhost", roles=["client"], facts={"é": [1, None, 0.1]})],
        [CandidateRow(study_id=study_id, label="local/ext4", system="local/ext4", role="subject", position=0, tuning={}, facts={})],
        [WorkloadRow(study_id=study_id, id=f"w{i}", name=f"point {i}", kind="fio", position=i, point={}) for i in range(cells)],
        [
            CellRow(id=cell, study_id=study_id, candidate="local/ext4", workload_id=f"w{i}", closure={"a": i}, closure_hash="x")
            for i, cell in enumerate(ids)
        ],
    )  # fmt: skip
    return ids


def evidence(
    cell: str, block: int = 1, try_number: int = 1, study_id: str = "s1", *, latency: float = 1e-3, error: str = ""
) -> AttemptEvidence:
    now = time.time()
    direction = DirectionSummary(
        bandwidth_bytes_per_second=1e6 + block,
        iops=250.0,
        bytes=10**6,
        operations=250,
        latency_mean_seconds=latency,
        latency_percentiles_seconds={"50": 1e-3, "95": 2e-3, "99": 3e-3},
    )
    return AttemptEvidence(
        attempt_id=f"{cell}-{block}-{try_number}",
        study_id=study_id,
        cell_id=cell,
        candidate="local/ext4",
        system="local/ext4",
        role="subject",
        block=block,
        try_number=try_number,
        status=AttemptStatus.FINISHED,
        started_at=now,
        ended_at=now + 1.5,
        point={},
        expected={},
        before=Snapshot(at=now),
        summary=Summary(directions={"read": direction}),
        error=error,
    )


def samples(seed: int = 1) -> Samples:
    series = Series(
        quantity="iops", direction="read", interval_seconds=1.0, seconds=[1.0, 2.0], values=[250.0, 0.1 + seed]
    )
    histogram = Histogram(latency_ns=[1000, 2000 + seed], counts=[200, 50])
    return Samples(clients=[ClientSamples(client="c0", histograms={"read": histogram}, series=[series])])


def check(subject: str, study_id: str = "s1", rule: str = "A1", **found: object) -> CheckRow:
    return CheckRow(
        study_id=study_id, subject=subject, rule=rule, scope="attempt", verdict="valid", message="fine", evidence=found
    )


def write(ledger: Ledger, cell: str, block: int, try_number: int = 1, study_id: str = "s1") -> None:
    e = evidence(cell, block, try_number, study_id)
    ledger.add_attempt(e, "valid", [], [check(e.attempt_id, study_id)], samples(block))
