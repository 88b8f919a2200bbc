"""What can be known of a MooseFS from one of its mounts alone, and the mounts of a lab's clients."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from assay.lab import remote
from assay.lab.host import Host, HostError
from assay.lab.mounts import ANSWER_SECONDS
from assay.systems.base import AdapterError
from assay.systems.existing import MountKind
from assay.systems.moosefs_cli import ClientInfo, client_info, goal
from assay.systems.moosefs_config import layout_of_goal

FSTYPES = ("fuse", "fuse.mfs")  # which of them depends on how mfsmount was started
FUSE_MAGIC = 0x65735546  # FUSE_SUPER_MAGIC in linux/magic.h
MASTER_PORT = 9421
MOUNT_SECONDS = 60.0
#: Seconds after which an operation that cannot be carried out fails. MooseFS' own default is to try 30 times, 140 s and more.
TIMEOUT = "mfstimeout=10"


def options_of(tuning: dict[str, Any]) -> str:
    """Options of every mount of a lab."""
    given = str(tuning.get("mount", ""))
    names = {option.partition("=")[0] for option in given.split(",")}
    return ",".join(filter(None, [given, "" if "mfstimeout" in names else TIMEOUT]))


def mount(host: Host, master: str, point: Path, options: str) -> None:
    """Mount the whole file system of a master. Raises AdapterError or HostError."""
    host.run(["mkdir", "-p", str(point)]).must("mount point")
    argv = ["mfsmount", str(point), "-H", master, "-o", options]
    done = host.run(argv, timeout_seconds=MOUNT_SECONDS)
    entry = host.call(remote.mount_entry, point, timeout_seconds=ANSWER_SECONDS) or {}
    source = entry.get("source", "").replace("\\043", "#")  # as the kernel writes it
    wanted = f"mfs#{master}:{MASTER_PORT}"
    if not done.ok or entry.get("point") != str(point) or source != wanted:
        words = " ".join((done.stdout + done.stderr).decode(errors="replace").split())
        raise AdapterError(f"{host.name}: mounting {wanted}: {words[-300:] or f'found {source or None}'}")


def set_goal(host: Host, point: Path, copies: int) -> None:
    """Copies of all new files; and deleted ones are not kept for a day, they would fill the disks. Raises HostError."""
    host.run(["mfssetgoal", str(copies), str(point)]).must("mfssetgoal")
    host.run(["mfssettrashtime", "0", str(point)]).must("mfssettrashtime")


def info(host: Host, point: Path) -> ClientInfo:
    """What the client that serves a mount says of itself. Raises AdapterError when it is no MooseFS client."""
    try:
        return client_info(host.call(Path.read_bytes, point / ".masterinfo", timeout_seconds=ANSWER_SECONDS))
    except OSError as error:
        raise AdapterError(f"{point}: no MooseFS client answers: {error.strerror}") from None


def goal_of(host: Host, directory: Path) -> int:
    """Copies of new files there, as the master says. Raises AdapterError or HostError."""
    asked = host.run(["mfsgetgoal", str(directory)], timeout_seconds=ANSWER_SECONDS)
    if asked.exit_code is None:
        raise AdapterError(f"{directory}: the master gives no answer")
    return goal((asked.stdout + asked.stderr).decode(errors="replace"))


def _inspect(host: Host, directory: Path, layout: str) -> dict[str, Any]:
    entry = host.call(remote.mount_entry, directory, timeout_seconds=ANSWER_SECONDS) or {}
    client = info(host, Path(entry.get("point", directory)))
    found = layout_of_goal(goal_of(host, directory))
    if str(found) != layout:
        raise AdapterError(f"{directory} is moosefs/{found}, not moosefs/{layout}")
    return {"version": f"moosefs {client.version}, Linux {os.uname().release}", "goal": found.width}


def _health(host: Host, directory: Path) -> tuple[bool | None, str]:
    try:
        return True, f"the master answers, goal {goal_of(host, directory)}"
    except (AdapterError, HostError) as error:
        return False, str(error)


MOUNT_KIND = MountKind(FSTYPES, FUSE_MAGIC, _inspect, _health)
