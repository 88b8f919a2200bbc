"""The most that a lab's network lets through for a cell, computed from the messages of its operations. Pure.

Each network interface carries so many bytes per user byte in each direction; capacity over demand of the interface that
is short first is the bound. Where data could be spread in several ways, the one that gives the highest figure is taken:
a bound must not be exceeded by luck. docs/methodology.md, "Bounds", tells what is counted and what is not.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterable
from typing import Any

from assay.model.baseline import Bound, Limit
from assay.model.lab import Lab
from assay.model.layout import Layout
from assay.model.messages import (
    CLIENT,
    Operation,
    Servers,
    UnknownPatternError,
    messages,
    pattern,
    stripe_bytes,
)
from assay.model.point import FioPoint, Point

#: TCP payload of a full frame at MTU 1500 with time stamps (1500 - 20 - 20 - 12) over the bytes that a shaper counts for
#: it (1500 + 14 of Ethernet). Measured with iperf3 on shaped links: 0.955 to 0.958.
PAYLOAD_SHARE = 1448 / 1514
MOST_OPERATIONS = 512  # looked at to find the mean demand of operations that lie differently in their stripes
#: Options of fio that change size, place or file of operations: then only the best case is known.
_CHANGES_OPERATIONS = frozenset(
    {
        "bs", "bsrange", "blocksize", "blocksize_range", "bssplit", "bs_unaligned", "blocksize_unaligned", "blockalign", "ba",
        "bs_is_seq_rand", "percentage_random", "random_distribution", "rw", "readwrite", "offset_align", "zonemode",
    }
)  # fmt: skip
_CHANGES_FILES = frozenset({"nrfiles", "filename", "filename_format", "openfiles", "filesize", "offset_increment"})


def payload_bytes_per_second(bandwidth: int) -> float:
    """TCP payload that a link shaped to ``bandwidth`` bytes/s carries in one direction."""
    return bandwidth * PAYLOAD_SHARE


def burst_bytes(bandwidth: int) -> int:
    """Bytes that a shaped link lets through at once: a millisecond's worth, and not below 128 KiB."""
    return max(128 << 10, bandwidth // 1000)


def bound_for(
    system_name: str, layout: Layout, lab: Lab, point: Point, link_bytes_per_second: float | None
) -> Bound | None:
    """The bound of a cell whose system is deployed on hosts of the lab; None when there is none to be known: no message
    pattern for this system and layout, file systems that are mounted already, or a link of unknown speed.

    ``system_name`` is the first part of the candidate, e.g. ``glusterfs``. ``link_bytes_per_second`` is the measured
    payload of a link, used when the lab's links are not shaped; the bound is not enforced then.
    """
    shaped = lab.network.bandwidth
    link = payload_bytes_per_second(shaped) if shaped is not None else link_bytes_per_second
    if lab.kind != "local" or not link or link <= 0 or not point.moves_data:
        return None
    servers = Servers(layout, lab.hosts, point.degraded_hosts)
    try:
        limits = find_limits(system_name, servers, point, clients=min(point.clients, lab.clients))
    except UnknownPatternError:
        return None
    return bound_of(
        limits, point, link, burst=burst_bytes(shaped) * PAYLOAD_SHARE if shaped else 0.0, enforced=shaped is not None
    )


def reads_from_memory(point: Point) -> bool:
    """Whether the point claims that its reads are answered by the client's page cache: then no network bounds them."""
    return point.cache == "warm" and not point.direct


def bound_of(limits: list[Limit], point: Point, link: float, *, burst: float = 0.0, enforced: bool = False) -> Bound:
    """What follows from the limits when each link carries ``link`` bytes/s in each direction."""
    share = _read_share(point)
    read, read_nic = _least(limits, link, 1.0) if point.reads else (None, "")
    write, write_nic = _least(limits, link, 0.0) if point.writes else (None, "")
    return Bound(
        read_bytes_per_second=read,
        write_bytes_per_second=write,
        total_bytes_per_second=_least(limits, link, share)[0],
        link_bytes_per_second=link,
        burst_bytes=burst,
        read_limit=read_nic,
        write_limit=write_nic,
        limits=limits,
        enforced=enforced,
    )


def _read_share(point: Point) -> float:
    if point.reads and point.writes:
        return point.read_share if isinstance(point, FioPoint) else 0.5
    return 1.0 if point.reads else 0.0


def _least(limits: Iterable[Limit], link: float, read_share: float) -> tuple[float | None, str]:
    """The figure of the limit that is reached first, and that limit in words."""
    least, words = math.inf, ""
    for limit in limits:
        demand = read_share * limit.per_byte_read + (1 - read_share) * limit.per_byte_written
        if demand > 0 and limit.links * link / demand < least:
            least = limit.links * link / demand
            unit = "byte" if demand == 1 else "bytes"
            words = f"{limit.nic}: {demand:.4g} {unit} per byte {'read' if read_share else 'written'}"
    return (least, words) if words else (None, "")


def find_limits(system_name: str, servers: Servers, point: Point, *, clients: int) -> list[Limit]:
    """The limits of a point. Raises UnknownPatternError."""
    read: dict[tuple[str, str], float] = {}
    if not reads_from_memory(point):
        read = _demand(system_name, servers, _operations("read", system_name, servers.layout, point))
    written = _demand(system_name, servers, _operations("write", system_name, servers.layout, point))
    places = _places(pattern(system_name, servers.layout).unit, point)
    limits: dict[str, list[Limit]] = {"client": [], "file": [], "all": []}  # named in this order when they are equal
    for way in ("out", "in"):
        per_read = {host: n for (host, to), n in read.items() if to == way}
        per_written = {host: n for (host, to), n in written.items() if to == way}
        client = per_read.pop(CLIENT, 0.0), per_written.pop(CLIENT, 0.0)
        limits["client"].append(_limit(f"client {way}", clients, *client))
        # hosts that serve one file (or one piece of it): at best no two files share any of them
        pairs = {(per_read.get(h, 0.0), per_written.get(h, 0.0)) for h in {*per_read, *per_written}}
        if math.isfinite(places):
            limits["file"] += [_limit(f"one host of each file {way}", places, *pair) for pair in _undominated(pairs)]
        everyone = sum(per_read.values()), sum(per_written.values())
        limits["all"].append(_limit(f"all hosts {way}", max(1, servers.hosts - servers.lost), *everyone))
    every = [*limits["client"], *limits["file"], *limits["all"]]
    return [limit for limit in every if limit.per_byte_read or limit.per_byte_written]


def _limit(nic: str, links: float, per_byte_read: float, per_byte_written: float) -> Limit:
    return Limit(nic=nic, links=links, per_byte_read=per_byte_read, per_byte_written=per_byte_written)


def _undominated(pairs: set[tuple[float, float]]) -> list[tuple[float, float]]:
    return sorted(p for p in pairs if not any(q != p and q[0] >= p[0] and q[1] >= p[1] for q in pairs))


def _operations(direction: str, system_name: str, layout: Layout, point: Point) -> list[Operation]:
    """Operations that stand for all of one direction of a point.

    What is sequential or goes through a page cache may be merged into whole stripes on its way, and then needs least.
    Random direct operations go as they are; their starts are multiples of the block size, so how they lie in the
    stripes repeats.
    """
    assert direction in ("read", "write")
    stripe = stripe_bytes(system_name, layout)
    size = _size(point)
    period = stripe // math.gcd(stripe, size)
    as_they_are = point.random and point.direct and not _CHANGES_OPERATIONS & _options(point).keys()
    if not as_they_are or period > MOST_OPERATIONS:
        return [Operation(direction, 0, stripe if stripe > 1 else size)]
    return [Operation(direction, i * size, size) for i in range(period)]


def _demand(system_name: str, servers: Servers, operations: list[Operation]) -> dict[tuple[str, str], float]:
    """(host, "out" or "in") -> bytes through its interface per user byte."""
    moved: dict[tuple[str, str], float] = defaultdict(float)
    for operation in operations:
        for message in messages(system_name, servers, operation):
            moved[message.source, "out"] += message.bytes
            moved[message.target, "in"] += message.bytes
    user = sum(operation.length for operation in operations)
    return {key: count / user for key, count in moved.items()}


def _places(unit: int | None, point: Point) -> float:
    """How many files, or pieces of files that have hosts of their own, are in use at one moment at most; inf: any number."""
    if _CHANGES_FILES & _options(point).keys():
        return math.inf
    files = point.threads * point.clients
    if unit is None:
        return files
    if not point.direct or _CHANGES_OPERATIONS & _options(point).keys():
        return math.inf  # the page cache reads ahead and writes behind
    size = _size(point)
    if not point.random:
        return files * (math.ceil(point.depth * size / unit) + 1)
    return files * point.depth * (math.ceil(size / unit) + 1)


def _size(point: Point) -> int:
    return point.block_size if isinstance(point, FioPoint) else max(1, point.operation_bytes)


def _options(point: Point) -> dict[str, Any]:
    return point.options if isinstance(point, FioPoint) else {}
