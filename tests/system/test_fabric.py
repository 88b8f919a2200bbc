"""Hosts as namespaces: what they reach, how fast, what happens to one that is killed, and that nothing of them is left."""

from __future__ import annotations

import json
import os
import random
import re
import shutil
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from fabric_helpers import (
    Running,
    add_disks,
    all_namespaces,
    answer,
    fabric_of,
    left_of,
    loop_device,
    namespaces_of,
    now_in_ticks,
    reaches,
    shape,
)
from lab_helpers import as_nobody, eventually, nothing_left

from assay.lab.devices import signatures
from assay.lab.errors import LabError
from assay.lab.fabric import Fabric, check_possible
from assay.lab.host import HostError
from assay.lab.kernel import processes_of
from assay.lab.namespace import NamespaceHost
from assay.lab.registry import Lab, clean, labs_root

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
KILLS = int(os.environ.get("ASSAY_TEST_KILLS", "8"))
GIGABIT = 1e9


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield tmp_path
    clean()
    assert nothing_left(tmp_path)


# --- network ----------------------------------------------------------------------------------------------------------


def test_hosts_have_names_addresses_and_reach_one_another() -> None:
    with fabric_of("net", hosts=3, clients=2) as fabric:
        assert [h.name for h in fabric.hosts] == ["s1", "s2", "s3", "c1", "c2"]
        assert [h.address for h in fabric.hosts] == [f"10.77.0.{n}" for n in (11, 12, 13, 101, 102)]
        for host in fabric.hosts:
            assert host.run(["hostname"]).stdout.decode().strip() == host.name
            answer(host, host.name)
        for source in fabric.hosts:
            for target in fabric.hosts:
                assert reaches(source, target.name), f"{source.name} to {target.name}"


def iperf(client: NamespaceHost, server: NamespaceHost, *options: str) -> float:
    """Payload of TCP in bits per second."""
    server.child(["setsid", "--fork", "iperf3", "--server", "--one-off"])
    command = ["iperf3", "--client", server.address, "--time", "2", "--omit", "1", "--json", *options]
    for _ in range(50):
        found = json.loads(client.run(command).stdout)
        if "error" not in found:
            return found["end"]["sum_received"]["bits_per_second"]
        time.sleep(0.05)  # the server is not there yet
    raise AssertionError("no answer")


@pytest.mark.skipif(shutil.which("iperf3") is None, reason="needs iperf3")
def test_a_link_carries_what_was_asked_for_in_both_directions() -> None:
    """1 Gbit/s of Ethernet frames of 1514 bytes carry 1448 bytes of payload each: 95.6 %."""
    with fabric_of("shaped", network={"bandwidth": "1Gbit"}) as fabric:
        client, server = fabric.clients[0], fabric.storage[0]
        for options in ((), ("--reverse",)):
            assert 0.93 < iperf(client, server, *options) / GIGABIT < 0.97
        assert 0.93 < iperf(fabric.storage[1], server) / GIGABIT < 0.97


@pytest.mark.skipif(shutil.which("iperf3") is None, reason="needs iperf3")
def test_an_unlimited_link_is_not_shaped() -> None:
    with fabric_of("free") as fabric:
        assert iperf(fabric.clients[0], fabric.storage[0]) > 2 * GIGABIT


def test_two_fabrics_with_the_same_addresses_do_not_meet() -> None:
    with fabric_of("one") as one, fabric_of("two") as two:
        answer(one.storage[0], "one")
        assert [h.address for h in one.hosts] == [h.address for h in two.hosts]
        assert reaches(one.clients[0], "s1")
        assert not reaches(two.clients[0], "s1")
        answer(two.storage[0], "two")
        assert reaches(two.clients[0], "s1")


def test_a_host_that_is_cut_off_comes_back() -> None:
    with fabric_of("cut") as fabric:
        answer(fabric.storage[0], "there")
        fabric.cut(fabric.storage[0], off=True)
        assert not reaches(fabric.clients[0], "s1")
        assert fabric.storage[0].is_up
        assert reaches(fabric.storage[0], "s1"), "it still reaches itself"
        fabric.cut(fabric.storage[0], off=False)
        assert eventually(lambda: reaches(fabric.clients[0], "s1"))


def test_twelve_hosts() -> None:
    with fabric_of("twelve", hosts=12, clients=2) as fabric:
        for host in fabric.storage:
            answer(host, host.name)
        assert all(reaches(fabric.clients[1], host.name) for host in fabric.storage)


# --- hosts ------------------------------------------------------------------------------------------------------------


def test_a_killed_host_is_gone_and_comes_back_with_its_disk() -> None:
    with fabric_of("kill") as fabric:
        (disk, other), host = add_disks(fabric), fabric.storage[0]
        answer(host, "there")
        inside = namespaces_of(processes_of("kill"))
        started = time.monotonic()
        host.kill()
        assert time.monotonic() - started < 1
        assert not host.is_up
        with pytest.raises(HostError, match="host s1 is down"):
            host.run(["true"])
        with pytest.raises(HostError, match="host s1 is down"):
            host.call(os.getpid)
        assert not reaches(fabric.clients[0], host.address)
        assert fabric.storage[1].run(["cat", "/run/b/file"]).stdout == b"precious\n"
        fabric.start(host)
        disk.attach()
        disk.mount("xfs", "/run/b")
        assert host.run(["cat", "/run/b/file"]).stdout == b"precious\n"
        assert host.call(os.getpid) > 0
        answer(host, "again")
        assert reaches(fabric.clients[0], host.address)
        assert len(namespaces_of(processes_of("kill"))) == len(inside), "nothing of the old one is held"
        assert other.counters().written_bytes > 0


def test_every_process_of_a_host_carries_the_mark() -> None:
    with fabric_of("mark", limits={"cpus": 1.5}) as fabric:
        host = fabric.storage[0]
        host.child(["setsid", "--fork", "sh", "-c", "sleep 1000 & wait"])
        running = host.spawn(["sleep", "1000"])
        host.call(os.getpid)
        assert eventually(lambda: len(processes_of("mark")) >= 15)
        marked, own = set(processes_of("mark")), namespaces_of([host.namespaces.pid])
        for entry in Path("/proc").iterdir():
            if entry.name.isdigit() and namespaces_of([int(entry.name)]) & own:
                assert int(entry.name) in marked, (entry / "cmdline").read_bytes()
        running.kill()


def test_what_is_spawned_on_a_host_dies_with_its_deadline() -> None:
    with fabric_of("dead") as fabric:
        host = fabric.storage[0]
        assert host.run(["sh", "-c", "sleep 1000 & sleep 1000"], timeout_seconds=0.3).exit_code is None
        done = host.run(["sh", "-c", "echo in; echo err >&2; exit 3"])
        assert (done.exit_code, done.stdout, done.stderr) == (3, b"in\n", b"err\n")
        with pytest.raises(HostError, match=r"no answer within 0\.3 s"):
            host.call(time.sleep, 30, timeout_seconds=0.3)
        assert host.call(os.getpid) > 0, "the next call starts another helper"


def test_a_fabric_that_is_down_stays_quiet() -> None:
    lab = Lab("down", "s")
    fabric = Fabric(lab, "f", shape())
    fabric.down()
    fabric.up()
    started = time.monotonic()
    fabric.down()
    assert time.monotonic() - started < 1
    fabric.down()
    with pytest.raises(HostError, match="the fabric of f is down"):
        fabric.start(fabric.storage[0])
    lab.remove()


# --- nothing is left --------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("number", range(KILLS))
def test_kill_9_at_any_moment_leaves_nothing(home: Path, tmp_path: Path, number: int) -> None:
    """What the kernel does not remove by itself, ``assay lab clean`` does. Seeded, so that a failing moment can be had
    again; every second one has limits, every third a device that was handed over."""
    chance = random.Random(number)
    lab_id, limits = f"kill{number}", {"cpus": 1, "memory": "256MiB"} if number % 2 else {}
    devices = tmp_path / "devices"
    devices.mkdir()
    with loop_device(devices / "a", 301 << 20) as first, loop_device(devices / "b", 301 << 20) as second:
        disk = {"size": "300MiB", "devices": [first, second] if number % 3 == 0 else []}

        def build() -> object:
            fabric = Fabric(Lab(lab_id, "s"), "f", shape(limits=limits, disk=disk))
            fabric.up()
            disks = add_disks(fabric, ["xfs", "ext4", "btrfs"][number % 3])
            fabric.clients[0].child(["sleep", "1000"])
            fabric.storage[0].spawn(["dd", "if=/dev/zero", "of=/run/b/zero", "bs=64K"])
            return fabric.storage[0].call(os.getpid), disks

        child = Running(build)
        seen: set[str] = set()
        end = time.monotonic() + chance.uniform(0, 1.0)
        while time.monotonic() < end:
            seen |= namespaces_of(processes_of(lab_id))
            time.sleep(0.01)
        seen |= namespaces_of(processes_of(lab_id))
        assert child.kill() == 9, "it has ended before it was killed"
        killed_at = now_in_ticks()
        removed, kept = clean()
        assert kept == []
        assert removed == [lab_id] or not seen
        assert eventually(lambda: not seen & all_namespaces(killed_at))
        assert [signatures(device) for device in (first, second)] == [[], []]
    devices.rmdir()
    assert nothing_left(home)
    assert {what: left for what, left in left_of(lab_id, home).items() if left} == {}


def test_kill_9_without_clean_up_leaves_only_files_and_empty_groups(home: Path) -> None:
    """The kernel does the rest, and quickly: no host lives on without the Assay that made it."""

    def build() -> object:
        fabric = Fabric(Lab("alone", "s"), "f", shape(limits={"cpus": 1}))
        fabric.up()
        add_disks(fabric)
        return fabric.storage[0].call(os.getpid)

    child = Running(build)
    assert eventually(lambda: len(processes_of("alone")) > 8, 20)
    seen = namespaces_of(processes_of("alone"))
    child.kill()
    killed_at = now_in_ticks()
    assert eventually(lambda: not processes_of("alone"), 3)
    assert eventually(lambda: not seen & all_namespaces(killed_at), 3)
    assert clean() == (["alone"], [])
    assert left_of("alone", home)["control groups"] == []
    assert list(labs_root().iterdir()) == []


# --- what cannot be had here ------------------------------------------------------------------------------------------


def refused(**given: object) -> str:
    with pytest.raises(LabError) as caught:
        check_possible(shape(**given))
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_a_fabric_that_can_be_made() -> None:
    check_possible(shape(network={"bandwidth": "1Gbit"}))


def test_not_root() -> None:
    with pytest.raises(LabError, match="hosts as namespaces need root; run as root, or use an existing mount"):
        as_nobody(lambda: check_possible(shape()))


def test_a_kernel_without_netem_says_so() -> None:
    """Where it is there, it is used: tests/unit/lab/test_lab_network.py has the command."""
    try:
        check_possible(shape(network={"delay": "5ms"}))
    except LabError as error:
        assert str(error) == (
            "lab.network.delay and lab.network.loss are not available here: this kernel has no netem (module sch_netem)"
        )
    else:
        with fabric_of("slow", network={"delay": "50ms"}) as fabric:
            answer(fabric.storage[0], "late")
            started = time.monotonic()
            assert reaches(fabric.clients[0], "s1")
            assert time.monotonic() - started > 0.1


def test_a_missing_tool_is_named_with_the_command_that_gets_it(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    with monkeypatch.context() as changed:
        changed.setenv("PATH", str(tmp_path))
        assert refused() == "unshare is missing; install it with: apt-get install -y util-linux"


def test_disks_that_do_not_fit(tmp_path: Path) -> None:
    said = refused(hosts=64, disk={"size": "1TiB", "fill": "allocated"})
    assert re.fullmatch(
        r"\S+ has \d+ MiB free, 64 disks of 1TiB need 67109120 MiB; make lab.disk.size smaller or set lab.disk.directory",
        said,
    )
    check_possible(shape(hosts=2, disk={"size": "1TiB", "directory": str(tmp_path / "not there yet")}))


def test_a_failed_start_leaves_nothing(home: Path) -> None:
    lab = Lab("broken", "s")
    fabric = Fabric(lab, "f", shape(network={"delay": "5ms"}))
    try:
        fabric.up()
    except HostError as error:
        assert "qdisc kind is unknown" in str(error)
        assert "\n" not in str(error)
        assert not processes_of("broken")
    fabric.down()
    lab.remove()
    assert {what: left for what, left in left_of("broken", home).items() if left} == {}
