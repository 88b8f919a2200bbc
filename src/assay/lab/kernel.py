"""What the kernel says of mounts, loop devices and processes: clean-up trusts this more than any notes."""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Iterator
from pathlib import Path

ENVIRONMENT_MARK = "ASSAY_LAB"  # environment variable of every process that a lab starts


def mountinfo() -> Iterator[tuple[str, list[str], list[str]]]:
    """Mount point, fields before and fields after the dash of every line of /proc/self/mountinfo (proc(5))."""
    for line in Path("/proc/self/mountinfo").read_bytes().splitlines():
        left, _, right = os.fsdecode(line).partition(" - ")
        fields = left.split(" ")
        # space, tab, newline and backslash are octal, all else is as it is: UTF-8 or whatever bytes a name has
        point = re.sub(r"\\([0-7]{3})", lambda m: chr(int(m[1], 8)), fields[4])
        yield point, fields, right.split(" ")


def mounts_below(directory: Path) -> list[str]:
    """Mount points at or below a directory (its real path), deepest and latest first. Asks the file system nothing."""
    prefix = str(directory)
    return [p for p, _, _ in mountinfo() if p == prefix or p.startswith(prefix + "/")][::-1]


def loops_below(directory: Path, file_name: str | None = None) -> list[str]:
    """Loop devices whose backing file lies below a directory (its real path), also when the file is deleted already; with
    ``file_name`` only those of that very file."""
    prefix = str(directory)
    return [
        device
        for device, file in _loops()
        if file.startswith(f"{prefix}/") and file_name in (None, file.removeprefix(f"{prefix}/"))
    ]


def loops_over(block_device: str) -> list[str]:
    """Loop devices that are backed by a block device."""
    return [device for device, file in _loops() if file == block_device]


def _loops() -> Iterator[tuple[str, str]]:
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        try:
            file = os.fsdecode(backing.read_bytes()).rstrip("\n").removesuffix(" (deleted)")
        except OSError:
            continue
        yield f"/dev/{backing.parent.parent.name}", file


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


def first_of_namespaces(pids: Iterable[int]) -> list[int]:
    """Those that are the first process of a PID namespace right below this one: with them the kernel kills all inside
    (pid_namespaces(7); NSpid in proc_pid_status(5))."""
    found = []
    for pid in pids:
        try:
            status = Path(f"/proc/{pid}/status").read_text()
        except OSError:
            continue
        numbers = next((line.split()[1:] for line in status.splitlines() if line.startswith("NSpid:")), [])
        if len(numbers) == 2 and numbers[1] == "1":
            found.append(pid)
    return found


def start_time(pid: int) -> int:
    """When a process started, in clock ticks since boot; 0 when it is not there or a zombie. Tells reused pids apart."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return 0
    return 0 if fields[0] in ("Z", "X") else int(fields[19])


def boot_id() -> str:
    """Identity of the running boot: process ids and start times mean nothing after it."""
    return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
