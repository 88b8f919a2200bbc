"""Every file of every stream laid over targets: what the pattern counter works with.

A file is cut into units; unit ``i`` is in group ``table[i % len(table)]``, and a group lists the targets that a read and a
write of it touch. :func:`spread` makes the tables for each system and layout; what is drawn by lot there comes from a seed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from assay._core import CrushMap
from assay.placement import ceph, eos, glusterfs, hdfs, lustre, moosefs, tahoe, xtreemfs
from assay.placement.crush import HOLE, read_map
from assay.placement.errors import PlacementError

WHOLE = 1 << 62  # a unit no file is larger than


@dataclass(frozen=True)
class Plan:
    """A system with a layout on targets, and how files are cut."""

    system: str
    targets: int
    kind: str = "striped"  # striped, distributed, replicated, rain
    data: int = 1
    parity: int = 0  # redundant parts; of n replicas: n - 1
    width: int = 1  # targets of one striped file
    unit: int | None = None  # bytes; None is the system's default
    crush: CrushMap | None = None  # Ceph: else a host for each target
    pool: ceph.Pool | None = None
    weights: NDArray[np.uint32] | None = None

    @property
    def parts(self) -> int:
        """Targets of one group of a redundant layout."""
        return self.data + self.parity


@dataclass
class Spread:
    """Tables and groups; see the module."""

    targets: int
    units: NDArray[np.uint64]
    table_starts: NDArray[np.uint64]
    tables: NDArray[np.uint32]
    reads: tuple[NDArray[np.uint32], NDArray[np.uint32]]
    writes: tuple[NDArray[np.uint32], NDArray[np.uint32]]
    random: bool  # whether lots were drawn


@dataclass
class _Groups:
    """Lists of targets by number, each kept once."""

    known: dict[tuple[tuple[int, ...], tuple[int, ...]], int] = field(default_factory=dict)

    def number(self, read: Sequence[int], write: Sequence[int]) -> int:
        return self.known.setdefault((tuple(read), tuple(write)), len(self.known))

    def lists(self, which: int) -> tuple[NDArray[np.uint32], NDArray[np.uint32]]:
        parts = [key[which] for key in self.known]
        starts = np.concatenate([[0], np.cumsum([len(p) for p in parts])]).astype(np.uint32)
        return starts, np.array([t for p in parts for t in p], np.uint32)


_Table = Callable[[int, str, int], list[int]]  # (stream, name, size in bytes) -> groups


def spread(plan: Plan, names: Sequence[str], sizes: NDArray[np.uint64], streams: int, seed: int = 0) -> Spread:
    """Lay ``streams`` copies of files (each stream has its own) over targets. Raises PlacementError."""
    makers = {
        "single": _single, "xtreemfs": _xtreemfs, "lustre": _lustre, "eos": _eos, "ceph": _ceph,
        "glusterfs": _gluster, "hdfs": _hdfs, "moosefs": _moosefs, "tahoe": _tahoe,
    }  # fmt: skip
    if plan.system not in makers:
        raise PlacementError(f"unknown system {plan.system!r}; known: {', '.join(sorted(makers))}")
    if plan.targets < 1 or streams < 1:
        raise PlacementError("targets and streams are at least 1")
    if plan.kind in ("replicated", "rain") and plan.parts > plan.targets and plan.system != "tahoe":
        raise PlacementError(f"{plan.parts} parts need as many targets, there are {plan.targets}")
    if plan.kind == "striped" and plan.width > plan.targets:
        raise PlacementError(f"a stripe width of {plan.width} needs as many targets, there are {plan.targets}")
    groups = _Groups()
    unit, table, drawn = makers[plan.system](plan, groups, np.random.default_rng(seed))
    tables = [table(s, n, int(size)) for s in range(streams) for n, size in zip(names, sizes, strict=True)]
    starts = np.concatenate([[0], np.cumsum([len(t) for t in tables])]).astype(np.uint64)
    flat = np.fromiter((g for t in tables for g in t), np.uint32, int(starts[-1]))
    units = np.full(len(names), unit, np.uint64)
    return Spread(plan.targets, units, starts, flat, groups.lists(0), groups.lists(1), drawn)


_Made = tuple[int, _Table, bool]


def _units(size: int, unit: int) -> int:
    return max(-(-size // unit), 1)


def _single(plan: Plan, groups: _Groups, _rng: np.random.Generator) -> _Made:
    """NFS or a NAS: everything on one target."""
    only = groups.number([0], [0])
    return plan.unit or 1 << 20, lambda *_: [only], False


def _columns(groups: _Groups, chosen: Sequence[int]) -> list[int]:
    return [groups.number([t], [t]) for t in chosen]


def _xtreemfs(plan: Plan, groups: _Groups, rng: np.random.Generator) -> _Made:
    usable = range(plan.targets)
    if plan.kind == "replicated":  # reads go to the first replica, writes through the primary to all

        def copies(*_: object) -> list[int]:
            chosen = xtreemfs.select_osds(usable, plan.parts, rng)
            return [groups.number(chosen[:1], chosen)]

        return plan.unit or xtreemfs.DEFAULT_STRIPE, copies, True
    _only(plan, "striped", "distributed")
    width = plan.width if plan.kind == "striped" else 1
    table = lambda *_: _columns(groups, xtreemfs.select_osds(usable, width, rng))  # noqa: E731
    return plan.unit or xtreemfs.DEFAULT_STRIPE, table, True


def _lustre(plan: Plan, groups: _Groups, rng: np.random.Generator) -> _Made:
    _only(plan, "striped", "distributed")
    osts = [lustre.Target(server=i, available=1 << 40) for i in range(plan.targets)]
    allocator = lustre.Allocator(osts, rng)
    width = plan.width if plan.kind == "striped" else 1
    return plan.unit or 4 << 20, lambda *_: _columns(groups, allocator.allocate(width)), True


def _eos(plan: Plan, groups: _Groups, rng: np.random.Generator) -> _Made:
    scheduler = eos.GeoTreeScheduler([[f"site::host{i}" for i in range(plan.targets)]], rng)
    if plan.kind == "rain":  # every write of a block goes with its group's parity

        def rain(*_: object) -> list[int]:
            chosen = scheduler.place(plan.parts)[1]
            parity = chosen[plan.data :]
            return [groups.number([t], [t, *parity]) for t in chosen[: plan.data]]

        return plan.unit or 1 << 20, rain, True
    copies = plan.parts if plan.kind == "replicated" else 1

    def replica(*_: object) -> list[int]:
        chosen = scheduler.place(copies)[1]
        return [groups.number(chosen[:1], chosen)]

    return plan.unit or 1 << 20, replica, True


def flat_map(hosts: int, pool_kind: int) -> CrushMap:
    """A crush map with one device in each of ``hosts`` equal hosts, and a rule that spreads over hosts."""
    lines = [f"device {i} osd.{i}" for i in range(hosts)] + ["type 0 osd", "type 1 host", "type 11 root"]
    tunables = {"choose_local_tries": 0, "choose_local_fallback_tries": 0, "choose_total_tries": 50}
    tunables |= {"chooseleaf_descend_once": 1, "chooseleaf_vary_r": 1, "chooseleaf_stable": 1, "straw_calc_version": 1}
    head = [f"tunable {k} {v}" for k, v in tunables.items()]
    for i in range(hosts):
        lines.append(f"host host{i} {{ id {-2 - i} alg straw2 hash 0 item osd.{i} weight 1.0 }}")
    items = " ".join(f"item host{i} weight 1.0" for i in range(hosts))
    steps = "step take default step chooseleaf firstn 0 type host step emit"
    if pool_kind == ceph.ERASURE:
        steps = "step set_chooseleaf_tries 5 step set_choose_tries 100 " + steps.replace("firstn", "indep")
    lines.append(f"root default {{ id -1 alg straw2 hash 0 {items} }}")
    lines.append(f"rule data {{ id 0 type {'erasure' if pool_kind == ceph.ERASURE else 'replicated'} {steps} }}")
    return read_map("\n".join(head + lines).encode())


def _ceph(plan: Plan, groups: _Groups, _rng: np.random.Generator) -> _Made:
    """Objects of 4 MiB (or ``unit``) named as CephFS names them; files of stream ``s`` have their own inodes."""
    erasure = plan.kind == "rain"
    kind = ceph.ERASURE if erasure else ceph.REPLICATED
    crush = plan.crush or flat_map(plan.targets, kind)
    count = 1 << max(7, (100 * plan.targets // max(plan.parts, 1) - 1).bit_length())
    pool = plan.pool or ceph.Pool(1, count, count, plan.parts if plan.kind in ("replicated", "rain") else 1, 0, kind)
    osds = ceph.OsdMap.of(crush, [pool], plan.weights)
    osds.require_size(pool.id)
    rows, primary = osds.up_sets(pool.id)
    if rows[rows != HOLE].size and int(rows[rows != HOLE].max()) >= plan.targets:
        raise PlacementError(f"the crush map has more devices than {plan.targets} targets")
    data = plan.data if pool.kind == ceph.ERASURE else 1
    numbers = []
    for row, first in zip(rows.tolist(), primary.tolist(), strict=True):
        held = [o for o in row if o != HOLE]
        if not held:
            raise PlacementError("a placement group has no OSD; are all of them out?")
        numbers.append(groups.number([o for o in row[:data] if o != HOLE] if data > 1 else [first], held))
    unit = plan.unit or 4 << 20

    def objects(stream: int, name: str, size: int) -> list[int]:
        digest = hashlib.blake2b(f"{stream}/{name}".encode(), digest_size=5).digest()
        inode = 0x10000000000 | int.from_bytes(digest[:4], "big")
        found = pool.groups_of([ceph.cephfs_object(inode, i) for i in range(_units(size, unit))])
        return [numbers[g] for g in found.tolist()]

    return unit, objects, False


def _gluster(plan: Plan, groups: _Groups, rng: np.random.Generator) -> _Made:
    """``unit`` switches sharding on. Gfids, hence read children and shards, are RANDOM."""
    size = plan.parts if plan.kind in ("replicated", "rain") else 1
    if plan.targets % size:
        raise PlacementError(f"{plan.targets} bricks are no multiple of the {size} of one set")
    _only(plan, "distributed", "replicated", "rain")
    kind = {"replicated": "replicate", "rain": "disperse"}.get(plan.kind, "client")
    names = [f"v-{kind}-{i}" for i in range(plan.targets // size)]
    shards = glusterfs.new_layout(glusterfs.SHARD_DIRECTORY, names)

    def group(subvolume: str, gfid: bytes) -> int:
        bricks = glusterfs.replica_bricks(int(subvolume.rsplit("-", 1)[1]), size)
        if plan.kind == "rain":
            return groups.number([bricks[i] for i in glusterfs.ec_readers(gfid, plan.data, plan.parity)], bricks)
        return groups.number([bricks[glusterfs.read_child(gfid, size)]], bricks)

    def file(stream: int, name: str, length: int) -> list[int]:
        gfid = rng.bytes(16)
        directory, _, base = f"/stream{stream}/{name.lstrip('/')}".rpartition("/")
        found = [group(glusterfs.new_layout(directory, names).bricks_of([base.encode()])[0], gfid)]
        if plan.unit:
            text = "-".join(gfid.hex()[a:b] for a, b in ((0, 8), (8, 12), (12, 16), (16, 20), (20, 32)))
            parts = [p for p in glusterfs.shard_names(text, 0, length, plan.unit) if p is not None]
            found += [group(s, rng.bytes(16)) for s in shards.bricks_of(parts)] if parts else []
        return found

    return plan.unit or WHOLE, file, True


def _hdfs(plan: Plan, groups: _Groups, rng: np.random.Generator) -> _Made:
    nodes = hdfs.DataNodes([i // 4 for i in range(plan.targets)], rng)
    block = 128 << 20
    if plan.kind == "rain":
        cell = plan.unit or 1 << 20

        def cells(_stream: int, _name: str, size: int) -> list[int]:
            row: list[int] = []
            for _ in range(_units(size, block * plan.data)):
                chosen = nodes.erasure_set(plan.parts)
                parity = chosen[plan.data :]
                columns = [groups.number([t], [t, *parity]) for t in chosen[: plan.data]]
                row += columns * (block // cell)
            return row[: _units(size, cell)]

        return cell, cells, True
    copies = plan.parts if plan.kind == "replicated" else 1
    unit = plan.unit or block

    def blocks(_stream: int, _name: str, size: int) -> list[int]:
        sets = [nodes.replicas(copies) for _ in range(_units(size, unit))]
        return [groups.number(s[:1], s) for s in sets]

    return unit, blocks, True


def _moosefs(plan: Plan, groups: _Groups, rng: np.random.Generator) -> _Made:
    _only(plan, "distributed", "replicated")
    servers = moosefs.ChunkServers([1 << 40] * plan.targets, rng)
    copies = plan.parts if plan.kind == "replicated" else 1

    def chunks(_stream: int, _name: str, size: int) -> list[int]:
        sets = [servers.place(copies) for _ in range(_units(size, moosefs.CHUNK))]
        return [groups.number(s[:1], s) for s in sets]

    return moosefs.CHUNK, chunks, True


def _tahoe(plan: Plan, groups: _Groups, rng: np.random.Generator) -> _Made:
    encoding = tahoe.Encoding(plan.data, plan.parts, plan.unit or tahoe.SEGMENT)
    seeds = [hashlib.sha256(b"server-%d" % i).digest() for i in range(plan.targets)]

    def shares(*_: object) -> list[int]:
        chosen = encoding.servers(tahoe.storage_index(rng.bytes(16)), seeds, rng)
        return [groups.number(list(dict.fromkeys(chosen))[: plan.data], chosen)]

    return encoding.segment_size(encoding.segment), shares, True


def _only(plan: Plan, *kinds: str) -> None:
    if plan.kind not in kinds:
        raise PlacementError(f"{plan.system} has no layout {plan.kind!r} here; it has {', '.join(kinds)}")
