"""HDFS, pure: which layouts there are, what hosts and disks they need, and the files that its services read."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

from assay.model import units
from assay.model.lab import Disk
from assay.model.layout import Layout, parse_layout
from assay.systems.base import AdapterError

#: Erasure-coding policies that Hadoop has built in and the client reads and writes. XOR-2-1-1024k and RS-LEGACY-6-3-1024k
#: are built in too, but hdfs-native knows the Reed-Solomon schema only.
POLICIES = {(3, 2): "RS-3-2-1024k", (6, 3): "RS-6-3-1024k", (10, 4): "RS-10-4-1024k"}
CELL_BYTES = 1 << 20  # what one host gets of a stripe
BLOCK_BYTES = 128 << 20  # dfs.blocksize; a DataNode needs room for a whole one to be given any
FILESYSTEM_SHARE = 0.95
FILESYSTEM_BYTES = {"xfs": 80 << 20, "ext4": 64 << 20}  # of an empty one: log, inodes, metadata
MOST_COPIES = 512  # dfs.replication.max

NAMENODE_PORT, NAMENODE_HTTP, DATANODE_HTTP = 9000, 9870, 9864
HOME = "/assay"  # the directory that carries the layout

#: What the lab needs and nobody may change.
_OWN = (
    "dfs.namenode.name.dir",
    "dfs.datanode.data.dir",
    "dfs.replication",
    "dfs.namenode.ec.system.default.policy",
    "dfs.hosts",
    "dfs.hosts.exclude",
    "dfs.namenode.rpc-address",
    "dfs.namenode.http-address",
    "dfs.datanode.address",
    "dfs.datanode.http.address",
    "dfs.datanode.ipc.address",
    "dfs.permissions.enabled",
)
_OPTION = re.compile(r"dfs\.[a-z0-9._-]+")

#: What differs from Hadoop's defaults, so that a small lab notices in seconds what a large cluster notices in minutes.
LAB_OPTIONS = {
    "dfs.heartbeat.interval": "1",  # seconds; default 3
    "dfs.namenode.heartbeat.recheck-interval": "2000",  # ms; a host is dead after twice that and ten heartbeats: 14 s
    "dfs.namenode.redundancy.interval.seconds": "1s",  # default 3 s
    "dfs.namenode.decommission.interval": "1s",  # default 30 s
    "dfs.namenode.safemode.extension": "0",  # ms; default 30000
    "dfs.namenode.datanode.registration.ip-hostname-check": "false",  # there is no reverse DNS
    "dfs.datanode.round-robin-volume-choosing-policy.additional-available-space": "0",  # default 1 GiB kept free
    "dfs.namenode.reconstruction.pending.timeout-sec": "20",  # default 300: how long a rebuild that failed is waited for
}

#: The same for the client alone. DataNodes read these options too: a writer that waits for a dead host would lose the others.
CLIENT_OPTIONS = {
    "dfs.client.socket-timeout": "10000",  # ms; default 60000: how long a host that is gone is waited for
    "dfs.client.block.write.replace-datanode-on-failure.best-effort": "true",
}


def layout_of(text: str) -> Layout:
    """The layout, refused when HDFS cannot do it. Raises AdapterError."""
    try:
        layout = parse_layout(text)
    except ValueError as error:
        raise AdapterError(f"hdfs/{text}: {error}") from None
    if layout.kind == "replicated" and layout.width < 2:
        raise AdapterError(f"hdfs/{text}: one copy is no replication; write hdfs/distributed")
    if layout.kind == "rain" and (layout.data, layout.parity) not in POLICIES:
        known = ", ".join(f"hdfs/rain-{k}-{m}" for k, m in POLICIES)
        why = "; hdfs-native cannot read XOR-2-1-1024k" if (layout.data, layout.parity) == (2, 1) else ""
        raise AdapterError(f"hdfs/{text}: HDFS has no erasure-coding policy for that; known: {known}{why}")
    return layout


def policy_of(layout: Layout) -> str | None:
    """The erasure-coding policy of a layout; None when it has copies."""
    return POLICIES[layout.data, layout.parity] if layout.kind == "rain" else None


def check_hosts(layout: Layout, hosts: int) -> None:
    """Raises AdapterError unless every part of a file gets a host of its own. HDFS itself accepts an erasure-coding policy
    that is wider than the cluster, puts several parts on one host or leaves them out, and loses data with that host."""
    if hosts < layout.width:
        raise AdapterError(
            f"hdfs/{layout} needs {layout.width} hosts, one for each part of a file, and the lab has {hosts}; "
            f"set lab.hosts to {layout.width}"
        )


def check_room(layout: Layout, hosts: int, disk: Disk, filesystem: str, dataset_bytes: int, writers: int = 1) -> None:
    """Raises AdapterError, with the size that would do, unless the data set fits and every writer finds a whole block of
    room on each disk. ``disk.size`` is resolved."""
    if disk.size is None:
        return
    disks = hosts * disk.per_host
    own = FILESYSTEM_BYTES[filesystem] + (1 + writers) * BLOCK_BYTES
    needed = dataset_bytes * layout.overhead / disks / FILESYSTEM_SHARE / 0.9 + own
    if needed <= disk.size:
        return
    raise AdapterError(
        f"hdfs/{layout}: the data set of {units.format_bytes(dataset_bytes)} takes {layout.overhead:g} times its size on "
        f"{disks} disks, and each needs room for {1 + writers} blocks of 128 MiB; lab.disk.size must be at least "
        f"{-(-int(needed) // (1 << 20))}MiB, it is {units.format_bytes(disk.size)}"
    )


def options_of(tuning: Mapping[str, Any], known: frozenset[str] = frozenset()) -> dict[str, str]:
    """Options of HDFS from a candidate's tuning, as its XML has them. Raises AdapterError for a name that the lab needs for
    itself or that is not among the ``known`` (empty: not installed, nothing is known)."""
    options = {}
    for name, value in tuning.items():
        if "." not in name:
            continue
        if not _OPTION.fullmatch(name):
            raise AdapterError(f"{name!r} is no option of HDFS; write for example dfs.datanode.synconclose")
        if name in _OWN:
            raise AdapterError(f"{name} is what the lab sets by itself; choose another layout or other hosts instead")
        if known and name not in known:
            raise AdapterError(f"HDFS has no option {name!r}; Hadoop would ignore it without a word")
        options[name] = str(value).lower() if isinstance(value, bool) else str(value)
    return options


# --- files ------------------------------------------------------------------------------------------------------------


def hdfs_options(layout: Layout, per_host: int, exclude: Path, tuned: Mapping[str, str]) -> dict[str, str]:
    """What hdfs-site.xml holds, the same on every host: names of hosts and places are the same everywhere."""
    disks = range(1, per_host + 1)
    own = {
        "dfs.namenode.name.dir": "file:///run/b/1/name",
        "dfs.datanode.data.dir": ",".join(f"file:///run/b/{n}/data" for n in disks),
        "dfs.replication": str(layout.copies),
        "dfs.namenode.http-address": f"s1:{NAMENODE_HTTP}",
        "dfs.hosts.exclude": str(exclude),
        "dfs.permissions.enabled": "false",
    }
    if (policy := policy_of(layout)) is not None:
        own["dfs.namenode.ec.system.default.policy"] = policy  # a policy must be enabled, and this one is at the start
    return {**LAB_OPTIONS, **tuned, **own}


def core_options() -> dict[str, str]:
    """What core-site.xml holds. DataNodes start beside the NameNode and try every 0.1 s whether it is there (default 1 s)."""
    return {
        "fs.defaultFS": f"hdfs://s1:{NAMENODE_PORT}",
        "hadoop.tmp.dir": "/run/hadoop",
        "ipc.client.connect.retry.interval": "100",
        "ipc.client.connect.max.retries": "600",
    }


def client_options(tuned: Mapping[str, str]) -> dict[str, str]:
    """What the native client is told."""
    return {**CLIENT_OPTIONS, **{name: value for name, value in tuned.items() if name.startswith("dfs.client.")}}


def site_xml(options: Mapping[str, str]) -> str:
    """A configuration file as Hadoop reads it."""
    root = ElementTree.Element("configuration")
    for name, value in options.items():
        entry = ElementTree.SubElement(root, "property")
        ElementTree.SubElement(entry, "name").text = name
        ElementTree.SubElement(entry, "value").text = value
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode") + "\n"


LOG4J = """\
log4j.rootLogger=WARN,console
log4j.appender.console=org.apache.log4j.ConsoleAppender
log4j.appender.console.target=System.err
log4j.appender.console.layout=org.apache.log4j.PatternLayout
log4j.appender.console.layout.ConversionPattern=%d{ISO8601} %p %c{2}: %m%n
"""


def java_arguments(jars: Sequence[Path], configuration: Path, heap_bytes: int, archive: Path | None) -> str:
    """A file of arguments for ``java @FILE``. The directory of the configuration comes last: an archive of classes holds for
    a class path that begins with the JARs it was made of."""
    options = [
        "-XX:+UseSerialGC",
        f"-Xmx{heap_bytes >> 20}m",
        "-XX:-UsePerfData",  # else every killed service leaves a file in /tmp
        "-Djava.io.tmpdir=/run",
        "-Djava.net.preferIPv4Stack=true",
        *([f"-XX:SharedArchiveFile={archive}"] if archive is not None else []),
        "-cp",
        ":".join(map(str, [*jars, configuration])),
    ]
    quoted = ['"' + option.replace("\\", "\\\\").replace('"', '\\"') + '"' for option in options]
    return "\n".join([*quoted, ""])
