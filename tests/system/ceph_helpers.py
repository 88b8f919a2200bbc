"""What the tests of Ceph share: deployments of their own."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.lab.fabric import Fabric
from assay.lab.host import LocalHost
from assay.lab.registry import Lab
from assay.model.lab import Lab as LabDeclaration
from assay.systems.base import Deployment
from assay.systems.catalogue import check_tuning
from assay.systems.ceph import CephSystem
from assay.workloads import integrity

LAB = f"ceph-{os.getpid()}"  # several of these may run on one machine, and clean-up goes by the name
SEED = 20231
DATA_BYTES = sum(integrity.SIZES) * integrity.FILES // len(integrity.SIZES)


@contextmanager
def made(layout: str, hosts: int, tuning: dict[str, object] | None = None, **given: object) -> Iterator[CephSystem]:
    """An adapter on hosts that are up, nothing deployed."""
    disk = {"size": "600MiB", **(given.pop("disk", None) or {})}  # type: ignore[dict-item]
    shape = LabDeclaration.model_validate({"hosts": hosts, "disk": disk, **given})
    check_tuning(f"ceph/{layout}", tuning or {})
    CephSystem.preflight(layout, shape, 2 * DATA_BYTES)
    lab = Lab(LAB, "s")
    fabric = Fabric(lab, "f", shape)
    host = LocalHost(environment=lab.environment)
    system = CephSystem(Deployment("ceph", layout, lab, host, shape.disk, tuning or {}, fabric))
    try:
        fabric.up()
        yield system
    finally:
        system.unmount()
        system.destroy()
        fabric.down()
        host.close()
        lab.remove()


@contextmanager
def mounted(layout: str, hosts: int, tuning: dict[str, object] | None = None, **given: object) -> Iterator[CephSystem]:
    """The same, deployed and mounted."""
    with made(layout, hosts, tuning, **given) as system:
        system.deploy()
        system.mount()
        yield system


def fabric_of(system: CephSystem) -> Fabric:
    assert system.deployment.fabric is not None
    return system.deployment.fabric


def directory_of(system: CephSystem) -> Path:
    assert system.directory is not None
    return system.directory


def write(system: CephSystem, seed: int = SEED, timeout_seconds: float = 120) -> None:
    """Files of known content, through the first client."""
    system.client.call(integrity.write_files, directory_of(system), seed, timeout_seconds=timeout_seconds)


def wrong(system: CephSystem, seed: int = SEED, timeout_seconds: float = 120) -> list[str]:
    """What is wrong with them, through the last client; a client keeps what it has written in memory of its own, so a test of
    the servers goes cold before."""
    client = system.deployment.clients[-1]
    return client.call(integrity.check_files, directory_of(system), seed, timeout_seconds=timeout_seconds)
