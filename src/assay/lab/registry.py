"""What labs have made on this machine, so that a crash leaves nothing that cannot be found again.

Each lab has a directory below ``<data>/labs``; everything that a lab makes outside of it is written down in ``lab.json``
*before* it is made. Cleaning trusts the kernel (mountinfo, loop devices, process environments) more than the notes.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import subprocess
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass, field
from pathlib import Path

from filelock import FileLock, Timeout

from assay.lab.host import search_path
from assay.ledger.files import write_atomically
from assay.ledger.store import data_directory

MARK = ".assay-lab"  # file in every directory that Assay made outside its own; holds the lab's id
ENVIRONMENT_MARK = "ASSAY_LAB"  # environment variable of every process that a lab starts


class LabError(Exception):
    """A lab cannot be made or removed; the message is one clear line with what would help."""


@dataclass
class LabNote:
    """What is written down of a lab. Paths are absolute."""

    id: str
    study: str
    created_at: float
    directories: list[str] = field(default_factory=list)  # made outside the lab's own directory, each holds MARK


@dataclass(frozen=True)
class LabState:
    """A lab as found: its notes and what of it is alive."""

    note: LabNote
    directory: Path
    in_use: bool
    mounts: list[str]
    loops: list[str]
    processes: list[int]
    bytes: int


def labs_root() -> Path:
    """Directory of all labs of this user."""
    # the kernel tells real paths of mounts and loop devices: a symbolic link would hide them from clean-up
    return Path(os.path.realpath(data_directory() / "labs"))


class Lab:
    """A lab that this process holds; the lock dies with the process."""

    def __init__(self, lab_id: str, study: str) -> None:
        """Take the lab's lock and start its notes. Raises LabError when another process holds it."""
        self.id = lab_id
        self.directory = labs_root() / lab_id
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(self.directory / "lock")
            self._lock.acquire(timeout=0.5)  # whoever lists labs holds it for a moment
        except Timeout:
            raise LabError(f"lab {lab_id} is in use by another assay process; wait for it or stop it first") from None
        except OSError as error:
            raise LabError(
                f"cannot use {self.directory}: {error.strerror}; set XDG_DATA_HOME to a writable place"
            ) from None
        # what a killed process of this lab has noted must not be forgotten
        self._note = LabNote(lab_id, study, time.time(), _read_note(self.directory).directories)
        self._write()

    def _write(self) -> None:
        write_atomically(self.directory / "lab.json", json.dumps(asdict(self._note)).encode())

    @property
    def environment(self) -> dict[str, str]:
        """Environment that marks a process as this lab's."""
        return {ENVIRONMENT_MARK: self.id}

    def make_directory(self, path: Path) -> Path:
        """Make a directory outside the lab's own; noted first. Raises LabError when it exists and is not this lab's."""
        path = Path(os.path.realpath(path))
        if path.exists():
            if _owner(path) == self.id:
                return path
            raise LabError(f"{path} exists and is not this study's; remove it or choose another directory")
        if str(path) not in self._note.directories:
            self._note.directories.append(str(path))
            self._write()
        try:
            path.mkdir()
            (path / MARK).write_text(self.id)
        except OSError as error:
            raise LabError(f"cannot make {path}: {error.strerror}") from None
        return path

    def remove(self) -> None:
        """Remove all that the lab made, then the lab itself. Raises LabError naming what would not go."""
        if self.directory.is_dir():
            _remove(self._note, self.directory)
        shutil.rmtree(self.directory, ignore_errors=True)  # before the lock goes: then it may be the next one's
        self._lock.release()

    def release(self) -> None:
        """Let go of the lock and keep everything."""
        self._lock.release()


def find_labs() -> list[LabState]:
    """Every lab of this user that has left anything."""
    found = []
    root = labs_root()
    for directory in sorted(root.iterdir()) if root.is_dir() else []:
        if directory.is_dir() and not directory.is_symlink() and _is_lab(directory):
            note = _read_note(directory)
            found.append(
                LabState(
                    note,
                    directory,
                    _is_held(directory),
                    [m for d in _all_directories(note, directory) for m in mounts_below(d)],
                    [device for d in _all_directories(note, directory) for device in loops_below(d)],
                    processes_of(note.id),
                    sum(_allocated(d) for d in _all_directories(note, directory)),
                )
            )
    return found


def clean(lab_id: str | None = None) -> tuple[list[str], list[str]]:
    """Remove every lab that no live process holds (or just ``lab_id``). Returns ids removed and ids left in use.

    Raises LabError when something of a lab would not go.
    """
    removed, kept = [], []
    for state in find_labs():
        if lab_id is not None and state.note.id != lab_id:
            continue
        lock = FileLock(state.directory / "lock")
        try:
            lock.acquire(timeout=0)
        except Timeout:
            kept.append(state.note.id)
            continue
        try:
            _remove(state.note, state.directory)
            shutil.rmtree(state.directory)
            removed.append(state.note.id)
        finally:
            lock.release()
    return removed, kept


def mounts_below(directory: Path) -> list[str]:
    """Mount points at or below a directory, deepest and latest first."""
    prefix = os.path.realpath(directory)
    return [p for p, _, _ in mountinfo() if p == prefix or p.startswith(prefix + "/")][::-1]


def mountinfo() -> Iterator[tuple[str, list[str], list[str]]]:
    """Mount point, fields before and fields after the dash of every line of /proc/self/mountinfo (proc(5))."""
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        left, _, right = os.fsdecode(line).partition(" - ")
        fields = left.split(" ")
        # space, tab, newline and backslash are octal, all else is as it is: UTF-8 or whatever bytes a name has
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4])
        yield point, fields, right.split(" ")


def loops_below(directory: Path, file_name: str | None = None) -> list[str]:
    """Loop devices whose backing file lies below a directory (also when the file is deleted already); with
    ``file_name`` only those of that very file."""
    found, prefix = [], os.path.realpath(directory)
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            file = os.fsdecode(backing.read_bytes()).rstrip("\n").removesuffix(" (deleted)")
        except OSError:
            continue
        if file.startswith(f"{prefix}/") and file_name in (None, file.removeprefix(f"{prefix}/")):
            found.append(f"/dev/{backing.parent.parent.name}")
    return found


def processes_of(lab_id: str) -> list[int]:
    """Pids whose environment carries the lab's mark, this process excepted."""
    mark = f"{ENVIRONMENT_MARK}={lab_id}".encode()
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit() and int(entry.name) != os.getpid():
            try:
                if mark in (entry / "environ").read_bytes().split(b"\0"):
                    found.append(int(entry.name))
            except OSError:
                continue
    return found


def _remove(note: LabNote, directory: Path) -> None:
    for pid in processes_of(note.id):
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue
    for _ in range(100):
        if not processes_of(note.id):
            break
        time.sleep(0.02)
    for place in _all_directories(note, directory):
        for point in mounts_below(place):
            _unmount(point)
        for device in loops_below(place):
            _run("losetup", "--detach", device)
        if left := mounts_below(place):
            raise LabError(f"{left[0]} is still mounted and busy; end what uses it, then run: assay lab clean")
    for made in note.directories:
        path = Path(made)
        # the mark proves that Assay made it; without it the crash came between noting and making
        if path.is_dir() and (_owner(path) == note.id or not _has_content(path)):
            _remove_tree(path)
    for child in directory.iterdir():
        if child.name not in ("lock", "lab.json"):
            _remove_tree(child) if child.is_dir() and not child.is_symlink() else child.unlink()


def _remove_tree(path: Path) -> None:
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise LabError(f"cannot remove {path}: {error.strerror}") from None


def _run(*argv: str) -> subprocess.CompletedProcess[bytes]:
    environment = {**os.environ, "PATH": search_path()}
    return subprocess.run(argv, capture_output=True, check=False, timeout=120, env=environment)


def _unmount(point: str) -> None:
    # a loop device lets go a moment after the last writer; a busy mount gets a second before it counts as busy
    for _ in range(20):
        done = _run("umount", point)
        if done.returncode == 0 or b"not mounted" in done.stderr:
            return
        time.sleep(0.05)


def _all_directories(note: LabNote, directory: Path) -> list[Path]:
    return [directory, *(Path(d) for d in note.directories)]


def _owner(path: Path) -> str | None:
    try:
        return (path / MARK).read_text()
    except OSError:
        return None


def _has_content(path: Path) -> bool:
    """Whether there is more than a mark that a crash has left empty."""
    return any(child.name != MARK or child.stat().st_size for child in path.iterdir())


def _is_lab(directory: Path) -> bool:
    """Notes are the first thing a lab writes: a directory with content but without them is somebody else's."""
    return (directory / "lab.json").exists() or all(
        child.name == "lock" or child.name.startswith(".part-") for child in directory.iterdir()
    )


def _is_held(directory: Path) -> bool:
    lock = FileLock(directory / "lock")
    try:
        lock.acquire(timeout=0)
    except Timeout:
        return True
    lock.release()
    return False


def _read_note(directory: Path) -> LabNote:
    try:
        note = LabNote(**json.loads((directory / "lab.json").read_text()))
        if note.id == directory.name and all(os.path.isabs(d) for d in note.directories):  # noqa: PTH117
            return note
    except (OSError, ValueError, TypeError):
        pass
    return LabNote(directory.name, "(unknown)", 0.0)


def _allocated(directory: Path) -> int:
    total = 0
    for root, _, files in os.walk(directory):
        for name in files:
            try:
                total += (Path(root) / name).lstat().st_blocks * 512
            except OSError:
                continue
    return total
