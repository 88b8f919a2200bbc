"""Block devices that are handed over: what is refused, and that they come back as empty as they were."""

from __future__ import annotations

import os
import struct
import subprocess
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest
from fabric_helpers import Running, add_disks, fabric_of, loop_device, shape
from lab_helpers import eventually, nothing_left

from assay.lab.devices import check_devices, device_label, signatures, wipe
from assay.lab.errors import LabError
from assay.lab.fabric import Fabric, check_possible
from assay.lab.kernel import loops_over, processes_of
from assay.lab.registry import Lab, clean, find_labs

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
MIB = 1 << 20


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield tmp_path
    clean()
    assert nothing_left(tmp_path)


@pytest.fixture
def devices(tmp_path: Path) -> Iterator[list[str]]:
    with ExitStack() as stack:
        yield [stack.enter_context(loop_device(tmp_path / f"device{i}", (301 + i) * MIB)) for i in range(3)]


def run(*argv: str) -> None:
    subprocess.run(argv, check=True, capture_output=True)


def refused(*names: str, size: int | None = 300 * MIB) -> str:
    with pytest.raises(LabError) as caught:
        check_devices(names, size)
    assert "\n" not in str(caught.value)
    return str(caught.value)


# --- what is refused ----------------------------------------------------------------------------------------------------


def test_empty_devices_are_taken_by_their_real_names(devices: list[str], tmp_path: Path) -> None:
    link = tmp_path / "by-id"
    link.symlink_to(devices[0])
    assert check_devices([str(link), devices[1]], 300 * MIB) == devices[:2]
    check_possible(shape(disk={"size": "300MiB", "devices": devices}))


def test_what_is_no_block_device(tmp_path: Path) -> None:
    file = tmp_path / "file"
    file.write_bytes(b"")
    assert refused(str(file)) == f"device {file} is not a block device; list those with: lsblk"
    assert refused("/dev/null") == "device /dev/null is not a block device; list those with: lsblk"
    assert refused("/dev/nothing").startswith("device /dev/nothing: No such file or directory;")


def test_one_device_twice(devices: list[str], tmp_path: Path) -> None:
    link = tmp_path / "again"
    link.symlink_to(devices[0])
    assert refused(devices[0], str(link)) == (f"device {link} is named twice (as {devices[0]}); name each device once")


@pytest.mark.parametrize("kind", ["ext4", "xfs", "btrfs", "swap"])
def test_a_signature(devices: list[str], kind: str) -> None:
    label = ["-L", "precious"]
    run(*(["mkswap", *label] if kind == "swap" else [f"mkfs.{kind}", "-q", *label]), devices[0])
    assert refused(devices[0]) == (
        f"device {devices[0]} is not empty: {kind} labelled 'precious'; "
        f"if nothing on it is needed: wipefs --all {devices[0]}"
    )


def partition_table(*partitions: tuple[int, int]) -> bytes:
    """A master boot record; of each partition first sector and number of sectors."""
    entries = [struct.pack("<B3xB3xII", 0, 0x83, first, count) for first, count in partitions]
    return b"\0" * 446 + b"".join(entries).ljust(64, b"\0") + b"\x55\xaa"


def test_a_partition_table(devices: list[str]) -> None:
    Path(devices[1]).write_bytes(partition_table((2048, 2048)))
    assert refused(devices[1]).startswith(f"device {devices[1]} is not empty: dos; ")


def test_partitions_that_the_kernel_knows_of(devices: list[str]) -> None:
    run("addpart", devices[0], "1", "2048", "2048")  # sectors of 512 bytes
    try:
        assert refused(devices[0]) == (
            f"device {devices[0]} has partitions; name one of them, or a device without: lsblk {devices[0]}"
        )
        assert refused(f"{devices[0]}p1").startswith(f"device {devices[0]}p1 has 1MiB, lab.disk.size is 300MiB;")
        assert check_devices([f"{devices[0]}p1"], 1 * MIB) == [f"{devices[0]}p1"]
    finally:
        run("delpart", devices[0], "1")


def test_a_mounted_one(devices: list[str], tmp_path: Path) -> None:
    point = tmp_path / "mounted"
    point.mkdir()
    run("mkfs.ext4", "-q", devices[0])
    run("mount", devices[0], str(point))
    try:
        assert "cannot be taken: Device or resource busy; see what uses it with: lsblk" in refused(devices[0])
    finally:
        run("umount", str(point))


def test_one_that_another_loop_device_uses(devices: list[str]) -> None:
    command = ["losetup", "--find", "--show", devices[0]]
    other = subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()
    try:
        assert refused(devices[0]) == (
            f"device {devices[0]} is in use by {other}; free it with: losetup --detach {other}"
        )
    finally:
        run("losetup", "--detach", other)


def test_one_that_is_too_small(devices: list[str]) -> None:
    assert refused(devices[0], size=1 << 30) == (
        f"device {devices[0]} has 301MiB, lab.disk.size is 1GiB; make lab.disk.size smaller or name a larger device"
    )


def test_one_of_another_lab(devices: list[str]) -> None:
    with fabric_of("first", hosts=1, disk={"size": "300MiB", "devices": devices[:1]}):
        lab = Lab("second", "s")
        with pytest.raises(LabError, match=f"device {devices[0]} belongs to lab first; first: assay lab clean first"):
            lab.take_devices(devices[:1], 1, None)
        lab.remove()


def test_candidates_side_by_side_do_not_share_devices(devices: list[str]) -> None:
    disk = {"size": "300MiB", "devices": devices}
    with fabric_of("pair", disk=disk) as fabric:
        assert fabric.devices == devices[:2]
        other = Fabric(fabric.lab, "g", shape(disk=disk))
        with pytest.raises(LabError, match="2 devices are needed and 1 of the 3 named are free; name more of them"):
            other.up()
        third = Fabric(fabric.lab, "h", shape(hosts=1, disk=disk))
        third.up()
        assert third.devices == devices[2:]
        third.down()


# --- used and given back ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["xfs", "ext4", "btrfs"])
def test_a_device_serves_as_a_disk_and_comes_back_empty(devices: list[str], kind: str) -> None:
    with fabric_of("used", disk={"size": "300MiB", "devices": devices}) as fabric:
        first, _ = add_disks(fabric, kind)
        host = fabric.storage[0]
        size = int(host.run(["blockdev", "--getsize64", first.device or ""]).stdout)
        assert size == 300 * MIB, "all disks have the size of the study, however large the devices are"
        assert [s.label for s in signatures(devices[0])] == [device_label("used")]
        assert first.counters().written_bytes > 0
        assert not list(fabric.directory.glob("*.img"))
        (state,) = find_labs()
        assert state.note.devices == sorted(devices[:2])
        host.kill()
        fabric.start(host)
        first.attach()
        first.mount(kind, "/run/b")
        assert host.run(["cat", "/run/b/file"]).stdout == b"precious\n"
        fabric.down()
        assert [signatures(d) for d in devices] == [[], [], []]
        assert check_devices(devices, None) == devices
        (state,) = find_labs()
        assert state.note.devices == []


def holding(lab_id: str, devices: list[str]) -> Running:
    def build() -> object:
        fabric = Fabric(Lab(lab_id, "s"), "f", shape(disk={"size": "300MiB", "devices": devices}))
        fabric.up()
        return add_disks(fabric)

    child = Running(build)
    assert eventually(lambda: bool(signatures(devices[1])), 20)
    return child


def test_after_kill_9_they_are_wiped(devices: list[str]) -> None:
    holding("crash", devices[:2]).kill()
    assert all(signatures(d) for d in devices[:2])
    said = refused(devices[0])
    assert said == f"device {devices[0]} holds what a lab has left (xfs); first: assay lab clean" or "in use" in said
    assert clean() == (["crash"], [])
    assert [signatures(d) for d in devices] == [[], [], []]
    assert not any(loops_over(d) for d in devices)


def test_what_others_have_put_there_since_is_not_wiped(devices: list[str]) -> None:
    holding("crash", devices[:2]).kill()
    assert eventually(lambda: not loops_over(devices[0]) and not processes_of("crash"))
    run("wipefs", "--all", devices[0])
    run("mkfs.ext4", "-q", "-L", "precious", devices[0])
    assert clean() == (["crash"], [])
    assert [s.label for s in signatures(devices[0])] == ["precious"]
    assert signatures(devices[1]) == []


def test_a_run_that_was_killed_takes_its_own_devices_again(devices: list[str]) -> None:
    holding("again", devices[:2]).kill()
    assert eventually(lambda: not loops_over(devices[0]) and not processes_of("again"))
    with fabric_of("again", disk={"size": "300MiB", "devices": devices}) as fabric:
        assert fabric.devices == devices[:2]
        add_disks(fabric)
    assert [signatures(d) for d in devices] == [[], [], []]


def test_wiping_is_for_the_labs_own_only(devices: list[str]) -> None:
    run("mkfs.xfs", "-q", "-L", device_label("mine"), devices[0])
    assert not wipe(devices[0], "other")
    assert wipe(devices[0], "mine")
    assert not wipe(devices[0], "mine")
    assert not wipe("/dev/pulled-out", "mine")
