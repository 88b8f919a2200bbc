"""EOS, where it is mounted already (eosxd): it needs XRootD 6 and QuarkDB, which Debian does not have.

Formats of ``eos``: EOS Diopside documentation, chapters Using EOS and Interfaces; ``fusex/README.md`` for the attributes of a
mount.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar
from urllib.parse import unquote

from assay.lab import remote
from assay.lab.caches import Step
from assay.lab.host import Host
from assay.lab.mounts import ANSWER_SECONDS
from assay.model.evidence import DeviceCounters, SettleEvidence
from assay.model.lab import Lab as LabDeclaration
from assay.model.layout import parse_layout
from assay.systems.base import AdapterError
from assay.systems.existing import ExternalSystem, MountKind, ask
from assay.systems.hosts import each

FUSE_MAGIC = 0x65735546
MGM_ATTRIBUTE = "eos.mgmurl"  # virtual attribute of every eosxd mount
_DROP_CAPS = "system.eos.dropallcap"
_PREFIX = "sys.forced."
#: erasure codes by parity stripes (common/LayoutId.hh)
_CODES = {1: ("raid5",), 2: ("raid6", "raiddp"), 3: ("archive",), 4: ("qrain",)}
_POLICIES = ("blocksize", "checksum", "blockchecksum", "space")


@dataclass(frozen=True)
class FileSystem:
    """One disk of an EOS instance, from ``eos fs ls -m``. Capacity and use in bytes."""

    id: int
    host: str
    path: str
    space: str
    booted: bool
    online: bool
    status: str  # rw, ro, drain, off, ...
    error: str
    used_bytes: int
    capacity_bytes: int

    @property
    def usable(self) -> bool:
        """Whether it takes new stripes."""
        return self.booted and self.online and self.status == "rw"


class EosSystem(ExternalSystem):
    """``eos/distributed``, ``eos/replicated-N``, ``eos/rain-K-M``, on an EOS that is mounted (``mount: DIR``)."""

    system: ClassVar[str] = "eos"
    layouts: ClassVar[dict[str, str]] = {
        "distributed": "each file on one disk (plain)",
        "replicated-N": "each file on N disks (replica)",
        "rain-K-M": "each file in K data and M parity stripes, M from 1 to 4 (raid5, raid6, archive, qrain)",
    }
    tunables: ClassVar[dict[str, str]] = {
        "code": "raiddp instead of raid6 for rain-4-2",
        "blocksize": "bytes of a stripe before the next, as EOS writes it: 4k to 64M (default 1M for rain)",
        "checksum": "checksum of files: adler, crc32c, md5, sha, none (default adler)",
        "blockchecksum": "checksum of blocks: crc32c, none (default crc32c for rain)",
        "space": "the space whose disks are used (default: default)",
    }

    programs: ClassVar[tuple[str, ...]] = ("eos",)

    @staticmethod
    def preflight(layout: str, lab: LabDeclaration, dataset_bytes: int) -> None:  # noqa: ARG004 (nothing is deployed)
        """See SystemAdapter."""
        EosSystem.refuse_to_deploy(layout)

    @staticmethod
    def check_tuning(tuning: dict[str, Any]) -> None:
        """See ChecksTuning."""
        known = [name for names in _CODES.values() for name in names]
        if tuning.get("code", known[0]) not in known:
            raise AdapterError(f"EOS has no erasure code {tuning['code']!r}; known: {', '.join(known)}")

    @staticmethod
    def mount_kind() -> MountKind:
        """See KnowsMounts."""
        # autofs and older releases mount eosxd as plain fuse; the attribute tells (see _inspect)
        return MountKind(("fuse.eosxd", "fuse"), FUSE_MAGIC, _inspect, _health)

    def lay_out(self, directory: Path) -> None:
        """See ExternalSystem."""
        wanted = directory_attributes(self.deployment.layout, self.deployment.tuning)
        place = self._place(directory)
        for name, value in wanted.items():
            self._eos("attr", "set", f"{name}={value}", place)
        found = parse_attributes(self._eos("attr", "ls", place))
        if wrong := {name: found.get(name) for name, value in wanted.items() if found.get(name) != value}:
            raise AdapterError(f"{place} has {wrong} after eos attr set, not {wanted}")

    def layout_facts(self, directory: Path) -> dict[str, Any]:
        """See ExternalSystem."""
        found = parse_attributes(self._eos("attr", "ls", self._place(directory)))
        return {name: value for name, value in sorted(found.items()) if name.startswith(_PREFIX)}

    def counters(self) -> list[DeviceCounters] | None:
        """None: EOS tells how full its disks are and how fast they are, not how many bytes they have moved."""
        return None

    def settle(self, timeout_seconds: float) -> SettleEvidence:  # noqa: ARG002 (there is nothing to wait for)
        """Not known: what else is done on an instance is its owners' business."""
        return SettleEvidence(settled=None, detail="EOS has no counters of its disks")

    def _servers_cold(self) -> list[Step]:
        """Drop all capabilities of the clients, so that metadata are asked for again. The data cache of eosxd
        (/var/cache/eos/fusex) and the caches of the servers are out of reach."""

        def drop(client: Host) -> list[Step]:
            try:
                client.call(os.setxattr, str(self._parent), _DROP_CAPS, b"1", timeout_seconds=ANSWER_SECONDS)
            except OSError as error:
                return [(f"{client.name}: capabilities dropped", error.errno or 1)]
            return [(f"{client.name}: capabilities dropped", 0)]

        return [step for steps in each(self.deployment.clients, drop) for step in steps]

    def _eos(self, *words: str) -> str:
        return ask(self.client, "eos", "-b", manager_of(self.client, self._parent), *words)

    def _place(self, directory: Path) -> str:
        entry = self.client.call(remote.mount_entry, self._parent, timeout_seconds=ANSWER_SECONDS)
        if entry is None:
            raise AdapterError(f"{self._parent} is on no mount")
        return namespace_path(entry["source"], entry["point"], directory)


# --- pure ------------------------------------------------------------------------------------------------------------


def directory_attributes(layout: str, tuning: Mapping[str, Any]) -> dict[str, str]:
    """What ``eos attr set`` is told, in order. Raises AdapterError for a layout that EOS does not have."""
    wanted = parse_layout(layout)
    if wanted.kind == "distributed":
        name, stripes = "plain", 1
    elif wanted.kind == "replicated":
        name, stripes = "replica", wanted.width
    else:
        codes = _CODES.get(wanted.parity)
        if codes is None:
            raise AdapterError(f"eos/{layout}: EOS has codes with 1 to 4 parity stripes")
        name, stripes = str(tuning.get("code", codes[0])), wanted.width
        if name not in codes or (name == "raiddp" and (wanted.data, wanted.parity) != (4, 2)):
            raise AdapterError(f"eos/{layout} cannot be coded with {name}; use {codes[0]}")
    rain = {"blocksize": "1M", "checksum": "adler", "blockchecksum": "crc32c"} if wanted.kind == "rain" else {}
    policies = {"checksum": "adler", "space": "default", **rain}
    policies |= {key: str(tuning[key]) for key in _POLICIES if key in tuning}
    return {f"{_PREFIX}layout": name, f"{_PREFIX}nstripes": str(stripes)} | {
        f"{_PREFIX}{key}": value for key, value in sorted(policies.items())
    }


def parse_attributes(text: str) -> dict[str, str]:
    """Of ``eos attr ls``: lines ``sys.forced.layout="raid6"``."""
    return dict(re.findall(r'^\s*([\w.]+)="(.*)"\s*$', text, re.MULTILINE))


def parse_monitoring(text: str) -> list[dict[str, str]]:
    """Of any ``eos ... ls -m``: one object per line, ``key=value`` separated by spaces, values percent-encoded; a value may be
    empty. Lines without any are left out."""
    found = []
    for line in text.splitlines():
        pairs = dict(re.findall(r"(?:^|\s)([^\s=]+)=(\S*)", line))
        if pairs:
            found.append({key: unquote(value) for key, value in pairs.items()})
    return found


def parse_filesystems(text: str) -> list[FileSystem]:
    """Of ``eos fs ls -m``. Raises AdapterError when a line is none of a file system."""
    return [_filesystem(values) for values in parse_monitoring(text)]


def _filesystem(values: Mapping[str, str]) -> FileSystem:
    try:
        return FileSystem(
            id=int(values["id"]),
            host=values["host"],
            path=values["path"],
            space=values["schedgroup"].partition(".")[0],
            booted=values["stat.boot"] == "booted",
            online=values.get("stat.active") == "online",
            status=values["configstatus"],
            error=values.get("stat.errmsg", "") if values.get("stat.errc", "0") not in ("0", "") else "",
            used_bytes=int(values.get("stat.statfs.usedbytes") or 0),
            capacity_bytes=int(values.get("stat.statfs.capacity") or 0),
        )
    except (KeyError, ValueError) as error:
        raise AdapterError(f"eos fs ls -m told of no file system: {error} in {dict(values)}") from None


def parse_version(text: str) -> str:
    """Of ``eos version``: ``EOS_SERVER_VERSION=5.3.36 EOS_SERVER_RELEASE=1``; empty when there is none."""
    match = re.search(r"EOS_SERVER_VERSION=(\S+)", text)
    return match[1] if match else ""


def namespace_path(source: str, point: str, directory: Path) -> str:
    """What EOS calls a directory below a mount: ``HOST:/eos/dev`` mounted at ``/mnt`` makes ``/mnt/x`` ``/eos/dev/x``; without a
    path in the source both are the same."""
    inside = directory.relative_to(point)
    root = source.partition(":/")[2]
    base = PurePosixPath("/" + root) if ":/" in source else PurePosixPath(point)
    return str(base / inside)


def healthy(filesystems: list[FileSystem]) -> tuple[bool, str]:
    """Whether all disks that are switched on are booted, online and without error."""
    wanted = [f for f in filesystems if f.status not in ("off", "empty", "down")]
    if not wanted:
        return False, "no file system of EOS is switched on"
    if bad := [f for f in wanted if not f.booted or not f.online or f.error]:
        return False, "; ".join(
            f"fs {f.id} ({f.host}:{f.path}) {f.error or ('is offline' if f.booted else 'is not booted')}" for f in bad
        )
    return True, f"{len(wanted)} file systems booted and online, {sum(f.usable for f in wanted)} writable"


# --- an existing mount -------------------------------------------------------------------------------------------------


def manager_of(host: Host, mount: Path) -> str:
    """URL of the management server of a mount. Raises AdapterError when no eosxd answers there."""
    try:
        return host.call(os.getxattr, str(mount), MGM_ATTRIBUTE, timeout_seconds=ANSWER_SECONDS).decode().rstrip("\0\n")
    except OSError as error:
        raise AdapterError(f"{mount} is no mount of EOS: {MGM_ATTRIBUTE}: {error.strerror}") from None


def _inspect(host: Host, mount: Path, layout: str) -> dict[str, Any]:
    manager = manager_of(host, mount)
    stripes = int(directory_attributes(layout, {})[f"{_PREFIX}nstripes"])
    usable = [f for f in parse_filesystems(ask(host, "eos", "-b", manager, "fs", "ls", "-m")) if f.usable]
    if stripes > len(usable):
        raise AdapterError(f"eos/{layout} needs {stripes} writable file systems, {manager} has {len(usable)}")
    version = parse_version(ask(host, "eos", "-b", manager, "version"))
    return {"version": f"EOS {version}, Linux {os.uname().release}", "manager": manager, "filesystems": len(usable)}


def _health(host: Host, mount: Path) -> tuple[bool | None, str]:
    try:
        return healthy(parse_filesystems(ask(host, "eos", "-b", manager_of(host, mount), "fs", "ls", "-m")))
    except AdapterError as error:
        return None, str(error)
