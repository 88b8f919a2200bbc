"""GlusterFS volumes, pure: which bricks in which order, and what a client's graph says of its volume."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass

from assay.model import units
from assay.model.lab import Disk
from assay.model.layout import Layout, parse_layout
from assay.systems.base import AdapterError

MOST_DATA = 16  # EC_METHOD_MAX_FRAGMENTS in xlators/cluster/ec/src/ec-method.h
FILESYSTEM_SHARE = 0.95  # of a brick that files may fill; gluster itself avoids bricks with less than 10 % free
FILESYSTEM_BYTES = {"xfs": 80 << 20, "ext4": 64 << 20, "btrfs": 128 << 20}  # of an empty one: log, inodes, metadata


def layout_of(text: str) -> Layout:
    """The layout, refused when GlusterFS cannot do it. Raises AdapterError."""
    try:
        layout = parse_layout(text)
    except ValueError as error:
        raise AdapterError(f"glusterfs/{text}: {error}") from None
    if layout.kind == "replicated" and layout.width < 2:
        raise AdapterError(f"glusterfs/{text}: one copy is no replication; write glusterfs/distributed")
    if layout.kind == "rain" and layout.parity >= layout.data:
        raise AdapterError(
            f"glusterfs/{text}: GlusterFS wants less parity than data; glusterfs/rain-{layout.parity + 1}-{layout.parity} would do"
        )
    if layout.data > MOST_DATA:
        raise AdapterError(f"glusterfs/{text}: GlusterFS spreads over at most {MOST_DATA} data bricks")
    return layout


def check_hosts(layout: Layout, hosts: int, per_host: int) -> None:
    """Raises AdapterError, with the number that would do, unless the bricks of such a lab make whole sets on distinct hosts."""
    width = layout.width
    if hosts >= width and hosts * per_host % width == 0:
        return
    enough = next(n for n in range(max(hosts, width), max(hosts, width) + width + 1) if n * per_host % width == 0)
    disks = f" with {per_host} disks each" if per_host > 1 else ""
    raise AdapterError(
        f"glusterfs/{layout} needs hosts in multiples of {width}, one for each part of a file, and the lab has "
        f"{hosts}{disks}; set lab.hosts to {enough}"
    )


def check_room(layout: Layout, hosts: int, disk: Disk, brick: str, dataset_bytes: int) -> None:
    """Raises AdapterError, with the size that would do, unless the data set fits on the bricks. ``disk.size`` is resolved."""
    if disk.size is None:
        return
    bricks = hosts * disk.per_host
    own = FILESYSTEM_BYTES[brick]
    needed = dataset_bytes * layout.overhead / bricks / FILESYSTEM_SHARE / 0.9 + own
    if needed <= disk.size:
        return
    raise AdapterError(
        f"glusterfs/{layout}: the data set of {units.format_bytes(dataset_bytes)} takes {layout.overhead:g} times its size on "
        f"{bricks} disks; lab.disk.size must be at least {-(-int(needed) // (1 << 20))}MiB, it is {units.format_bytes(disk.size)}"
    )


def bricks_in_order(hosts: Sequence[str], per_host: int, directory: str = "/run/b/{disk}/brick") -> list[str]:
    """``host:/directory`` of every brick; a volume's sets are consecutive bricks, and no set has two on one host: first
    disk 1 of every host, then disk 2 (see check_hosts)."""
    return [f"{host}:{directory.format(disk=disk)}" for disk in range(1, per_host + 1) for host in hosts]


def create_arguments(layout: Layout) -> list[str]:
    """What ``volume create`` is told of the layout."""
    if layout.kind == "replicated":
        return ["replica", str(layout.width)]
    if layout.kind == "rain":
        return ["disperse-data", str(layout.data), "redundancy", str(layout.parity)]
    return []


def spread(sets: Sequence[Sequence[str]], kept: str) -> list[str]:
    """Hosts in the order in which they are lost, given the hosts of each set: never ``kept``, and a second one of the same
    set only when every set has lost one."""
    columns = [[host for host in reversed(members) if host != kept] for members in reversed(sets)]
    rows = range(max(map(len, columns), default=0))
    return list(dict.fromkeys(column[row] for row in rows for column in columns if row < len(column)))


# --- the graph of a client ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Translator:
    """One translator of a graph, as in a volfile."""

    name: str
    kind: str  # e.g. cluster/disperse
    options: dict[str, str]
    below: tuple[str, ...]  # names of its subvolumes


@dataclass(frozen=True)
class Graph:
    """What a client's volfile says of the volume."""

    volume: str
    layout: Layout
    bricks: tuple[str, ...]  # host:/directory, in the volume's order
    clients: tuple[str, ...]  # names of the protocol/client translators, in the same order
    sets: tuple[tuple[str, ...], ...]  # bricks of each replica or dispersed set; of one brick each when distributed
    subvolumes: tuple[str, ...]  # names of what files are distributed over, one for each set
    translators: tuple[str, ...]  # kinds, from the bricks up, each once: features of a volume are translators
    options: dict[str, str]  # options that the translators carry, as translator-kind.option


def parse_volfile(text: str) -> list[Translator]:
    """Translators of a volfile, from the bricks up (the format is that of libglusterfs/src/graph.y)."""
    found = []
    for block in re.findall(r"^volume (.*?)^end-volume", text, re.MULTILINE | re.DOTALL):
        name, *lines = block.splitlines()
        words = [line.split(maxsplit=2) for line in lines if line.strip()]
        found.append(
            Translator(
                name=name.strip(),
                kind=next((w[1] for w in words if w[0] == "type"), ""),
                options={w[1]: w[2] if len(w) > 2 else "" for w in words if w[0] == "option"},
                below=tuple(x for w in words if w[0] == "subvolumes" for x in " ".join(w[1:]).split()),
            )
        )
    return found


def graph_of(volfile: str) -> Graph:
    """Raises AdapterError when it is no client's graph of a volume."""
    translators = parse_volfile(volfile)
    brick_of = {
        t.name: f"{t.options['remote-host']}:{t.options['remote-subvolume']}"
        for t in translators
        if t.kind == "protocol/client" and {"remote-host", "remote-subvolume"} <= set(t.options)
    }
    if not brick_of or not translators:
        raise AdapterError("the mount's graph has no bricks; it is not a GlusterFS volume")
    groups = [t for t in translators if t.kind in ("cluster/replicate", "cluster/disperse")]
    if groups:
        first = groups[0]
        width = len(first.below)
        parity = int(first.options.get("redundancy", 0)) if first.kind == "cluster/disperse" else width - 1
        layout = Layout("rain" if first.kind == "cluster/disperse" else "replicated", width - parity, parity)
    else:
        layout = Layout("distributed")
    return Graph(
        volume=next(t.name for t in reversed(translators) if t.kind != "meta"),
        layout=layout,
        bricks=tuple(brick_of.values()),
        clients=tuple(brick_of),
        sets=tuple(tuple(brick_of[b] for b in g.below) for g in groups) or tuple((b,) for b in brick_of.values()),
        subvolumes=tuple(g.name for g in groups) or tuple(brick_of),
        translators=tuple(dict.fromkeys(t.kind for t in translators)),
        options={f"{t.kind}.{k}": v for t in translators if t.kind != "protocol/client" for k, v in t.options.items()},
    )


# --- the layout of directories ------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Range:
    """Hash values of names whose files belong to one subvolume, both ends included; ``kind`` 1 is the ordinary hash."""

    commit: int
    kind: int
    start: int
    stop: int


def parse_range(digits: str) -> Range:
    """The value of ``trusted.glusterfs.dht``: four big-endian words of 32 bits. Raises ValueError."""
    value = bytes.fromhex(digits)
    if len(value) != 16:
        raise ValueError(f"{digits!r} is no layout of GlusterFS")
    words = [int.from_bytes(value[i : i + 4], "big") for i in range(0, 16, 4)]
    return Range(*words)
