"""Clean subjects that keep every rule, and the means to break one thing at a time."""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from assay.checks import AggregateView, AttemptSubject, CellSubject, ComparisonView, StudySubject, TableView
from assay.model.bounds import bound_for
from assay.model.evidence import AttemptEvidence, Samples
from assay.model.lab import Lab
from assay.model.layout import parse_layout
from assay.model.plan import Plan, block_order
from assay.model.point import FioPoint
from assay.stats import adjust

_Record = TypeVar("_Record", AttemptEvidence, Samples)

KIB, MIB, GIB = 1 << 10, 1 << 20, 1 << 30
CLIENTS, THREADS, BLOCK = 2, 2, 64 * KIB
OPERATIONS = 1920  # per client: 120 MiB of its 128 MiB, so that each byte is read at most once
HISTOGRAM = {1_000_000: 1000, 2_000_000: 700, 5_000_000: 190, 20_000_000: 30}  # ns -> count
RUNTIME = 10.0


def _percentile(q: float) -> float:
    """Nearest rank over all operations one by one: slow, and nothing like the code under test. Seconds."""
    latencies = sorted(ns for ns, count in HISTOGRAM.items() for _ in range(count * CLIENTS))
    return latencies[round(q * len(latencies)) - 1] / 1e9


def client(i: int, direction: str, verify: str) -> dict[str, Any]:
    mean = sum(ns * n for ns, n in HISTOGRAM.items()) / OPERATIONS / 1e9
    return {
        "client": f"c{i}",
        "host": "h0",
        "started_at": 1000.0,
        "ended_at": 1010.1 + i / 100,
        "exit_code": 0,
        "totals": {
            direction: {
                "bytes": OPERATIONS * BLOCK,
                "operations": OPERATIONS,
                "runtime_seconds": RUNTIME,
                "latency_mean_seconds": mean,
            }
        },
        "job_runtimes_seconds": [10.0, 9.99],
        "user_cpu_share": 0.1,
        "system_cpu_share": 0.2,
        "verify_errors": 0 if verify != "none" else None,
        "tool_version": "fio-3.33",
        "file_names": [f"c{i}.t{t}" for t in range(THREADS)],
    }


def attempt(
    pattern: str = "randread",
    *,
    direct: bool = False,
    cache: str = "cold",
    verify: str = "none",
    block: int = 1,
    speed: float = 1.0,
) -> AttemptEvidence:
    """A finished attempt of two clients that reads (or writes) 240 MiB in 10 s and keeps every rule.

    ``speed`` scales the figures of the summary alone, for rules about cells.
    """
    direction = "read" if "read" in pattern else "write"
    moved = CLIENTS * OPERATIONS * BLOCK
    clients = [client(i, direction, verify) for i in range(CLIENTS)]
    closure = {
        "system": {"version": "6.1", "configuration": {"mkfs": ["-m", "reflink=0"]}},
        "kernel": "6.1.0-26-amd64",
        "mount": {"fstype": "ext4", "options": "rw,noatime"},
    }
    snapshot: dict[str, Any] = {
        "at": 999.0,
        "hosts": {
            "h0": {"cpu_busy_share": 0.03, "over_seconds": 0.5, "memory_bytes": 100 * MIB, "cached_bytes": 2 * MIB}
        },
        "devices": [{"device": "loop7", "read_bytes": 5 * GIB, "written_bytes": 7 * GIB, "in_flight": 0}],
        "free_bytes": 3 * GIB,
        "total_bytes": 4 * GIB,
        "free_inodes": 100_000,
        "mount": {"source": "/dev/loop7", "fstype": "ext4", "options": "rw,noatime"},
        "healthy": True,
    }
    after: dict[str, Any] = copy.deepcopy(snapshot) | {"at": 1011.0}
    after["hosts"]["h0"] |= {"cpu_busy_share": 0.5, "over_seconds": 10.2}
    after["devices"][0][f"{'read' if direction == 'read' else 'written'}_bytes"] += moved + MIB
    return AttemptEvidence.model_validate(
        {
            "attempt_id": f"a{block}",
            "study_id": "s",
            "cell_id": "cell",
            "candidate": "ext4",
            "system": "local/ext4",
            "role": "subject",
            "block": block,
            "try_number": 1,
            "status": "finished",
            "started_at": 998.0,
            "ended_at": 1012.0,
            "point": {
                "kind": "fio",
                "pattern": pattern,
                "block_size": BLOCK,
                "threads": THREADS,
                "iodepth": 4,
                "engine": "libaio",
                "size": 64 * MIB,
                "runtime": RUNTIME,
                "ramp": 0.0,
                "time_based": True,
                "direct": direct,
                "cache": cache,
                "fsync": 0,
                "fdatasync": 0,
                "end_fsync": direction == "write",
                "rate": None,
                "read_share": 0.5,
                "verify": verify,
                "clients": CLIENTS,
                "options": {},
            },
            "expected": {**copy.deepcopy(closure), "tools": {"fio": {"h0": "3.33"}}, "ram_factor": 2.0},
            "observed": {**closure, "tools": {"fio": {"h0": "fio-3.33"}}},
            "before": snapshot,
            "after": after,
            "cold": {
                "requested": True,
                "steps": ["sync", "drop_caches=3", "remount"],
                "exit_codes": [0, 0, 0],
                "cached_before_bytes": 900 * MIB,
                "cached_after_bytes": 20 * MIB,
            },
            "settle": {"settled": True, "waited_seconds": 0.1},
            "clients": clients,
            "summary": {
                "directions": {
                    direction: {
                        "bandwidth_bytes_per_second": speed * moved / RUNTIME,
                        "iops": speed * CLIENTS * OPERATIONS / RUNTIME,
                        "bytes": moved,
                        "operations": CLIENTS * OPERATIONS,
                        "latency_mean_seconds": clients[0]["totals"][direction]["latency_mean_seconds"],
                        "latency_percentiles_seconds": {q: _percentile(float(q) / 100) for q in ("50", "95", "99")},
                    }
                },
                "steady": {
                    "found": True,
                    "start_seconds": 2.0,
                    "stop_seconds": 10.0,
                    "trend_p": 0.4,
                    "coefficient_of_variation": 0.001,
                },
            },
            "dataset_bytes": CLIENTS * THREADS * 64 * MIB,
        }
    )


def samples(direction: str = "read", *, drift: float = 0.0) -> Samples:
    """Raw histograms and bandwidth series that fit :func:`attempt`; ``drift`` is the change of bandwidth over the run."""
    rate = OPERATIONS * BLOCK / RUNTIME
    raw = {
        "histograms": {direction: {"latency_ns": list(HISTOGRAM), "counts": list(HISTOGRAM.values())}},
        "series": [
            {
                "quantity": "bandwidth",
                "direction": direction,
                "interval_seconds": 1.0,
                "seconds": [float(i) for i in range(1, 11)],
                "values": [rate * (1 + drift * i / 9 + 0.001 * (-1) ** i) for i in range(10)],
            },
            {
                "quantity": "iops",
                "direction": direction,
                "interval_seconds": 1.0,
                "seconds": [1.0, 2.0],
                "values": [1e12, 0.0],
            },
        ],
    }
    return Samples.model_validate({"clients": [{"client": f"c{i}", **raw} for i in range(CLIENTS)]})


def subject(evidence: AttemptEvidence | None = None, raw: Samples | None = None) -> AttemptSubject:
    """An attempt with the samples that fit it."""
    evidence = evidence or attempt()
    if raw is None:
        raw = samples("read" if "read" in evidence.point["pattern"] else "write")
    return AttemptSubject(evidence, raw)


def changed(record: _Record, changes: Mapping[str, Any]) -> _Record:
    """A copy with the values at slashed paths replaced; the path's end may be new."""
    data = record.model_dump(mode="json")
    for path, value in changes.items():
        *way, last = path.split("/")
        node: Any = data
        for step in way:
            node = node[int(step)] if isinstance(node, list) else node[step]
        node[int(last) if isinstance(node, list) else last] = value
    return type(record).model_validate(data)


def broken(changes: Mapping[str, Any], **base: Any) -> AttemptSubject:
    """The clean attempt with a few values replaced."""
    return subject(changed(attempt(**base), changes))


def cell(values: list[float] | None = None, *, metric: str = "bandwidth", **base: Any) -> CellSubject:
    """A cell of six attempts; ``values`` are in MiB/s and also the bandwidth of each attempt."""
    values = values or [24.0, 24.3, 23.9, 24.1, 24.2, 23.8]
    attempts = [attempt(block=i + 1, speed=v / 24.0, **base) for i, v in enumerate(values)]
    scaled = [v * MIB for v in values]
    sequential = {"sequential-read": [30.0 * MIB] * 6}
    return CellSubject("cell", metric, attempts, scaled, [a.attempt_id for a in attempts], sequential)


def comparison(**changes: Any) -> ComparisonView:
    """ext4 against xfs at one point, equivalent."""
    same: dict[str, Any] = {
        "a_tier": "device",
        "b_tier": "device",
        "a_dataset": "256 MiB",
        "b_dataset": "256 MiB",
        "a_hosts": ("h0",),
        "b_hosts": ("h0",),
    }
    base = ComparisonView(
        "ext4", "xfs", "p0", 5, 1.01, 0.98, 1.04, 0.4, None, "equivalent", 24.0 * MIB, 23.8 * MIB, **same
    )
    return replace(base, **changes)


def adjusted(comparisons: list[ComparisonView], method: Any = "holm") -> list[ComparisonView]:
    """The comparisons with p values adjusted as one family."""
    p = adjust([c.p_value or 0.0 for c in comparisons], method)
    return [replace(c, p_adjusted=float(v)) for c, v in zip(comparisons, p, strict=True)]


def bound(pattern: str = "randread", **changes: Any) -> dict[str, Any]:
    """The bound of glusterfs/rain-4-2 on links of 26 MB/s, which :func:`attempt` nearly fills when it reads."""
    lab = Lab.model_validate({"hosts": 6, "network": {"bandwidth": "27.2MB/s"}})
    point = FioPoint.model_validate(attempt(pattern).point | changes)
    found = bound_for("glusterfs", parse_layout("rain-4-2"), lab, point, None)
    assert found is not None
    return found.model_dump()


SEED = 42
CELLS = ["ext4-p0", "ext4-p1", "xfs-p0", "xfs-p1"]


def study(**changes: Any) -> StudySubject:
    """Five blocks of four cells, three comparisons (one of each sign), an A/A pair and a null target."""
    plan = Plan([], [], {}, SEED, 1.0)
    orders = [block_order(plan, number, CELLS) for number in range(1, 6)]
    comparisons = adjusted(
        [
            comparison(),
            comparison(point_id="p1", ratio=1.3, low=1.2, high=1.4, p_value=0.001, decision="faster"),
            comparison(b="btrfs", ratio=0.8, low=0.7, high=0.9, p_value=0.002, decision="slower"),
            comparison(b="btrfs", point_id="p1", ratio=1.05, low=0.9, high=1.2, p_value=0.3, decision="undecided"),
        ]
    )
    counts = {"faster": 1, "slower": 1, "equivalent": 1, "undecided": 1}
    base = StudySubject(
        metric="bandwidth",
        n_cells=len(CELLS),
        blocks=orders,
        executed=copy.deepcopy(orders),
        comparisons=comparisons,
        aa_decisions=["equivalent", "undecided"],
        has_null=True,
        floors={"p0": 900.0 * MIB, "p1": 950.0 * MIB},
        alpha=0.05,
        correction="holm",
        margin=0.05,
        seed=SEED,
        block_numbers=[1, 2, 3, 4, 5],
        tables=[TableView("verdict", counts)],
        aggregates=[AggregateView("geometric-mean", [1.0, 4.0], 2.0)],
    )
    return replace(base, **changes)
