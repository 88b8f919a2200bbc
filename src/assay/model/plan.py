"""From a study to its plan: candidates, workload points, cells and the order of every block. Pure and deterministic."""

from __future__ import annotations

import hashlib
import itertools
import json
import math
import random
from dataclasses import dataclass, replace
from typing import Any, Literal

from assay.model import units
from assay.model.lab import Disk
from assay.model.study import Candidate, FioPoint, FioWorkload, Study

Role = Literal["subject", "twin", "null", "floor"]
MIB = 1 << 20
MOST_CELLS = 100_000
LABEL_LENGTH, NAME_LENGTH = 120, 200  # of the ledger's columns


class PlanError(Exception):
    """The study is well-formed but cannot be planned; the message is one clear line."""


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
class PlannedPoint:
    """A workload point with its id (a hash of the point) and its name in tables."""

    id: str
    name: str
    point: FioPoint


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


def canonical(value: Any) -> str:
    """JSON with sorted keys and no spaces: equal values give equal text."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), ensure_ascii=False)


def digest(value: Any) -> str:
    """SHA-256 of the canonical JSON, as hex."""
    return hashlib.sha256(canonical(value).encode()).hexdigest()


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
    candidates = _candidates(study)
    points = _points(study, scale, memory_bytes)
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
    points = 0
    for workload in study.workloads:
        assert workload.fio is not None
        axes = [*_axes(workload.fio).values(), *workload.fio.options.values()]
        points += math.prod(map(len, axes))
    if candidates * points > MOST_CELLS:
        raise PlanError(
            f"{candidates} candidates × {points} workload points are {candidates * points} cells, at most {MOST_CELLS} can "
            "be planned; shorten the lists"
        )


def _refuse_too_degraded(study: Study) -> None:
    for workload in study.workloads:
        assert workload.fio is not None
        most = max(workload.fio.degraded.hosts)
        if most >= study.lab.hosts:
            raise PlanError(f"degraded: hosts: {most} leaves none of the lab's {study.lab.hosts} storage hosts")


def _candidates(study: Study) -> list[PlannedCandidate]:
    subjects: list[PlannedCandidate] = []
    for declared in study.candidates:
        for tuning in _product(declared.tuning):
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


def _product(axes: dict[str, list[Any]]) -> list[dict[str, Any]]:
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


_AXES = (
    "pattern", "block_size", "threads", "iodepth", "engine", "size", "runtime", "ramp", "direct", "cache",
    "fsync", "fdatasync", "rate", "read_share", "verify", "clients",
)  # fmt: skip


def _axes(fio: FioWorkload) -> dict[str, list[Any]]:
    return {**{name: getattr(fio, name) for name in _AXES}, "degraded_hosts": fio.degraded.hosts}


def _points(study: Study, scale: float, memory_bytes: int) -> list[PlannedPoint]:
    planned: dict[str, PlannedPoint] = {}
    for workload in study.workloads:
        assert workload.fio is not None
        fio = workload.fio
        for values in _product(_axes(fio)):
            for options in _product(fio.options):
                point = _point(fio, values, options, scale, memory_bytes)
                name = _point_name(workload.name, fio, point)
                point_id = digest(point.model_dump(mode="json"))[:16]
                planned.setdefault(point_id, PlannedPoint(point_id, name, point))
    return _named_apart(list(planned.values()))


def _named_apart(points: list[PlannedPoint]) -> list[PlannedPoint]:
    """Points of two workloads may differ in what is no axis of either: then their names say it."""
    named: dict[str, list[PlannedPoint]] = {}
    for planned in points:
        named.setdefault(planned.name, []).append(planned)
    result = []
    for planned in points:
        same = [p.point.model_dump() for p in named[planned.name]]
        shown = {
            **_shown(planned.point),
            **{f: f"{f}={getattr(planned.point, f)}" for f in ("time_based", "end_fsync")},
        }
        extra = [text for field, text in shown.items() if any(p[field] != same[0][field] for p in same)]
        for option in sorted({o for p in same for o in p["options"]}):
            if any(p["options"].get(option) != same[0]["options"].get(option) for p in same):
                extra.append(f"{option}={planned.point.options.get(option, 'default')}")
        name = " ".join([planned.name, *extra])
        if len(name) > NAME_LENGTH:
            raise PlanError(
                f"the point {name!r} has a name longer than {NAME_LENGTH} characters; vary fewer options in one workload"
            )
        result.append(replace(planned, name=name))
    return result


def _point(
    fio: FioWorkload, values: dict[str, Any], options: dict[str, Any], scale: float, memory_bytes: int
) -> FioPoint:
    values = dict(values)
    size = values["size"]
    if isinstance(size, str):
        # upwards to whole MiB: 2xRAM over three threads must not be a byte less than twice the memory (check W1)
        total = float(size.removesuffix("xRAM")) * memory_bytes
        size = math.ceil(total / values["threads"] / values["clients"] / MIB) * MIB
    # whole MiB, and at least 16 operations, so that scaled-down cells still do what they are called
    unit = MIB if size >= MIB else 4096
    least = max(unit, -(-16 * values["block_size"] // unit) * unit) if scale < 1 else unit
    values["size"] = max(least, round(size * scale / unit) * unit) if scale != 1 else size
    if values["size"] < values["block_size"]:
        raise PlanError(
            f"size {units.format_bytes(values['size'])} is smaller than block_size {units.format_bytes(values['block_size'])}"
        )
    values["runtime"] = max(0.5, values["runtime"] * scale) if scale != 1 else values["runtime"]
    values["ramp"] = values["ramp"] * scale
    mixed = values["pattern"] in ("rw", "randrw")
    writes = mixed or "write" in values["pattern"]
    # what has no meaning for a pattern must not make two points of one
    if not mixed:
        values["read_share"] = 0.5
    if not writes:
        values["fsync"] = values["fdatasync"] = 0
    if values["verify"] != "none" and not writes:
        raise PlanError(f"verify: {values['verify']} needs a pattern that writes, not {values['pattern']}")
    return FioPoint(**values, time_based=fio.time_based, end_fsync=fio.end_fsync and writes, options=options)


def _point_name(name: str | None, fio: FioWorkload, point: FioPoint) -> str:
    parts = [name] if name else []
    parts += [point.pattern, units.format_bytes(point.block_size), f"{point.threads} thr"]
    axes = _axes(fio)
    parts += [text for axis, text in _shown(point).items() if len(axes[axis]) > 1]
    if point.degraded_hosts and len(axes["degraded_hosts"]) == 1:
        parts.append(_shown(point)["degraded_hosts"])
    parts += [f"{k}={v}" for k, v in point.options.items() if len(fio.options[k]) > 1]
    return " ".join(parts)


def _shown(point: FioPoint) -> dict[str, str]:
    """How a name tells each axis, besides pattern, block size and threads, which are always told."""
    return {
        "iodepth": f"qd{point.iodepth}",
        "engine": point.engine,
        "size": units.format_bytes(point.size),
        "runtime": units.format_seconds(point.runtime),
        "ramp": f"ramp {units.format_seconds(point.ramp)}",
        "direct": "direct" if point.direct else "buffered",
        "cache": point.cache,
        "fsync": f"fsync{point.fsync}",
        "fdatasync": f"fdatasync{point.fdatasync}",
        "rate": f"{point.rate} B/s" if point.rate else "unlimited",
        "read_share": f"{point.read_share:.0%} reads",
        "verify": f"verify {point.verify}",
        "clients": f"{point.clients} clients",
        "degraded_hosts": f"{point.degraded_hosts} hosts down" if point.degraded_hosts else "all hosts up",
    }


def estimate(plan: Plan, study: Study, *, per_attempt_seconds: float = 0.6) -> dict[str, float]:
    """Rough cost of a plan: seconds of the pilot and of the maximum, bytes of data sets, attempts of a block.

    ``per_attempt_seconds`` stands for the load generator's start and what Assay does around it.
    """
    block_seconds = 0.0
    for label, point_id in plan.cells.values():
        point = plan.point(point_id).point
        run = (
            min(point.runtime + point.ramp, 1.0) if plan.candidate(label).role == "null" else point.runtime + point.ramp
        )
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
    """Bytes of the data set on each deployment: the files are shared by all points, each as long as the longest."""
    longest: dict[tuple[int, int], int] = {}
    for planned in plan.points:
        point = planned.point
        for client in range(point.clients):
            for thread in range(point.threads):
                key = (client, thread)
                longest[key] = max(longest.get(key, 0), point.size)
    return sum(longest.values())


def disk_for(study: Study, plan: Plan) -> Disk:
    """The disk of each candidate with its size resolved: copy-on-write and metadata need room beside the data set."""
    disk = study.lab.disk
    if disk.size is not None:
        return disk
    wanted = dataset_bytes(plan) * 3 // 2 + 512 * MIB
    return disk.model_copy(update={"size": -(-wanted // (64 * MIB)) * 64 * MIB})
