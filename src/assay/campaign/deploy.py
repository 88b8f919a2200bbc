"""Bringing a plan's candidates up and down: one deployment may serve several labels (A/A pair)."""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assay.lab import remote
from assay.lab.fabric import Fabric
from assay.lab.host import Host, HostError
from assay.lab.registry import Lab, LabError
from assay.model.evidence import DurabilityEvidence
from assay.model.lab import Lab as LabDeclaration
from assay.model.plan import Plan, PlannedCandidate, PlannedPoint, dataset_bytes, disk_for
from assay.model.point import FLOORLESS
from assay.model.study import Study
from assay.systems.base import (
    AdapterError,
    Deployment,
    DrivesFio,
    GoesCold,
    HasDurability,
    PutsAndGets,
    SystemAdapter,
)
from assay.systems.catalogue import check_candidate, check_tuning, find_system, make_adapter
from assay.workloads.base import StoreError, Target, Workload, WorkloadError
from assay.workloads.catalogue import make_workload

PREPARE_DEADLINE_SECONDS = 3600.0


@dataclass
class Running:
    """One deployed system. ``failure`` is why it cannot be used, empty when it can."""

    name: str
    adapter: SystemAdapter
    target: Target
    facts: dict[str, Any] = field(default_factory=dict)
    durability: DurabilityEvidence | None = None
    prepare_seconds: float = 0.0
    failure: str = ""

    @property
    def clients(self) -> list[Host]:
        """The hosts that mount and load it."""
        return self.adapter.deployment.clients

    def spread(self, processes: int) -> list[Host]:
        """A host for each load-generating process, in turn."""
        return [self.clients[number % len(self.clients)] for number in range(processes)]


class StoreOf:
    """A system's put and get, with failures in the words of workloads."""

    def __init__(self, adapter: PutsAndGets) -> None:
        self._adapter = adapter

    def put(self, client: Host, source: Path, name: str, timeout_seconds: float) -> None:
        """See PutsAndGets. Raises StoreError."""
        self._carefully(self._adapter.put, client, source, name, timeout_seconds)

    def get(self, client: Host, name: str, target: Path, timeout_seconds: float) -> None:
        """See PutsAndGets. Raises StoreError."""
        self._carefully(self._adapter.get, client, name, target, timeout_seconds)

    def delete(self, client: Host, name: str, timeout_seconds: float) -> None:
        """See PutsAndGets. Raises StoreError."""
        self._carefully(self._adapter.delete, client, name, timeout_seconds)

    @staticmethod
    def _carefully(what: Callable[..., None], *arguments: object) -> None:
        try:
            what(*arguments)
        except AdapterError as error:
            raise StoreError(str(error)) from None


def unsuited(planned: PlannedPoint, target: Target) -> str | None:
    """Why a workload has nothing to work on there, in words; None when it has."""
    kind = planned.point.kind
    if target.null:
        return "the null engine has no files" if kind in FLOORLESS else None
    if target.directory is None and kind != "dd" and not (kind == "fio" and target.engine is not None):
        return f"{kind} needs a mounted file system, and this access path has none"
    if target.directory is None and kind == "dd" and target.store is None:
        return "whole files cannot be put and got through this access path"
    return None


def preflight(study: Study, plan: Plan) -> None:
    """All that can be told before anything is touched. Raises AdapterError with one clear line."""
    bytes_needed = dataset_bytes(plan)
    lab = study.lab.model_copy(update={"disk": disk_for(study, plan)})
    for candidate in plan.candidates:
        check_tuning(candidate.system, dict(candidate.tuning))
        check_candidate(candidate.system, candidate.mount, lab, bytes_needed)
    needing = {c.deployment for c in plan.candidates if c.mount is None and find_system(c.system)[0].needs_hosts}
    wanted = len(needing) * lab.hosts * lab.disk.per_host
    if lab.disk.devices and len(lab.disk.devices) < wanted:
        raise AdapterError(
            f"{len(needing)} deployments of {lab.hosts} hosts with {lab.disk.per_host} disks each need {wanted} devices, "
            f"lab.disk.devices names {len(lab.disk.devices)}"
        )


def tool_facts(plan: Plan, host: Host) -> dict[str, Any]:
    """Versions of the load generators on the client. Raises WorkloadError when one is missing."""
    facts: dict[str, Any] = {}
    for planned in plan.points:
        facts |= make_workload(planned.point).facts([host])
    return facts


class Fleet:
    """All deployments of a plan."""

    def __init__(self, study: Study, plan: Plan, lab: Lab, host: Host) -> None:
        self.plan, self.lab, self.host = plan, lab, host
        self.disk = disk_for(study, plan)
        self.shape = study.lab.model_copy(update={"disk": self.disk})
        self.running: dict[str, Running] = {}

    def of(self, candidate: PlannedCandidate) -> Running:
        """The deployment that serves a candidate; KeyError before :meth:`deploy`."""
        return self.running[candidate.deployment]

    def deploy(self, candidate: PlannedCandidate) -> Running:
        """Deploy, mount, probe and fill with data. A failing system is a result: see ``Running.failure``."""
        if candidate.deployment in self.running:
            return self.running[candidate.deployment]
        adapter = self._adapter(candidate)
        running = Running(candidate.deployment, adapter, Target(None, null=candidate.role == "null"))
        self.running[candidate.deployment] = running
        try:
            if adapter.deployment.fabric is not None:
                adapter.deployment.fabric.up()
            for client in running.clients:
                client.call(remote.load)  # starts the helper process: the first attempt does not pay for it
            adapter.deploy()
            adapter.mount()
            running.target = self._target(running, null=candidate.role == "null")
            running.facts = adapter.facts()
            if isinstance(adapter, HasDurability):
                running.durability = adapter.probe_durability()
            if not running.target.null:
                started = time.monotonic()
                self._prepare(running)
                if isinstance(adapter, GoesCold):
                    adapter.go_cold()  # what the preparation left dirty must not be paid for by the first attempt
                running.prepare_seconds = time.monotonic() - started
        except (AdapterError, WorkloadError, LabError, HostError, OSError) as error:
            running.failure = str(error).splitlines()[0] if str(error) else type(error).__name__
        return running

    def _adapter(self, candidate: PlannedCandidate) -> SystemAdapter:
        adapter_class, layout = find_system(candidate.system)
        deployment = Deployment(
            candidate.deployment,
            layout,
            self.lab,
            self.host,
            self.disk,
            dict(candidate.tuning),
            mount=candidate.mount,
        )
        if adapter_class.needs_hosts and candidate.mount is None:
            fabric = Fabric(self.lab, deployment.slug, self._next_shape())
            deployment = replace(deployment, fabric=fabric)
        return make_adapter(candidate.system, deployment)

    def _target(self, running: Running, *, null: bool) -> Target:
        adapter = running.adapter
        return Target(
            adapter.directory,
            null=null,
            store=StoreOf(adapter) if adapter.directory is None and isinstance(adapter, PutsAndGets) else None,
            engine=adapter.fio_engine() if isinstance(adapter, DrivesFio) else None,
            sources=self.lab.directory / "sources",
        )

    def _next_shape(self) -> LabDeclaration:
        """The lab's shape with devices that no other deployment has."""
        disk, count = self.disk, self.shape.hosts * self.disk.per_host
        taken = sum(r.adapter.deployment.fabric is not None for r in self.running.values()) * count
        devices = disk.devices[taken : taken + count]
        return self.shape.model_copy(update={"disk": disk.model_copy(update={"devices": devices})})

    def _prepare(self, running: Running) -> None:
        # the largest first: shorter points then find their region inside the files that are there
        for planned in sorted(self.plan.points, key=_largest_first):
            if unsuited(planned, running.target) is not None:
                continue
            workload: Workload = make_workload(planned.point)
            clients = running.spread(planned.point.clients)
            workload.prepare(running.target, clients, self.plan.seed, PREPARE_DEADLINE_SECONDS)

    def destroy(self) -> list[str]:
        """Unmount and destroy everything; returns what went wrong, in words."""
        problems = []
        for running in self.running.values():
            try:
                running.adapter.unmount()
                running.adapter.destroy()
            except (AdapterError, LabError, HostError, OSError) as error:
                problems.append(f"{running.name}: {error}")
            finally:
                if running.adapter.deployment.fabric is not None:
                    running.adapter.deployment.fabric.down()
        self.host.close()
        return problems


def _largest_first(planned: PlannedPoint) -> tuple[int, int, int]:
    point = planned.point
    return (-point.dataset_bytes // (point.clients * point.threads), -point.clients, -point.threads)
