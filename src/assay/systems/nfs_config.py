"""Configuration of an NFS server (nfs-ganesha) and of its clients: pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.model import units
from assay.model.lab import Disk
from assay.systems.base import AdapterError

EXPORT = "/assay"  # every deployment has hosts of its own, so all may have the same name
NFS_PORT, MOUNT_PORT = 2049, 20048
ACCESS = ("kernel", "fuse-nfs", "libnfs")
VERSIONS = ("3", "4.0", "4.1", "4.2")
FILESYSTEM_BYTES = {
    "xfs": 112 << 20,
    "ext4": 64 << 20,
    "btrfs": 128 << 20,
}  # of an empty one: journal, inodes, metadata
BLOCKS = ("NFS_CORE_PARAM", "NFSv4", "NFS_KRB5", "MDCACHE", "VFS", "EXPORT_DEFAULTS", "EXPORT")
_OWN = {
    "NFS_CORE_PARAM": {"Protocols", "NFS_Port", "MNT_Port", "Bind_addr", "mount_path_pseudo"},
    "NFSv4": {"RecoveryBackend", "RecoveryRoot"},
    "EXPORT": {"Export_Id", "Path", "Pseudo", "FSAL"},
}
_KEY = re.compile(r"[A-Za-z][A-Za-z0-9_]*")
_VALUE = re.compile(r"[^;{}\"'#\n]+")


def check_layout(text: str) -> None:
    """Raises AdapterError for a layout that one server does not have."""
    if text != "distributed":
        raise AdapterError(f"nfs/{text}: one server keeps each file once; write nfs/distributed")


def check_room(disk: Disk, filesystem: str, dataset_bytes: int) -> None:
    """Raises AdapterError, with the size that would do, unless the data set fits on the server's disk."""
    if disk.size is None:
        return
    needed = dataset_bytes / 0.95 + FILESYSTEM_BYTES[filesystem]
    if needed > disk.size:
        raise AdapterError(
            f"nfs/distributed: the data set of {units.format_bytes(dataset_bytes)} lies on one disk of one server; "
            f"lab.disk.size must be at least {-(-int(needed) // (1 << 20))}MiB, it is {units.format_bytes(disk.size)}"
        )


def check_parameter(key: str) -> None:
    """Raises AdapterError for a tuning key such as ``MDCACHE.Entries_HWMark`` that is none of ganesha.conf or is the lab's."""
    block, _, name = key.partition(".")
    if block not in BLOCKS or not _KEY.fullmatch(name):
        raise AdapterError(f"{key!r} is no parameter of NFS-Ganesha; write BLOCK.NAME, with one of {', '.join(BLOCKS)}")
    if name in _OWN.get(block, ()):
        raise AdapterError(f"{key} is set by the lab")


def parameters(tuning: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """What a candidate's tuning says of blocks of ganesha.conf. Raises AdapterError for a value that would end its line."""
    found: dict[str, dict[str, str]] = {}
    for key, value in tuning.items():
        block, dot, name = key.partition(".")
        if dot:
            text = str(value).lower() if isinstance(value, bool) else str(value)
            if not _VALUE.fullmatch(text):
                raise AdapterError(f"{key}: {text!r} cannot be a value in ganesha.conf")
            found.setdefault(block, {})[name] = text
    return found


def ganesha_text(address: str, directory: str, recovery: Path, given: Mapping[str, Mapping[str, str]]) -> str:
    """ganesha.conf for one export. Graceless: a lab's server has no clients of before that would want their locks back."""
    blocks: dict[str, dict[str, str]] = {
        "NFS_CORE_PARAM": {
            "Protocols": "3, 4",
            "NFS_Port": str(NFS_PORT),
            "MNT_Port": str(MOUNT_PORT),
            "Bind_addr": address,
            "mount_path_pseudo": "true",
            "Enable_NLM": "false",
            "Enable_RQUOTA": "false",
        },
        "NFSv4": {
            "Graceless": "true",
            "RecoveryBackend": "fs",
            "RecoveryRoot": str(recovery),
            "Minor_Versions": "0, 1, 2",
        },
        "NFS_KRB5": {"Active_krb5": "false"},
        "EXPORT_DEFAULTS": {
            "Access_Type": "RW",
            "Squash": "No_Root_Squash",
            "SecType": "sys",
            "Protocols": "3, 4",
            "Transports": "TCP",
        },
        "EXPORT": {"Export_Id": "1", "Path": directory, "Pseudo": EXPORT, "FSAL": "{ Name = VFS; }"},
    }
    for block, values in given.items():
        blocks[block] = {**blocks.get(block, {}), **values}
    lines = []
    for block, values in blocks.items():
        lines += [f"{block} {{", *(f"    {_line(name, value)}" for name, value in values.items()), "}"]
    return "\n".join([*lines, ""])


def _line(name: str, value: str) -> str:
    return f"{name} {value}" if value.startswith("{") else f"{name} = {value};"


def complaints(log: str) -> str:
    """What ganesha says of its configuration in its log, which it otherwise passes over: unknown parameters, bad values."""
    found = [
        line.partition(":CONFIG :")[2] for line in log.splitlines() if re.search(r":CONFIG :(CRIT|WARN|MAJ)", line)
    ]
    wanted = [re.sub(r"^\w+ :", "", line).strip() for line in found if "Config File" in line]
    return " | ".join(wanted)[:300]


# --- clients --------------------------------------------------------------------------------------------------------------


def version_of(tuning: Mapping[str, Any], access: str) -> str:
    """The protocol's version. Raises AdapterError when the client cannot speak it."""
    version = str(tuning.get("version", "4.2" if access == "kernel" else "3"))
    if version not in VERSIONS:
        raise AdapterError(f"nfs has no version {version!r}; known: {', '.join(VERSIONS)}")
    if access != "kernel" and version != "3":
        raise AdapterError(f"nfs with access {access} speaks version 3 only: libnfs 4 cannot create files by version 4")
    return version


def mount_options(version: str, given: str) -> str:
    """Options of a kernel mount; locks of version 3 would need a daemon that labs do not run."""
    own = f"vers={version}" + (f",proto=tcp,nolock,mountport={MOUNT_PORT}" if version == "3" else "")
    return ",".join(filter(None, [own, given]))


def url(address: str, name: str = "") -> str:
    """libnfs' URL of the export or of a file below it. Raises AdapterError for a name that has no URL."""
    parts = [part for part in name.split("/") if part]
    if any(part in (".", "..") for part in parts) or "?" in name:
        raise AdapterError(f"{name!r} cannot be a name here: no '?', '.' or '..'")
    path = "".join(f"/{part}" for part in parts)
    return f"nfs://{address}{EXPORT}{path}?version=3&nfsport={NFS_PORT}&mountport={MOUNT_PORT}"
