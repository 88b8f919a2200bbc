"""Real GlusterFS daemons on namespaces: deployed in every layout, kept through failures, grown, shrunk, taken down."""

from __future__ import annotations

import os
import random
import shutil
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from fabric_helpers import Running, left_of
from gluster_helpers import (
    LAB,
    brick_of,
    directory_of,
    fabric_of,
    hash_of,
    made,
    many_files,
    memory_bytes,
    mounted,
    seen_here,
    write,
    wrong,
)
from lab_helpers import eventually, nothing_left

from assay.lab.host import HostError, LocalHost, search_path
from assay.lab.kernel import processes_of
from assay.lab.registry import clean
from assay.systems.base import AdapterError
from assay.systems.catalogue import check_candidate, make_adapter
from assay.workloads import integrity

pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(
        shutil.which("glusterd", path=search_path()) is None,
        reason="no GlusterFS here: apt-get install -y glusterfs-server glusterfs-client",
    ),
]
KILLS = int(os.environ.get("ASSAY_TEST_GLUSTER_KILLS", "2"))
CYCLES = int(os.environ.get("ASSAY_TEST_CYCLES", "4"))
SETTLE_SECONDS = 20.0
BACK_SECONDS = 60.0

#: layout, hosts, tuning, further keys of the lab, parts of a file, sets
KINDS: list[tuple[str, int, dict[str, object], dict[str, object], int, int]] = [
    ("rain-4-2", 6, {"performance.strict-o-direct": True}, {}, 6, 1),
    ("distributed", 3, {"brick": "ext4"}, {}, 1, 3),
    ("replicated-3", 6, {"client.event-threads": 4}, {}, 3, 2),
    ("rain-2-1", 3, {"shard": "4MiB", "mount": "direct-io-mode=enable"}, {"disk": {"per_host": 2}}, 3, 2),
    ("rain-8-4", 12, {}, {}, 12, 1),
    ("replicated-2", 4, {"brick": "btrfs"}, {"clients": 2}, 2, 2),
    ("replicated-6", 6, {}, {}, 6, 1),
    ("distributed", 6, {}, {"network": {"bandwidth": "1Gbit"}}, 1, 6),
    ("rain-4-2", 12, {}, {}, 6, 2),
    ("distributed", 12, {"performance.write-behind": False}, {}, 1, 12),
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield tmp_path
    clean()
    assert nothing_left(tmp_path)


def nothing_is_left(home: Path) -> None:
    assert eventually(lambda: not any(left_of(LAB, home).values())), left_of(LAB, home)


# --- deploy, mount, verify, destroy -------------------------------------------------------------------------------------


@pytest.mark.parametrize("cycle", range(CYCLES))
def test_a_cycle_leaves_nothing(home: Path, cycle: int) -> None:
    layout, hosts, tuning, lab, width, sets = KINDS[cycle % len(KINDS)]
    with mounted(layout, hosts, tuning, **lab) as system:
        facts = system.facts()
        assert facts["system"] == f"glusterfs/{layout}"
        assert facts["volume"]["sets"] == sets
        assert facts["volume"]["bricks"] == sets * width
        for name, value in tuning.items():
            if "." in name:
                assert facts["options"][name] == (
                    {True: "on", False: "off"}[value] if isinstance(value, bool) else str(value)
                )
        assert facts["options"].get("features.shard-block-size") == ("4194304" if "shard" in tuning else None)
        assert facts["brick"]["mkfs"].startswith(f"mkfs.{tuning.get('brick', 'xfs')} ")
        assert facts["mount"]["fstype"] == "fuse.glusterfs"
        write(system)
        assert wrong(system) == []
        assert system.health()[0] is True
        started = time.monotonic()
    assert time.monotonic() - started < 10
    nothing_is_left(home)


@pytest.mark.parametrize("number", range(KILLS))
def test_kill_9_at_any_moment_leaves_nothing(home: Path, number: int) -> None:
    """While it is deployed, mounted, loaded, or while a host is dead."""

    def use() -> None:
        with mounted("rain-2-1", 3) as system:
            write(system)
            system.kill_hosts(1)
            while True:
                write(system)

    chance = random.Random(number)
    child = Running(use)
    time.sleep(chance.uniform(0.2, 7.0))
    assert child.kill() == 9, "it has ended before it was killed"
    assert eventually(lambda: not processes_of(LAB), 10), "the kernel ends what Assay has begun"
    clean()
    nothing_is_left(home)


def test_what_attempts_ask_of_it() -> None:
    """Facts, cold, settled, counted, durable, healthy, small."""
    with mounted("rain-4-2", 6, clients=2) as system:
        assert memory_bytes() < 260 << 20
        facts = system.facts()
        durable = system.probe_durability()
        assert (durable.declared, durable.probed) == ("replicated", True), durable.detail
        before = system.counters()
        assert before is not None
        assert len(before) == 6
        write(system)
        after = system.counters()
        assert after is not None
        written = [a.written_bytes - b.written_bytes for a, b in zip(after, before, strict=True)]
        data = sum(integrity.SIZES) * integrity.FILES // len(integrity.SIZES)
        assert all(data / 4 <= w < data for w in written), "each of six bricks gets a quarter of the data, and its log"
        processes = dict(system._processes)
        cold = system.go_cold()
        assert set(cold.exit_codes) == {0}, cold
        assert sum("another client process answers" in step for step in cold.steps) == 2
        assert all(system._processes[client] != process for client, process in processes.items())
        read = sum(c.read_bytes for c in system.counters() or [])
        assert wrong(system) == []
        assert sum(c.read_bytes for c in system.counters() or []) - read >= data, "cold data come from the devices"
        settled = system.settle(SETTLE_SECONDS)
        assert settled.settled, settled.detail
        assert system.facts() == facts, "what the closure holds is the same after everything"


def test_distributed_is_as_durable_as_its_device() -> None:
    with mounted("distributed", 2) as system:
        assert system.probe_durability().declared == "device"
        assert system.settle(SETTLE_SECONDS).settled
        assert system.heal(1.0) == 0.0, "there is nothing to heal with one copy"


# --- refused ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("tuning", "words"), [
    ({"performance.no-such-option": 3}, r"option : performance\.no-such-option does not exist"),
    ({"client.event-threads": "abc"}, 'invalid number format "abc"'),
    ({"mount": "no-such-option=1"}, "c1: mounting s1:/assay: Invalid option: no-such-option"),
])  # fmt: skip
def test_what_gluster_refuses_is_one_line(home: Path, tuning: dict[str, object], words: str) -> None:
    with made("distributed", 2, tuning) as system, pytest.raises(AdapterError, match=words) as caught:
        system.deploy()
        system.mount()
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("glusterfs: ")
    nothing_is_left(home)


# --- failures -----------------------------------------------------------------------------------------------------------


def test_two_of_six_hosts_die_come_back_and_heal() -> None:
    with mounted("rain-4-2", 6) as system:
        write(system)
        assert system.kill_hosts(2) == ["s6", "s5"]
        assert eventually(lambda: system.health()[0] is False)
        assert "missing: s5:/run/b/1/brick, s6:/run/b/1/brick" in system.health()[1]
        assert wrong(system) == []
        write(system, 7)
        assert wrong(system, 7) == []
        assert "healing waits for s5" in system.settle(1.0).detail
        assert system.restart_hosts(BACK_SECONDS) < BACK_SECONDS
        healed = system.heal(BACK_SECONDS)
        assert healed is not None
        assert system.health()[0] is True
        # proof that the fragments on the two are right: the data must do without two others
        system.cluster.kill(["s2", "s3"])
        system.go_cold()
        assert wrong(system, 7) == []


def test_three_of_six_hosts_die_and_every_operation_fails_at_once() -> None:
    with mounted("rain-4-2", 6) as system:
        write(system)
        system.kill_hosts(3)
        assert eventually(lambda: system.health()[0] is False)
        started = time.monotonic()
        with pytest.raises(OSError, match="Transport endpoint is not connected"):
            write(system, 7)
        assert "Transport endpoint is not connected" in wrong(system)[0]
        with pytest.raises(OSError, match="Transport endpoint is not connected"):
            system.go_cold()
        assert time.monotonic() - started < 5
        system.restart_hosts(BACK_SECONDS)
        assert system.heal(BACK_SECONDS) is not None
        assert wrong(system) == []


def test_hosts_that_may_die() -> None:
    with mounted("replicated-2", 4) as system:
        write(system)
        with pytest.raises(AdapterError, match="4 hosts cannot be killed: 4 run, and s1 stays"):
            system.kill_hosts(4)
        assert system.kill_hosts(2) == ["s4", "s2"], "one of each pair"
        assert wrong(system) == []


def test_a_brick_dies_and_is_started_again() -> None:
    with mounted("replicated-3", 3) as system:
        write(system)
        system.kill_brick("s2:/run/b/1/brick")
        assert eventually(lambda: "2 of 3 bricks connected" in system.health()[1])
        write(system, 7)
        with pytest.raises(AdapterError, match="s2:/run/b/1/brick does not run"):
            system.kill_brick("s2:/run/b/1/brick")
        system.restart_bricks(BACK_SECONDS)
        assert system.heal(BACK_SECONDS) is not None
        assert system.health()[0] is True
        assert wrong(system, 7) == []


def test_a_host_that_is_cut_off_hangs_nobody() -> None:
    with mounted("rain-4-2", 6, {"network.ping-timeout": 5}) as system:
        fabric = fabric_of(system)
        write(system)
        fabric.cut(fabric.storage[-1], off=True)
        started = time.monotonic()
        write(system, 7)  # waits for the ping-timeout, then goes on with five
        assert 3 < time.monotonic() - started < 40
        assert system.health()[0] is False
        fabric.cut(fabric.storage[-1], off=False)
        assert eventually(lambda: system.health()[0] is True, 30)
        assert system.heal(BACK_SECONDS) is not None
        assert wrong(system, 7) == []
        fabric.cut(fabric.storage[-1], off=True)
        with pytest.raises(HostError, match="no answer within 2 s, the file system hangs"):
            system.client.call(integrity.write_files, directory_of(system), 8, timeout_seconds=2)
        started = time.monotonic()
        system.unmount()
        system.destroy()
        fabric.down()
        assert time.monotonic() - started < 15


# --- growing and shrinking ----------------------------------------------------------------------------------------------


def test_it_grows_and_shrinks_with_all_data() -> None:
    with mounted("replicated-2", 2, {"cluster.lookup-optimize": False}) as system:
        write(system)
        many_files(system, 100)
        said: list[str] = []
        with pytest.raises(AdapterError, match=r"set lab\.hosts to 2"):
            system.grow(1, said.append)
        system.grow(2, said.append)
        assert said[0] == "s3, s4 added, 4 bricks"
        assert any(line.startswith("rebalance ") and "completed" in line for line in said), said
        assert system.facts()["volume"] == {"type": "Distributed-Replicate", "bricks": 4, "sets": 2}
        placed = Counter(brick.partition(":")[0] for brick in brick_of(system, "/many").values())
        assert placed["s4"] > 20, "data have moved to the new hosts"
        assert wrong(system) == []
        assert system.settle(SETTLE_SECONDS).settled
        with pytest.raises(AdapterError, match="would lose 1 of its 2 bricks; shrink by a multiple of 2 hosts"):
            system.shrink(1, said.append)
        with pytest.raises(AdapterError, match="at least one set must stay"):
            system.shrink(4, said.append)
        system.shrink(2, said.append)
        assert said[-1] == "s3, s4 taken out, 2 bricks"
        assert [host.name for host in fabric_of(system).storage] == ["s1", "s2"]
        assert wrong(system) == []
        assert system.health()[0] is True
        assert system.settle(SETTLE_SECONDS).settled


def test_files_that_remove_brick_loses_are_the_systems_failure() -> None:
    """GlusterFS issues 1918 and 973: with lookup-optimize on, its default, files cannot be opened although they are there."""
    with mounted("distributed", 3) as system:
        many_files(system, 200)
        words = (
            r"after remove-brick \d+ of 200 files cannot be opened .*: many/file\d+, .*cluster\.lookup-optimize: off"
        )
        with pytest.raises(AdapterError, match=words):
            system.shrink(1, lambda _: None)
        assert len(brick_of(system, "/many")) == 200, "no data are lost, GlusterFS has lost sight of them"


# --- placement ----------------------------------------------------------------------------------------------------------


def test_the_exported_map_is_where_files_really_are() -> None:
    names = [f"file{i:03d}" for i in range(40)]
    names += (
        [f".data{i}.bin.6cfd2b" for i in range(10)]
        + [f"été {i} 磁気" for i in range(10)]
        + ["x" * n for n in range(1, 20)]
    )
    with mounted("replicated-2", 6) as system:
        where = directory_of(system)
        for directory in ("", "/a", "/a/b c"):
            made_files = ["sh", "-c", 'mkdir -p "$0" && cd "$0" && touch -- "$@"', f"{where}{directory}", *names]
            system.client.run(made_files).must("writing")
        exported = system.cluster_map()
        assert exported["layout"] == "replicated-2"
        assert [s["name"] for s in exported["subvolumes"]] == [f"assay-replicate-{i}" for i in range(3)]
        assert exported["subvolumes"][1]["bricks"] == ["s3:/run/b/1/brick", "s4:/run/b/1/brick"]
        assert all(400 << 20 < s["brick_bytes"] < 600 << 20 for s in exported["subvolumes"])
        for directory in ("/", "/a", "/a/b c"):
            ranges = [r for r in exported["directories"] if r["path"] == directory]
            assert sum(int(r["stop"], 16) - int(r["start"], 16) + 1 for r in ranges) == 1 << 32
            really = brick_of(system, directory.rstrip("/"))
            for name in names:
                value = hash_of(name)
                (owner,) = (r["subvolume"] for r in ranges if int(r["start"], 16) <= value <= int(r["stop"], 16))
                assert really[name] in exported["subvolumes"][owner]["bricks"], name
        again = system.cluster_map()
        assert again == exported


# --- existing mounts ----------------------------------------------------------------------------------------------------


def test_a_running_volume_that_is_mounted_already(tmp_path: Path) -> None:
    with mounted("rain-2-1", 3) as owner, seen_here(owner, tmp_path / "nas") as nas:
        lab = fabric_of(owner).shape
        check_candidate("glusterfs/rain-2-1", str(nas), lab, 1 << 20)
        with pytest.raises(AdapterError, match=f"^{nas} is glusterfs/rain-2-1, not glusterfs/distributed$"):
            check_candidate("glusterfs/distributed", str(nas), lab, 1 << 20)
        with pytest.raises(AdapterError, match="does not fit"):
            check_candidate("glusterfs/rain-2-1", str(nas), lab, 1 << 40)
        given = replace(owner.deployment, name="nas", fabric=None, mount=str(nas), host=LocalHost())
        system = make_adapter("glusterfs/rain-2-1", given)
        system.deploy()
        try:
            system.mount()
            assert system.directory is not None
            assert system.directory.parent == nas
            facts = system.facts()
            assert facts["system"] == "glusterfs/rain-2-1"
            assert facts["volume"] == {"bricks": 3, "sets": 1}
            assert system.health() == (True, "all 3 bricks connected")  # type: ignore[attr-defined]
            assert system.counters() is None, "whose bricks they are may count"  # type: ignore[attr-defined]
            owner.kill_hosts(1)
            assert eventually(lambda: system.health()[0] is False)  # type: ignore[attr-defined]
            assert system.facts() == facts
        finally:
            system.unmount()
            system.destroy()
            given.host.close()  # type: ignore[attr-defined]
