"""A real NFS-Ganesha on a namespace, reached by whatever this machine has. What every system must do is in test_contract.py."""

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

from assay.lab.fabric import Fabric
from assay.lab.host import LocalHost, search_path
from assay.lab.kernel import processes_of
from assay.lab.registry import Lab, clean
from assay.model.lab import Lab as LabDeclaration
from assay.systems.base import AdapterError, Deployment
from assay.systems.catalogue import check_tuning
from assay.systems.nfs import NfsSystem
from assay.systems.nfs_client import FUSE_CLIENT, kernel_speaks_nfs
from assay.workloads import integrity

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        shutil.which("ganesha.nfsd", path=search_path()) is None,
        reason="no NFS server here: apt-get install -y nfs-ganesha nfs-ganesha-vfs rpcbind libnfs-utils",
    ),
]
LAB = f"nfs-{os.getpid()}"  # several of these may run on one machine
KILLS = int(os.environ.get("ASSAY_TEST_NFS_KILLS", "3"))
CYCLES = int(os.environ.get("ASSAY_TEST_CYCLES", "4"))
SEED = 20214
TUNINGS: list[dict[str, object]] = [
    {"access": "libnfs"},
    {"access": "libnfs", "filesystem": "ext4", "MDCACHE.Entries_HWMark": 5000},
    {"access": "libnfs", "filesystem": "btrfs"},
    {"access": "libnfs", "version": 3},
]
MOUNTS: list[dict[str, object]] = [{"access": "kernel"}, {"access": "kernel", "version": 3}, {"access": FUSE_CLIENT}]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield tmp_path
    clean(LAB)
    assert nothing_left(tmp_path)


@contextmanager
def made(tuning: dict[str, object], **given: object) -> Iterator[NfsSystem]:
    """An adapter on hosts that are up, nothing deployed."""
    shape = LabDeclaration.model_validate({"hosts": 1, "disk": {"size": "400MiB"}, **given})
    check_tuning("nfs/distributed", tuning)
    NfsSystem.preflight("distributed", shape, 32 << 20)
    lab = Lab(LAB, "s")
    fabric = Fabric(lab, "f", shape)
    host = LocalHost(environment=lab.environment)
    system = NfsSystem(Deployment("nfs", "distributed", lab, host, shape.disk, tuning, fabric))
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
def mounted(tuning: dict[str, object], **given: object) -> Iterator[NfsSystem]:
    """The same, deployed and mounted."""
    with made(tuning, **given) as system:
        system.deploy()
        system.mount()
        yield system


def write(system: NfsSystem, home: Path, seed: int = SEED) -> None:
    """Files of known content, put through the first client."""
    sent = home / "sent"
    sent.mkdir(exist_ok=True)
    integrity.write_files(sent, seed)
    for file in (sent / integrity.DIRECTORY).iterdir():
        system.put(system.client, file, f"{integrity.DIRECTORY}/{file.name}", 60)


def wrong(system: NfsSystem, home: Path, seed: int = SEED) -> list[str]:
    """What is wrong with them, got through the last client."""
    got = home / "got" / integrity.DIRECTORY
    got.mkdir(parents=True, exist_ok=True)
    for name in sorted(path.name for path in (home / "sent" / integrity.DIRECTORY).iterdir()):
        system.get(system.deployment.clients[-1], f"{integrity.DIRECTORY}/{name}", got / name, 60)
    return integrity.check_files(home / "got", seed)


def nothing_is_left(home: Path) -> None:
    shutil.rmtree(home / "sent", ignore_errors=True)
    shutil.rmtree(home / "got", ignore_errors=True)
    assert eventually(lambda: not any(left_of(LAB, home).values()), 20), left_of(LAB, home)


@pytest.mark.parametrize("cycle", range(CYCLES))
def test_a_cycle_leaves_nothing(home: Path, cycle: int) -> None:
    tuning = TUNINGS[cycle % len(TUNINGS)]
    with mounted(tuning, clients=2) as system:
        assert system.directory is None, "there is no mount"
        facts = system.facts()
        assert facts["access"] == "libnfs"
        assert "access by libnfs" in facts["version"], "whoever reads the result must see that it is no kernel mount"
        assert facts["server"]["mkfs"].startswith(f"mkfs.{tuning.get('filesystem', 'xfs')} ")
        write(system, home)
        write(system, home, 7)
        assert wrong(system, home, 7) == []
        assert system.health()[0] is True
        assert system.facts() == facts
    nothing_is_left(home)


@pytest.mark.parametrize("tuning", MOUNTS, ids=lambda t: "-".join(map(str, t.values())))
def test_a_mount(home: Path, tuning: dict[str, object]) -> None:
    if tuning["access"] == "kernel" and not kernel_speaks_nfs():
        pytest.skip("this kernel has no NFS client")
    if tuning["access"] == FUSE_CLIENT and shutil.which(FUSE_CLIENT, path=search_path()) is None:
        pytest.skip("no fuse-nfs here; no distribution packages it")
    with mounted(tuning, clients=2) as system:
        assert system.directory is not None
        assert system.facts()["access"] == tuning["access"]
        system.client.call(integrity.write_files, system.directory, SEED, timeout_seconds=120)
        assert set(system.go_cold().exit_codes) == {0}
        last = system.deployment.clients[-1]
        assert last.call(integrity.check_files, system.directory, SEED, timeout_seconds=120) == []
        assert system.health()[0] is True
        with pytest.raises(AdapterError, match="is mounted: files are written there"):
            system.put(system.client, home, "x", 5)
    nothing_is_left(home)


@pytest.mark.parametrize("number", range(KILLS))
def test_kill_9_at_any_moment_leaves_nothing(home: Path, number: int) -> None:
    def use() -> None:
        with mounted({"access": "libnfs"}) as system:
            while True:
                write(system, home)

    chance = random.Random(number)
    child = Running(use)
    time.sleep(chance.uniform(0.1, 2.0))
    assert child.kill() == 9, "it has ended before it was killed"
    assert eventually(lambda: not processes_of(LAB), 20), "the kernel ends what Assay has begun"
    clean(LAB)
    nothing_is_left(home)


def test_what_is_put_is_on_the_disk_and_comes_from_it_when_cold(home: Path) -> None:
    with mounted({"access": "libnfs"}) as system:
        durable = system.probe_durability()
        assert (durable.declared, durable.probed) == ("device", True), durable.detail
        write(system, home)
        assert system.settle(20).settled
        assert set(system.go_cold().exit_codes) == {0}
        (before,) = system.counters() or []
        assert wrong(system, home) == []
        (after,) = system.counters() or []
        data = sum(integrity.SIZES) * integrity.FILES // len(integrity.SIZES)
        assert after.read_bytes - before.read_bytes >= data


def test_a_dead_server_is_an_error_in_time(home: Path) -> None:
    with mounted({"access": "libnfs"}, clients=2) as system:
        write(system, home)
        system.fabric().cut(system.server, off=True)
        started = time.monotonic()
        with pytest.raises(AdapterError, match=r"nfs: c1: make_way.*: no answer within 2 s"):
            system.put(system.client, Path("/etc/hostname"), "a", 2)
        with pytest.raises(AdapterError, match="nfs-cp: no answer within 2 s"):
            system.get(system.client, f"{integrity.DIRECTORY}/f0001", home / "x", 2)
        assert system.health()[0] is False
        system.fabric().cut(system.server, off=False)
        assert eventually(lambda: system.health()[0] is True, 30), system.health()
        system.server.kill()
        with pytest.raises(AdapterError):
            system.get(system.client, f"{integrity.DIRECTORY}/f0001", home / "x", 5)
        assert system.health() == (False, "the server's host s1 is down")
        assert time.monotonic() - started < 90
    nothing_is_left(home)


def test_what_ganesha_does_not_know_is_one_line(home: Path) -> None:
    words = r"^nfs: ganesha\.nfsd: Config File .*Unknown parameter \(No_Such_Thing\)"
    with made({"access": "libnfs", "MDCACHE.No_Such_Thing": 5}) as system, pytest.raises(AdapterError, match=words):
        system.deploy()
    nothing_is_left(home)
