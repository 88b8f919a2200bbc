"""From a study to its plan: candidates, workload points, cells and the order of every block. Pure and deterministic."""

from __future__ import annotations

import math
import random
from dataclasses import dataclass
from typing import Any, Literal

from assay.model.canonical import digest
from assay.model.expand import PlanError, PlannedPoint, Scaling, count_points, plan_points, product
from assay.model.lab import Disk
from assay.model.point import DdPoint, FioPoint
from assay.model.study import Candidate, Study

Role = Literal["subject", "twin", "null", "floor"]
MIB = 1 << 20
MOST_CELLS = 100_000
LABEL_LENGTH = 120  # of the ledger's column


@dataclass(frozen=True)
class PlannedCandidate:
    """A candidate with its axes resolved. ``deployment`` names what is deployed: an A/A twin may share it."""

    label: str
    system: str
    role: Role
    tuning: dict[str, Any]
    deployment: str
    twin_of: str | None = None
    mount: str | None = None  # an existing mount; nothing is deployed then


@dataclass(frozen=True)
class Plan:
    """All that is run. ``cells`` maps cell id to (candidate label, point id)."""

    candidates: list[PlannedCandidate]
    points: list[PlannedPoint]
    cells: dict[str, tuple[str, str]]
    seed: int
    scale: float

    def candidate(self, label: str) -> PlannedCandidate:
        """The candidate of that label; KeyError."""
        return next(c for c in self.candidates if c.label == label)

    def point(self, point_id: str) -> PlannedPoint:
        """The point of that id; KeyError."""
        return next(p for p in self.points if p.id == point_id)


def declaration_hash(study: Study, scale: float) -> str:
    """Identity of a declaration: what was asked for, without the drawn seed and without the time budget, which may be
    raised when a study is resumed."""
    return digest({"study": study.model_dump(mode="json", exclude={"measure": {"budget"}}), "scale": scale})


def make_plan(study: Study, *, study_id: str, seed: int, scale: float, memory_bytes: int) -> Plan:
    """Resolve all axes. ``memory_bytes`` (clients and servers) resolves sizes such as ``2xRAM``. Raises PlanError."""
    if not 0 < scale < math.inf:
        raise PlanError(f"scale {scale} is not a positive number; 0.1 makes sizes and times a tenth")
    _refuse_too_many(study)
    _refuse_too_degraded(study)
    _refuse_bandwidth_of_names(study)
    candidates = _candidates(study)
    points = plan_points(study.workloads, Scaling(scale, memory_bytes))
    cells = {
        digest([study_id, candidate.label, point.id])[:16]: (candidate.label, point.id)
        for candidate in candidates
        for point in points
    }
    return Plan(candidates, points, cells, seed, scale)


def block_order(plan: Plan, number: int, cells: list[str]) -> list[str]:
    """The randomised order of block ``number``: a seeded shuffle, the same on every call and machine."""
    order = sorted(cells)
    random.Random(f"{plan.seed}:{number}").shuffle(order)
    return order


def _refuse_too_many(study: Study) -> None:
    candidates = sum(math.prod(map(len, c.tuning.values())) for c in study.candidates)
    points = sum(count_points(workload) for workload in study.workloads)
    if candidates * points > MOST_CELLS:
        raise PlanError(
            f"{candidates} candidates × {points} workload points are {candidates * points} cells, at most {MOST_CELLS} can "
            "be planned; shorten the lists"
        )


def _refuse_too_degraded(study: Study) -> None:
    for workload in study.workloads:
        most = max(workload.spec.degraded.hosts)
        if most >= study.lab.hosts:
            raise PlanError(f"degraded: hosts: {most} leaves none of the lab's {study.lab.hosts} storage hosts")


def _refuse_bandwidth_of_names(study: Study) -> None:
    if study.measure.metric == "bandwidth" and any(w.metadata is not None for w in study.workloads):
        raise PlanError("metadata moves no data, so it has no bandwidth; set measure.metric to iops or a latency")


def _candidates(study: Study) -> list[PlannedCandidate]:
    subjects: list[PlannedCandidate] = []
    for declared in study.candidates:
        for tuning in product(declared.tuning):
            label = declared.label or declared.system
            varied = {k: v for k, v in tuning.items() if len(declared.tuning[k]) > 1}
            if varied:
                label += " " + " ".join(f"{k}={v}" for k, v in varied.items())
            subjects.append(_planned(declared, label, tuning))
    planned = list(subjects)
    measured = [c for c in subjects if c.role == "subject"]
    if study.measure.aa != "none" and measured:
        first = measured[0]
        label = f"{first.label} (A/A)"
        deployment = first.deployment if study.measure.aa == "shared" else label
        planned.append(
            PlannedCandidate(label, first.system, "twin", first.tuning, deployment, first.label, first.mount)
        )
    if study.measure.null_target and not any(c.role == "null" for c in planned):
        planned.append(PlannedCandidate("null", "null", "null", {}, "null"))
    labels = [c.label for c in planned]
    for label in labels:
        if labels.count(label) > 1:
            raise PlanError(f"two candidates are called {label!r}; give one of them another label")
        if len(label) > LABEL_LENGTH:
            raise PlanError(
                f"the name {label!r} is longer than {LABEL_LENGTH} characters; give the candidate a short label"
            )
    return planned


def _planned(declared: Candidate, label: str, tuning: dict[str, Any]) -> PlannedCandidate:
    role: Role = "null" if declared.system == "null" else "floor" if declared.system == "tmpfs" else "subject"
    return PlannedCandidate(label, declared.system, role, tuning, label, mount=declared.mount)


def estimate(plan: Plan, study: Study, *, per_attempt_seconds: float = 0.6) -> dict[str, float]:
    """Rough cost of a plan: seconds of the pilot and of the maximum, bytes of data sets, attempts of a block.

    ``per_attempt_seconds`` stands for the load generator's start and what Assay does around it.
    """
    block_seconds = 0.0
    for label, point_id in plan.cells.values():
        run = plan.point(point_id).point.expected_seconds
        if plan.candidate(label).role == "null":
            run = min(run, 1.0)
        block_seconds += run + per_attempt_seconds
    dataset = dataset_bytes(plan)
    deployments = {c.deployment for c in plan.candidates if c.role != "null"}
    data = dataset * len(deployments)
    return {
        "attempts_per_block": float(len(plan.cells)),
        "block_seconds": block_seconds,
        "pilot_seconds": block_seconds * study.measure.blocks.pilot,
        "maximum_seconds": block_seconds * study.measure.blocks.maximum,
        "dataset_bytes": float(data),
    }


def dataset_bytes(plan: Plan) -> int:
    """Bytes of the data set on each deployment. fio's files are shared by all its points, each as long as the longest; files
    that dd reads stay; what dd and IOzone write is removed after the attempt."""
    longest: dict[tuple[int, int], int] = {}
    stays: dict[str, int] = {}
    passing = 0
    for planned in plan.points:
        point = planned.point
        if isinstance(point, FioPoint):
            for client in range(point.clients):
                for thread in range(point.threads):
                    key = (client, thread)
                    longest[key] = max(longest.get(key, 0), point.size)
        elif isinstance(point, DdPoint) and point.reads:
            stays[f"{point.content}-{point.size}"] = max(
                stays.get(f"{point.content}-{point.size}", 0), point.dataset_bytes
            )
        else:
            passing = max(passing, point.dataset_bytes)
    return sum(longest.values()) + sum(stays.values()) + passing


def disk_for(study: Study, plan: Plan) -> Disk:
    """The disk of each candidate with its size resolved: copy-on-write and metadata need room beside the data set."""
    disk = study.lab.disk
    if disk.size is not None:
        return disk
    wanted = dataset_bytes(plan) * 3 // 2 + 512 * MIB
    return disk.model_copy(update={"size": -(-wanted // (64 * MIB)) * 64 * MIB})
