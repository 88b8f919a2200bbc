"""Real MooseFS daemons on namespaces: deployed in every layout, kept through failures, taken down. What every system must do
is in test_contract.py."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from fabric_helpers import Running, left_of
from lab_helpers import eventually, nothing_left

from assay.lab import remote
from assay.lab.fabric import Fabric
from assay.lab.host import HostError, LocalHost, search_path
from assay.lab.kernel import processes_of
from assay.lab.registry import Lab, clean
from assay.model.lab import Lab as LabDeclaration
from assay.systems.base import AdapterError, Deployment
from assay.systems.catalogue import check_tuning
from assay.systems.moosefs import MooseSystem
from assay.systems.moosefs_cli import ask
from assay.systems.moosefs_resize import shrink
from assay.workloads import integrity

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        shutil.which("mfsmaster", path=search_path()) is None,
        reason="no MooseFS here: apt-get install -y moosefs-master moosefs-chunkserver moosefs-client moosefs-cli",
    ),
]
LAB = f"moosefs-{os.getpid()}"  # several of these may run on one machine
KILLS = int(os.environ.get("ASSAY_TEST_MOOSEFS_KILLS", "1"))
CYCLES = int(os.environ.get("ASSAY_TEST_CYCLES", "2"))
SEED = 20213
BACK_SECONDS = (
    150.0  # what has lost its copies while there was no server for them waits for the master's round, of 60 s
)

#: layout, hosts, tuning, further keys of the lab
KINDS: list[tuple[str, int, dict[str, object], dict[str, object]]] = [
    ("replicated-3", 6, {"master.ATIME_MODE": 4}, {}),
    ("distributed", 3, {"filesystem": "ext4", "mount": "mfscachemode=NEVER"}, {}),
    ("replicated-2", 2, {"chunkserver.HDD_FSYNC_BEFORE_CLOSE": True}, {"disk": {"per_host": 2}}),
    ("replicated-2", 4, {"filesystem": "btrfs"}, {"clients": 2}),
    ("distributed", 1, {}, {"network": {"bandwidth": "1Gbit"}}),
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield tmp_path
    clean(LAB)
    assert nothing_left(tmp_path)


@contextmanager
def made(layout: str, hosts: int, tuning: dict[str, object] | None = None, **given: object) -> Iterator[MooseSystem]:
    """An adapter on hosts that are up, nothing deployed."""
    disk = {"size": "600MiB", **(given.pop("disk", None) or {})}  # type: ignore[dict-item]
    shape = LabDeclaration.model_validate({"hosts": hosts, "disk": disk, **given})
    check_tuning(f"moosefs/{layout}", tuning or {})
    MooseSystem.preflight(layout, shape, 32 << 20)
    lab = Lab(LAB, "s")
    fabric = Fabric(lab, "f", shape)
    host = LocalHost(environment=lab.environment)
    system = MooseSystem(Deployment("moosefs", layout, lab, host, shape.disk, tuning or {}, fabric))
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
def mounted(layout: str, hosts: int, tuning: dict[str, object] | None = None, **given: object) -> Iterator[MooseSystem]:
    """The same, deployed and mounted."""
    with made(layout, hosts, tuning, **given) as system:
        system.deploy()
        system.mount()
        yield system


def directory_of(system: MooseSystem) -> Path:
    assert system.directory is not None
    return system.directory


def write(system: MooseSystem, seed: int = SEED) -> None:
    system.client.call(integrity.write_files, directory_of(system), seed, timeout_seconds=120)


def wrong(system: MooseSystem, seed: int = SEED, timeout_seconds: float = 120) -> list[str]:
    last = system.deployment.clients[-1]
    return last.call(integrity.check_files, directory_of(system), seed, timeout_seconds=timeout_seconds)


def nothing_is_left(home: Path) -> None:
    assert eventually(lambda: not any(left_of(LAB, home).values()), 20), left_of(LAB, home)


@pytest.mark.parametrize("cycle", range(CYCLES))
def test_a_cycle_leaves_nothing(home: Path, cycle: int) -> None:
    layout, hosts, tuning, lab = KINDS[cycle % len(KINDS)]
    with mounted(layout, hosts, tuning, **lab) as system:
        facts = system.facts()
        assert facts["system"] == f"moosefs/{layout}"
        assert facts["goal"] == int(layout.partition("-")[2] or 1)
        assert facts["servers"] == hosts
        assert facts["chunks"]["mkfs"].startswith(f"mkfs.{tuning.get('filesystem', 'xfs')} ")
        assert facts["mount"]["mfsmount"].endswith("mfstimeout=10")
        assert facts["master"].get("ATIME_MODE") == ("4" if "master.ATIME_MODE" in tuning else None)
        counted = system.counters()
        assert counted is not None
        assert len(counted) == hosts * system.deployment.disk.per_host
        write(system)
        assert wrong(system) == []
        assert system.health()[0] is True
        assert system.facts() == facts
    nothing_is_left(home)


@pytest.mark.parametrize("number", range(KILLS))
def test_kill_9_at_any_moment_leaves_nothing(home: Path, number: int) -> None:
    """While it is deployed, mounted, loaded, or while a host is dead."""

    def use() -> None:
        with mounted("replicated-2", 3) as system:
            write(system)
            system.kill_hosts(1)
            while True:
                write(system)

    chance = random.Random(number)
    child = Running(use)
    time.sleep(chance.uniform(0.2, 5.0))
    assert child.kill() == 9, "it has ended before it was killed"
    assert eventually(lambda: not processes_of(LAB), 20), "the kernel ends what Assay has begun"
    clean(LAB)
    nothing_is_left(home)


def test_the_servers_cache_is_written_back_before_it_is_dropped() -> None:
    """An fsync of a client reaches the chunk servers, not their disks: durability is the page cache's, and says so."""
    with mounted("replicated-2", 2, clients=2) as system:
        durable = system.probe_durability()
        assert (durable.declared, durable.probed) == ("page-cache", False), durable.detail
        write(system)
        sessions = [system._process_on(client) for client in system.deployment.clients]
        cold = system.go_cold()
        assert set(cold.exit_codes) == {0}, cold
        assert {"s1: sync", "s2: sync", "c2: another client process answers"} <= set(cold.steps)
        assert not set(sessions) & {system._process_on(client) for client in system.deployment.clients}
        assert wrong(system) == []


def test_what_moosefs_refuses_is_one_line(home: Path) -> None:
    with made("distributed", 1, {"mount": "no-such-option=1"}) as system:
        system.deploy()
        with pytest.raises(
            AdapterError, match=r"^moosefs: c1: mounting mfs#10\.77\.0\.11:9421: .*no-such-option"
        ) as caught:
            system.mount()
    assert "\n" not in str(caught.value)
    nothing_is_left(home)


def test_two_of_three_hosts_die_and_come_back() -> None:
    with mounted("replicated-3", 3) as system:
        write(system)
        with pytest.raises(AdapterError, match="3 hosts cannot be killed: 3 run, and s1 stays"):
            system.kill_hosts(3)
        assert system.kill_hosts(2) == ["s3", "s2"]
        assert wrong(system) == []
        write(system, 7)
        assert wrong(system, 7) == []
        assert eventually(lambda: "no chunk server on s2, s3" in system.health()[1])
        assert "healing waits for s2, s3" in system.settle(0.5).detail
        assert system.restart_hosts(60) < 60
        assert system.heal(BACK_SECONDS) is not None
        assert system.health()[0] is True
        # proof that the copies on the two are right: the data must do without either
        for host in ("s3", "s2"):
            chunks = [chunk for file in system.cluster_map()["files"] for chunk in file["chunks"]]
            assert all(host in chunk["servers"] for chunk in chunks)
        system.go_cold()
        assert wrong(system, 7) == []


def test_a_lost_chunk_is_an_error_and_no_hang() -> None:
    with mounted("distributed", 3, {"mount": "mfstimeout=3"}) as system:
        write(system)
        lost = {
            file["path"].rpartition("/")[2]
            for file in system.cluster_map()["files"]
            if any(chunk["servers"] == ["s3"] for chunk in file["chunks"])
        }
        assert lost
        system.kill_hosts(1)
        problems = wrong(system)
        assert {line.split()[0] for line in problems} == lost
        assert all("cannot be read: Input/output error" in line for line in problems), problems
        assert f"{len(lost)} missing" in system.health()[1]
        assert system.restart_hosts(60) < 60
        assert system.heal(60) is not None
        assert wrong(system) == []


def test_a_host_that_is_cut_off_and_a_mount_that_hangs() -> None:
    with mounted("replicated-2", 3, {"mount": "mfstimeout=0"}) as system:
        fabric = system.fabric()
        write(system)
        fabric.cut(fabric.storage[-1], off=True)
        write(system, 7)
        assert wrong(system, 7) == []
        assert eventually(lambda: system.health()[0] is False, 30), "the master waits 10 s"
        fabric.cut(fabric.storage[-1], off=False)
        assert eventually(lambda: system.health()[0] is True, BACK_SECONDS), system.health()
        fabric.cut(fabric.storage[0], off=True)
        with pytest.raises(HostError, match="no answer within 2 s"):
            system.client.call(integrity.write_files, directory_of(system), 8, timeout_seconds=2)
        started = time.monotonic()
        system.unmount()
        system.destroy()
        fabric.down()
        assert time.monotonic() - started < 30


def test_hosts_that_may_not_leave() -> None:
    with mounted("replicated-2", 2) as system:
        said: list[str] = []
        with pytest.raises(AdapterError, match=r"moosefs/replicated-2 needs 2 hosts"):
            system.shrink(1, said.append)
        with pytest.raises(AdapterError, match="2 of 2 hosts cannot leave; at least one must stay"):
            shrink(system.cluster, system._layout, 2, said.append)
        assert system.health()[0] is True


def test_the_exported_map_is_where_chunks_really_are() -> None:
    with mounted("replicated-2", 3) as system:
        write(system)
        system.client.run(["cp", "/proc/version", f"{directory_of(system)}/été 磁気 b"]).must("writing")
        exported = system.cluster_map()
        assert exported["chunk_bytes"] == 64 << 20
        assert [server["name"] for server in exported["servers"]] == ["s1", "s2", "s3"]
        (small,) = (file for file in exported["files"] if file["path"] == "/été 磁気 b")
        assert len(small["chunks"]) == 1
        assert len(exported["files"]) == integrity.FILES + 1
        really = {
            host.name: host.run(["find", "/run/b/1/chunks", "-name", "chunk_*", "-size", "+0"]).stdout.decode()
            for host in system.fabric().storage
        }
        for file in exported["files"]:
            for chunk in file["chunks"]:
                assert chunk["servers"] == sorted(name for name, listed in really.items() if chunk["id"] in listed)
        assert ask(system.cluster.first, system.cluster.first.address, "-SMF") == [], "no chunk is missing"


def test_a_mount_tells_what_it_is() -> None:
    """What a candidate's ``mount: DIR`` is checked by, on the host that has the mount: the client process answers only there."""
    kind = MooseSystem.mount_kind()
    with mounted("replicated-2", 2) as system:
        where = directory_of(system)
        entry = system.client.call(remote.mount_entry, where)
        assert entry is not None
        assert entry["fstype"] in kind.fstypes
        assert kind.inspect(system.client, where, "replicated-2")["goal"] == 2
        with pytest.raises(AdapterError, match=f"^{where} is moosefs/replicated-2, not moosefs/distributed$"):
            kind.inspect(system.client, where, "distributed")
        with pytest.raises(AdapterError, match=r"^/: no MooseFS client answers: No such file or directory$"):
            kind.inspect(system.client, Path("/tmp"), "distributed")
        assert kind.health(system.client, where) == (True, "the master answers, goal 2")
        system.cluster.first.kill()
        assert kind.health(system.client, where)[0] is False
