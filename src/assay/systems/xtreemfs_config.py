"""XtreemFS, pure: layouts, where an installation keeps its parts, the services' property files, what mounts say in extended
attributes. Names of properties and attributes are those of XtreemFS 1.6 (etc/xos/xtreemfs, MRCHelper.SysAttrs)."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.model import units
from assay.model.lab import Disk
from assay.model.layout import Layout, parse_layout
from assay.systems.base import AdapterError

DIR_PORT, MRC_PORT, OSD_PORT = 32638, 32636, 32640
_HTTP_BELOW = 2000  # status pages: 30638, 30636, 30640
VOLUME = "assay"
STRIPE = "128KiB"
FILESYSTEM_SHARE = 0.95
FILESYSTEM_BYTES = {"xfs": 80 << 20, "ext4": 64 << 20, "btrfs": 128 << 20}
CLASSES = {"dir": "org.xtreemfs.dir.DIR", "mrc": "org.xtreemfs.mrc.MRC", "osd": "org.xtreemfs.osd.OSD"}
_STRIPED = re.compile(r"striped-([1-9][0-9]?)")
_PROPERTY = re.compile(r"(dir|mrc|osd)\.[a-zA-Z_][a-zA-Z0-9_.]*")
_OWN = re.compile(
    r"uuid|hostname|listen\..*|http_port|dir_service\..*|object_dir|babudb\.(baseDir|logDir)|capability_secret|ssl\..*"
)

#: Where the parts lie below an installation: packages, a source tree that was built, one flat directory.
JAR_DIRECTORIES = ("share/java", "usr/share/java", "java/xtreemfs-servers/target", "java/servers/dist", "lib", "")
PROGRAM_DIRECTORIES = ("bin", "usr/bin", "cpp/build", "")


@dataclass(frozen=True)
class Spread:
    """How the files of a volume are spread: over ``width`` OSDs in stripes, in ``copies`` of the whole."""

    width: int = 1
    copies: int = 1

    @property
    def parts(self) -> int:
        """OSDs that hold a part of one file."""
        return self.width * self.copies

    def __str__(self) -> str:
        if self.copies > 1:
            return f"replicated-{self.copies}"
        return f"striped-{self.width}" if self.width > 1 else "distributed"


def spread_of(text: str) -> Spread:
    """The layout, refused when XtreemFS cannot do it. Raises AdapterError."""
    if match := _STRIPED.fullmatch(text):
        if int(match[1]) < 2:
            raise AdapterError(f"xtreemfs/{text}: one stripe is no striping; write xtreemfs/distributed")
        return Spread(width=int(match[1]))
    try:
        layout: Layout = parse_layout(text)
    except ValueError as error:
        raise AdapterError(f"xtreemfs/{text}: {error}, or striped-N (width)") from None
    if layout.kind == "rain":
        raise AdapterError(
            f"xtreemfs/{text}: XtreemFS has no erasure code; write xtreemfs/replicated-{layout.parity + 1}"
        )
    if layout.kind == "replicated" and layout.width < 2:
        raise AdapterError(f"xtreemfs/{text}: one copy is no replication; write xtreemfs/distributed")
    return Spread(copies=layout.width)


def check_hosts(spread: Spread, hosts: int) -> None:
    """Raises AdapterError unless every part of a file gets a host of its own."""
    if hosts < spread.parts:
        raise AdapterError(
            f"xtreemfs/{spread} needs {spread.parts} hosts, one for each part of a file, and the lab has {hosts}; "
            f"set lab.hosts to {spread.parts}"
        )


def check_room(spread: Spread, hosts: int, disk: Disk, filesystem: str, dataset_bytes: int) -> None:
    """Raises AdapterError, with the size that would do, unless the data set fits. ``disk.size`` is resolved."""
    if disk.size is None:
        return
    disks = hosts * disk.per_host
    needed = dataset_bytes * spread.copies / disks / FILESYSTEM_SHARE / 0.9 + FILESYSTEM_BYTES[filesystem]
    if needed > disk.size:
        raise AdapterError(
            f"xtreemfs/{spread}: the data set of {units.format_bytes(dataset_bytes)} takes {spread.copies} times its size on "
            f"{disks} disks; lab.disk.size must be at least {-(-int(needed) // (1 << 20))}MiB, it is "
            f"{units.format_bytes(disk.size)}"
        )


# --- an installation --------------------------------------------------------------------------------------------------


def find_jars(roots: Iterable[Path]) -> list[Path]:
    """The JARs of the servers: all of the first directory that has XtreemFS' own; empty when none has."""
    for root in roots:
        for place in JAR_DIRECTORIES:
            found = sorted((root / place).glob("*.jar"))
            own = [jar for jar in found if re.fullmatch(r"xtreemfs(-servers)?[0-9.]*\.jar", jar.name.lower())]
            if own:
                return [*own, *(jar for jar in found if jar not in own)]
    return []


def find_program(name: str, roots: Iterable[Path]) -> Path | None:
    """One of the client's programs."""
    candidates = (root / place / name for root in roots for place in PROGRAM_DIRECTORIES)
    return next((path for path in candidates if path.is_file()), None)


# --- services ---------------------------------------------------------------------------------------------------------


def uuid_of(host: str, disk: int) -> str:
    """The name of the OSD of a host's disk."""
    return f"osd-{host}-{disk}"


def properties(
    service: str, *, host: str, address: str, directory: str, disk: int = 1, tuned: Mapping[str, str] | None = None
) -> dict[str, str]:
    """The property file of a service: ``dir``, ``mrc`` or ``osd``. ``directory`` is where it keeps its data. A service is
    registered under its own address: by itself it would register what it believes its name to be."""
    port = {"dir": DIR_PORT, "mrc": MRC_PORT, "osd": OSD_PORT + disk - 1}[service]
    common = {
        "uuid": uuid_of(host, disk) if service == "osd" else f"{service}-{host}",
        "hostname": address,
        "listen.port": str(port),
        "http_port": str(port - _HTTP_BELOW),
        "ssl.enabled": "false",
        "snmp.enabled": "false",
        "startup.wait_for_dir": "30",
    }
    database = {
        "babudb.baseDir": f"{directory}/database",
        "babudb.logDir": f"{directory}/log",
        "babudb.sync": "FDATASYNC" if service == "dir" else "ASYNC",
        "babudb.pseudoSyncWait": "200" if service == "dir" else "0",
    }
    directory_service = {"dir_service.host": "s1", "dir_service.port": str(DIR_PORT), "capability_secret": "assay"}
    metadata = {
        "osd_check_interval": "10",
        "no_atime": "true",
        "authentication_provider": "org.xtreemfs.common.auth.NullAuthProvider",
    }
    storage = {"object_dir": directory, "report_free_space": "true", "checksums.enabled": "false"}
    own = {
        "dir": {**common, **database},
        "mrc": {**common, **database, **directory_service, **metadata},
        "osd": {**common, **directory_service, **storage},
    }[service]
    return {**own, **(tuned or {})}


def property_file(values: Mapping[str, str]) -> str:
    """As java.util.Properties reads it."""
    return "".join(f"{name} = {value}\n" for name, value in values.items())


def tuned_properties(tuning: Mapping[str, Any]) -> dict[str, dict[str, str]]:
    """Properties by service from a candidate's tuning, e.g. ``osd.checksums.enabled: true``. Raises AdapterError."""
    found: dict[str, dict[str, str]] = {"dir": {}, "mrc": {}, "osd": {}}
    for key, value in tuning.items():
        if "." not in key:
            continue
        if not _PROPERTY.fullmatch(key):
            raise AdapterError(f"{key!r} is no property of XtreemFS' dir, mrc or osd; write osd.checksums.enabled")
        service, _, name = key.partition(".")
        if _OWN.fullmatch(name):
            raise AdapterError(f"{key} is what the lab sets by itself")
        found[service][name] = str(value).lower() if isinstance(value, bool) else str(value)
    return found


def java_command(jars: Sequence[Path], heap_bytes: int, service: str, file: Path) -> list[str]:
    """What starts a service."""
    options = ["-XX:+UseSerialGC", f"-Xmx{heap_bytes >> 20}m", "-XX:-UsePerfData", "-Djava.io.tmpdir=/run"]
    return ["java", *options, "-cp", ":".join(map(str, jars)), CLASSES[service], str(file)]


def mkfs_arguments(spread: Spread, stripe_bytes: int) -> list[str]:
    """Arguments of mkfs.xtreemfs."""
    return ["-p", "RAID0", "-s", str(stripe_bytes >> 10), "-w", str(spread.width), "-a", "POSIX", f"s1/{VOLUME}"]


def replication_arguments(spread: Spread, point: Path) -> list[str]:
    """Arguments of xtfsutil that make new files have copies: a majority must be written and read (WqRq)."""
    return ["--set-drp", "--replication-policy", "WqRq", "--replication-factor", str(spread.copies), str(point)]


def stripe_bytes(value: object) -> int:
    """Size of a stripe. Raises AdapterError."""
    try:
        size = units.parse_bytes(value)
    except ValueError as error:
        raise AdapterError(f"stripe: {error}") from None
    if size < 1024 or size % 1024:
        raise AdapterError(f"stripe: {value!r} is no whole number of KiB")
    return size


# --- what a mount says ------------------------------------------------------------------------------------------------


def usable_osds(text: str) -> dict[str, str]:
    """Addresses by OSD, from ``xtreemfs.usable_osds`` of a volume's root. Raises AdapterError."""
    return {str(name): str(address) for name, address in _object(text, "xtreemfs.usable_osds").items()}


def volume_spread(striping: str, replication: str) -> Spread:
    """The layout of new files, from ``xtreemfs.default_sp`` and ``xtreemfs.default_rp`` of a directory (the latter is empty
    without replication). Raises AdapterError."""
    width = int(_object(striping, "xtreemfs.default_sp").get("width", 1))
    policy = _object(replication, "xtreemfs.default_rp") if replication.strip() else {}
    return Spread(width, int(policy.get("replication-factor", 1)) or 1)


def osds_of(text: str) -> list[list[str]]:
    """OSDs of each replica of a file, in the order of its stripes, from ``xtreemfs.locations``. Raises AdapterError."""
    replicas = _object(text, "xtreemfs.locations").get("replicas", [])
    try:
        return [[str(osd["uuid"]) for osd in replica["osds"]] for replica in replicas]
    except (KeyError, TypeError):
        raise AdapterError("xtreemfs.locations is not what was expected") from None


def _object(text: str, name: str) -> dict[str, Any]:
    try:
        found = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise AdapterError(f"{name} is not what was expected: {' '.join(text.split())[:100]!r}")
    return found
