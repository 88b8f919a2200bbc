"""GlusterFS: directory layouts, which brick a name goes to, shards, replica and erasure sets.

Follows ``dht-layout.c``, ``dht-selfheal.c``, ``dht-hashfn.c``, ``shard.c``, ``afr-common.c`` and ``ec-*.c`` of GlusterFS 10.
Verified against GlusterFS 10.3 on x86-64: 768 layout entries in 64 directories, 45 weighted ones, hashes of 155 names
(vectors ``gluster_*``), file operations of a 4+2 volume (``gluster_ec_4p2_real_fops.json``), and live volumes
(tests/system/test_placement_live.py). The choice of a read child by AFR follows the source only.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay._core import gluster_name_hashes, superfast_hash
from assay.placement.errors import PlacementError

TOP = 0xFFFFFFFF
SHARD_DIRECTORY = "/.shard"
FRAGMENT = 512  # bytes of one brick in each stripe of a disperse volume
XATTR = "trusted.glusterfs.dht"


def name_hashes(
    names: Sequence[bytes], regex: bytes | None = None, extra_regex: bytes | None = None
) -> NDArray[np.uint32]:
    """The hash of each name (no directories in it) that its place in the layout is looked up with.

    Names are munged first, by ``extra_regex`` if it matches, else by ``regex`` (``cluster.rsync-hash-regex``; None is the
    default ``^\\.(.+)\\.[^.]+$``), whose first group counts as the name.
    """
    if regex is None and extra_regex is None:
        return np.frombuffer(gluster_name_hashes(list(names), True), np.uint32)
    rules = [re.compile(r, re.DOTALL) for r in (extra_regex, regex if regex is not None else rb"^\.(.+)\.[^.]+$") if r]

    def munged(name: bytes) -> bytes:
        for rule in rules:
            if (match := rule.search(name)) and match[1]:
                return match[1]
        return name

    return np.frombuffer(gluster_name_hashes([munged(n) for n in names], False), np.uint32)


@dataclass(frozen=True)
class Layout:
    """A directory's ranges: ``starts[i]`` to ``stops[i]`` (both included) belong to subvolume ``subvolumes[i]``."""

    subvolumes: tuple[str, ...]
    starts: tuple[int, ...]
    stops: tuple[int, ...]

    def find(self, hashes: NDArray[np.uint32]) -> NDArray[np.int64]:
        """Index of the subvolume for each hash; -1 where the layout has a gap."""
        used = [i for i in range(len(self.starts)) if self.stops[i] or not self.starts[i]]
        order = sorted(used, key=lambda i: self.starts[i])
        starts = np.array([self.starts[i] for i in order], np.uint32)
        place = np.searchsorted(starts, hashes, side="right") - 1
        found = np.array([*order, -1])[place]
        stops = np.array([*self.stops, 0], np.uint32)
        return np.where((place >= 0) & (hashes <= stops[found]), found, -1)

    def bricks_of(self, names: Sequence[bytes]) -> list[str]:
        """The subvolume of each name. Raises PlacementError where the layout has a gap."""
        found = self.find(name_hashes(names))
        if (found < 0).any():
            lost = names[int(np.argmin(found))]
            raise PlacementError(f"the layout has no range for {lost!r}: is a subvolume missing?")
        return [self.subvolumes[i] for i in found]

    @staticmethod
    def from_xattrs(values: Mapping[str, bytes]) -> Layout:
        """From the value of ``trusted.glusterfs.dht`` of one directory on every subvolume. Raises PlacementError."""
        names = sorted(values)
        words = []
        for name in names:
            if len(values[name]) != 16:
                raise PlacementError(f"{name}: {XATTR} has {len(values[name])} bytes instead of 16")
            words.append(np.frombuffer(values[name], ">u4").tolist())
        return Layout(tuple(names), tuple(w[2] for w in words), tuple(w[3] for w in words))


def new_layout(
    path: str, subvolumes: Sequence[str], chunks: Sequence[int] | None = None, spread: int | None = None
) -> Layout:
    """The layout that a new directory gets (``dht_selfheal_layout_new_directory``).

    ``subvolumes`` are the xlators' names (``v-client-0`` or ``v-replicate-0``...), ``chunks`` their sizes in MiB, rounded
    up (``cluster.weighted-rebalance``, on by default; equal where None), ``spread`` is ``cluster.dir-spread``-like: how
    many of them are used. Order is that of ``strcmp``: ``v-client-10`` comes before ``v-client-2``. Raises PlacementError.
    """
    if not subvolumes or (chunks is not None and (len(chunks) != len(subvolumes) or min(chunks) < 0)):
        raise PlacementError("a layout needs subvolumes, and as many sizes as these where sizes are given")
    order = sorted(range(len(subvolumes)), key=lambda i: subvolumes[i].encode())
    count = len(order)
    used = min(spread or count, count)
    begin = int(name_hashes([path.encode()])[0]) % count
    sizes = [chunks[i] for i in order] if chunks is not None and min(chunks) > 0 else [1] * count
    walk = [(begin + j) % count for j in range(used)]
    weighted = chunks is not None and min(chunks) > 0
    # Upstream keeps the size of a chunk as a double when it weighs and as an integer otherwise.
    total = sum(sizes[i] for i in walk)
    one = TOP / total if weighted else TOP // used
    starts, stops = [0] * count, [0] * count
    at = 0
    for i in walk:
        size = int(one * sizes[i])
        starts[i], stops[i] = at, (at + size - 1) & TOP
        at += size
    stops[walk[-1]] = TOP
    return Layout(tuple(subvolumes[i] for i in order), tuple(starts), tuple(stops))


def fix_layout(old: Layout, path: str, chunks: Sequence[int] | None = None) -> Layout:
    """The layout after ``rebalance fix-layout``: a new one whose ranges are swapped so that much stays where it was
    (``dht_selfheal_layout_maximize_overlap``; only with equal weights). ``old`` has one entry per subvolume, empty
    ranges (0 to 0) for new ones. Follows the source; not verified on a live volume yet."""
    new = new_layout(path, old.subvolumes, chunks)
    before = dict(zip(old.subvolumes, zip(old.starts, old.stops, strict=True), strict=True))
    ranges = list(zip(new.starts, new.stops, strict=True))
    if chunks is None or len(set(chunks)) == 1:

        def overlap(i: int, j: int) -> int:
            """Of new range ``j`` with what subvolume ``i`` had."""
            (a, b), (c, d) = before[new.subvolumes[i]], ranges[j]
            if (a, b) == (0, 0) or (c, d) == (0, 0):
                return 0
            return max(0, min(b, d) - max(a, c) + 1)

        for i in range(len(ranges)):
            best, gain_at = 0, None
            for j in range(i + 1, len(ranges)):
                gain = overlap(i, j) + overlap(j, i) - overlap(i, i) - overlap(j, j)
                if gain > best:
                    best, gain_at = gain, j
            if gain_at is not None:
                ranges[i], ranges[gain_at] = ranges[gain_at], ranges[i]
    return Layout(new.subvolumes, tuple(r[0] for r in ranges), tuple(r[1] for r in ranges))


def shard_names(gfid: str, offset: int, length: int, block: int = 64 << 20) -> list[bytes | None]:
    """Names below ``/.shard`` of the blocks that an extent touches; None stands for block 0, which is the file itself."""
    if length <= 0:
        return []
    first, last = offset // block, (offset + length - 1) // block
    return [b"%s.%d" % (gfid.encode(), n) if n else None for n in range(first, last + 1)]


def replica_bricks(subvolume: int, replicas: int) -> list[int]:
    """Bricks (in the order of ``volume create``) of a replica set; all of them are written."""
    return list(range(subvolume * replicas, (subvolume + 1) * replicas))


def read_child(gfid: bytes, children: int) -> int:
    """Where reads of a file start: the AFR child under ``cluster.read-hash-mode`` 1, the first brick of a disperse set
    under ``read-policy`` gfid-hash. ``gfid`` is the 16 raw bytes."""
    return superfast_hash(gfid) % children


@dataclass(frozen=True)
class EcAccess:
    """What a disperse set does for one write: bytes each brick writes, and extents that k bricks are read for first."""

    brick_offset: int
    brick_bytes: int
    writes: int  # bricks that write
    reads: tuple[tuple[int, int], ...]  # (offset, bytes) per reading brick
    readers: int


def ec_write(offset: int, length: int, size: int, data: int, parity: int) -> EcAccess:
    """A write of ``length`` bytes at ``offset`` to a file of ``size`` bytes on ``data + parity`` bricks, without the
    stripe cache (``ec-inode-write.c``): whole stripes are written on every brick, edge stripes that exist are read."""
    stripe = FRAGMENT * data
    first, last = offset // stripe, -(-(offset + length) // stripe)
    reads = []
    if offset % stripe and size > first * stripe:
        reads.append((first * FRAGMENT, FRAGMENT))
    end = offset + length
    tail = end // stripe
    if end % stripe and size > end and (tail != first or not reads):
        reads.append((tail * FRAGMENT, FRAGMENT))
    return EcAccess(first * FRAGMENT, (last - first) * FRAGMENT, data + parity, tuple(reads), data)


def ec_read(offset: int, length: int, data: int) -> tuple[int, int]:
    """(offset, bytes) that each of ``data`` bricks is asked for to read an extent."""
    stripe = FRAGMENT * data
    first, last = offset // stripe, -(-(offset + length) // stripe)
    return first * FRAGMENT, (last - first) * FRAGMENT


def ec_readers(gfid: bytes, data: int, parity: int) -> list[int]:
    """The bricks of a healthy disperse set that a file is read from."""
    first = read_child(gfid, data + parity)
    return [(first + i) % (data + parity) for i in range(data)]


PATHINFO = "trusted.glusterfs.pathinfo"  # a virtual attribute of mounted volumes
_RANGE = re.compile(r"\((\S+) (\d+) (\d+)\)")


def parse_pathinfo(text: str) -> tuple[Layout | None, tuple[str, ...]]:
    """What a mounted volume says of a path in :data:`PATHINFO`: the layout of a directory, and the bricks that hold it,
    sorted, as ``host:/brick``. Verified on GlusterFS 10.3."""
    roots = re.findall(r"<POSIX\(([^)]*)\):([^:>]*):", text)
    bricks = tuple(sorted(f"{host}:{root}" for root, host in roots))
    _, _, tail = text.partition("-layout ")
    ranges = _RANGE.findall(tail) if tail else []
    if not ranges:
        return None, bricks
    ranges.sort(key=lambda r: r[0].encode())
    names = tuple(r[0] for r in ranges)
    return Layout(names, tuple(int(r[1]) for r in ranges), tuple(int(r[2]) for r in ranges)), bricks


def misplaced(layout: Layout, found: Mapping[bytes, tuple[str, ...]]) -> list[bytes]:
    """Names whose bricks are not where the layout says, given the bricks of many names of one directory.

    Subvolumes are told from bricks by what most of their names say, and no two subvolumes may share a brick."""
    names = list(found)
    predicted = layout.find(name_hashes(names)).tolist()
    votes: dict[int, dict[tuple[str, ...], int]] = {}
    for name, subvolume in zip(names, predicted, strict=True):
        counts = votes.setdefault(subvolume, {})
        counts[found[name]] = counts.get(found[name], 0) + 1
    owner: dict[tuple[str, ...], int] = {}
    home: dict[int, tuple[str, ...]] = {}
    for subvolume, counts in sorted(votes.items(), key=lambda v: -max(v[1].values())):
        bricks = max(counts, key=counts.__getitem__)
        if subvolume >= 0 and owner.setdefault(bricks, subvolume) == subvolume:
            home[subvolume] = bricks
    return [n for n, s in zip(names, predicted, strict=True) if home.get(s) != found[n]]
