"""What the contract tests share: the table of subjects, deployments of them, and data of known content by whatever way a
system is used (mount, put and get, an engine of fio)."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from assay.lab.errors import LabError
from assay.lab.fabric import Fabric
from assay.lab.host import Host, HostError, LocalHost
from assay.lab.registry import Lab
from assay.model.lab import Lab as LabDeclaration
from assay.systems.base import (
    AdapterError,
    Deployment,
    DrivesFio,
    HasRequirements,
    PutsAndGets,
    SystemAdapter,
)
from assay.systems.catalogue import check_candidate, check_tuning, find_system, make_adapter
from assay.systems.requirements import Requirement, missing
from assay.workloads import integrity

LAB = f"contract-{os.getpid()}"  # several of these may run on one machine, and clean-up goes by the name
EVERY = os.environ.get("ASSAY_TEST_SUBJECTS") == "all"
SEED = 20221
DATA_BYTES = sum(integrity.SIZES) * integrity.FILES // len(integrity.SIZES)
BACK_SECONDS = 120.0  # killed hosts are back and whole again by then, on a busy machine too
SETTLE_SECONDS = 60.0
USE_SECONDS = 120.0  # for writing or checking all files, on a busy machine
TEARDOWN_SECONDS = 120.0
_FIO_BYTES = 8 << 20


@dataclass(frozen=True)
class Subject:
    """A candidate that the contract is tested with. Add one entry per layout or access path that differs in kind."""

    candidate: str  # as in a study; "path:DIR" gets a directory
    hosts: int = 0  # storage hosts; 0: it works on this machine alone
    tuning: Mapping[str, Any] = field(default_factory=dict)
    lab: Mapping[str, Any] = field(default_factory=dict)  # further keys of the lab
    #: storage hosts that may die at once while all data can be read and written; None: it cannot lose hosts on purpose
    survives: int | None = None
    lethal: int = 1  # how many more must die for operations to fail for certain
    writes_degraded: bool = True  # whether it takes new data while ``survives`` hosts are dead
    #: an operation that cannot succeed is given up after this; systems that retry for minutes need not be waited for
    patience_seconds: float = 30.0
    #: hosts that are added and taken out again; 0: not tried
    grows: int = 0
    tier: str = ""  # durability tier that the probe must find; empty: any
    loaded_seconds: float = 5.0  # until data are written to it on an idle machine: kills hit before and after
    needs: tuple[Requirement, ...] = ()  # beyond those that its adapter declares
    label: str = ""  # instead of candidate and tuning, in the names of tests
    #: false: only with ASSAY_TEST_SUBJECTS=all. One layout of a system that is slow to deploy stands for all in an ordinary run
    usual: bool = True

    @property
    def name(self) -> str:
        """In the names of tests."""
        tuned = "-".join(f"{k}={v}" for k, v in self.tuning.items())
        return self.label or f"{self.candidate}{'-' + tuned if tuned else ''}".replace("/", "-")

    @property
    def requirements(self) -> tuple[Requirement, ...]:
        """What this very candidate needs of its adapter's requirements, and its own."""
        adapter, layout = find_system(self.candidate)
        declared = adapter.requirements if isinstance(adapter, HasRequirements) else ()
        parts = ("", layout, *(f"{k}={v}" for k, v in self.tuning.items()))
        return (*(r for r in declared if r.only in parts), *self.needs)

    def shape(self) -> LabDeclaration:
        """The lab it is deployed on."""
        disk = {"size": "600MiB", "fill": "sparse", **self.lab.get("disk", {})}
        hosts = {"hosts": self.hosts} if self.hosts else {}
        return LabDeclaration.model_validate({**hosts, **self.lab, "disk": disk})


SUBJECTS: list[Subject] = [
    Subject("null"),
    Subject("tmpfs", tier="volatile", loaded_seconds=1),
    Subject("path:DIR", loaded_seconds=1),
    Subject("local/ext4", tier="device", loaded_seconds=1, lab={"disk": {"fill": "written"}}),
    Subject("local/xfs", tier="device", loaded_seconds=1, tuning={"mkfs": "-m reflink=0"}, label="local-xfs"),
    Subject("local/btrfs", tier="device", loaded_seconds=1),
    Subject("glusterfs/distributed", 3, {"cluster.lookup-optimize": False}, survives=0, grows=1, tier="device",
            label="glusterfs-distributed"),
    # two of three copies must be there for a write (client quorum)
    Subject("glusterfs/replicated-3", 3, lab={"clients": 2}, survives=1, tier="replicated"),
    Subject("glusterfs/rain-4-2", 6, survives=2, tier="replicated"),
    # operations on what is lost time out after 30 s (client.rados_osd_op_timeout)
    Subject("ceph/distributed", 3, {"pg_num": 16}, survives=0, grows=1, tier="device", patience_seconds=45,
            loaded_seconds=10, label="ceph-distributed", usual=False),
    Subject("ceph/replicated-2", 3, lab={"clients": 2}, survives=1, tier="replicated", patience_seconds=45,
            loaded_seconds=10),
    Subject("ceph/rain-4-2", 6, survives=2, tier="replicated", patience_seconds=45, loaded_seconds=12,
            usual=False),
    # an fsync reaches the chunk servers' page cache only
    Subject("moosefs/distributed", 3, survives=0, grows=1, tier="page-cache", usual=False),
    Subject("moosefs/replicated-2", 3, lab={"clients": 2}, survives=1, tier="page-cache"),
    Subject("moosefs/replicated-3", 4, survives=2, tier="page-cache", usual=False),
    Subject("nfs/distributed", 1, tier="device", loaded_seconds=1),
    # a server that has just died is given up after 30 s
    Subject("tahoe/rain-4-2", 6, lab={"clients": 2}, survives=2, grows=1, tier="page-cache", patience_seconds=60,
            loaded_seconds=12),
    Subject("tahoe/rain-2-1", 3, {"access": "sshfs"}, survives=1, tier="page-cache", patience_seconds=60,
            loaded_seconds=20, label="tahoe-sshfs", usual=False),
    # its client may fail to write to a host that died less than 14 s ago, before the NameNode has noticed
    Subject("hdfs/distributed", 3, survives=0, grows=1, tier="device", patience_seconds=60, loaded_seconds=15, usual=False),
    Subject("hdfs/replicated-3", 4, lab={"clients": 2}, survives=2, writes_degraded=False, tier="replicated",
            patience_seconds=60, loaded_seconds=15),
    Subject("hdfs/rain-3-2", 6, survives=2, writes_degraded=False, tier="replicated", patience_seconds=60,
            loaded_seconds=15, usual=False),
    # the primary's lease of 15 s must run out before another OSD takes over
    Subject("xtreemfs/striped-2", 2, survives=0, grows=1, patience_seconds=60, loaded_seconds=8),
    Subject("xtreemfs/replicated-3", 3, survives=1, patience_seconds=60, loaded_seconds=8),
]  # fmt: skip


def subjects(*, killable: bool | None = None, grows: bool | None = None) -> list[Any]:
    """The subjects as pytest parameters: those whose requirements are not there are skipped with what helps."""
    chosen = [
        s
        for s in SUBJECTS
        if (s.usual or EVERY)
        and killable in (None, s.survives is not None) and grows in (None, bool(s.grows))
    ]  # fmt: skip
    return [pytest.param(s, id=s.name, marks=_marks(s)) for s in chosen]


def _marks(subject: Subject) -> list[pytest.MarkDecorator]:
    parts = {r.only for r in subject.requirements}
    lacking = missing(subject.requirements, *parts)
    reason = "; ".join(f"no {r.name} here: {r.remedy}" for r in lacking)
    return [pytest.mark.skipif(bool(lacking), reason=reason)]


# --- deployments ----------------------------------------------------------------------------------------------------------


@contextmanager
def made(subject: Subject, home: Path) -> Iterator[SystemAdapter]:
    """An adapter, its hosts up, nothing deployed; afterwards all is taken down, in bounded time."""
    candidate = subject.candidate
    if candidate == "path:DIR":
        (home / "given").mkdir(exist_ok=True)
        candidate = f"path:{home / 'given'}"
    shape = subject.shape()
    check_tuning(candidate, dict(subject.tuning))
    check_candidate(candidate, None, shape, 2 * DATA_BYTES)
    adapter, layout = find_system(candidate)
    lab = Lab(LAB, "contract")
    host = LocalHost(environment=lab.environment)
    fabric = Fabric(lab, "f", shape) if adapter.needs_hosts else None
    system = make_adapter(
        candidate, Deployment(subject.name, layout, lab, host, shape.disk, dict(subject.tuning), fabric)
    )
    try:
        if fabric is not None:
            fabric.up()
        yield system
    finally:
        started = time.monotonic()
        try:
            take_down(system)
        finally:
            host.close()
            lab.remove()
        assert time.monotonic() - started < TEARDOWN_SECONDS, "taking it down must be bounded"


@contextmanager
def mounted(subject: Subject, home: Path) -> Iterator[SystemAdapter]:
    """The same, deployed and mounted. Prints the seconds from nothing to mounted (``pytest -rP`` shows them)."""
    started = time.monotonic()
    with made(subject, home) as system:
        system.deploy()
        system.mount()
        print(f"{subject.name}: mounted after {time.monotonic() - started:.1f} s")
        yield system


def take_down(system: SystemAdapter) -> None:
    """Unmount, destroy, both again (no error when there is nothing to undo), and end the hosts."""
    fabric = system.deployment.fabric
    try:
        for _ in range(2):
            system.unmount()
            system.destroy()
    finally:
        if fabric is not None:
            fabric.down()


# --- data of known content ------------------------------------------------------------------------------------------------


def write(system: SystemAdapter, seed: int = SEED, timeout_seconds: float = USE_SECONDS) -> None:
    """Store files of known content through the first client. Raises OSError, HostError or AdapterError."""
    client = system.deployment.clients[0]
    if system.directory is not None:
        client.call(integrity.write_files, system.directory, seed, timeout_seconds=timeout_seconds)
    elif _engine(system) is None and isinstance(system, PutsAndGets):
        sent = _scratch(system, "sent")
        client.call(integrity.write_files, sent, seed, timeout_seconds=timeout_seconds)
        for file in sorted((sent / integrity.DIRECTORY).iterdir()):
            name = f"{integrity.DIRECTORY}/{file.name}"
            system.delete(client, name, timeout_seconds)
            system.put(client, file, name, timeout_seconds)


def wrong(system: SystemAdapter, seed: int = SEED, timeout_seconds: float = USE_SECONDS) -> list[str]:
    """What is wrong with them, through the last client, one line each. Raises HostError when it does not answer."""
    client = system.deployment.clients[-1]
    if system.directory is not None:
        return client.call(integrity.check_files, system.directory, seed, timeout_seconds=timeout_seconds)
    if (engine := _engine(system)) is not None:
        return _verify_by_fio(client, engine, seed, timeout_seconds)
    if not isinstance(system, PutsAndGets):
        return []  # it keeps nothing
    got, problems = _scratch(system, "got"), []
    for name in sorted(path.name for path in (_scratch(system, "sent") / integrity.DIRECTORY).iterdir()):
        (got / integrity.DIRECTORY / name).unlink(missing_ok=True)
        try:
            system.get(client, f"{integrity.DIRECTORY}/{name}", got / integrity.DIRECTORY / name, timeout_seconds)
        except AdapterError as error:
            return [*problems, f"{name}: {error}"]
    return problems + client.call(integrity.check_files, got, seed, timeout_seconds=timeout_seconds)


def trouble(system: SystemAdapter, seconds: float) -> list[str]:
    """What a reader of the old files and a writer of new ones are told, one line each; empty when all is well."""
    said = []
    try:
        said += wrong(system, SEED, seconds)[:3]
    except (OSError, HostError, AdapterError) as error:
        said.append(str(error))
    with suppress_into(said):
        write(system, SEED + 1, seconds)
    return said


@contextmanager
def suppress_into(said: list[str]) -> Iterator[None]:
    """Errors that a system may raise become lines."""
    try:
        yield
    except (OSError, HostError, AdapterError, LabError) as error:
        said.append(str(error))


def remove_all(system: SystemAdapter) -> None:
    """Delete what was put; no error where nothing was."""
    if system.directory is None and isinstance(system, PutsAndGets):
        for number in range(integrity.FILES):
            with suppress(AdapterError):
                system.delete(system.deployment.clients[0], f"{integrity.DIRECTORY}/f{number:04d}", USE_SECONDS)


def _engine(system: SystemAdapter) -> dict[str, str] | None:
    return system.fio_engine() if isinstance(system, DrivesFio) and system.directory is None else None


def _scratch(system: SystemAdapter, name: str) -> Path:
    """A directory of this machine that hosts see, too."""
    directory = system.deployment.lab.directory / "contract" / name
    (directory / integrity.DIRECTORY).mkdir(parents=True, exist_ok=True)
    return directory


def _verify_by_fio(client: Host, engine: Mapping[str, str], seed: int, timeout_seconds: float) -> list[str]:
    """Write and read back with checksums: what such an engine has written goes when it ends."""
    options = [f"--{key}={value}" for key, value in engine.items()]
    fixed = ["--name=contract", f"--size={_FIO_BYTES}", "--bs=64k", "--rw=randwrite", f"--randseed={seed}"]
    checks = ["--verify=sha256", "--do_verify=1", "--verify_fatal=1", "--output-format=terse"]
    done = client.run(["fio", *fixed, *options, *checks], timeout_seconds=timeout_seconds)
    if done.ok:
        return []
    if done.exit_code is None:
        return [f"fio has not ended within {timeout_seconds:g} s"]
    words = " ".join(done.stderr.decode(errors="replace").split())
    return [f"fio: exit code {done.exit_code}: {words[-300:]}"]
