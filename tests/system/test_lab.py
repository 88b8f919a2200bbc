"""Clean-up: a lab whose process was killed goes without a trace; what is in use or somebody else's is never touched."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from lab_helpers import MIB, Forked, eventually, make_local, nothing_left, traces

from assay.lab.disks import attach_loop, make_backing_file
from assay.lab.host import LocalHost
from assay.lab.outside import MARK
from assay.lab.registry import Lab, LabError, clean, find_labs, labs_root, mounts_below, processes_of
from assay.lab.remote import mount_entry
from assay.model.lab import Disk
from assay.systems.base import Deployment
from assay.systems.path import PathSystem

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
ID = "fedcba987654"


@pytest.fixture(params=["plain", "with space-é-磁"])
def home(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A data directory; the second kind is awkward and reached through a symbolic link."""
    place = tmp_path / request.param
    place.mkdir()
    seen = place
    if request.param != "plain":
        seen = tmp_path / "link"
        seen.symlink_to(place)
    monkeypatch.setenv("XDG_DATA_HOME", str(seen))
    yield place
    clean()
    assert nothing_left(tmp_path)


@pytest.fixture
def simple(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield tmp_path
    clean()
    assert nothing_left(tmp_path)


def alive(pid: int) -> bool:
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except OSError:
        return False


# --- killed at several stages -----------------------------------------------------------------------------------------


def stage_notes() -> object:
    return Lab(ID, "s")


def stage_backing_file() -> object:
    lab = Lab(ID, "s")
    make_backing_file(lab.directory / "disk.img", 320 * MIB, "sparse")
    return lab


def stage_loop() -> object:
    lab = Lab(ID, "s")
    make_backing_file(lab.directory / "disk.img", 320 * MIB, "sparse")
    attach_loop(LocalHost(), lab.directory / "disk.img")
    return lab


def stage_deployed() -> object:
    system = make_local(Lab(ID, "s"))
    system.deploy()
    return system


def stage_mounted() -> object:
    system = make_local(Lab(ID, "s"))
    system.deploy()
    system.mount()
    return system


def stage_two_mounts_and_tmpfs_inside() -> object:
    lab = Lab(ID, "s")
    systems = [make_local(lab, name=f"d{i}") for i in range(2)]
    for system in systems:
        system.deploy()
        system.mount()
        assert system.directory is not None
        (system.directory / "in").mkdir()
        subprocess.run(["mount", "-t", "tmpfs", "t", system.directory / "in"], check=True)
    return lab, systems


def stage_child_running() -> object:
    lab, system = Lab(ID, "s"), None
    system = make_local(lab)
    system.deploy()
    system.mount()
    # the shell dies with Assay, its child does not: it holds a file open and works inside of the mount
    host = LocalHost(environment=lab.environment)
    script = "sleep 1000 > held & echo $! > ../pid; wait"
    process = host.spawn(["sh", "-c", script], cwd=system.directory)
    assert system.directory is not None
    pid = system.directory.parent / "pid"
    assert eventually(lambda: pid.exists() and bool(pid.read_text().strip()))
    return lab, system, process


STAGES = [stage_notes, stage_backing_file, stage_loop, stage_deployed, stage_mounted, stage_two_mounts_and_tmpfs_inside,
          stage_child_running]  # fmt: skip


@pytest.mark.parametrize("stage", STAGES, ids=lambda f: f.__name__.removeprefix("stage_"))
def test_a_killed_lab_goes_without_a_trace(home: Path, stage: object) -> None:
    child = Forked(stage)  # type: ignore[arg-type]
    child.kill()
    assert bool(traces(home)) == (stage not in (stage_notes, stage_backing_file)), "the test itself must see them"
    (state,) = find_labs()
    assert state.note.id == ID
    assert not state.in_use
    mounted = stage in (stage_mounted, stage_child_running)
    assert (len(state.mounts) == 1) == mounted or stage is stage_two_mounts_and_tmpfs_inside
    assert bool(state.loops) == (stage not in (stage_notes, stage_backing_file))
    orphans = processes_of(ID)
    assert bool(orphans) == (stage is stage_child_running)
    assert clean() == ([ID], [])
    assert nothing_left(home)
    assert not any(alive(pid) for pid in orphans)
    assert list(labs_root().iterdir()) == []
    assert find_labs() == []


def test_a_directory_outside_goes_as_well_and_only_with_the_mark(simple: Path) -> None:
    nas = simple / "nas"
    nas.mkdir()
    (nas / "precious").write_text("keep")

    def crash() -> object:
        lab = Lab(ID, "s")
        system = PathSystem(Deployment("a", str(nas), lab, LocalHost(), Disk()))
        system.deploy()
        system.mount()
        lab.make_directory(nas / "taken over")
        lab.make_directory(nas / "mark cut off")
        lab.make_directory(nas / "no mark yet")
        (nas / "taken over" / MARK).write_text("another lab")
        (nas / "mark cut off" / MARK).write_text("")
        (nas / "no mark yet" / MARK).unlink()
        return system

    Forked(crash).kill()
    assert len(list(nas.iterdir())) == 5
    assert clean() == ([ID], [])
    assert sorted(p.name for p in nas.iterdir()) == ["precious", "taken over"]


def test_a_lab_taken_again_without_cleaning_forgets_nothing(simple: Path) -> None:
    def crash() -> object:
        lab = Lab(ID, "s")
        lab.make_directory(simple / "outside")
        return lab

    Forked(crash).kill()
    Lab(ID, "s").release()
    assert clean(ID) == ([ID], [])
    assert not (simple / "outside").exists()


# --- what must not be touched -------------------------------------------------------------------------------------------


def test_a_lab_in_use_is_left_alone(simple: Path) -> None:
    child = Forked(stage_child_running)
    try:
        before, running = sorted(traces(simple)), processes_of(ID)
        with pytest.raises(LabError, match=f"lab {ID} is in use by another assay process"):
            Lab(ID, "s")
        for _ in range(2):
            assert clean() == ([], [ID])
            assert clean(ID) == ([], [ID])
        (state,) = find_labs()
        assert state.in_use
        assert sorted(traces(simple)) == before != []
        assert all(alive(pid) for pid in running)
    finally:
        child.kill()
    assert clean() == ([ID], [])


@pytest.mark.usefixtures("simple")
def test_cleaning_one_lab_leaves_its_neighbours() -> None:
    names = [ID, f"{ID}0", ID[:-1]]

    def crash() -> object:
        kept = []
        for name in names:
            lab = Lab(name, "s")
            system = make_local(lab)
            system.deploy()
            system.mount()
            kept.append((lab, system, LocalHost(environment=lab.environment).spawn(["sleep", "1000"])))
        return kept

    Forked(crash).kill()
    assert clean(ID) == ([ID], [])
    left = {s.note.id: s for s in find_labs()}
    assert set(left) == set(names[1:])
    assert all(len(s.mounts) == len(s.loops) == 1 for s in left.values())


def test_mounts_loops_and_processes_of_others_are_never_touched(simple: Path) -> None:
    Forked(stage_mounted).kill()
    point, image = simple / "foreign", simple / "assay" / "labs-foreign.img"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "foreign", point], check=True)
    image.write_bytes(b"\0" * MIB)
    loop = subprocess.run(["losetup", "-f", "--show", image], capture_output=True, text=True, check=True).stdout.strip()
    unmarked = subprocess.Popen(["sleep", "1000"], env={"NOT_ASSAY_LAB": ID, "ASSAY_LAB": f"{ID}x"})
    not_a_lab = labs_root() / "backup"
    not_a_lab.mkdir()
    (not_a_lab / "precious").write_text("keep")
    (labs_root() / "a file").write_text("keep")
    (labs_root() / "elsewhere").symlink_to(not_a_lab)
    try:
        assert clean() == ([ID], [])
        assert mount_entry(point) is not None
        assert mounts_below(point) == [str(point)]
        assert subprocess.run(["losetup", loop], capture_output=True, check=False).returncode == 0
        assert unmarked.poll() is None
        assert (not_a_lab / "precious").read_text() == "keep"
        assert sorted(p.name for p in labs_root().iterdir()) == ["a file", "backup", "elsewhere"]
    finally:
        unmarked.kill()
        unmarked.wait()
        subprocess.run(["losetup", "-d", loop], check=True)
        subprocess.run(["umount", point], check=True)


@pytest.mark.usefixtures("simple")
def test_a_mount_that_somebody_uses_is_one_line_and_goes_later() -> None:
    Forked(stage_mounted).kill()
    (state,) = find_labs()
    visitor = subprocess.Popen(["sleep", "1000"], cwd=state.mounts[0])
    try:
        with pytest.raises(LabError, match="still mounted and busy; end what uses it") as caught:
            clean()
        assert "\n" not in str(caught.value)
        assert visitor.poll() is None
        assert (state.directory / "lab.json").exists(), "the notes stay until the last thing is gone"
    finally:
        visitor.kill()
        visitor.wait()
    assert clean() == ([ID], [])


@pytest.mark.parametrize(
    "notes", ["", "{", "[]", '{"id": "x"}', json.dumps({"id": "", "study": "s", "created_at": 0, "directories": []}),
              json.dumps({"id": ID, "study": "s", "created_at": 0, "directories": ["relative"]}),
              json.dumps({"id": ID, "study": "s", "created_at": 0, "later": 1})],
)  # fmt: skip
def test_damaged_notes_do_not_stop_clean_up(simple: Path, notes: str) -> None:
    Forked(stage_mounted).kill()
    (labs_root() / ID / "lab.json").write_text(notes)
    bystander = subprocess.Popen(["sleep", "1000"], env={"ASSAY_LAB": ""})
    try:
        assert [s.note.id for s in find_labs()] == [ID]
        assert clean() == ([ID], [])
        assert bystander.poll() is None
        assert nothing_left(simple)
    finally:
        bystander.kill()
        bystander.wait()


def test_clean_up_works_without_sbin_in_the_path(simple: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    Forked(stage_loop).kill()
    monkeypatch.setenv("PATH", "/usr/bin:/bin")
    assert clean() == ([ID], [])
    assert eventually(lambda: not any("disk.img" in t for t in Path("/proc/partitions").read_text().split()))
    monkeypatch.undo()
    assert nothing_left(simple)


def test_a_spawned_process_dies_with_its_deadline_or_when_killed() -> None:
    host = LocalHost()
    done = host.spawn(["sh", "-c", "echo said; sleep 1000"]).wait(0.3)
    assert done.exit_code is None
    assert done.ended_at - done.started_at < 5
    process = host.spawn(["sleep", "1000"])
    process.kill()
    assert process.wait(5).exit_code == -9
    process.kill()
    done = host.run(["sh", "-c", "echo in; echo err >&2; exit 3"])
    assert (done.exit_code, done.stdout, done.stderr, done.ok) == (3, b"in\n", b"err\n", False)
    assert host.run(["sleep", "10"], timeout_seconds=0.2).exit_code is None


def test_a_data_directory_that_cannot_be_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "file").write_text("")
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "file"))
    with pytest.raises(LabError, match="set XDG_DATA_HOME to a writable place"):
        Lab(ID, "s")
