"""How clients reach an NFS server: the kernel's own client, a FUSE process, or libnfs without any mount."""

from __future__ import annotations

import os
import shutil
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.lab import remote
from assay.lab.host import Host, HostError, search_path
from assay.lab.mounts import ANSWER_SECONDS
from assay.systems import nfs_probe
from assay.systems.base import AdapterError
from assay.systems.existing import MountKind
from assay.systems.nfs_config import ACCESS, EXPORT, mount_options, url

FUSE_CLIENT = "fuse-nfs"
FSTYPES = ("nfs4", "nfs")
NFS_MAGIC = 0x6969  # NFS_SUPER_MAGIC in linux/magic.h
MOUNT_SECONDS = 60.0


def kernel_speaks_nfs() -> bool:
    """Whether this kernel has an NFS client, or a module that mount(8) can load."""
    known = Path("/proc/filesystems").read_text().split()
    modules = Path("/lib/modules") / os.uname().release / "kernel/fs/nfs"
    return bool({"nfs", "nfs4"} & set(known)) or any(modules.glob("nfs.ko*"))


def access_of(tuning: Mapping[str, Any]) -> str:
    """How clients reach the server: as the candidate says, else by the kernel where it can, else by what stands in for it."""
    if "access" in tuning:
        return str(tuning["access"])
    if kernel_speaks_nfs():
        return "kernel"
    return FUSE_CLIENT if shutil.which(FUSE_CLIENT, path=search_path()) else "libnfs"


def check_access(access: str) -> None:
    """Raises AdapterError when it is unknown or this machine does not have it."""
    if access not in ACCESS:
        raise AdapterError(f"nfs has no access {access!r}; known: {', '.join(ACCESS)}")
    if access == "kernel" and not kernel_speaks_nfs():
        raise AdapterError(
            "this kernel has no NFS client; load it with: modprobe nfs, or set access: libnfs (put and get, no mount)"
        )
    if access == FUSE_CLIENT and shutil.which(FUSE_CLIENT, path=search_path()) is None:
        raise AdapterError(
            f"{FUSE_CLIENT} is missing, and no distribution packages it; build it against libnfs-dev and libfuse-dev, or set "
            "access: libnfs (put and get, no mount)"
        )


# --- mounts ---------------------------------------------------------------------------------------------------------------


def mount(host: Host, access: str, address: str, point: Path, version: str, given: str) -> None:
    """Mount the export. Raises AdapterError or HostError."""
    host.run(["mkdir", "-p", str(point)]).must("mount point")
    if host.call(remote.is_mount_point, point):
        raise AdapterError(f"{host.name}: something is mounted at {point} already")
    argv = mount_command(access, address, point, version, given)
    done = host.run(argv, timeout_seconds=MOUNT_SECONDS)
    entry = host.call(remote.mount_entry, point, timeout_seconds=ANSWER_SECONDS) or {}
    right = entry.get("fstype", "") in FSTYPES and entry.get("source") == f"{address}:{EXPORT}"
    if access == FUSE_CLIENT:
        right = entry.get("fstype", "").startswith("fuse")
    if not done.ok or entry.get("point") != str(point) or not right:
        words = " ".join((done.stdout + done.stderr).decode(errors="replace").split())
        raise AdapterError(f"{host.name}: mounting {address}:{EXPORT}: {words[-300:] or f'found {entry}'}")


def mount_command(access: str, address: str, point: Path, version: str, given: str) -> list[str]:
    """What mounts the export."""
    if access == FUSE_CLIENT:
        return [FUSE_CLIENT, "-n", url(address), "-m", str(point), "-a", *given.split()]
    kind = "nfs" if version == "3" else "nfs4"
    return ["mount", "-t", kind, "-o", mount_options(version, given), f"{address}:{EXPORT}", str(point)]


# --- files without a mount ------------------------------------------------------------------------------------------------


def reach(host: Host, address: str) -> None:
    """Prove that a client can mount the export by libnfs. Raises AdapterError or HostError."""
    try:
        host.call(nfs_probe.reach, url(address), timeout_seconds=ANSWER_SECONDS)
    except OSError as error:
        raise AdapterError(f"{host.name}: {address}:{EXPORT}: {error.strerror}") from None


def copy(host: Host, source: str, target: str, timeout_seconds: float) -> None:
    """Copy between a file and a URL. Raises AdapterError, also past the deadline: a server that is gone is tried for ever."""
    try:
        done = host.run(["nfs-cp", source, target], timeout_seconds=timeout_seconds)
    except HostError as error:
        raise AdapterError(str(error)) from None
    if done.exit_code is None:
        raise AdapterError(f"{host.name}: nfs-cp: no answer within {timeout_seconds:g} s")
    if not done.ok:
        words = " ".join((done.stderr + done.stdout).decode(errors="replace").split())
        raise AdapterError(f"{host.name}: nfs-cp: {words[:300] or f'exit code {done.exit_code}'}")


# --- existing mounts ------------------------------------------------------------------------------------------------------


def _inspect(host: Host, directory: Path, layout: str) -> dict[str, Any]:
    if layout != "distributed":
        raise AdapterError(f"{directory} is one server's: nfs/distributed, not nfs/{layout}")
    entry = host.call(remote.mount_entry, directory, timeout_seconds=ANSWER_SECONDS) or {}
    options = entry.get("options", "").split(",")
    version = next((o.removeprefix("vers=") for o in options if o.startswith("vers=")), "of unknown version")
    return {"version": f"NFS {version}, Linux {os.uname().release}", "access": "kernel"}


def _health(host: Host, directory: Path) -> tuple[bool | None, str]:
    try:
        host.call(remote.statvfs, directory, timeout_seconds=ANSWER_SECONDS)
    except (OSError, HostError) as error:
        return False, str(error)
    return True, "the server answers"


MOUNT_KIND = MountKind(FSTYPES, NFS_MAGIC, _inspect, _health)
