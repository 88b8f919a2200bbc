"""Labs that stand on their own between commands: ``assay lab up``."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import suppress

from assay.lab.errors import LabError
from assay.lab.fabric import Fabric, check_possible
from assay.lab.host import LocalHost
from assay.lab.registry import Lab
from assay.lab.standing import Standing, write_standing
from assay.model.lab import Lab as LabDeclaration
from assay.systems.base import AdapterError, Deployment
from assay.systems.catalogue import find_system
from assay.systems.hosts import HostDisks, each

DISK_MOUNTS = "/run/b"  # where HostDisks mounts them, by number
STUDY = "assay lab up"  # what the notes say instead of a study's name


def bring_up(
    name: str, shape: LabDeclaration, candidate: str | None, filesystem: str | None, said: Callable[[str], None]
) -> Standing:
    """Make a lab that outlives this process, with a mounted candidate or else with a file system on each disk
    (``filesystem`` None: bare hosts). ``said`` gets a line for each step. Raises LabError, HostError or AdapterError;
    nothing is left then."""
    if candidate is not None:
        _check_candidate(candidate, shape)
    check_possible(shape)
    lab = Lab(name, STUDY)
    fabric = Fabric(lab, "lab", shape, die_with_assay=False)
    try:
        fabric.up()
        said(f"{shape.hosts} hosts, {shape.clients} clients")
        mounts: list[str] = []
        if candidate is not None:
            mounts = _deploy(candidate, lab, fabric)
            said(f"{candidate} is mounted")
        elif filesystem is not None:
            mounts = _make_disks(fabric, filesystem)
            said(f"{shape.disk.per_host} {filesystem} on each host")
        standing = fabric.standing(candidate, mounts)
        for host in fabric.hosts:
            host.close()
        write_standing(lab.directory, standing)
    except BaseException:
        with suppress(LabError):  # the cause is what matters; assay lab clean finds what is left
            lab.remove()
        raise
    lab.release()
    return standing


def _check_candidate(candidate: str, shape: LabDeclaration) -> None:
    adapter, layout = find_system(candidate)
    if not adapter.needs_hosts:
        raise AdapterError(f"{candidate} needs no hosts; a lab is for systems that do, e.g. glusterfs/rain-4-2")
    adapter.preflight(layout, shape, 0)


def _deploy(candidate: str, lab: Lab, fabric: Fabric) -> list[str]:
    system, layout = find_system(candidate)
    here = LocalHost(environment=lab.environment)
    adapter = system(Deployment(candidate, layout, lab, here, fabric.shape.disk, fabric=fabric))
    adapter.deploy()
    adapter.mount()
    return [f"{host.name}:{adapter.directory}" for host in fabric.clients]


def _make_disks(fabric: Fabric, filesystem: str) -> list[str]:
    disks = [HostDisks(fabric, host, filesystem) for host in fabric.storage]
    each(disks, lambda of_host: of_host.make())
    numbers = range(1, fabric.shape.disk.per_host + 1)
    return [f"{host.name}:{DISK_MOUNTS}/{number}" for host in fabric.storage for number in numbers]
