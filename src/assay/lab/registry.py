"""What labs have made on this machine, so that a crash leaves nothing that cannot be found again.

Each lab has a directory below ``<data>/labs``; everything that a lab makes outside of it is written down in ``lab.json``
*before* it is made. Cleaning trusts the kernel (mountinfo, loop devices, process environments) more than the notes.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import time
from collections.abc import Callable
from contextlib import suppress
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import TypeVar

from filelock import FileLock, Timeout

from assay.lab import devices, limits, outside
from assay.lab.errors import LabError
from assay.lab.host import HostError, LocalHost
from assay.lab.kernel import (
    ENVIRONMENT_MARK,
    first_of_namespaces,
    loops_below,
    loops_over,
    mountinfo,
    mounts_below,
    processes_of,
    start_time,
)
from assay.lab.mounts import ANSWER_SECONDS, unmount
from assay.lab.standing import FILE as STANDING
from assay.lab.standing import Standing, read_standing
from assay.ledger.files import data_directory, write_atomically

__all__ = ["LabError", "loops_below", "mountinfo", "mounts_below", "processes_of"]  # asked for here by the rest

T = TypeVar("T")
REMOVE_SECONDS = 120.0
LOCK_SECONDS = 1.0
KILL_SECONDS = 10.0  # a process that has not died by then hangs in the kernel
DETACH_SECONDS = 10.0


@dataclass
class LabNote:
    """What is written down of a lab. Paths are absolute."""

    id: str
    study: str
    created_at: float
    directories: list[str] = field(default_factory=list)  # made outside the lab's own directory, each holds MARK
    devices: list[str] = field(default_factory=list)  # handed over to the lab by their users


@dataclass(frozen=True)
class LabState:
    """A lab as found: its notes and what of it is alive."""

    note: LabNote
    directory: Path
    in_use: bool  # an assay process works with it
    mounts: list[str]
    loops: list[str]
    processes: list[int]
    bytes: int
    groups: list[str]  # directories of control groups
    standing: Standing | None  # while it stands between commands

    @property
    def state(self) -> str:
        """In use, up (it stands until it is taken down) or left over."""
        return "in use" if self.in_use else "up" if self.standing is not None else "left over"


def labs_root() -> Path:
    """Directory of all labs of this user."""
    # the kernel tells real paths of mounts and loop devices: a symbolic link would hide them from clean-up
    return Path(os.path.realpath(data_directory() / "labs"))


class Lab:
    """A lab that this process holds; the lock dies with the process."""

    def __init__(self, lab_id: str, study: str) -> None:
        """Take the lab's lock and start its notes. Raises LabError when another process holds it or it stands."""
        self.id = lab_id
        self.directory = labs_root() / lab_id
        try:
            self.directory.mkdir(parents=True, exist_ok=True)
            self._lock = FileLock(self.directory / "lock")
            self._lock.acquire(timeout=LOCK_SECONDS, poll_interval=0.02)
        except Timeout:
            raise LabError(f"lab {lab_id} is in use by another assay process; wait for it or stop it first") from None
        except OSError as error:
            raise LabError(
                f"cannot use {self.directory}: {error.strerror}; set XDG_DATA_HOME to a writable place"
            ) from None
        if _standing(self.directory) is not None:
            self._lock.release()
            raise LabError(f"lab {lab_id} is up; to take it down: assay lab down {lab_id}")
        # what a killed process of this lab has noted must not be forgotten
        before = _read_note(self.directory)
        self._note = LabNote(lab_id, study, time.time(), before.directories, before.devices)
        self._taken: list[str] = []  # devices in use by this process
        self._write()

    def _write(self) -> None:
        write_atomically(self.directory / "lab.json", json.dumps(asdict(self._note)).encode())

    @property
    def environment(self) -> dict[str, str]:
        """Environment that marks a process as this lab's."""
        return {ENVIRONMENT_MARK: self.id}

    def make_directory(self, path: Path) -> Path:
        """Make a directory outside the lab's own; noted first. Raises LabError when it exists and is not this lab's."""
        path, owner = _asked(outside.real_and_owner, path)
        if owner is not None:
            if owner == self.id:
                return path
            raise LabError(f"{path} exists and is not this study's; remove it or choose another directory")
        if str(path) not in self._note.directories:
            self._note.directories.append(str(path))
            self._write()
        try:
            _asked(outside.make, path, self.id)
        except OSError as error:
            raise LabError(f"cannot make {path}: {error.strerror}") from None
        return path

    def take_devices(self, names: list[str], count: int, size: int | None) -> list[str]:
        """Take the next ``count`` of the devices handed over, each of at least ``size`` bytes; noted before anything is
        written to them. Raises LabError when there are not enough, or one is not empty or not free."""
        free = [real for real in map(devices.real_device, names) if real not in self._taken]
        if len(free) < count:
            raise LabError(
                f"{count} devices are needed and {len(free)} of the {len(names)} named are free; name more of them: "
                "candidates that stand side by side do not share devices"
            )
        for real in free[:count]:
            if real in self._note.devices:
                devices.wipe(real, self.id)  # of a killed process of this lab
            if others := [n for n in _notes() if n.id != self.id and real in n.devices]:
                raise LabError(f"device {real} belongs to lab {others[0].id}; first: assay lab clean {others[0].id}")
        taken = devices.check_devices(free[:count], size)
        self._taken += taken
        self._note.devices = sorted({*self._note.devices, *taken})
        self._write()
        return taken

    def give_back_devices(self, taken: list[str]) -> None:
        """Wipe what the lab made on devices that nothing uses any more, and forget them. Raises LabError."""
        for device in taken:
            devices.wipe(device, self.id)
            self._taken.remove(device)
            self._note.devices.remove(device)
        self._write()

    def remove(self) -> None:
        """Remove all that the lab made, then the lab itself. Raises LabError naming what would not go."""
        try:
            if self.directory.is_dir():
                _remove(self._note, self.directory)
            shutil.rmtree(self.directory, ignore_errors=True)  # before the lock goes: then it may be the next one's
        finally:
            self._lock.release()

    def release(self) -> None:
        """Let go of the lock and keep everything."""
        self._lock.release()


def find_labs() -> list[LabState]:
    """Every lab of this user that has left anything."""
    return [find_lab(directory.name) for directory in _lab_directories()]


def find_lab(lab_id: str) -> LabState:
    """One lab. Raises LabError when there is none of that name."""
    directory = labs_root() / lab_id
    if directory not in _lab_directories():
        known = ", ".join(d.name for d in _lab_directories()) or "none"
        raise LabError(f"no lab is called {lab_id!r}; known: {known}")
    note = _read_note(directory)
    return LabState(
        note,
        directory,
        _is_held(directory),
        [m for d in _all_directories(note, directory) for m in mounts_below(d)],
        _loops(note, directory),
        processes_of(note.id),
        _allocated(note, directory),
        limits.groups_of(note.id),
        _standing(directory),
    )


def clean(lab_id: str | None = None) -> tuple[list[str], list[str]]:
    """Remove every lab that no live process holds and that does not stand, or just ``lab_id``, and that one also when it
    stands. Returns ids removed and ids kept. Raises LabError when something of a lab would not go."""
    removed, kept = [], []
    for directory in _lab_directories():
        name = directory.name
        if lab_id not in (None, name):
            continue
        lock = FileLock(directory / "lock")
        try:
            # whoever lists labs holds it for a moment, and so does what a killed process was just about to start
            lock.acquire(timeout=LOCK_SECONDS, poll_interval=0.02)
        except Timeout:
            kept.append(name)
            continue
        try:
            if lab_id is None and _standing(directory) is not None:
                kept.append(name)
                continue
            _remove(_read_note(directory), directory)
            shutil.rmtree(directory)
            removed.append(name)
        finally:
            lock.release()
    return removed, kept


def _remove(note: LabNote, directory: Path) -> None:
    (directory / STANDING).unlink(missing_ok=True)  # first: half removed, it stands no more
    _kill_all(note.id)
    for place in _all_directories(note, directory):
        for point in mounts_below(place):
            _unmount(Path(point))
        if left := mounts_below(place):
            raise LabError(f"{left[0]} is still mounted and busy; end what uses it, then run: assay lab clean")
    _detach_all(note, directory)
    for device in note.devices:
        devices.wipe(device, note.id)
    limits.remove_groups(note.id)
    for made in note.directories:
        _remove_outside(Path(made), note.id)
    for child in directory.iterdir():
        if child.name not in ("lock", "lab.json"):
            _remove_tree(child) if child.is_dir() and not child.is_symlink() else child.unlink()


def _kill_all(lab_id: str) -> None:
    # with the first process of a fabric the kernel kills all inside. Only then what is outside: a zombie whose parent was
    # killed before it is reaped late and holds its namespaces until then
    first = first_of_namespaces(processes_of(lab_id))
    _kill(first)
    end = time.monotonic() + KILL_SECONDS
    while left := [pid for pid in first if start_time(pid)]:
        if time.monotonic() > end:
            raise LabError(_undead(lab_id, left))
        time.sleep(0.005)
    time.sleep(0.02 if first else 0)  # those that waited for a process inside end by themselves
    while left := processes_of(lab_id):
        if time.monotonic() > end:
            raise LabError(_undead(lab_id, left))
        _kill(left)
        time.sleep(0.01)


def _kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            continue


def _undead(lab_id: str, pids: list[int]) -> str:
    return (
        f"process {pids[0]} of lab {lab_id} does not die, it hangs in the kernel or is not yours; "
        f"later, as root: assay lab clean {lab_id}"
    )


def _detach_all(note: LabNote, directory: Path) -> None:
    end = time.monotonic() + DETACH_SECONDS
    for device in _loops(note, directory):
        _run("losetup", "--detach", device)
    while left := _loops(note, directory):  # the kernel does it when the last user has gone, and says nothing
        if time.monotonic() > end:
            raise LabError(f"{left[0]} is still in use; end what uses it, then run: assay lab clean")
        time.sleep(0.01)


def _remove_outside(path: Path, lab_id: str) -> None:
    try:
        _asked(outside.owner, path)  # one that hangs is told now, not after all the time that removing may take
        _asked(outside.remove, path, lab_id, timeout_seconds=REMOVE_SECONDS)
    except OSError as error:
        raise LabError(f"cannot remove {path}: {error.strerror}") from None
    except LabError as error:
        raise LabError(f"{path} is left: {error}; when it answers again: assay lab clean") from None


def _remove_tree(path: Path) -> None:
    try:
        shutil.rmtree(path)
    except OSError as error:
        raise LabError(f"cannot remove {path}: {error.strerror}") from None


def _run(*argv: str) -> None:
    LocalHost().run(argv, timeout_seconds=120)


def _unmount(point: Path) -> None:
    # a loop device lets go a moment after the last writer; a busy mount gets a second before it counts as busy
    host = LocalHost()
    try:
        for _ in range(20):
            try:
                unmount(host, point)
                break
            except LabError:
                time.sleep(0.05)
            except HostError:
                break
    finally:
        host.close()


def _asked(function: Callable[..., T], *args: object, timeout_seconds: float = ANSWER_SECONDS) -> T:
    """What a helper process answers. Raises LabError when it does not; the function's own errors come through."""
    host = LocalHost()
    try:
        return host.call(function, *args, timeout_seconds=timeout_seconds)
    except HostError as error:
        raise LabError(str(error)) from None
    finally:
        host.close()


def _loops(note: LabNote, directory: Path) -> list[str]:
    below = [device for d in _all_directories(note, directory) for device in loops_below(d)]
    return below + [loop for device in note.devices for loop in loops_over(device)]


def _lab_directories() -> list[Path]:
    root = labs_root()
    there = sorted(root.iterdir()) if root.is_dir() else []
    return [d for d in there if d.is_dir() and not d.is_symlink() and _is_lab(d)]


def _notes() -> list[LabNote]:
    return [_read_note(directory) for directory in _lab_directories()]


def _standing(directory: Path) -> Standing | None:
    found = read_standing(directory)
    return found if found is not None and found.alive else None


def _all_directories(note: LabNote, directory: Path) -> list[Path]:
    return [directory, *(Path(d) for d in note.directories)]


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
        if note.id == directory.name and all(os.path.isabs(d) for d in [*note.directories, *note.devices]):  # noqa: PTH117
            return note
    except (OSError, ValueError, TypeError):
        pass
    return LabNote(directory.name, "(unknown)", 0.0)


def _allocated(note: LabNote, directory: Path) -> int:
    total = outside.allocated(directory, frozenset(mounts_below(directory)))
    for made in note.directories:
        with suppress(LabError, OSError):  # where it lies hangs: nobody knows
            total += _asked(outside.allocated, Path(made), frozenset(mounts_below(Path(made))))
    return total
