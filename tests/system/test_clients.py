"""Candidates that only client hosts can see: every question, the data set and the load go to where it is mounted."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any, ClassVar

import pytest
from fabric_helpers import shape

from assay.campaign.attempt import Order, execute
from assay.campaign.deploy import Running
from assay.lab import remote
from assay.lab.disks import attach_loop, make_backing_file
from assay.lab.fabric import Fabric
from assay.lab.host import LocalHost
from assay.lab.registry import Lab
from assay.model.evidence import AttemptEvidence
from assay.model.lab import Lab as LabDeclaration
from assay.model.plan import PlannedCandidate, PlannedPoint
from assay.model.point import FioPoint
from assay.systems.base import AdapterError, Deployment
from assay.systems.mounted import MountedSystem
from assay.workloads.base import Target
from assay.workloads.fio import FioWorkload

pytestmark = [pytest.mark.root, pytest.mark.fio, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
MIB = 1 << 20
POINT = Path("/run/shared")


class SharedDisk(MountedSystem):
    """One ext4 that several clients mount: what a distributed file system looks like to Assay."""

    system: ClassVar[str] = "shared"
    layouts: ClassVar[dict[str, str]] = {}
    needs_hosts: ClassVar[bool] = True
    tunables: ClassVar[dict[str, str]] = {}

    @staticmethod
    def preflight(layout: str, lab: LabDeclaration, dataset_bytes: int) -> None: ...

    def deploy(self) -> None:
        backing, here = self.deployment.lab.directory / "shared.img", LocalHost()
        make_backing_file(backing, 320 * MIB, "sparse")
        self._loop = attach_loop(here, backing)
        here.run(["mkfs.ext4", "-q", "-F", self._loop]).must("making ext4")

    def mount(self) -> None:
        for client in self.deployment.clients:
            client.run(["mkdir", "-p", str(POINT)]).must("mount point")
            client.run(["mount", "-t", "ext4", self._loop, str(POINT)]).must("mounting")
        LocalHost().run(["losetup", "--detach", self._loop])
        self._use(POINT)

    def unmount(self) -> None:
        self._unmount(POINT)

    def destroy(self) -> None: ...

    def facts(self) -> dict[str, Any]:
        return {"mount": self.mount_facts()}


@pytest.fixture
def running(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    lab = Lab("clients00000", "s")
    fabric = Fabric(lab, "f", shape(hosts=1, clients=2))
    here = LocalHost()
    system = SharedDisk(Deployment("shared", "", lab, here, fabric.shape.disk, fabric=fabric))
    try:
        fabric.up()
        system.deploy()
        system.mount()
        yield Running("shared", system, Target(system.directory))
        system.unmount()
    finally:
        fabric.down()
        lab.remove()


def point(**changes: Any) -> FioPoint:
    fields: dict[str, Any] = {
        "pattern": "randread", "block_size": 16384, "threads": 2, "iodepth": 4, "engine": "libaio", "size": 4 * MIB,
        "runtime": 0.4, "ramp": 0.0, "time_based": True, "direct": True, "cache": "cold", "fsync": 0, "fdatasync": 0,
        "end_fsync": True, "rate": None, "read_share": 0.5, "verify": "none", "clients": 3,
    }  # fmt: skip
    return FioPoint(**(fields | changes))


def attempt(running: Running, it: FioPoint) -> AttemptEvidence:
    FioWorkload(it).prepare(running.target, running.spread(it.clients), 1, 60)
    order = Order(
        "a", "s", "c", PlannedCandidate("shared", "shared", "subject", {}, "shared"), PlannedPoint("p", "p", it),
        block=1, try_number=1, seed=1, expected={}, deadline_seconds=30,
    )  # fmt: skip
    return execute(order, running, dict)[0]


def test_an_attempt_on_two_clients(running: Running) -> None:
    assert remote.mount_entry(POINT) is None or not remote.is_mount_point(POINT), "nobody else sees it"
    evidence = attempt(running, point())
    assert evidence.error == ""
    assert [(c.client, c.host) for c in evidence.clients] == [("c0", "c1"), ("c1", "c2"), ("c2", "c1")]
    assert evidence.summary is not None
    assert evidence.before is not None and evidence.after is not None
    for snapshot in (evidence.before, evidence.after):
        assert set(snapshot.hosts) == {"c1", "c2"}
        assert all(h.memory_bytes and h.cpu_busy_share is not None for h in snapshot.hosts.values())
        assert snapshot.mount["fstype"] == "ext4"
        assert snapshot.healthy
        assert 250 * MIB < (snapshot.total_bytes or 0) < 320 * MIB
    assert evidence.cold is not None
    assert evidence.cold.steps == [
        f"c1: fsync {POINT}", f"c2: fsync {POINT}", "c1: drop_caches=3", "c2: drop_caches=3"
    ]  # fmt: skip
    assert evidence.cold.exit_codes == [0, 0, 0, 0]
    before, after = evidence.before.devices, evidence.after.devices
    assert before and after
    read = sum(t.bytes for c in evidence.clients for t in c.totals.values())
    assert after[0].read_bytes - before[0].read_bytes >= read > 0
    assert not (POINT / "assay-data").exists(), "nothing was written on this machine's side"


def test_warm_means_read_on_the_client_that_will_read(running: Running) -> None:
    evidence = attempt(running, point(pattern="read", direct=False, cache="warm"))
    assert evidence.error == ""
    before, after = evidence.before.devices, evidence.after.devices if evidence.after else None
    assert before and after
    read = sum(t.bytes for c in evidence.clients for t in c.totals.values())
    assert after[0].read_bytes - before[0].read_bytes < 0.1 * read


def test_health_and_durability_as_the_clients_see_them(running: Running) -> None:
    system = running.adapter
    assert isinstance(system, SharedDisk)
    assert system.probe_durability().declared == "device"
    assert system.health() == (True, "ext4, writable")
    second = system.deployment.clients[1]
    second.run(["umount", str(POINT)]).must("unmounting")
    healthy, detail = system.health()
    assert healthy is False
    assert "not mounted any more" in detail
    system.deployment.clients[0].run(["umount", str(POINT)]).must("unmounting")
    with pytest.raises(AdapterError, match="not mounted any more"):
        system.counters()


def test_a_client_that_is_down_is_a_failed_attempt(running: Running) -> None:
    client = running.clients[1]
    good = attempt(running, point())
    assert good.error == ""
    client.kill()  # type: ignore[attr-defined]
    order = Order(
        "a", "s", "c", PlannedCandidate("shared", "shared", "subject", {}, "shared"), PlannedPoint("p", "p", point()),
        block=1, try_number=1, seed=1, expected={}, deadline_seconds=30,
    )  # fmt: skip
    evidence = execute(order, running, dict)[0]
    assert (evidence.status, evidence.error) == ("failed", "host c2 is down")
