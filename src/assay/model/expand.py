"""From workloads to points: every combination of a workload's axes, resolved, scaled and named. Pure and deterministic."""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, replace
from typing import Any

from assay.model import units
from assay.model.canonical import digest
from assay.model.point import DdPoint, FioPoint, IozonePoint, MetadataPoint
from assay.model.workload import DdWorkload, FioWorkload, IozoneWorkload, MetadataWorkload, Workload

MIB = 1 << 20
NAME_LENGTH = 200  # of the ledger's column
SomePoint = FioPoint | DdPoint | IozonePoint | MetadataPoint


class PlanError(Exception):
    """The study is well-formed but cannot be planned; the message is one clear line."""


@dataclass(frozen=True)
class PlannedPoint:
    """A workload point with its id (a hash of the point) and its name in tables."""

    id: str
    name: str
    point: SomePoint


@dataclass(frozen=True)
class Scaling:
    """How sizes and times are resolved."""

    scale: float
    memory_bytes: int  # of clients and servers, for sizes such as 2xRAM

    def size(self, size: int, least: int = 1) -> int:
        """Bytes of a file, in whole MiB where it has one, and at least ``least``."""
        if self.scale == 1:
            return size
        unit = MIB if size >= MIB else least
        return max(least, unit, round(size * self.scale / unit) * unit)


def product(axes: dict[str, list[Any]]) -> list[dict[str, Any]]:
    """Every combination of one value per axis, the last axis running fastest."""
    return [dict(zip(axes, values, strict=True)) for values in itertools.product(*axes.values())]


def count_points(workload: Workload) -> int:
    """How many points a workload has, without making them."""
    options = workload.fio.options if workload.fio is not None else {}
    return math.prod(map(len, [*_axes(workload).values(), *options.values()]))


def plan_points(workloads: list[Workload], scaling: Scaling) -> list[PlannedPoint]:
    """All points, each once, with names that tell them apart. Raises PlanError."""
    planned: dict[str, PlannedPoint] = {}
    for workload in workloads:
        axes = _axes(workload)
        options = workload.fio.options if workload.fio is not None else {}
        for values in product(axes):
            for chosen in product(options):
                point = _make(workload, values, chosen, scaling)
                varied = {axis for axis, values in axes.items() if len(values) > 1}
                name = _name(workload, point, varied)
                point_id = digest(point.model_dump(mode="json"))[:16]
                planned.setdefault(point_id, PlannedPoint(point_id, name, point))
    return _named_apart(list(planned.values()))


_FIO_AXES = (
    "pattern", "block_size", "threads", "iodepth", "engine", "size", "runtime", "ramp", "direct", "cache",
    "fsync", "fdatasync", "rate", "read_share", "verify", "clients",
)  # fmt: skip
_AXES: dict[type, tuple[str, ...]] = {
    FioWorkload: _FIO_AXES,
    DdWorkload: ("direction", "size", "block_size", "content", "fsync", "files", "cache", "clients"),
    IozoneWorkload: ("test", "record", "size", "threads", "direct", "cache", "clients"),
    MetadataWorkload: ("operation", "files", "threads", "cache", "clients"),
}


def _axes(workload: Workload) -> dict[str, list[Any]]:
    spec = workload.spec
    return {**{name: getattr(spec, name) for name in _AXES[type(spec)]}, "degraded_hosts": spec.degraded.hosts}


def _make(workload: Workload, values: dict[str, Any], options: dict[str, Any], scaling: Scaling) -> SomePoint:
    if workload.fio is not None:
        return _fio(workload.fio, values, options, scaling)
    if workload.dd is not None:
        return _dd(values, scaling)
    if workload.iozone is not None:
        size = scaling.size(values["size"], 1 << 16)
        if size < values["record"]:
            raise PlanError(
                f"size {units.format_bytes(size)} is smaller than record {units.format_bytes(values['record'])}"
            )
        return IozonePoint.model_validate(values | {"size": size})
    return MetadataPoint.model_validate(values | {"files": max(1, round(values["files"] * scaling.scale))})


def _dd(values: dict[str, Any], scaling: Scaling) -> DdPoint:
    values = values | {"size": scaling.size(values["size"])}
    if values["size"] % values["block_size"]:
        raise PlanError(
            f"size {units.format_bytes(values['size'])} is no multiple of block_size {units.format_bytes(values['block_size'])}"
        )
    # what has no meaning for a direction must not make two points of one
    if values["direction"] == "read":
        values["fsync"] = False
    else:
        values["cache"] = "any"
    return DdPoint(**values)


def _fio(fio: FioWorkload, values: dict[str, Any], options: dict[str, Any], scaling: Scaling) -> FioPoint:
    values = dict(values)
    size, scale = values["size"], scaling.scale
    if isinstance(size, str):
        # upwards to whole MiB: 2xRAM over three threads must not be a byte less than twice the memory (check W1)
        total = float(size.removesuffix("xRAM")) * scaling.memory_bytes
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


def _name(workload: Workload, point: SomePoint, varied: set[str]) -> str:
    parts = [workload.name] if workload.name else []
    shown = _shown(point)
    parts += [shown[axis] for axis in _ALWAYS[point.kind]]
    parts += [text for axis, text in shown.items() if axis in varied and axis not in _ALWAYS[point.kind]]
    if point.degraded_hosts and "degraded_hosts" not in varied:
        parts.append(shown["degraded_hosts"])
    if workload.fio is not None:
        parts += [f"{k}={v}" for k, v in _options(point).items() if len(workload.fio.options[k]) > 1]
    return " ".join(parts)


#: Axes that every name tells; the others only where they vary.
_ALWAYS = {
    "fio": ("pattern", "block_size", "threads"),
    "dd": ("direction", "size", "content"),
    "iozone": ("test", "record", "threads"),
    "metadata": ("operation", "files", "threads"),
}


def _options(point: SomePoint) -> dict[str, Any]:
    return point.options if isinstance(point, FioPoint) else {}


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
            **{f: f"{f}={getattr(planned.point, f)}" for f in ("time_based", "end_fsync") if hasattr(planned.point, f)},
        }
        extra = [text for field, text in shown.items() if any(p.get(field) != same[0].get(field) for p in same)]
        for option in sorted({o for p in same for o in p.get("options", {})}):
            if any(p["options"].get(option) != same[0]["options"].get(option) for p in same):
                extra.append(f"{option}={_options(planned.point).get(option, 'default')}")
        name = " ".join([planned.name, *extra])
        if len(name) > NAME_LENGTH:
            raise PlanError(
                f"the point {name!r} has a name longer than {NAME_LENGTH} characters; vary fewer options in one workload"
            )
        result.append(replace(planned, name=name))
    return result


def _shown(point: SomePoint) -> dict[str, str]:
    """How a name tells each axis."""
    common = {
        "clients": f"{point.clients} clients",
        "cache": point.cache,
        "degraded_hosts": f"{point.degraded_hosts} hosts down" if point.degraded_hosts else "all hosts up",
    }
    if isinstance(point, DdPoint):
        return {
            "direction": f"dd {point.direction}",
            "size": units.format_bytes(point.size),
            "content": point.content,
            "block_size": f"bs={units.format_bytes(point.block_size)}",
            "fsync": "fsync" if point.fsync else "no fsync",
            "files": f"{point.files} files",
            **common,
        }
    if isinstance(point, IozonePoint):
        return {
            "test": f"iozone {point.test}",
            "record": units.format_bytes(point.record),
            "threads": f"{point.threads} thr",
            "size": units.format_bytes(point.size),
            "direct": "direct" if point.direct else "buffered",
            **common,
        }
    if isinstance(point, MetadataPoint):
        return {
            "operation": point.operation,
            "files": f"{point.files} files",
            "threads": f"{point.threads} thr",
            **common,
        }
    return {
        "pattern": point.pattern,
        "block_size": units.format_bytes(point.block_size),
        "threads": f"{point.threads} thr",
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
