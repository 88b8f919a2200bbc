"""Who sends how many bytes of data to whom: the message list of one operation, for each system and layout. Pure.

Hosts are called ``client`` and ``host:0``, ``host:1``, ...; what a host sends to itself crosses no network and is not
listed. Only data count, no acknowledgements and no metadata: what is computed from these lists is never exceeded.

Sources: glusterfs ``xlators/cluster/{dht,afr,ec}``, checked against a trace of 10.3 (tests); Ceph ``PrimaryLogPG``, ``ECBackend``;
EOS ``fst/layout``; HDFS ``DFSStripedOutputStream``; MooseFS ``matocsserv.c``; XtreemFS ``rwre``; Tahoe-LAFS ``immutable/encode.py``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from assay.model.layout import Layout, LayoutKind

CLIENT = "client"
KIB, MIB = 1 << 10, 1 << 20


@dataclass(frozen=True)
class Message:
    """Data from one host to another."""

    source: str
    target: str
    bytes: float  # a fraction where parity is counted per byte


@dataclass(frozen=True)
class Operation:
    """One read or write of user data. Bytes."""

    direction: Literal["read", "write"]
    offset: int
    length: int
    file: int = 0  # number of the file: others are placed from another host on
    file_bytes: int | None = None  # length of the file before; None: longer than what the operation touches


@dataclass(frozen=True)
class Servers:
    """The storage hosts of one deployment; ``lost`` of them are dead."""

    layout: Layout
    hosts: int
    lost: int = 0

    @property
    def alive(self) -> int:
        """Holders of a file that are left in the best case for throughput: the lost ones are among them, as far as the
        layout bears it, and get nothing sent."""
        return self.layout.width - min(self.lost, self.layout.parity)

    def holder(self, file: int, number: int) -> str:
        """Host of one copy or shard of a file. More holders than hosts: they share hosts."""
        return f"host:{(file * self.layout.width + number) % max(1, self.hosts - self.lost)}"


class UnknownPatternError(LookupError):
    """The message pattern of this system and layout is not known."""


def messages(system: str, servers: Servers, operation: Operation) -> list[Message]:
    """The messages of one operation. Raises UnknownPatternError, ValueError for a length that is not positive."""
    if operation.length <= 0 or operation.offset < 0:
        raise ValueError(f"an operation needs a positive length and an offset from 0: {operation}")
    sent = pattern(system, servers.layout).send(servers, operation)
    return [m for m in sent if m.source != m.target and m.bytes]


@dataclass(frozen=True)
class Pattern:
    """How a system moves the data of one layout."""

    send: Callable[[Servers, Operation], list[Message]]
    chunk: Callable[[int], int] = lambda _: 1  # data shards -> bytes of a shard in one stripe; 1: no stripes
    unit: int | None = None  # bytes of a file after which other hosts serve it; None: the whole file is on one set


def pattern(system: str, layout: Layout) -> Pattern:
    """The pattern of ``glusterfs`` and so on. Raises UnknownPatternError."""
    try:
        return PATTERNS[system, layout.kind]
    except KeyError:
        raise UnknownPatternError(f"how {system} with layout {layout} sends its data is not known") from None


def stripe_bytes(system: str, layout: Layout) -> int:
    """User bytes of one full stripe; 1 where there are none. Raises UnknownPatternError."""
    chunk = pattern(system, layout).chunk(layout.data)
    return chunk * layout.data if chunk > 1 else 1


# --- whole copies ---------------------------------------------------------------------------------------------------


def _client_to_all(servers: Servers, op: Operation) -> list[Message]:
    """The client sends every copy itself and reads one."""
    if op.direction == "read":
        return [Message(servers.holder(op.file, 0), CLIENT, op.length)]
    return [Message(CLIENT, servers.holder(op.file, i), op.length) for i in range(servers.alive)]


def _through_primary(servers: Servers, op: Operation) -> list[Message]:
    """The client talks to the primary (entry server), which sends the other copies."""
    primary = servers.holder(op.file, 0)
    if op.direction == "read":
        return [Message(primary, CLIENT, op.length)]
    others = [Message(primary, servers.holder(op.file, i), op.length) for i in range(1, servers.alive)]
    return [Message(CLIENT, primary, op.length), *others]


def _along_chain(servers: Servers, op: Operation) -> list[Message]:
    """The client sends one copy to the first holder, which passes it on to the second, and so on."""
    if op.direction == "read":
        return [Message(servers.holder(op.file, 0), CLIENT, op.length)]
    stations = [CLIENT, *(servers.holder(op.file, i) for i in range(servers.alive))]
    return [Message(a, b, op.length) for a, b in itertools.pairwise(stations)]


def _one_server(_: Servers, op: Operation) -> list[Message]:
    if op.direction == "read":
        return [Message("host:0", CLIENT, op.length)]
    return [Message(CLIENT, "host:0", op.length)]


# --- shards of stripes ----------------------------------------------------------------------------------------------


def _stripes(op: Operation, stripe: int) -> tuple[int, int]:
    """Stripes that the operation touches, and those of them whose old content a write needs: partly overwritten and
    there already."""
    first, end = op.offset // stripe, -(-(op.offset + op.length) // stripe)
    partial = set()
    exists = op.file_bytes
    if op.offset % stripe and (exists is None or exists > first * stripe):
        partial.add(first)
    stop = op.offset + op.length
    if stop % stripe and (exists is None or exists > stop):
        partial.add(end - 1)
    return end - first, len(partial)


def _touched(op: Operation, chunk: int, data: int) -> list[int]:
    """Bytes of each data shard that the operation itself covers."""

    def below(position: int, shard: int) -> int:
        stripes, rest = divmod(position, chunk * data)
        return stripes * chunk + min(chunk, max(0, rest - shard * chunk))

    return [below(op.offset + op.length, shard) - below(op.offset, shard) for shard in range(data)]


def _client_codes(
    chunk: Callable[[int], int], *, whole_stripes: bool, overwrites: bool, skips_lost: bool = True
) -> Callable[[Servers, Operation], list[Message]]:
    """The client cuts stripes into shards, adds parity and talks to every holder itself."""

    def send(servers: Servers, op: Operation) -> list[Message]:
        data, size = servers.layout.data, chunk(servers.layout.data)
        stripes, partial = _stripes(op, size * data)
        holders = [servers.holder(op.file, i) for i in range(servers.layout.width)]
        if op.direction == "read":
            shards = [size * stripes] * data if whole_stripes else _touched(op, size, data)
            return [Message(h, CLIENT, n) for h, n in zip(holders, shards, strict=False)]
        old = [Message(h, CLIENT, size * partial) for h in holders[:data]] if overwrites else []
        receivers = holders[: servers.alive] if skips_lost else holders
        if overwrites:
            return [*old, *(Message(CLIENT, h, size * stripes) for h in receivers)]
        # nothing is ever rewritten, so small writes are collected until a stripe is full: parity per byte is all there is
        return [Message(CLIENT, h, op.length / data) for h in receivers]

    return send


def _primary_codes(
    chunk: Callable[[int], int], *, whole_stripes: bool, overwrites: bool
) -> Callable[[Servers, Operation], list[Message]]:
    """The client talks to the primary (entry server), which holds the first shard and codes for all."""

    def send(servers: Servers, op: Operation) -> list[Message]:
        data, size = servers.layout.data, chunk(servers.layout.data)
        stripes, partial = _stripes(op, size * data)
        primary, *others = [servers.holder(op.file, i) for i in range(servers.alive)]
        if op.direction == "read":
            shards = [size * stripes] * data if whole_stripes else _touched(op, size, data)
            fetched = [Message(h, primary, n) for h, n in zip(others, shards[1:], strict=False)]
            return [*fetched, Message(primary, CLIENT, op.length)]
        old = [Message(h, primary, size * partial) for h in others[: data - 1]] if overwrites else []
        each = size * stripes if overwrites else op.length / data
        return [Message(CLIENT, primary, op.length), *old, *(Message(primary, h, each) for h in others)]

    return send


def _gluster_chunk(_: int) -> int:
    return 512


def _ceph_chunk(_: int) -> int:
    return 4 * KIB  # osd_pool_erasure_code_stripe_unit


def _mebibyte(_: int) -> int:
    return MIB  # EOS' block of rain layouts, HDFS' cell


def _tahoe_chunk(data: int) -> int:
    return -(-MIB // data)  # a segment of 1 MiB


_COPIES = Pattern(_client_to_all)
_CEPH_OBJECT = 4 * MIB

#: What each system does, by its name and kind of layout. Best case where versions and settings differ.
PATTERNS: dict[tuple[str, LayoutKind], Pattern] = {
    ("glusterfs", "distributed"): _COPIES,
    ("glusterfs", "replicated"): _COPIES,
    ("glusterfs", "rain"): Pattern(
        _client_codes(_gluster_chunk, whole_stripes=True, overwrites=True), _gluster_chunk
    ),
    ("ceph", "distributed"): Pattern(_through_primary, unit=_CEPH_OBJECT),
    ("ceph", "replicated"): Pattern(_through_primary, unit=_CEPH_OBJECT),
    ("ceph", "rain"): Pattern(
        _primary_codes(_ceph_chunk, whole_stripes=True, overwrites=True), _ceph_chunk, unit=_CEPH_OBJECT
    ),
    ("eos", "distributed"): _COPIES,
    ("eos", "replicated"): Pattern(_through_primary),
    ("eos", "rain"): Pattern(_primary_codes(_mebibyte, whole_stripes=False, overwrites=False), _mebibyte),
    ("nfs", "distributed"): Pattern(_one_server),
    ("lustre", "distributed"): _COPIES,
    ("moosefs", "distributed"): _COPIES,
    ("moosefs", "replicated"): Pattern(_along_chain, unit=64 * MIB),
    ("xtreemfs", "distributed"): _COPIES,
    ("xtreemfs", "replicated"): Pattern(_through_primary),
    ("hdfs", "distributed"): _COPIES,
    ("hdfs", "replicated"): Pattern(_along_chain, unit=128 * MIB),
    ("hdfs", "rain"): Pattern(_client_codes(_mebibyte, whole_stripes=False, overwrites=False), _mebibyte),
    ("tahoe", "rain"): Pattern(
        # shares that have no server of their own go to one that has another
        _client_codes(_tahoe_chunk, whole_stripes=True, overwrites=False, skips_lost=False),
        _tahoe_chunk,
    ),
}  # fmt: skip
