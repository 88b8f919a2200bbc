"""Local systems on real loop devices: they leave nothing, and every figure they give is compared with a known one."""

from __future__ import annotations

import errno
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_helpers import MIB, as_nobody, eventually, make_local, nothing_left, traces

from assay.lab import remote
from assay.lab.host import LocalHost
from assay.lab.registry import Lab
from assay.model.lab import Disk
from assay.model.lab import Lab as LabDeclaration
from assay.systems.base import AdapterError, Deployment
from assay.systems.floor import TmpfsSystem
from assay.systems.local import LocalSystem
from assay.systems.path import PathSystem

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
LAYOUTS = ["ext4", "xfs", "btrfs"]


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    made = Lab("0123456789ab", "test")
    yield made
    made.remove()
    assert nothing_left(tmp_path)
    assert not made.directory.exists()


@pytest.fixture
def disk(lab: Lab) -> Iterator[LocalSystem]:
    system = make_local(lab)
    system.deploy()
    system.mount()
    yield system
    system.unmount()
    system.destroy()


def shape(**disk: object) -> LabDeclaration:
    return LabDeclaration(disk=Disk.model_validate(disk))


def where(system: LocalSystem) -> Path:
    assert system.directory is not None
    return system.directory


def moved(system: LocalSystem) -> tuple[int, int]:
    counters = system.counters()
    assert counters is not None
    return counters[0].read_bytes, counters[0].written_bytes


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_life_cycle_leaves_nothing(lab: Lab, tmp_path: Path, layout: str) -> None:
    before = {p for p in tmp_path.rglob("*") if p.is_file()}
    for _ in range(2):
        system = make_local(lab, layout)
        system.deploy()
        system.mount()
        assert (
            subprocess.run(
                ["findmnt", "-no", "FSTYPE", where(system)], capture_output=True, text=True, check=True
            ).stdout.strip()
            == layout
        )
        (where(system) / "file").write_bytes(b"x" * MIB)
        facts = system.facts()
        assert facts["mount"]["fstype"] == layout
        assert system.health() == (True, f"{layout}, writable")
        assert len(traces(tmp_path)) == 2, "one mount, one loop device"
        for _ in range(2):
            system.unmount()
            system.destroy()
        assert nothing_left(tmp_path)
        assert {p for p in tmp_path.rglob("*") if p.is_file()} == before


def test_two_candidates_side_by_side_do_not_touch_one_another(lab: Lab) -> None:
    # names that are the same once plain: each must have a disk of its own
    first, second = make_local(lab, name="my disk"), make_local(lab, name="my-disk")
    third = make_local(lab, name="磁" * 60 + " tuning=" + "x" * 50)
    systems = (first, second, third)
    for system in systems:
        system.deploy()
        system.mount()
    assert len({where(s) for s in systems}) == 3
    (where(first) / "only-here").write_text("")
    assert not (where(second) / "only-here").exists()
    first.unmount()
    first.destroy()
    first.destroy()
    assert second.health()[0]
    assert third.health()[0]
    for system in (second, third):
        system.destroy()


def test_cold_means_that_the_device_reads_again(disk: LocalSystem) -> None:
    file, size = where(disk) / "data", 8 * MIB
    file.write_bytes(os.urandom(size))
    assert all(code == 0 for code in disk.go_cold().exit_codes)

    def cost() -> int:
        before = moved(disk)[0]
        assert len(file.read_bytes()) == size
        return moved(disk)[0] - before

    assert cost() >= size, "the first pass after go_cold"
    assert cost() < MIB, "the page cache answers the second"
    evidence = disk.go_cold()
    assert evidence.steps[-1] == "drop_caches=3"
    assert cost() >= size, "cold again"
    before = moved(disk)
    file.write_bytes(os.urandom(size))
    disk.go_cold()
    assert moved(disk)[1] - before[1] >= size, "dirty pages are written, not lost or kept"


def test_byte_counters_match_a_known_dd(disk: LocalSystem) -> None:
    file, size = where(disk) / "dd", 16 * MIB
    before = moved(disk)
    subprocess.run(
        ["dd", "if=/dev/urandom", f"of={file}", "bs=1M", "count=16", "oflag=direct", "conv=fsync", "status=none"],
        check=True,
    )
    between = moved(disk)
    subprocess.run(["dd", f"if={file}", "of=/dev/null", "bs=1M", "iflag=direct", "status=none"], check=True)
    after = moved(disk)
    assert size <= between[1] - before[1] < size * 1.1
    assert size <= after[0] - between[0] < size * 1.1


def test_durability_is_proven_not_believed(disk: LocalSystem) -> None:
    found = disk.probe_durability()
    assert (found.declared, found.probed) == ("device", True)
    assert list(where(disk).glob(".assay*")) == []
    disk.settle(5)
    disk.client.call(exec, "import os; os.fsync = lambda _: None")  # a file system whose fsync lies
    found = disk.probe_durability()
    assert (found.declared, found.probed) == ("page-cache", False)


def test_settling_sees_a_busy_device(disk: LocalSystem) -> None:
    assert disk.settle(10).settled
    busy = subprocess.Popen(
        [
            "dd",
            "if=/dev/zero",
            f"of={where(disk) / 'busy'}",
            "bs=64k",
            "oflag=direct",
            "count=100000",
            "conv=notrunc",
            "status=none",
        ],
        stderr=subprocess.DEVNULL,
    )
    try:
        start = moved(disk)[1]
        assert eventually(lambda: moved(disk)[1] > start + MIB)
        found = disk.settle(0.25)
        if busy.poll() is None:
            assert found.settled is False
            assert "still moves" in found.detail
        else:  # the disk was full before we looked
            assert found.settled is not None
    finally:
        busy.kill()
        busy.wait()
    assert disk.settle(20).settled


def test_health_sees_a_read_only_remount_and_a_mount_that_went(disk: LocalSystem) -> None:
    assert disk.health()[0] is True
    subprocess.run(["mount", "-o", "remount,ro", where(disk)], check=True)
    healthy, detail = disk.health()
    assert healthy is False
    assert "read-only" in detail
    subprocess.run(["mount", "-o", "remount,rw", where(disk)], check=True)
    assert disk.health()[0] is True
    subprocess.run(["umount", where(disk)], check=True)
    healthy, detail = disk.health()
    assert healthy is False, "the directory is still there, but on another file system"
    assert "not mounted any more" in detail
    for ask in (disk.counters, disk.facts, disk.probe_durability, lambda: disk.settle(1)):
        with pytest.raises(AdapterError, match="not mounted any more"):
            ask()


def test_a_busy_mount_is_told_and_goes_later(lab: Lab, tmp_path: Path) -> None:
    system = make_local(lab)
    system.deploy()
    system.mount()
    with (where(system) / "open").open("w"), pytest.raises(AdapterError, match="busy"):
        system.unmount()
    system.destroy()
    assert nothing_left(tmp_path)


@pytest.mark.parametrize(
    ("tuning", "words"), [({"mkfs": "--nonsense"}, "making ext4"), ({"mkfs": "'unclosed"}, "quotation"), ({"mount": "nonsense=1"}, "mounting")]
)  # fmt: skip
def test_nonsense_in_the_tuning_is_one_error_and_leaves_nothing(
    lab: Lab, tmp_path: Path, tuning: dict[str, str], words: str
) -> None:
    host = LocalHost(environment=lab.environment)
    system = LocalSystem(Deployment("local/ext4", "ext4", lab, host, Disk(size=320 * MIB, fill="sparse"), dict(tuning)))
    with pytest.raises(AdapterError, match=words):
        system.deploy()
        system.mount()
    system.destroy()
    assert nothing_left(tmp_path)
    assert not list(tmp_path.rglob("*.img"))


def test_a_disk_larger_than_the_disk(lab: Lab, tmp_path: Path) -> None:
    for fill in ("allocated", "written"):
        with pytest.raises(AdapterError, match=r"does not fit; make lab.disk.size smaller") as caught:
            make_local(lab, size=1 << 50, fill=fill).deploy()
        assert "\n" not in str(caught.value)
    assert not list(tmp_path.rglob("*.img"))


def test_a_disk_that_fills_up_while_it_is_made(lab: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(*_: object) -> int:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    for fill, call in (("allocated", "posix_fallocate"), ("written", "write"), ("sparse", "ftruncate")):
        with monkeypatch.context() as patch:
            patch.setattr(os, call, full)
            with pytest.raises(AdapterError, match="No space left"):
                make_local(lab, fill=fill).deploy()
        assert not list(tmp_path.rglob("*.img"))


def test_a_place_for_disks_of_the_users_choice(lab: Lab, tmp_path: Path) -> None:
    there = tmp_path / "real place"
    there.mkdir()
    (tmp_path / "link").symlink_to(there)
    system = make_local(lab, directory=str(tmp_path / "link"))
    system.deploy()
    system.mount()
    assert list(there.rglob("*.img"))
    system.unmount()
    system.destroy()
    with pytest.raises(AdapterError, match="No such file"):
        make_local(lab, directory=str(tmp_path / "missing")).deploy()


def test_tools_are_found_without_sbin_in_the_path(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    LocalSystem.preflight("xfs", shape(size=400 * MIB), MIB)
    system = make_local(lab, "xfs")
    system.deploy()
    system.mount()
    system.unmount()
    system.destroy()


def test_a_missing_mkfs_is_one_line_with_the_package(tmp_path: Path) -> None:
    code = "from assay.systems.local import LocalSystem as L; from assay.model.lab import Lab; L.preflight('xfs', Lab(), 1)"
    hide = 'mount --bind /dev/null /usr/sbin/mkfs.xfs && exec "$0" -c "$1"'
    done = subprocess.run(
        ["unshare", "-m", "sh", "-c", hide, sys.executable, code],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
    )
    assert done.stderr.strip().endswith(
        "AdapterError: mkfs.xfs is missing; install it with: apt-get install -y xfsprogs"
    )


def test_preflight_wants_root_and_room() -> None:
    with pytest.raises(AdapterError, match="needs root"):
        as_nobody(lambda: LocalSystem.preflight("ext4", shape(), MIB))
    with pytest.raises(AdapterError, match=r"data set of 1GiB needs a disk of at least 1\.28GiB"):
        LocalSystem.preflight("ext4", shape(size=1100 * MIB), 1 << 30)


def test_tmpfs_is_volatile_and_its_own(lab: Lab, tmp_path: Path) -> None:
    system = TmpfsSystem(Deployment("tmpfs", "", lab, LocalHost(), Disk(size=300 * MIB)))
    system.mount()
    assert system.directory is not None
    assert system.probe_durability().declared == "volatile"
    assert system.counters() is None
    assert system.settle(1).settled is None
    assert os.statvfs(system.directory).f_blocks * os.statvfs(system.directory).f_frsize == 300 * MIB
    subprocess.run(["umount", system.directory], check=True)
    assert system.health()[0] is False
    system.destroy()
    assert nothing_left(tmp_path)


# --- path:DIR ----------------------------------------------------------------------------------------------------------


@pytest.fixture
def small(tmp_path: Path) -> Iterator[Path]:
    point = tmp_path / "small"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=777", "assay-test", point], check=True)
    yield point
    subprocess.run(["umount", "-l", point], check=True)


def refused(layout: object, size: int = 4096) -> str:
    with pytest.raises(AdapterError) as caught:
        PathSystem.preflight(str(layout), shape(), size)
    assert "\n" not in str(caught.value)
    return str(caught.value)


def test_paths_that_cannot_be_used(small: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    assert "does not exist; mount it first" in refused(tmp_path / "missing")
    assert "not a directory" in refused(tmp_path / "file")
    assert "relative" in refused("mnt/nas")
    assert "cannot be used: File name too long" in refused("/" + "d" * 300)
    assert "does not exist" in refused("/tmp/\0")
    PathSystem.preflight(str(small), shape(), MIB)
    assert "does not fit" in refused(small, 5 * MIB)
    (small / "filler").write_bytes(b"x" * (4 * MIB - 4096))
    assert "does not fit" in refused(small, 8192)
    subprocess.run(["mount", "-o", "remount,ro", small], check=True)
    assert "read-only; remount it writable" in refused(small)


def test_paths_of_others(tmp_path: Path) -> None:
    closed = tmp_path / "closed" / "below"
    closed.mkdir(parents=True)
    tmp_path.chmod(0o755)
    for parent in tmp_path.parents[:2]:
        if parent.name.startswith("pytest"):
            parent.chmod(0o755)
    closed.parent.chmod(0o755)
    closed.chmod(0o755)
    assert "not writable for this user (uid 65534)" in as_nobody(lambda: remote.unusable(closed))
    closed.parent.chmod(0o700)
    with pytest.raises(PermissionError):
        as_nobody(lambda: remote.unusable(closed))


def test_a_path_works_in_a_directory_of_its_own(lab: Lab, tmp_path: Path) -> None:
    nas = tmp_path / "nas"
    nas.mkdir()
    (nas / "precious").write_text("keep")
    long = "x" * 60
    systems = [PathSystem(Deployment(name, str(nas), lab, LocalHost(), Disk())) for name in (f"a{long}", f"b{long}")]
    for system in systems:
        system.deploy()
        system.mount()
        assert system.directory is not None
        (system.directory / "data").write_text("")
        assert system.health()[0] is True
    assert systems[0].directory != systems[1].directory
    lab.remove()
    lab.remove()
    assert [p.name for p in nas.iterdir()] == ["precious"]
    foreign = nas / f"assay-{lab.id}-{systems[0].deployment.slug}"
    foreign.mkdir()
    (foreign / "precious").write_text("keep")
    again = Lab(lab.id, "test")
    with pytest.raises(AdapterError, match="exists and is not this study's"):
        PathSystem(Deployment(f"a{long}", str(nas), again, LocalHost(), Disk())).deploy()
    again.remove()
    assert (foreign / "precious").read_text() == "keep"


def test_time_for_a_cycle(lab: Lab) -> None:
    """Deploying is paid for every candidate of every study."""
    started = time.monotonic()
    system = make_local(lab)
    system.deploy()
    system.mount()
    system.unmount()
    system.destroy()
    assert time.monotonic() - started < 10


@pytest.mark.parametrize("layout", LAYOUTS)
def test_a_written_disk_stays_written(lab: Lab, layout: str) -> None:
    """Freed space must not become holes in the backing file: the next write would pay for allocating them again."""
    deployment = Deployment(f"local/{layout}", layout, lab, LocalHost(), Disk(size=400 * MIB, fill="written"))
    system = LocalSystem(deployment)
    system.deploy()
    system.mount()
    (backing,) = lab.directory.rglob("*.img")
    assert not [o for o in system.mount_facts()["options"].split(",") if o.startswith("discard")]
    assert backing.stat().st_blocks * 512 >= 400 * MIB
    (where(system) / "file").write_bytes(os.urandom(64 * MIB))
    os.sync()
    (where(system) / "file").unlink()
    os.sync()
    assert backing.stat().st_blocks * 512 >= 400 * MIB
    system.unmount()
    system.destroy()
