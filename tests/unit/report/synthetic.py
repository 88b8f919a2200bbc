"""A synthetic study with planted effects, deterministic: what ``analyse`` and the report must find in it."""

from __future__ import annotations

import json
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
import polars as pl

from assay.campaign.bounds import cell_bound, layout_of
from assay.ledger.queries import StudyData
from assay.ledger.schema import (
    BlockRow,
    CandidateRow,
    CellRow,
    HostRow,
    LabRow,
    StudyRow,
    WorkloadRow,
)
from assay.model.baseline import Baselines, Bound, DiskFigure, LinkFigure
from assay.model.bounds import bound_for
from assay.model.evidence import (
    AttemptEvidence,
    AttemptStatus,
    ClientResult,
    ClientSamples,
    DegradedEvidence,
    DirectionSummary,
    DurabilityEvidence,
    Histogram,
    Samples,
    Series,
    Snapshot,
    SteadyEvidence,
    Summary,
)
from assay.model.lab import Lab
from assay.model.plan import Plan, block_order
from assay.model.point import FioPoint
from assay.model.units import format_bytes

STUDY_ID = "0123456789abcdef"
SEED = 42
START = 1_760_000_000.0
HOSTILE = "<script>alert('x')</script> & \"co\" | `pipe`"
ATTEMPT_SCHEMA: dict[str, Any] = {
    "id": pl.String, "cell_id": pl.String, "candidate": pl.String, "role": pl.String, "system": pl.String,
    "workload_id": pl.String, "block": pl.Int64, "try_number": pl.Int64, "status": pl.String, "verdict": pl.String,
    "broken_rules": pl.List(pl.String), "started_at": pl.Float64, "ended_at": pl.Float64, "bandwidth": pl.Float64,
    "iops": pl.Float64, "latency_mean": pl.Float64, "latency_p50": pl.Float64, "latency_p95": pl.Float64,
    "latency_p99": pl.Float64, "samples_hash": pl.String,
}  # fmt: skip
CHECK_SCHEMA: dict[str, Any] = dict.fromkeys(("subject", "rule", "scope", "verdict", "message", "evidence"), pl.String)


@dataclass(frozen=True)
class Spec:
    """What to make. ``factors``: candidate -> share of the base speed, or (candidate, pattern) -> the same."""

    candidates: Sequence[str] = ("ext4", "xfs", "btrfs")
    factors: Mapping[Any, float] = field(
        default_factory=lambda: {
            "xfs": 1.01,
            ("xfs", "randwrite"): 1.25,
            "btrfs": 0.9,
            ("btrfs", "randwrite"): 0.55,
            ("btrfs", "randread"): 1.03,
        }
    )
    patterns: Sequence[str] = ("read", "write", "randread", "randwrite")
    block_sizes: Sequence[int] = (4096, 131072, 1 << 20)
    threads: Sequence[int] = (1, 8)
    blocks: int = 10
    noise: float = 0.01  # standard deviation of the logarithm, per attempt
    noisy: Mapping[Any, float] = field(default_factory=lambda: {("btrfs", "randread"): 0.08})
    weather: float = 0.05  # the same for all cells of a block, as a cluster's neighbours are
    metric: str = "bandwidth"
    aa: bool = True
    null: bool = True
    scale: float = 1.0
    question: str = "Which local file system serves small random writes best?"
    volatile: Sequence[str] = ()  # systems of another durability tier
    failures: bool = True  # plant failed, void and retried attempts, and an invalid cell
    link: float | None = None  # payload of each host's link, bytes/s; candidates with a layout are bound by it
    killed: Sequence[int] = (0,)  # hosts killed, an axis
    baselines: Baselines | None = None


LINK = 125e6 * 1448 / 1514  # bytes/s of payload through 1 Gbit/s
LAB = Lab.model_validate({"hosts": 6, "network": {"bandwidth": "1Gbit"}})
STORAGE = tuple(f"s{i}" for i in range(1, 7))
#: Six hosts with 1 Gbit/s links: the three layouts of the papers, a second system in one of them, and a local disk.
LAB_CANDIDATES = (
    "glusterfs/distributed", "glusterfs/replicated-3", "glusterfs/rain-4-2", "ceph/rain-4-2", "local/xfs"
)  # fmt: skip


def baselines() -> Baselines:
    """What such a lab measures: every figure another one, so that a mixed-up cell is seen."""
    hosts = (*STORAGE, "c1")
    return Baselines(
        measured_at=START,
        seconds=12.5,
        links=[
            LinkFigure(source=a, target=b, bytes_per_second=LINK - 1e5 * (10 * i + k), retransmits=i)
            for i, a in enumerate(hosts)
            for k, b in enumerate(hosts)
            if a != b
        ],
        all_to_client_bytes_per_second={"c1": 118.5e6},
        client_to_all_bytes_per_second={"c1": 117.5e6},
        disks=[
            DiskFigure(host=h, disk=0, read_bytes_per_second=9e8 + 1e7 * i, write_bytes_per_second=7e8 + 1e7 * i)
            for i, h in enumerate(STORAGE)
        ],
        clock_offset_seconds={h: 0.0 if h == "c1" else 0.00012 for h in hosts},
        idle_cpu_busy_share=dict.fromkeys(hosts, 0.03),
        round_trip_seconds=dict.fromkeys(STORAGE, 0.00021),
        problems=["s3: iperf3 ended with 1 (unable to connect)"],
    )


def lab_spec(**changes: Any) -> Spec:
    """A small study on such a lab."""
    given: dict[str, Any] = {
        "candidates": LAB_CANDIDATES,
        "patterns": ("read", "write"),
        "block_sizes": (4096, 1 << 20),
        "threads": (1, 8),
        "blocks": 6,
        "failures": False,
        "factors": {
            "glusterfs/replicated-3": 0.9,
            "glusterfs/rain-4-2": 0.7,
            "ceph/rain-4-2": 0.5,
            "local/xfs": 1.5,
        },
        "noisy": {},
        "link": LINK,
        "baselines": baselines(),
    }
    return Spec(**given | changes)


def _bound(system: str, spec: Spec, point: Mapping[str, Any]) -> Bound | None:
    layout = layout_of(system)
    if layout is None or spec.link is None:
        return None
    return bound_for(system.split("/")[0], layout, LAB, FioPoint.model_validate(point), None)


def _point(pattern: str, block_size: int, threads: int, killed: int = 0) -> FioPoint:
    return FioPoint(
        pattern=pattern, block_size=block_size, threads=threads, iodepth=32, engine="libaio", size=1 << 30,  # type: ignore[arg-type]
        runtime=60.0, ramp=0.0, time_based=True, direct=True, cache="cold", fsync=0, fdatasync=0,
        end_fsync="write" in pattern, rate=None, read_share=0.5, verify="none", clients=1,
        degraded_hosts=killed,
    )  # fmt: skip


def _base_bandwidth(point: FioPoint) -> float:
    """Bytes/s of the first candidate: saturating in threads and block size, slower at random and when writing."""
    full = 1.8e9 * (0.7 if point.writes else 1.0) * (0.5 if "rand" in point.pattern else 1.0)
    pressure = point.threads * point.block_size / 65536
    return full * pressure / (pressure + 3)


def study_data(spec: Spec | None = None) -> StudyData:
    """The whole study; equal specs give equal data."""
    spec = spec or Spec()
    random = np.random.default_rng(7)
    candidates = _candidates(spec)
    workloads = [
        WorkloadRow(
            study_id=STUDY_ID,
            id=f"point{i:04d}",
            name=f"{p.pattern} {format_bytes(p.block_size)} {p.threads} thr"
            + (f" {p.degraded_hosts} hosts down" if p.degraded_hosts else ""),
            kind="fio",
            position=i,
            point=p.model_dump(mode="json"),
        )
        for i, p in enumerate(
            _point(pattern, size, n, killed)
            for pattern in spec.patterns
            for size in spec.block_sizes
            for n in spec.threads
            for killed in spec.killed
        )
    ]
    cells = [
        CellRow(
            id=f"cell{w.position:04d}{c.position:02d}",
            study_id=STUDY_ID,
            candidate=c.label,
            workload_id=w.id,
            closure={"system": c.system},
            closure_hash="0" * 64,
            not_applicable=None,
        )
        for w in workloads
        for c in candidates
    ]
    rows, checks = _attempts(spec, candidates, workloads, cells, random)
    by_id = {row["id"]: row for row in rows}
    points = {w.id: w for w in workloads}

    def evidence(attempt_id: str) -> AttemptEvidence:
        return _evidence(by_id[attempt_id], points[by_id[attempt_id]["workload_id"]].point, spec)

    def samples(attempt_id: str) -> Samples | None:
        row = by_id[attempt_id]
        return _samples(row, points[row["workload_id"]].point) if row["status"] == "finished" else None

    def artefact(content_hash: str) -> bytes | None:
        return {
            "job": b"[global]\nioengine=libaio\niodepth=32\ndirect=1\n\n[cell]\nrw=randread\nbs=4k\nnumjobs=8\n",
            "command": b"fio --output-format=json+ job.fio\n",
            "raw": b"{}" * 40_000,
        }.get(content_hash)

    shape: dict[str, Any] = {"disk": {"size": 4 << 30}}
    if spec.link is not None:
        shape |= LAB.model_dump(mode="json")
    return StudyData(
        study=_study(spec, rows),
        lab=LabRow(id="lab1", study_id=STUDY_ID, kind="local", shape=shape),
        hosts=[
            HostRow(
                lab_id="lab1",
                name="here",
                roles=["storage", "client"],
                facts={"cpu": "AMD EPYC 7763", "cores": 2, "memory_bytes": 24 << 30},
            )
        ],
        candidates=candidates,
        workloads=workloads,
        cells=cells,
        blocks=[
            BlockRow(
                study_id=STUDY_ID,
                number=k,
                stage="pilot" if k < 5 else "main",
                cells=block_order(Plan([], [], {}, SEED, spec.scale), k, [c.id for c in cells]),
                started_at=START + 1000 * k,
            )
            for k in range(spec.blocks)
        ],
        attempts=pl.DataFrame(rows, schema=ATTEMPT_SCHEMA),
        checks=pl.DataFrame(checks, schema=CHECK_SCHEMA, orient="row"),
        evidence=evidence,
        samples=samples,
        artefact=artefact,
        baselines=spec.baselines,
    )


def _candidates(spec: Spec) -> list[CandidateRow]:
    planned: list[tuple[str, str, str, str | None]] = [
        (label, _system(label), "subject", None) for label in spec.candidates
    ]
    if spec.aa:
        planned.append((f"{spec.candidates[0]} (A/A)", planned[0][1], "twin", spec.candidates[0]))
    if spec.null:
        planned.append(("null", "null", "null", None))
    return [
        CandidateRow(
            study_id=STUDY_ID,
            label=label,
            system=system,
            role=role,
            twin_of=twin,
            position=i,
            tuning={"mount": "noatime"} if role == "subject" else {},
            facts={"version": "1.47.2"},
        )
        for i, (label, system, role, twin) in enumerate(planned)
    ]


def _system(label: str) -> str:
    return label if "/" in label and "<" not in label else f"local/{'ext4' if '<' in label else label}"


def _study(spec: Spec, rows: Sequence[Mapping[str, Any]]) -> StudyRow:
    declaration = {
        "study": "synthetic",
        "question": spec.question,
        "source": "made up; planted effects",
        "candidates": [{"system": _system(c)} for c in spec.candidates],
        "measure": {
            "metric": spec.metric,
            "blocks": {"pilot": 5, "minimum": 5, "maximum": 30},
            "budget": 7200.0,
            "seed": 42,
        },
    }
    return StudyRow(
        id=STUDY_ID,
        name="synthetic",
        declaration_hash="1" * 64,
        declaration=declaration,
        text="study: synthetic\nquestion: ...\n",
        seed=SEED,
        scale=spec.scale,
        assay_version="0.1.0",
        created_at=START,
        state="ended",
        ended_at=rows[-1]["ended_at"] if rows else START,
        outcome="all blocks done",
    )


def _lookup(table: Mapping[Any, float], label: str, pattern: str, default: float) -> float:
    return table.get((label, pattern), table.get(label, default))


def _attempts(
    spec: Spec,
    candidates: Sequence[CandidateRow],
    workloads: Sequence[WorkloadRow],
    cells: Sequence[CellRow],
    random: np.random.Generator,
) -> tuple[list[dict[str, Any]], list[tuple[str, ...]]]:
    of_label = {c.label: c for c in candidates}
    of_point = {w.id: w for w in workloads}
    of_id = {c.id: c for c in cells}
    rows: list[dict[str, Any]] = []
    checks: list[tuple[str, ...]] = []
    clock = START
    plan = Plan([], [], {}, SEED, spec.scale)
    for block in range(spec.blocks):
        weather = math.exp(random.normal(0, spec.weather))
        for cell_id in block_order(plan, block, [c.id for c in cells]):
            cell = of_id[cell_id]
            candidate, workload = of_label[cell.candidate], of_point[cell.workload_id]
            point = FioPoint.model_validate(workload.point)
            source = candidate.twin_of or candidate.label
            factor = _lookup(spec.factors, source, point.pattern, 1.0) * weather
            if candidate.role == "null":
                factor = 40.0
            sigma = _lookup(spec.noisy, source, point.pattern, spec.noise)
            bandwidth = _base_bandwidth(point) * factor
            if (bound := cell_bound(_bound(candidate.system, spec, workload.point), workload.point)) is not None:
                # a soft ceiling: small I/O stays what it is, large I/O comes to 96 % of the link
                bandwidth /= (1 + (bandwidth / (0.96 * bound.bytes_per_second)) ** 4) ** 0.25
            bandwidth *= math.exp(random.normal(0, sigma))
            first = spec.failures and block == 3 and workload.position == 1 and candidate.position == 1
            tries = ["failed", "finished"] if first else ["finished"]
            for number, status in enumerate(tries):
                row = _row(cell, candidate, block, number, status, bandwidth, point, clock)
                if spec.failures and block == 4 and workload.position == 2 and candidate.position == 0:
                    row |= {"verdict": "invalid", "broken_rules": ["K3"]}
                if spec.failures and workload.position == 5 and candidate.label == spec.candidates[-1]:
                    row |= {"verdict": "invalid", "broken_rules": ["K3"]}
                if spec.failures and workload.position == 4 and candidate.position == 2:
                    row |= {"verdict": "unknown", "broken_rules": ["A1"]}
                rows.append(row)
                clock = row["ended_at"]
                if status == "finished":
                    checks += _checks(row)
    bad = [c for c in cells if c.candidate == spec.candidates[-1] and of_point[c.workload_id].position == 7]
    if spec.failures and bad:
        message = "random reads are 3.1 times as fast as sequential ones: a cache answered"
        checks.append((bad[0].id, "K4", "cell", "invalid", message, json.dumps({"ratio": 3.1})))
    return rows, checks


def _row(
    cell: CellRow,
    candidate: CandidateRow,
    block: int,
    number: int,
    status: str,
    bandwidth: float,
    point: FioPoint,
    clock: float,
) -> dict[str, Any]:
    iops = bandwidth / point.block_size
    mean = point.threads * point.iodepth / iops
    done = status == "finished"
    return {
        "id": f"{cell.id}b{block:02d}t{number}",
        "cell_id": cell.id,
        "candidate": candidate.label,
        "role": candidate.role,
        "system": candidate.system,
        "workload_id": cell.workload_id,
        "block": block,
        "try_number": number,
        "status": status,
        "verdict": "valid" if done else "invalid",
        "broken_rules": [] if done else ["R2"],
        "started_at": clock + 0.3,
        "ended_at": clock + 60.5,
        "bandwidth": bandwidth if done else None,
        "iops": iops if done else None,
        "latency_mean": mean if done else None,
        "latency_p50": 0.8 * mean if done else None,
        "latency_p95": 2.4 * mean if done else None,
        "latency_p99": 4.0 * mean if done else None,
        "samples_hash": "f" * 64 if done else None,
    }


def _checks(row: Mapping[str, Any]) -> list[tuple[str, ...]]:
    found = []
    for rule, message in (
        ("K3", "the device read 6.44 GB, the load received 6.44 GB"),
        ("R3", "no errors"),
        ("A1", "operations times block size are the bytes"),
        ("A3", "steady from 4 s to 60 s"),
    ):
        verdict = row["verdict"] if rule in row["broken_rules"] else "valid"
        text = message if verdict == "valid" else f"{rule} is not satisfied: the device read 0 B"
        found.append((row["id"], rule, "attempt", verdict, text, json.dumps({"read_bytes": 6442450944})))
    return found


def _evidence(row: Mapping[str, Any], point: Mapping[str, Any], spec: Spec) -> AttemptEvidence:
    return AttemptEvidence(
        attempt_id=row["id"],
        study_id=STUDY_ID,
        cell_id=row["cell_id"],
        candidate=row["candidate"],
        system=row["system"],
        role=row["role"],
        block=row["block"],
        try_number=row["try_number"],
        status=AttemptStatus(row["status"]),
        started_at=row["started_at"],
        ended_at=row["ended_at"],
        point=dict(point),
        expected={},
        environment={
            "kernel": "6.12.0-amd64",
            "cpu": {"model": "AMD EPYC 7763", "cores": 2, "governor": "performance"},
            "fio": "fio-3.33",
        },
        before=Snapshot(at=row["started_at"]),
        durability=DurabilityEvidence(declared="volatile" if row["system"] in spec.volatile else "device"),
        bound=_bound(row["system"], spec, point),
        degraded=_degraded(row, int(point["degraded_hosts"])),
        dataset_bytes=1 << 30,
        clients=[
            ClientResult(
                client="client0", host="here", started_at=row["started_at"], ended_at=row["ended_at"], exit_code=0
            )
        ],
        summary=None
        if row["status"] != "finished"
        else Summary(
            directions={
                "read": DirectionSummary(
                    bandwidth_bytes_per_second=row["bandwidth"],
                    iops=row["iops"],
                    bytes=int(row["bandwidth"] * 60),
                    operations=int(row["iops"] * 60),
                    latency_mean_seconds=row["latency_mean"],
                )
            },
            steady=SteadyEvidence(found=True, start_seconds=5.0, stop_seconds=60.0),
        ),
        error="" if row["status"] == "finished" else "fio: Input/output error",
        artefacts={"job.fio": "job", "command": "command", "fio.json": "raw"},
    )


def _degraded(row: Mapping[str, Any], killed: int) -> DegradedEvidence | None:
    if not killed or layout_of(row["system"]) is None:
        return None
    lost = row["system"].endswith("replicated-3") and row["block"] == 2
    return DegradedEvidence(
        killed=list(STORAGE[:killed]),
        killed_seconds=0.03,
        verified_degraded=not lost,
        restarted_seconds=2.4 + 0.1 * row["block"],
        healed_seconds=None if lost else 3.6 + 0.1 * row["block"],
        verified_healed=None if lost else True,
        problems=["job.0.0: sha256 differs"] if lost else [],
    )


def _samples(row: Mapping[str, Any], point: Mapping[str, Any]) -> Samples:
    random = np.random.default_rng([row["block"], len(row["candidate"])])
    seconds = [float(s) for s in range(1, 61)]
    ramp = 1 - 0.4 * np.exp(-np.arange(60) / 1.5)
    values = row["bandwidth"] * ramp * np.exp(random.normal(0, 0.04, 60))
    grid = np.unique(np.geomspace(row["latency_mean"] * 1e9 / 8, row["latency_mean"] * 1e9 * 12, 120).astype(int))
    weight = np.exp(-((np.log(grid / (row["latency_mean"] * 0.9e9)) / 0.6) ** 2) / 2)
    direction = "write" if "write" in str(point["pattern"]) else "read"
    return Samples(
        clients=[
            ClientSamples(
                client=f"client{i}",
                histograms={
                    direction: Histogram(latency_ns=grid.tolist(), counts=(weight * 20_000).astype(int).tolist())
                },
                series=[
                    Series(
                        quantity="bandwidth",
                        direction=direction,
                        interval_seconds=1.0,
                        seconds=seconds,
                        values=(values / 2).tolist(),
                    )
                ],
            )
            for i in range(2)
        ]
    )
