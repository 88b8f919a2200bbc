"""One attempt: bring the candidate into the state that the cell claims, load it, observe it, write down everything."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.campaign.deploy import Running
from assay.lab.environment import cpu_times, environment, host_state
from assay.lab.host import Host
from assay.lab.registry import LabError
from assay.model.evidence import (
    AttemptEvidence,
    AttemptStatus,
    Samples,
    Snapshot,
    SteadyEvidence,
    Summary,
)
from assay.model.plan import PlannedCandidate, PlannedPoint
from assay.model.study import FioPoint
from assay.model.summary import summarise, total_series
from assay.stats.steady import steady_window
from assay.systems.base import AdapterError, CountsBytes, GoesCold, HasHealth, Settles
from assay.workloads.base import Artefact, RunResult, WorkloadError
from assay.workloads.catalogue import make_workload

SETTLE_TIMEOUT_SECONDS = 10.0  # an unsettled system is measured all the same, and rule R6 says so
IDLE_WINDOW_SECONDS = 0.1


@dataclass(frozen=True)
class Order:
    """What to execute, and what the plan expects of the world around it."""

    attempt_id: str
    study_id: str
    cell_id: str
    candidate: PlannedCandidate
    planned: PlannedPoint
    block: int
    try_number: int
    seed: int
    expected: dict[str, Any]
    deadline_seconds: float  # beyond the runtime


def execute(
    order: Order, running: Running, host: Host, observe: Callable[[], dict[str, Any]]
) -> tuple[AttemptEvidence, Samples | None, list[Artefact]]:
    """Carry one attempt out. A failure of the system or the tool under test is in the evidence, never raised."""
    started_at = time.time()
    point = order.planned.point
    floor = order.candidate.role in ("null", "floor")
    workload = make_workload(point)
    clients = [host] * point.clients
    cold = settle = None
    before = after = None
    result: RunResult | None = None
    error = ""
    load_seconds = 0.0
    try:
        if point.cache == "cold" and not floor and isinstance(running.adapter, GoesCold):
            cold = running.adapter.go_cold()
        if point.cache == "warm" and running.target.directory is not None:
            _read_once(running.target.directory, point)
        busy, total = cpu_times()
        idle_since = time.monotonic()
        if not floor and isinstance(running.adapter, Settles):
            settle = running.adapter.settle(SETTLE_TIMEOUT_SECONDS)
        time.sleep(max(0.0, IDLE_WINDOW_SECONDS - (time.monotonic() - idle_since)))
        before = _snapshot(running, host, (busy, total, time.monotonic() - idle_since))
        busy, total = cpu_times()
        load_started = time.monotonic()
        scratch = Path(tempfile.mkdtemp(prefix="attempt-", dir=_scratch_root(running)))
        try:
            result = workload.run(
                running.target,
                clients,
                seed=order.seed,
                scratch=scratch,
                deadline_seconds=point.runtime + point.ramp + order.deadline_seconds,
            )
        finally:
            shutil.rmtree(scratch, ignore_errors=True)
        load_seconds = time.monotonic() - load_started
        after = _snapshot(running, host, (busy, total, load_seconds))
    except (AdapterError, WorkloadError, LabError, OSError) as problem:
        error = str(problem).splitlines()[0] if str(problem) else type(problem).__name__

    samples = Samples(clients=result.samples) if result is not None else None
    finished = result is not None and not error and all(c.exit_code == 0 for c in result.clients)
    summary = None
    if result is not None:
        summary = summarise(result.clients, result.samples)
        summary = summary.model_copy(update={"steady": _steady(result)}) if summary.directions else None
        if not finished and not error:
            error = "; ".join(
                dict.fromkeys(c.message.strip().splitlines()[-1] for c in result.clients if c.message.strip())
            )
            error = error or "the load generator failed without a word"
    if finished and summary is None:
        finished, error = False, "the load generator reported no operation"
    ended_at = time.time()
    evidence = AttemptEvidence(
        attempt_id=order.attempt_id,
        study_id=order.study_id,
        cell_id=order.cell_id,
        candidate=order.candidate.label,
        system=order.candidate.system,
        role=order.candidate.role,
        block=order.block,
        try_number=order.try_number,
        status=AttemptStatus.FINISHED if finished else AttemptStatus.FAILED,
        started_at=started_at,
        ended_at=ended_at,
        point=point.model_dump(mode="json"),
        expected=order.expected,
        observed=observe(),
        environment=environment(),
        before=before or Snapshot(at=started_at),
        after=after,
        cold=cold,
        settle=settle,
        durability=running.durability,
        clients=result.clients if result is not None else [],
        summary=summary,
        dataset_bytes=0 if running.target.null else point.dataset_bytes,
        outside_seconds=max(0.0, ended_at - started_at - load_seconds),
        error=error,
    )
    return evidence, samples, list(result.artefacts) if result is not None else []


def unusable(order: Order, status: AttemptStatus, at: float, error: str) -> AttemptEvidence:
    """The record of an attempt that could not run: candidate down, capability missing, or Assay killed."""
    return AttemptEvidence(
        attempt_id=order.attempt_id,
        study_id=order.study_id,
        cell_id=order.cell_id,
        candidate=order.candidate.label,
        system=order.candidate.system,
        role=order.candidate.role,
        block=order.block,
        try_number=order.try_number,
        status=status,
        started_at=at,
        ended_at=at,
        point=order.planned.point.model_dump(mode="json"),
        expected=order.expected,
        before=Snapshot(at=at),
        error=error,
    )


def metric_value(summary: Summary, metric: str) -> float:
    """The figure that a study compares by, in bytes/s, operations/s or seconds; NaN when there is none."""
    if metric == "bandwidth":
        return summary.bandwidth
    if metric == "iops":
        return summary.iops
    if metric == "latency-mean":
        return summary.latency_mean
    return summary.percentile(metric.removeprefix("latency-p"))


def _scratch_root(running: Running) -> str | None:
    # control files and logs must never lie on the file system under test
    deployment = getattr(running.adapter, "deployment", None)
    return str(deployment.lab.directory) if deployment is not None else None


def _snapshot(running: Running, host: Host, cpu: tuple[float, float, float]) -> Snapshot:
    adapter = running.adapter
    devices = adapter.counters() if isinstance(adapter, CountsBytes) else None
    healthy, detail = adapter.health() if isinstance(adapter, HasHealth) else (None, "")
    space: dict[str, int] = {}
    mount: dict[str, str] = {}
    if running.target.directory is not None:
        stat = os.statvfs(running.target.directory)
        space = {
            "free_bytes": stat.f_bavail * stat.f_frsize,
            "total_bytes": stat.f_blocks * stat.f_frsize,
            "free_inodes": stat.f_favail,
        }
        mount_facts = getattr(adapter, "mount_facts", None)
        mount = mount_facts() if mount_facts is not None else {}
    busy, total, seconds = cpu
    return Snapshot(
        at=time.time(),
        hosts={host.name: host_state(busy, total, seconds)},
        devices=devices,
        mount=mount,
        healthy=healthy,
        health_detail=detail,
        **space,
    )


def _read_once(directory: Path, point: FioPoint) -> None:
    """Read the region of the data set that the point uses, so that a cell that claims warm caches has them."""
    left = point.dataset_bytes
    for file in sorted(p for p in directory.rglob("*") if p.is_file()):
        with file.open("rb", buffering=0) as stream:
            region = point.size
            while left > 0 and region > 0 and (chunk := stream.read(min(1 << 20, region))):
                left -= len(chunk)
                region -= len(chunk)


def _steady(result: RunResult) -> SteadyEvidence | None:
    seconds, values = total_series(result.samples, "bandwidth")
    intervals = [s.interval_seconds for c in result.samples for s in c.series]
    if len(values) < 2 or not intervals:
        return None
    interval = intervals[0]
    # the last interval is usually cut short by the end of the run
    values, seconds = values[:-1], seconds[:-1]
    try:
        state = steady_window(values, interval)
    except ValueError:  # a series that cannot be analysed makes A3 and A4 unknown; it must not end the campaign
        return None
    return SteadyEvidence(
        found=state.found,
        start_seconds=max(0.0, seconds[state.start] - interval) if state.start < len(seconds) else 0.0,
        stop_seconds=seconds[state.stop - 1] if 0 < state.stop <= len(seconds) else 0.0,
        reason=state.reason,
        total_mean=state.total_mean,
        steady_mean=state.steady_mean,
        trend_p=state.trend.p,
        shift_p=state.shift.p,
        coefficient_of_variation=state.cov,
    )
