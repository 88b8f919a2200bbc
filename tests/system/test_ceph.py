"""A real Ceph cluster on namespaces: deployed in every layout, kept through failures, grown, shrunk, taken down."""

from __future__ import annotations

import json
import os
import random
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from ceph_helpers import DATA_BYTES, LAB, directory_of, fabric_of, made, mounted, write, wrong
from fabric_helpers import Running, left_of, loop_device
from gluster_helpers import seen_here
from lab_helpers import eventually, nothing_left

from assay.lab.devices import signatures
from assay.lab.host import HostError, LocalHost
from assay.lab.kernel import processes_of
from assay.lab.registry import clean
from assay.placement.ceph import OsdMap, cephfs_object
from assay.placement.crush import read_map
from assay.systems.base import AdapterError
from assay.systems.catalogue import check_candidate, make_adapter
from assay.systems.ceph import CephSystem
from assay.systems.ceph_cluster import DATA
from assay.systems.requirements import first_missing

MISSING = first_missing(CephSystem.requirements)
pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(MISSING is not None, reason=str(MISSING)),
    pytest.mark.timeout(600),
]
KILLS = int(os.environ.get("ASSAY_TEST_CEPH_KILLS", "1"))
CYCLES = int(os.environ.get("ASSAY_TEST_CYCLES", "2"))
SETTLE_SECONDS = 60.0
BACK_SECONDS = 120.0

#: layout, hosts, tuning, further keys of the lab, OSDs, parts of an object and the least of them
KINDS: list[tuple[str, int, dict[str, object], dict[str, object], int, int, int]] = [
    ("rain-4-2", 6, {}, {}, 6, 6, 4),
    ("distributed", 3, {"osd.osd_op_num_shards": 3, "client.client_oc": False, "pg_num": 16}, {}, 3, 1, 1),
    ("replicated-3", 3, {"profile": "stock", "min_size": 2}, {"clients": 2}, 3, 3, 2),
    ("rain-2-1", 3, {"balancer": True, "mount": "max_read=131072"}, {"disk": {"per_host": 2}}, 6, 3, 2),
    ("rain-8-4", 12, {}, {}, 12, 12, 8),
    ("replicated-6", 6, {"access": "librados"}, {}, 6, 6, 1),
    ("replicated-2", 2, {}, {"network": {"bandwidth": "1Gbit"}}, 2, 2, 1),
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield tmp_path
    clean(LAB)
    assert nothing_left(tmp_path)


def nothing_is_left(home: Path) -> None:
    assert eventually(lambda: not any(left_of(LAB, home).values()), 20), left_of(LAB, home)


# --- deploy, mount, verify, destroy -------------------------------------------------------------------------------------


@pytest.mark.parametrize("cycle", range(CYCLES))
def test_a_cycle_leaves_nothing(home: Path, cycle: int) -> None:
    layout, hosts, tuning, lab, osds, size, least = KINDS[cycle % len(KINDS)]
    started = time.monotonic()
    with mounted(layout, hosts, tuning, **lab) as system:
        print(
            f"{layout}, {hosts} hosts: mounted after {time.monotonic() - started:.1f} s, load {os.getloadavg()[0]:.1f}"
        )
        facts = system.facts()
        assert facts["system"] == f"ceph/{layout}"
        assert facts["osds"] == osds
        assert (facts["pool"]["size"], facts["pool"]["min_size"]) == (size, least)
        assert facts["pool"]["pg_num"] == tuning.get("pg_num", facts["pool"]["pg_num"])
        for name, value in tuning.items():
            section, dot, option = name.partition(".")
            if dot:
                assert facts["configuration"][section][option] == str(value).lower()
        assert system.health()[0] is True, system.health()
        if tuning.get("access") == "librados":
            assert system.directory is None
        else:
            assert facts["mount"]["fstype"] == "fuse.ceph-fuse"
            write(system)
            assert set(system.go_cold().exit_codes) == {0}
            assert wrong(system) == []
        assert system.facts() == facts
        started = time.monotonic()
    assert time.monotonic() - started < 30
    nothing_is_left(home)


@pytest.mark.parametrize("number", range(KILLS))
def test_kill_9_at_any_moment_leaves_nothing(home: Path, number: int) -> None:
    """While it is deployed, mounted, loaded, or while a host is dead: what has begun ends without any clean-up."""

    def use() -> None:
        with mounted("rain-2-1", 3) as system:
            write(system)
            system.kill_hosts(1)
            while True:
                write(system)

    child = Running(use)
    time.sleep(random.Random(number).uniform(0.2, 12.0))
    assert child.kill() == 9, "it has ended before it was killed"
    assert eventually(lambda: not processes_of(LAB), 15), "the kernel ends what Assay has begun"
    clean(LAB)
    nothing_is_left(home)


def test_what_attempts_ask_of_it() -> None:
    """Options that are in force, cold, settled, counted, durable."""
    with mounted("rain-4-2", 6, {"osd.osd_op_num_shards": 3}, clients=2) as system:
        assert system.cluster.ask.osd(5, "config get", var="osd_op_num_shards") == {"osd_op_num_shards": "3"}
        durable = system.probe_durability()
        assert (durable.declared, durable.probed) == ("replicated", True), durable.detail
        before = system.counters()
        assert before is not None
        assert len(before) == 6
        write(system)
        written = [a.written_bytes - b.written_bytes for a, b in zip(system.counters() or [], before, strict=True)]
        # each of six OSDs gets a quarter of the data if placement groups were even, and its log
        assert all(w >= DATA_BYTES / 10 for w in written), written
        assert sum(written) >= 1.5 * DATA_BYTES
        cold = system.go_cold()
        assert set(cold.exit_codes) == {0}, cold
        assert sum("another client process answers" in step for step in cold.steps) == 2
        read = sum(c.read_bytes for c in system.counters() or [])
        assert wrong(system) == []
        assert sum(c.read_bytes for c in system.counters() or []) - read >= DATA_BYTES, (
            "cold data come from the devices"
        )
        settled = system.settle(SETTLE_SECONDS)
        assert settled.settled, settled.detail
        assert system.settle(SETTLE_SECONDS).waited_seconds < 2, "nothing has changed: there is nothing to wait for"


def test_librados_is_driven_by_fio_with_no_mount() -> None:
    with mounted("replicated-2", 3, {"access": "librados"}) as system:
        assert system.directory is None
        options = [f"--{key}={value}" for key, value in (system.fio_engine() or {}).items()]

        def fio(name: str, *more: str) -> bool:
            fixed = ["fio", "--name=j", f"--filename={name}", "--size=8MiB", "--bs=64KiB", "--iodepth=4", *options]
            done = system.client.run([*fixed, *more], timeout_seconds=120)
            assert done.exit_code is not None
            return done.ok

        before = [sum(getattr(c, way) for c in system.counters() or []) for way in ("written_bytes", "read_bytes")]
        checked = ("--verify=sha256", "--verify_fatal=1")
        assert fio("one", "--rw=write", "--do_verify=0", *checked)
        assert sum(c.written_bytes for c in system.counters() or []) - before[0] >= 2 * (8 << 20)
        durable = system.probe_durability()
        assert (durable.declared, durable.probed) == ("replicated", True), durable.detail
        assert set(system.go_cold().exit_codes) == {0}
        assert fio("one", "--rw=read", *checked)
        # all but some 370 KiB, always the same: what keeps those after `cache drop` is not known yet
        assert sum(c.read_bytes for c in system.counters() or []) - before[1] >= 7 << 20, "it came from the devices"
        assert system.space()["free_bytes"] > 100 << 20
        assert system.settle(SETTLE_SECONDS).settled
        system.kill_hosts(1)
        assert fio("one", "--rw=randwrite", *checked)


def test_devices_that_were_handed_over_are_given_back_empty(tmp_path: Path) -> None:
    with loop_device(tmp_path / "a", 700 << 20) as first, loop_device(tmp_path / "b", 700 << 20) as second:
        with mounted("replicated-2", 2, disk={"devices": [first, second]}) as system:
            write(system)
            system.kill_hosts(1)
            assert wrong(system) == []
        assert signatures(first) == signatures(second) == []


# --- refused ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tuning", "words"), [
    ({"osd.no_such_option": 3}, "osd.no_such_option: 3: .*unrecognized config option"),
    ({"osd.osd_op_num_shards": "abc"}, "osd.osd_op_num_shards: abc: .*error parsing value"),
    ({"mount": "no-such-option=1"}, "c1: ceph-fuse: .*unknown option `no-such-option=1'"),
    ({"min_size": 3}, "min_size"),
])  # fmt: skip
def test_what_ceph_refuses_is_one_line(home: Path, tuning: dict[str, object], words: str) -> None:
    with made("replicated-2", 2, tuning) as system, pytest.raises(AdapterError, match=words) as caught:
        system.deploy()
        system.mount()
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("ceph: ")
    nothing_is_left(home)


# --- failures -----------------------------------------------------------------------------------------------------------


def test_two_of_six_hosts_die_come_back_and_heal() -> None:
    with mounted("rain-4-2", 6) as system:
        write(system)
        with pytest.raises(AdapterError, match="6 hosts cannot be killed: 6 run, and s1 stays"):
            system.kill_hosts(6)
        assert system.kill_hosts(2) == ["s6", "s5"]
        assert eventually(lambda: system.health()[0] is False, 60)
        assert "2 hosts (2 osds) down" in system.health()[1]
        system.go_cold()
        assert wrong(system) == []
        write(system, 7)
        system.go_cold()
        assert wrong(system, 7) == []
        assert "recovery waits for s5, s6" in system.settle(1.0).detail
        assert system.restart_hosts(BACK_SECONDS) < BACK_SECONDS
        assert system.heal(BACK_SECONDS) is not None
        assert system.health()[0] is True, system.health()
        # proof that the shards on the two are right: the data must do without two others
        system.cluster.kill(["s2", "s3"])
        system.go_cold()
        assert wrong(system, 7) == []


def test_three_of_six_hosts_die_and_every_operation_fails_in_time() -> None:
    with mounted("rain-4-2", 6, {"client.rados_osd_op_timeout": 5}) as system:
        write(system)
        system.kill_hosts(3)
        assert eventually(lambda: "PG_AVAILABILITY" in system.health()[1], 60)
        with pytest.raises((OSError, HostError), match=r"timed out|hangs"):
            write(system, 7, 60)
        system.go_cold()
        with pytest.raises(HostError, match="no answer within 2 s, the file system hangs"):
            wrong(system, timeout_seconds=2)
        system.restart_hosts(BACK_SECONDS)
        assert system.heal(BACK_SECONDS) is not None
        system.go_cold()
        # the first file may hold either content: its write was never acknowledged
        assert [line for line in wrong(system) if not line.startswith("f0001 ")] == []


def test_a_cluster_that_answers_nothing_is_unmounted_and_taken_down_in_time() -> None:
    """Ceph's own defaults: whoever waits for a placement group waits for ever."""
    with mounted("rain-2-1", 3, {"profile": "stock"}) as system:
        system.kill_hosts(2)
        with pytest.raises(HostError, match="no answer within 5 s, the file system hangs"):
            write(system, 7, 5)
        started = time.monotonic()
        system.unmount()
        system.destroy()
        fabric_of(system).down()
        assert time.monotonic() - started < 60


def test_an_osd_dies_and_is_started_again() -> None:
    with mounted("replicated-2", 2) as system:
        write(system)
        system.kill_osd(1)
        assert eventually(lambda: "OSD_DOWN" in system.health()[1], 60)
        with pytest.raises(AdapterError, match=r"osd\.1 does not run"):
            system.kill_osd(1)
        write(system, 7)
        system.restart_osd(1, BACK_SECONDS)
        assert system.heal(BACK_SECONDS) is not None
        assert system.health()[0] is True, system.health()
        system.go_cold()
        assert wrong(system, 7) == []


def test_a_host_that_is_cut_off_is_noticed_and_does_without() -> None:
    with mounted("replicated-3", 4) as system:
        fabric = fabric_of(system)
        write(system)
        fabric.cut(fabric.storage[-1], off=True)
        started = time.monotonic()
        write(system, 7)  # waits for the heartbeats' grace, then goes on
        assert time.monotonic() - started < 60
        assert eventually(lambda: "OSD_DOWN" in system.health()[1], 60)
        fabric.cut(fabric.storage[-1], off=False)
        assert eventually(lambda: system.cluster.status().clean and system.health()[0] is True, BACK_SECONDS)
        system.go_cold()
        assert wrong(system, 7) == []


# --- growing and shrinking ----------------------------------------------------------------------------------------------


def test_it_grows_and_shrinks_with_all_data() -> None:
    with mounted("replicated-2", 3) as system:
        write(system)
        said: list[str] = []
        system.grow(2, said.append)
        assert said[0] == "s4, s5 added, 5 OSDs"
        assert said[-1].startswith("rebalance: 5 of 5 OSDs up"), said
        held = {row["id"]: row["pgs"] for row in system.cluster.ask.mgr("osd df")["nodes"]}
        assert all(held[osd] > 0 for osd in range(5)), "placement groups have moved to the new hosts"
        system.go_cold()
        assert wrong(system) == []
        with pytest.raises(AdapterError, match="3 of 5 hosts cannot leave; 3 must stay"):
            system.shrink(3, said.append)
        system.shrink(2, said.append)
        assert said[-1] == "s4, s5 taken out, 3 OSDs"
        assert [host.name for host in fabric_of(system).storage] == ["s1", "s2", "s3"]
        assert [o["osd"] for o in system.cluster.dump()["osds"]] == [0, 1, 2]
        system.go_cold()
        assert wrong(system) == []
        assert system.health()[0] is True, system.health()
        assert system.settle(SETTLE_SECONDS).settled


# --- placement ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("layout", "hosts"), [("rain-2-1", 5), ("replicated-3", 5)])
def test_the_exported_map_is_where_objects_really_are(layout: str, hosts: int) -> None:
    with mounted(layout, hosts) as system:
        write(system)
        exported = json.loads(json.dumps(system.cluster_map()))
        assert exported["files"] == {
            "stripe_unit": "4194304", "stripe_count": "1", "object_size": "4194304", "pool": DATA,
        }  # fmt: skip
        osd_map = OsdMap.from_dump(read_map(json.dumps(exported["crush"]).encode()), exported["osdmap"])
        pool = osd_map.pool(exported["pool"])
        rows, primaries = osd_map.up_sets(pool.id)
        names = [cephfs_object(1099511627776 + i, i % 7) for i in range(200)]
        for name, group in zip(names, pool.groups_of(names).tolist(), strict=True):
            real = system.cluster.ask.mon("osd map", pool=DATA, object=name.decode())
            assert real["pgid"] == f"{pool.id}.{group:x}"
            assert real["up"] == rows[group].tolist()
            assert real["up_primary"] == primaries[group]


# --- existing mounts ----------------------------------------------------------------------------------------------------


def test_a_running_file_system_that_is_mounted_already(tmp_path: Path) -> None:
    with mounted("replicated-2", 2) as owner, seen_here(owner, tmp_path / "nas") as nas:  # type: ignore[arg-type]
        lab = fabric_of(owner).shape
        check_candidate("ceph/replicated-2", str(nas), lab, 1 << 20)
        with pytest.raises(AdapterError, match=r"is fuse\.ceph-fuse, not fuse\.glusterfs"):
            check_candidate("glusterfs/replicated-2", str(nas), lab, 1 << 20)
        given = replace(owner.deployment, name="nas", fabric=None, mount=str(nas), host=LocalHost())
        system = make_adapter("ceph/replicated-2", given)
        system.deploy()
        try:
            system.mount()
            assert system.directory is not None
            assert system.directory.parent == nas
            facts = system.facts()
            assert facts["system"] == "ceph/replicated-2"
            assert facts["files"]["pool"] == DATA
            assert "cannot be asked" in facts["layout"], "this machine has no key of the cluster"
            assert system.health()[0] is True  # type: ignore[attr-defined]
        finally:
            system.unmount()
            system.destroy()
            given.host.close()  # type: ignore[attr-defined]


def test_the_layout_of_a_mount_is_checked_where_the_cluster_can_be_asked() -> None:
    with mounted("rain-2-1", 3) as system:
        kind = CephSystem.mount_kind()
        where = directory_of(system)
        facts = kind.inspect(system.client, where, "rain-2-1")
        assert facts["layout"].startswith(f"pool {DATA}: size 3, min_size 2")
        with pytest.raises(AdapterError, match=f"^{where} is ceph/rain-2-1 .*, not ceph/distributed$"):
            kind.inspect(system.client, where, "distributed")
        assert kind.health(system.client, where)[0] is True
