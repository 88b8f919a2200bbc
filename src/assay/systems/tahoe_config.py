"""Tahoe-LAFS, pure: which layouts it can do, the files that make a node, and what its web interface says.

Configuration as ``tahoe create-node`` writes it (``allmydata/scripts/create_node.py`` of 1.20.0, ``docs/configuration.rst``):
a directory with these files is a node, and making them here costs nothing, where the command costs a second of CPU each.
"""

from __future__ import annotations

import base64
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from assay.model import units
from assay.model.lab import Disk
from assay.model.layout import Layout, parse_layout
from assay.placement.tahoe import storage_index
from assay.systems.base import AdapterError

INTRODUCER_PORT = 8500
STORAGE_PORT = 8501
WEB_PORT = 3456
SFTP_PORT = 8022
MOST_SHARES = 256  # zfec counts them in a byte
STORAGE_DIRECTORY = "/run/b/1/tahoe"  # on the host's own disk
INDEX_LETTERS = 26  # of a storage index: 16 bytes in base32
USER = "assay"  # of the SFTP front end
FILESYSTEM_SHARE = 0.9  # of a disk that shares may fill
FILESYSTEM_BYTES = 128 << 20  # of an empty file system of any kind: log, inodes, metadata
_RESERVED = {  # what makes the node what it is, section.key
    "node.nickname", "node.web.port", "node.tub.port", "node.tub.location",
    "client.shares.needed", "client.shares.total", "client.shares.happy", "client.introducer.furl",
    "storage.enabled", "storage.storage_dir",
}  # fmt: skip


# --- layouts --------------------------------------------------------------------------------------------------------


def layout_of(text: str) -> Layout:
    """The layout, refused when Tahoe-LAFS cannot do it. Raises AdapterError."""
    try:
        layout = parse_layout(text)
    except ValueError as error:
        raise AdapterError(f"tahoe/{text}: {error}") from None
    if layout.kind != "rain":
        raise AdapterError(
            f"tahoe/{text}: Tahoe-LAFS has shares only; write tahoe/rain-{layout.data}-{layout.parity or 1}"
        )
    return layout


def check_hosts(layout: Layout, hosts: int, per_host: int) -> None:
    """Raises AdapterError, with the number that would do, unless every share of a file gets a host of its own. Tahoe-LAFS
    itself would put several on one server, and a file would survive the loss of fewer hosts than its layout says."""
    if hosts < layout.width:
        raise AdapterError(
            f"tahoe/{layout} needs a host for each of {layout.width} shares, and the lab has {hosts}; "
            f"set lab.hosts to {layout.width}"
        )
    if per_host != 1:
        raise AdapterError(
            f"tahoe/{layout}: a storage node has one disk; set lab.disk.per_host to 1 and take more hosts"
        )


def check_room(layout: Layout, hosts: int, disk: Disk, dataset_bytes: int) -> None:
    """Raises AdapterError, with the size that would do, unless the data set fits. ``disk.size`` is resolved."""
    if disk.size is None:
        return
    needed = dataset_bytes * layout.overhead / hosts / FILESYSTEM_SHARE + FILESYSTEM_BYTES
    if needed > disk.size:
        raise AdapterError(
            f"tahoe/{layout}: the data set of {units.format_bytes(dataset_bytes)} takes {layout.overhead:g} times its size on "
            f"{hosts} disks; lab.disk.size must be at least {-(-int(needed) // (1 << 20))}MiB, it is {units.format_bytes(disk.size)}"
        )


def default_happy(layout: Layout, hosts: int) -> int:
    """Servers that must hold a share before an upload counts as done (``shares.happy``): as many as are left when as many
    hosts are dead as the layout survives. More, and no file could be written then, although every file could be read;
    fewer, and a file could be written that does not survive what its layout promises while all hosts are there."""
    return min(layout.width, hosts - layout.parity)


def happy_of(tuning: Mapping[str, Any], layout: Layout, hosts: int) -> int:
    """``shares.happy`` of a candidate. Raises AdapterError."""
    given = tuning.get("shares.happy", default_happy(layout, hosts))
    if isinstance(given, bool) or not isinstance(given, int) or not 1 <= given <= layout.width:
        raise AdapterError(
            f"shares.happy: {given!r} is no number of servers from 1 to {layout.width} for tahoe/{layout}"
        )
    return given


# --- configuration --------------------------------------------------------------------------------------------------


def option_of(name: str) -> tuple[str, str]:
    """Section and key of ``section.key`` in a candidate's tuning. Raises AdapterError for what belongs to the adapter."""
    section, _, key = name.partition(".")
    if not key or section not in ("node", "client", "storage"):
        raise AdapterError(f"{name!r} is no option of tahoe.cfg; write for example client.force_foolscap")
    if name in _RESERVED:
        raise AdapterError(f"{name} belongs to the layout; it cannot be set")
    return section, key


@dataclass(frozen=True)
class NodeConfig:
    """One node: its kind for ``tahoe run``, and sections of its ``tahoe.cfg``."""

    kind: str  # introducer or client: the latter are storage nodes and gateways
    sections: dict[str, dict[str, str]]
    furl: str = ""  # of the introducer that it joins
    private: dict[str, str] = field(default_factory=dict)  # further files below private/

    def files(self) -> dict[str, str]:
        """Contents by name below the node's directory."""
        lines = []
        for section, items in self.sections.items():
            lines += [f"[{section}]", *(f"{key} = {value}" for key, value in items.items()), ""]
        found = {"tahoe.cfg": "\n".join(lines), f"tahoe-{self.kind}.tac": ""}
        if self.furl:
            found["private/introducers.yaml"] = f"introducers:\n  default:\n    furl: {self.furl}\n"
        return found | {f"private/{name}": text for name, text in self.private.items()}


def introducer(address: str) -> NodeConfig:
    """The node through which all others learn of each other."""
    return NodeConfig("introducer", {"node": _node("introducer", address, INTRODUCER_PORT)})


def storage_node(name: str, address: str, furl: str, options: Mapping[str, Any]) -> NodeConfig:
    """A storage server with the whole of its host's disk."""
    storage = {"enabled": "true", "reserved_space": "0", "storage_dir": STORAGE_DIRECTORY}
    # every node is a client of all others, and asks each once a second over HTTP whether it lives: a fifth of a core for seven
    # nodes that never load anything from each other. Over Foolscap they keep a connection and do not ask
    peers = {"force_foolscap": "true"}
    sections = {"node": _node(name, address, STORAGE_PORT), "client": peers, "storage": storage}
    return NodeConfig("client", _with(sections, options, ("node", "storage")), furl)


def gateway(
    name: str, furl: str, layout: Layout, happy: int, convergence: bytes, options: Mapping[str, Any], *, sftp: bool
) -> NodeConfig:
    """A client node: web interface and, with ``sftp``, SFTP front end on the loopback of its host. Gateways with the same
    convergence secret (32 bytes) make the same shares of the same data: any of them can put a file's shares right."""
    node = {
        "nickname": name,
        "web.port": f"tcp:{WEB_PORT}:interface=127.0.0.1",
        "tub.port": "disabled",
        "tub.location": "disabled",
    }
    shares = {"needed": layout.data, "happy": happy, "total": layout.width}
    client = {f"shares.{key}": str(value) for key, value in shares.items()}
    sections = {"node": node, "client": client, "storage": {"enabled": "false"}}
    if sftp:
        sections["sftpd"] = {
            "enabled": "true",
            "port": f"tcp:{SFTP_PORT}:interface=127.0.0.1",
            "host_pubkey_file": "private/host_key.pub",
            "host_privkey_file": "private/host_key",
            "accounts.file": "private/accounts",
        }
    return NodeConfig(
        "client", _with(sections, options, ("node", "client")), furl, {"convergence": f"{base32(convergence)}\n"}
    )


def _node(name: str, address: str, port: int) -> dict[str, str]:
    return {"nickname": name, "web.port": "", "tub.port": f"tcp:{port}", "tub.location": f"tcp:{address}:{port}"}


def _with(
    sections: dict[str, dict[str, str]], options: Mapping[str, Any], taken: Iterable[str]
) -> dict[str, dict[str, str]]:
    for name, value in options.items():
        section, key = option_of(name)
        if section in taken:
            sections[section][key] = str(value).lower() if isinstance(value, bool) else str(value)
    return sections


def base32(data: bytes) -> str:
    """As Tahoe-LAFS writes it: lower case, no padding (RFC 3548)."""
    return base64.b32encode(data).decode().rstrip("=").lower()


# --- capabilities ---------------------------------------------------------------------------------------------------


def shares_directory(capability: str) -> str | None:
    """Where a storage server keeps the shares of an immutable file, relative to its storage directory; None when the data
    are in the capability itself (files of up to 55 bytes). Raises ValueError for anything else."""
    kind, _, rest = capability.removeprefix("URI:").partition(":")
    if kind == "LIT":
        return None
    if kind != "CHK":
        raise ValueError(f"{capability.partition(':')[0]}:{kind} is no immutable file")
    text = rest.partition(":")[0].upper()
    index = base32(storage_index(base64.b32decode(text + "=" * (-len(text) % 8))))
    return f"shares/{index[:2]}/{index}"


# --- what the web interface says ------------------------------------------------------------------------------------


def connected_servers(welcome: Mapping[str, Any]) -> set[str]:
    """Nicknames of the storage servers that a gateway is connected to, from ``GET /?t=json``. The status of servers that
    speak HTTP is "connected", of those that speak Foolscap "Connected to ..."."""
    return {s["nickname"] for s in welcome["servers"] if str(s["connection_status"]).lower().startswith("connected")}


@dataclass(frozen=True)
class FileHealth:
    """What ``t=check`` says of a file."""

    shares: int  # different ones that are there
    expected: int
    spread: int  # servers of which each holds a share that no other is counted for: Tahoe-LAFS' happiness
    recoverable: bool

    def whole(self, servers: int) -> bool:
        """All shares there, each on a server of its own as far as there are servers. Tahoe-LAFS itself calls a file healthy
        whose shares share servers, and does not repair it."""
        return self.shares >= self.expected and self.spread >= min(self.expected, servers)


def file_health(checked: Mapping[str, Any]) -> FileHealth | None:
    """From ``POST /uri/CAP?t=check&output=JSON``, also with ``repair=true``; None when the data are in the capability."""
    results = checked.get("post-repair-results", checked)["results"] if checked.get("storage-index") else None
    if results is None:
        return None
    return FileHealth(
        results["count-shares-good"],
        results["count-shares-expected"],
        results["count-happiness"],
        results["recoverable"],
    )


def busy(status: Mapping[str, Any]) -> list[str]:
    """Transfers that a gateway is working on, in words, from ``GET /status?t=json``."""
    return [f"{job['type']}: {job['status']}" for job in status["active"]]
