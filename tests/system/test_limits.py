"""What a host may use of the machine, by control groups, measured."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from fabric_helpers import Running, fabric_of, left_of, shape
from lab_helpers import as_nobody, eventually, nothing_left

from assay.lab.errors import LabError
from assay.lab.fabric import Fabric, check_possible
from assay.lab.kernel import processes_of
from assay.lab.limits import Groups, check_limits, groups_of
from assay.lab.registry import Lab, clean
from assay.model.lab import Limits

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
MIB = 1 << 20
_BUSY = """
import os, time
end, before = time.monotonic() + 2, sum(os.times()[:2])
while time.monotonic() < end: pass
print((sum(os.times()[:2]) - before) / 2)
"""


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield tmp_path
    clean()
    assert nothing_left(tmp_path)


def test_a_busy_loop_gets_the_share_of_a_core_that_was_given() -> None:
    with fabric_of("cpu", hosts=2, limits={"cpus": 0.25}) as fabric:
        for host in fabric.hosts[:2]:
            share = float(host.run(["python3", "-c", _BUSY]).must("loop").stdout)
            assert 0.15 < share < 0.29, "about a quarter, less when the machine is busy"
        fabric.storage[0].kill()
        fabric.start(fabric.storage[0])
        share = float(fabric.storage[0].run(["python3", "-c", _BUSY]).must("loop").stdout)
        assert 0.15 < share < 0.29, "also after it was started again"
        # two at once share it
        both = [fabric.storage[1].spawn(["python3", "-c", _BUSY]) for _ in range(2)]
        # they need not begin together, hence more than a quarter; apart they would get a half
        assert sum(float(p.wait(20).must("loop").stdout) for p in both) < 0.4


def test_a_memory_hog_is_killed_and_its_neighbour_is_not() -> None:
    allocate = ["python3", "-c", "import sys; print(len(bytearray(int(sys.argv[1]))))"]
    with fabric_of("memory", limits={"memory": "128MiB"}) as fabric:
        small, neighbour = fabric.storage
        quiet = neighbour.spawn(["sleep", "1000"])
        assert small.run([*allocate, str(64 * MIB)]).ok
        assert small.run([*allocate, str(300 * MIB)]).exit_code == -9
        assert small.is_up, "the host lives on"
        assert neighbour.run([*allocate, str(64 * MIB)]).ok
        assert quiet.wait(0.1).exit_code is None


def test_page_cache_is_memory_of_the_host(home: Path) -> None:
    """Writing four times the limit goes through, and what stays in memory of it is below the limit."""
    (home / "big").write_bytes(b"")
    with fabric_of("cache", limits={"memory": "64MiB"}) as fabric:
        host = fabric.storage[0]
        host.run(["dd", "if=/dev/zero", f"of={home}/big", "bs=1M", "count=256", "conv=fsync"]).must("writing")
        (group,) = host.groups
        names = ("memory.usage_in_bytes", "memory.current")
        used = next(Path(group, name) for name in names if Path(group, name).exists())
        assert 8 * MIB < int(used.read_text()) <= 64 * MIB


def test_every_process_of_a_host_is_in_its_groups() -> None:
    with fabric_of("all", limits={"cpus": 1, "memory": "256MiB"}) as fabric:
        host = fabric.storage[0]
        host.child(["setsid", "--fork", "sleep", "1000"])
        running = host.spawn(["sh", "-c", "sleep 1000 & wait"])
        agent = host.call(os.getpid)
        assert agent > 0
        inside = str(Path(f"/proc/{host.namespaces.pid}/ns/pid").readlink())
        found = [
            int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit() and _namespace(entry) == inside
        ]
        assert len(found) >= 5
        for group in host.groups:
            members = [int(pid) for pid in Path(group, "cgroup.procs").read_text().split()]
            assert set(found) <= set(members)
        running.kill()


def _namespace(process: Path) -> str | None:
    try:
        return str((process / "ns" / "pid").readlink())
    except OSError:
        return None


def test_groups_go_with_the_fabric() -> None:
    with fabric_of("two", limits={"cpus": 1}) as fabric:
        lab = fabric.lab
        other = Fabric(lab, "g", shape(hosts=1, limits={"cpus": 1}))
        other.up()
        assert len(groups_of("two")) == 1 + 3 + 2
        fabric.down()
        assert len(groups_of("two")) == 1 + 2
        other.down()
        assert groups_of("two") == []


def test_groups_go_after_kill_9(home: Path) -> None:
    def build() -> object:
        fabric = Fabric(Lab("killed", "s"), "f", shape(limits={"cpus": 1, "memory": "256MiB"}))
        fabric.up()
        return fabric

    child = Running(build)
    assert eventually(lambda: len(processes_of("killed")) > 8, 20)
    child.kill()
    assert eventually(lambda: not processes_of("killed"))
    assert len(groups_of("killed")) >= 4
    assert clean() == (["killed"], [])
    assert {what: left for what, left in left_of("killed", home).items() if left} == {}


def test_without_limits_there_are_no_groups() -> None:
    with fabric_of("none") as fabric:
        assert groups_of("none") == []
        assert all(host.groups == [] for host in fabric.hosts)


@pytest.mark.parametrize(
    ("limits", "words"),
    [
        ({"cpus": 10_000}, "lab.limits.cpus is 10000, this machine has "),
        ({"cpus": 0.001}, "the kernel limits to 0.01 cores and more"),
        ({"memory": "900TiB"}, "lab.limits.memory is 900TiB, this machine has "),
    ],
)
def test_limits_that_cannot_be(limits: dict[str, object], words: str) -> None:
    with pytest.raises(LabError, match=words) as caught:
        check_possible(shape(limits=limits))
    assert "\n" not in str(caught.value)


def test_where_control_groups_cannot_be_made() -> None:
    with pytest.raises(LabError, match=r"lab\.limits are not available here: .*: Permission denied; leave them out"):
        as_nobody(lambda: check_limits(Limits(cpus=0.5)))


def test_where_there_is_no_such_controller(monkeypatch: pytest.MonkeyPatch) -> None:
    from assay.lab import limits

    monkeypatch.setattr(limits, "mountinfo", lambda: iter(()))
    with pytest.raises(LabError, match="no control groups with the memory controller"):
        Groups("x", "y", Limits(memory=1 << 30))
