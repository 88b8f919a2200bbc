"""One attempt: bring the candidate into the state that the cell claims, load it, observe it, write down everything."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.campaign.degraded import bring_back, failure, lose_hosts
from assay.campaign.deploy import Running
from assay.lab import remote
from assay.lab.environment import environment, host_state
from assay.lab.host import Host, HostError
from assay.lab.registry import LabError
from assay.model.evidence import (
    AttemptEvidence,
    AttemptStatus,
    ColdEvidence,
    DegradedEvidence,
    HostState,
    Samples,
    SettleEvidence,
    Snapshot,
    SteadyEvidence,
    Summary,
)
from assay.model.plan import PlannedCandidate, PlannedPoint
from assay.model.summary import summarise, total_series
from assay.stats.steady import steady_window
from assay.systems.base import AdapterError, CountsBytes, GoesCold, HasHealth, KillsHosts, Settles
from assay.systems.mounted import MountedSystem
from assay.workloads.base import Artefact, RunResult, WorkloadError
from assay.workloads.catalogue import make_workload

SETTLE_TIMEOUT_SECONDS = 10.0  # an unsettled system is measured all the same, and rule R6 says so
IDLE_WINDOW_SECONDS = 0.1
LEAST_HEAL_SECONDS = 60.0


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


@dataclass
class _Load:
    """What is seen of one execution; fields stay empty from where it failed on."""

    cold: ColdEvidence | None = None
    settle: SettleEvidence | None = None
    before: Snapshot | None = None
    after: Snapshot | None = None
    result: RunResult | None = None
    degraded: DegradedEvidence | None = None
    seconds: float = 0.0  # inside the load generator
    degraded_seconds: float = 0.0  # killing, checking, restarting and healing: what the cell asks for, not Assay's cost
    error: str = ""


def execute(
    order: Order, running: Running, observe: Callable[[], dict[str, Any]]
) -> tuple[AttemptEvidence, Samples | None, list[Artefact]]:
    """Carry one attempt out. A failure of the system or the tool under test is in the evidence, never raised.

    ``observe`` asks the system for what the closure holds. Raises LabError when Assay's own directory cannot be used.
    """
    started_at = time.time()
    load = _Load()
    observed: dict[str, Any] = {}
    with _scratch(running) as scratch:
        try:
            _carry_out(order, running, scratch, load)
            observed = observe()
        except (AdapterError, WorkloadError, LabError, HostError, OSError) as problem:
            load.error = str(problem).splitlines()[0] if str(problem) else type(problem).__name__
    if load.degraded is not None and (wrong := failure(load.degraded)):
        load.error = f"{wrong}; {load.error}" if load.error else wrong
    result = load.result
    summary, error = _summarised(result, load.error) if result is not None else (None, load.error)
    ended_at = time.time()
    evidence = AttemptEvidence(
        **_identity(order),
        status=AttemptStatus.FAILED if error else AttemptStatus.FINISHED,
        started_at=started_at,
        ended_at=ended_at,
        observed=observed,
        environment=environment(),
        before=load.before or Snapshot(at=started_at),
        after=load.after,
        cold=load.cold,
        settle=load.settle,
        durability=running.durability,
        degraded=load.degraded,
        clients=result.clients if result is not None else [],
        summary=summary,
        dataset_bytes=0 if running.target.null else order.planned.point.dataset_bytes,
        outside_seconds=max(0.0, ended_at - started_at - load.seconds - load.degraded_seconds),
        error=error,
    )
    if result is None:
        return evidence, None, []
    return evidence, Samples(clients=result.samples), list(result.artefacts)


def _carry_out(order: Order, running: Running, scratch: Path, load: _Load) -> None:
    """Bring the candidate into the claimed state, watch it idle, load it; fills ``load`` step by step."""
    point, adapter, clients = order.planned.point, running.adapter, running.clients
    workload, processes = make_workload(point), running.spread(point.clients)
    floor = order.candidate.role in ("null", "floor")
    workload.stage(running.target, processes, order.seed, order.deadline_seconds)
    if point.cache == "cold" and not floor and isinstance(adapter, GoesCold):
        load.cold = adapter.go_cold()
    if point.cache == "warm" and not running.target.null:
        workload.warm(running.target, processes, order.deadline_seconds)
    idle = _Watch(clients)
    if not floor and isinstance(adapter, Settles):
        load.settle = adapter.settle(SETTLE_TIMEOUT_SECONDS)
    time.sleep(max(0.0, IDLE_WINDOW_SECONDS - idle.seconds))
    load.before = _snapshot(running, idle)
    with _degraded(order, running, load):
        busy = _Watch(clients)
        load.result = workload.run(
            running.target,
            processes,
            seed=order.seed,
            scratch=scratch,
            deadline_seconds=point.allowed_seconds + order.deadline_seconds,
        )
        load.seconds = busy.seconds
        load.after = _snapshot(running, busy)


@contextmanager
def _degraded(order: Order, running: Running, load: _Load) -> Iterator[None]:
    """With the hosts that the point says killed; afterwards they are back and healed, whatever has happened."""
    count, adapter, directory = order.planned.point.degraded_hosts, running.adapter, running.target.directory
    if not count or directory is None or not isinstance(adapter, KillsHosts):
        yield
        return
    client = running.clients[0]
    started = time.monotonic()
    load.degraded = lose_hosts(adapter, client, directory, count, order.seed)
    load.degraded_seconds = time.monotonic() - started
    try:
        yield
    finally:
        started = time.monotonic()
        deadline = max(order.deadline_seconds, LEAST_HEAL_SECONDS)
        load.degraded = bring_back(adapter, client, directory, order.seed, load.degraded, deadline)
        load.degraded_seconds += time.monotonic() - started


def _summarised(result: RunResult, error: str) -> tuple[Summary | None, str]:
    """Aggregate of all clients, and why the attempt failed (empty: it did not)."""
    summary = summarise(result.clients, result.samples)
    if summary.directions:
        summary = summary.model_copy(update={"steady": _steady(result)})
    if not error and any(c.exit_code != 0 for c in result.clients):
        last_words = [c.message.strip().splitlines()[-1] for c in result.clients if c.message.strip()]
        error = "; ".join(dict.fromkeys(last_words)) or "the load generator failed without a word"
    if not error and not summary.directions:
        error = "the load generator reported no operation"
    return (summary if summary.directions else None), error


def unusable(order: Order, status: AttemptStatus, at: float, error: str) -> AttemptEvidence:
    """The record of an attempt that could not run: candidate down, capability missing, or Assay killed."""
    return AttemptEvidence(
        **_identity(order),
        status=status,
        started_at=at,
        ended_at=at,
        before=Snapshot(at=at),
        error=error,
    )


def _identity(order: Order) -> dict[str, Any]:
    """The fields of an attempt's evidence that are known before it runs."""
    return {
        "attempt_id": order.attempt_id,
        "study_id": order.study_id,
        "cell_id": order.cell_id,
        "candidate": order.candidate.label,
        "system": order.candidate.system,
        "role": order.candidate.role,
        "block": order.block,
        "try_number": order.try_number,
        "point": order.planned.point.model_dump(mode="json"),
        "expected": order.expected,
    }


def metric_value(summary: Summary, metric: str) -> float:
    """The figure that a study compares by, in bytes/s, operations/s or seconds; NaN when there is none."""
    if metric == "bandwidth":
        return summary.bandwidth
    if metric == "iops":
        return summary.iops
    if metric == "latency-mean":
        return summary.latency_mean
    return summary.percentile(metric.removeprefix("latency-p"))


@contextmanager
def _scratch(running: Running) -> Iterator[Path]:
    """A directory for control files and logs, which must never lie on the file system under test."""
    root = running.adapter.deployment.lab.directory
    try:
        directory = Path(tempfile.mkdtemp(prefix="attempt-", dir=root))
    except OSError as error:
        raise LabError(f"cannot make a directory in {root}: {error.strerror}") from None
    try:
        yield directory
    finally:
        shutil.rmtree(directory, ignore_errors=True)


class _Watch:
    """What the CPUs of hosts do from now on."""

    def __init__(self, hosts: Sequence[Host]) -> None:
        self._hosts, self._begun = hosts, time.monotonic()
        self._before = [host.call(remote.load) for host in hosts]

    @property
    def seconds(self) -> float:
        """Since it began."""
        return time.monotonic() - self._begun

    def states(self) -> dict[str, HostState]:
        """Each host now, and how busy it was since."""
        seconds = self.seconds
        return {
            host.name: host_state(host.call(remote.load), before, seconds)
            for host, before in zip(self._hosts, self._before, strict=True)
        }


def _snapshot(running: Running, watch: _Watch) -> Snapshot:
    hosts = watch.states()  # first: asking the system is work too
    adapter = running.adapter
    devices = adapter.counters() if isinstance(adapter, CountsBytes) else None
    healthy, detail = adapter.health() if isinstance(adapter, HasHealth) else (None, "")
    mounted = adapter if isinstance(adapter, MountedSystem) else None
    return Snapshot(
        at=time.time(),
        hosts=hosts,
        devices=devices,
        mount=mounted.mount_facts() if mounted else {},
        healthy=healthy,
        health_detail=detail,
        **(mounted.space() if mounted else {}),
    )


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
