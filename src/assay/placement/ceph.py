"""Ceph above CRUSH: object name -> placement group -> OSDs, and file -> objects.

Follows ``osd_types.cc`` (``pg_pool_t``), ``OSDMap.cc`` (``_pg_to_up_acting_osds``) and ``osdc/Striper.cc``. Verified against
osdmaptool 16.2.15 (192 placement groups, 120 objects, 58 upmaps: ``ceph_pg_object_16.2.15.json``,
``ceph_upmap_16.2.15.json``); primary affinity, temporary sets and upmap primaries follow the source only.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay._core import CrushMap, ceph_name_hashes, crush_hash, crush_hash_with
from assay.placement.crush import HOLE, ONE, failure_domains, map_inputs, reweights
from assay.placement.errors import PlacementError

REPLICATED, ERASURE = 1, 3
_NAMESPACE_SEPARATOR = b"\x1f"


@dataclass(frozen=True)
class Pool:
    """What of a pool decides where its objects go."""

    id: int
    pg_num: int
    pgp_num: int
    size: int
    rule: int
    kind: int = REPLICATED
    hashpspool: bool = True

    def __post_init__(self) -> None:
        if min(self.pg_num, self.pgp_num) < 1 or not 1 <= self.size <= 255:
            raise PlacementError(f"pool {self.id}: pg_num, pgp_num and size must be positive")
        if self.kind not in (REPLICATED, ERASURE):
            raise PlacementError(f"pool {self.id} has type {self.kind}; known: 1 (replicated), 3 (erasure)")

    @staticmethod
    def from_dump(entry: Mapping[str, Any]) -> Pool:
        """A pool as ``ceph osd dump -f json`` or ``ceph osd pool ls detail -f json`` gives it; the short names of this
        class (``id``, ``pgp_num``, ``rule``) are understood too. Raises PlacementError naming what is missing."""

        def number(*names: str) -> int:
            for name in names:
                if isinstance(entry.get(name), int):
                    return int(entry[name])
            raise PlacementError(f"the pool has no number {names[0]!r}: {str(dict(entry))[:100]}")

        flags = str(entry.get("flags_names", entry.get("flags", "hashpspool")))
        hashed = "hashpspool" in flags or (flags.isdigit() and bool(int(flags) & 1))
        return Pool(
            id=number("pool", "pool_id", "id"),
            pg_num=number("pg_num"),
            pgp_num=number("pg_placement_num", "pgp_num", "pg_num"),
            size=number("size"),
            rule=number("crush_rule", "rule"),
            kind=number("type") if "type" in entry else REPLICATED,
            hashpspool=hashed,
        )

    def groups_of(self, names: Sequence[bytes], *, namespace: bytes = b"") -> NDArray[np.uint32]:
        """The placement group of each object name (or locator key)."""
        return stable_mod(name_hashes(names, namespace=namespace), self.pg_num)

    def inputs(self) -> NDArray[np.uint32]:
        """What CRUSH is asked with for every placement group, in their order ("pps")."""
        seeds = stable_mod(np.arange(self.pg_num, dtype=np.uint32), self.pgp_num)
        if not self.hashpspool:
            return (seeds + np.uint32(self.id)).astype(np.uint32)
        return np.frombuffer(crush_hash_with(np.ascontiguousarray(seeds), self.id & 0xFFFFFFFF), np.uint32)


def name_hashes(names: Sequence[bytes], *, namespace: bytes = b"") -> NDArray[np.uint32]:
    """Ceph's 32-bit hash of each object name (``ceph_str_hash_rjenkins``)."""
    prefix = namespace + _NAMESPACE_SEPARATOR if namespace else b""
    return np.frombuffer(ceph_name_hashes([prefix + n for n in names] if prefix else list(names)), np.uint32)


def stable_mod(values: ArrayLike, modulus: int) -> NDArray[np.uint32]:
    """``ceph_stable_mod``: a remainder that moves few values when ``modulus`` grows towards a power of two."""
    mask = (1 << (modulus - 1).bit_length()) - 1
    x = np.asarray(values, np.uint32)
    low = x & np.uint32(mask)
    return np.where(low < modulus, low, x & np.uint32(mask >> 1)).astype(np.uint32)


@dataclass
class OsdMap:
    """An epoch: everything that decides where placement groups are. Group ids are (pool, number)."""

    crush: CrushMap
    pools: dict[int, Pool]
    weights: NDArray[np.uint32]  # reweights, 16.16
    up: NDArray[np.bool_]
    exists: NDArray[np.bool_]
    affinity: NDArray[np.uint32]  # primary affinity, 16.16
    upmap: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    upmap_items: dict[tuple[int, int], list[tuple[int, int]]] = field(default_factory=dict)
    upmap_primary: dict[tuple[int, int], int] = field(default_factory=dict)
    temporary: dict[tuple[int, int], list[int]] = field(default_factory=dict)
    temporary_primary: dict[tuple[int, int], int] = field(default_factory=dict)

    @staticmethod
    def of(crush: CrushMap, pools: Iterable[Pool], weights: NDArray[np.uint32] | None = None) -> OsdMap:
        """A map in which every device is up and nothing is overridden."""
        chosen = reweights(crush) if weights is None else weights
        n = len(chosen)
        return OsdMap(
            crush, {p.id: p for p in pools}, chosen, np.ones(n, bool), np.array(crush.present, bool),
            np.full(n, ONE, np.uint32),
        )  # fmt: skip

    @staticmethod
    def from_dump(crush: CrushMap, dump: Mapping[str, Any]) -> OsdMap:
        """From ``ceph osd dump -f json``. Raises PlacementError when it is something else."""
        try:
            pools = [Pool.from_dump(p) for p in dump["pools"]]
            osds = {int(o["osd"]): o for o in dump["osds"]}
            made = OsdMap.of(crush, pools)
            n = max(len(made.weights), *(i + 1 for i in osds), int(dump.get("max_osd", 0)))
            made.weights, made.affinity = np.zeros(n, np.uint32), np.full(n, ONE, np.uint32)
            made.up, made.exists = np.zeros(n, bool), np.zeros(n, bool)
            for i, osd in osds.items():
                made.weights[i] = round(float(osd["weight"]) * ONE)
                made.affinity[i] = round(float(osd.get("primary_affinity", 1.0)) * ONE)
                made.up[i], made.exists[i] = bool(osd["up"]), True
            made.upmap = {_group(e): list(e["osds"]) for e in dump.get("pg_upmap", [])}
            made.upmap_items = {
                _group(e): [(m["from"], m["to"]) for m in e["mappings"]] for e in dump.get("pg_upmap_items", [])
            }
            made.upmap_primary = {_group(e): e["primary_osd"] for e in dump.get("pg_upmap_primaries", [])}
            made.temporary = {_group(e): list(e["osds"]) for e in dump.get("pg_temp", [])}
            made.temporary_primary = {_group(e): e["osd"] for e in dump.get("primary_temp", [])}
        except (KeyError, TypeError, AttributeError) as error:
            raise PlacementError(f"not the output of `ceph osd dump -f json`: {error!r}") from None
        return made

    def pool(self, pool_id: int) -> Pool:
        """A pool by id. Raises PlacementError."""
        if pool_id not in self.pools:
            raise PlacementError(f"no pool {pool_id}; there are {', '.join(map(str, sorted(self.pools)))}")
        return self.pools[pool_id]

    def raw(self, pool_id: int, threads: int = 1) -> NDArray[np.int32]:
        """What CRUSH alone says: a row of OSDs per placement group, ``HOLE`` where there is none."""
        pool = self.pool(pool_id)
        found = map_inputs(
            self.crush, pool.rule, pool.inputs(), pool.size, self.weights, pool=pool_id, threads=threads
        )  # fmt: skip
        return found.items

    def require_size(self, pool_id: int) -> None:
        """Raises PlacementError when the map has too few hosts (or what the rule spreads over) for the pool."""
        pool = self.pool(pool_id)
        domains = failure_domains(self.crush, pool.rule)
        if domains is not None and domains[1] < pool.size:
            kind, count = domains
            raise PlacementError(
                f"pool {pool_id} needs {pool.size} times {kind} for each group, but rule {pool.rule} finds {count}"
            )

    def up_sets(self, pool_id: int, threads: int = 1) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """The up set (a row of OSDs, ``HOLE`` for none) and the primary of every placement group of a pool."""
        pool = self.pool(pool_id)
        rows = self.raw(pool_id, threads)
        known = np.append(self.exists, False)
        alive = np.append(self.exists & self.up, False)
        rows = _drop(rows, known, pool.kind)
        for pool_of, number in {*self.upmap, *self.upmap_items, *self.upmap_primary}:
            if pool_of == pool_id and number < pool.pg_num:
                rows[number] = self._overridden(rows[number].tolist(), (pool_id, number))
        rows = _drop(rows, alive, pool.kind)
        held = rows != HOLE
        first = np.argmax(held, axis=1)
        primary = np.where(held.any(axis=1), rows[np.arange(len(rows)), first], -1).astype(np.int32)
        if (self.affinity < ONE).any():
            self._apply_affinity(pool, rows, primary)
        return rows, primary

    def acting_sets(self, pool_id: int, threads: int = 1) -> tuple[NDArray[np.int32], NDArray[np.int32]]:
        """As :meth:`up_sets`, with temporary sets in place while data moves."""
        rows, primary = self.up_sets(pool_id, threads)
        for (pool_of, number), osds in self.temporary.items():
            if pool_of == pool_id and number < len(rows):
                row = (osds + [HOLE] * rows.shape[1])[: rows.shape[1]]
                rows[number] = row
                primary[number] = next((o for o in row if o != HOLE), -1)
        for (pool_of, number), osd in self.temporary_primary.items():
            if pool_of == pool_id and number < len(rows):
                primary[number] = osd
        return rows, primary

    def _overridden(self, row: list[int], group: tuple[int, int]) -> list[int]:
        """Upmaps of one group; targets that are out are ignored."""

        def out(osd: int) -> bool:
            return 0 <= osd < len(self.weights) and self.weights[osd] == 0

        whole = self.upmap.get(group)
        if whole is not None:
            if any(out(o) for o in whole):
                return row
            row = (whole + [HOLE] * len(row))[: len(row)]
        for old, new in self.upmap_items.get(group, []):
            if new not in row and old in row and not out(new):
                row[row.index(old)] = new
        first = self.upmap_primary.get(group)
        if first is not None and first in row and not out(first):
            place = row.index(first)
            row[0], row[place] = row[place], row[0]
        return row

    def _apply_affinity(self, pool: Pool, rows: NDArray[np.int32], primary: NDArray[np.int32]) -> None:
        """Primaries with an affinity below 1 give this role away for the rest of their groups."""
        inputs = pool.inputs()
        for number, row in enumerate(rows.tolist()):
            osds = [(i, o) for i, o in enumerate(row) if o != HOLE]
            if all(self.affinity[o] >= ONE for _, o in osds):
                continue
            chosen = osds[0]
            for i, osd in osds:
                share = int(self.affinity[osd])
                if share >= ONE or crush_hash([int(inputs[number]), osd]) >> 16 < share:
                    chosen = (i, osd)
                    break
            primary[number] = chosen[1]
            if pool.kind == REPLICATED:
                rows[number] = [chosen[1], *row[: chosen[0]], *row[chosen[0] + 1 :]]


def _group(entry: Mapping[str, Any]) -> tuple[int, int]:
    """(pool, number) of an entry's ``pgid`` such as ``1.2f``."""
    return parse_group(str(entry["pgid"]))


def parse_group(text: str) -> tuple[int, int]:
    """(pool, number) of a placement group's id such as ``1.2f``. Raises PlacementError."""
    pool, _, number = text.partition(".")
    try:
        return int(pool), int(number, 16)
    except ValueError:
        raise PlacementError(f"{text!r} is not a placement group's id such as 1.2f") from None


def _drop(rows: NDArray[np.int32], keep: NDArray[np.bool_], kind: int) -> NDArray[np.int32]:
    """Rows without the OSDs that are not to be kept: replicated ones close ranks, shards keep their places."""
    index = np.where((rows >= 0) & (rows < len(keep) - 1), rows, len(keep) - 1)
    kept = np.where(keep[index], rows, HOLE).astype(np.int32)
    if kind == REPLICATED:
        order = np.argsort(kept == HOLE, axis=1, kind="stable")
        kept = np.take_along_axis(kept, order, axis=1)
    return kept


@dataclass(frozen=True)
class FileLayout:
    """How a file (CephFS) or image (RBD) is cut into objects; sizes in bytes."""

    stripe_unit: int = 4 << 20
    stripe_count: int = 1
    object_size: int = 4 << 20

    def __post_init__(self) -> None:
        if min(self.stripe_unit, self.stripe_count, self.object_size) < 1 or self.object_size % self.stripe_unit:
            raise PlacementError(
                "a layout needs positive sizes and an object size that is a multiple of its stripe unit"
            )

    def extents(self, offset: int, length: int) -> Iterator[tuple[int, int, int]]:
        """(object number, offset in it, bytes) of each piece of ``length`` bytes at ``offset``."""
        units_per_object = self.object_size // self.stripe_unit
        while length > 0:
            block, within = divmod(offset, self.stripe_unit)
            stripe, column = divmod(block, self.stripe_count)
            number = stripe // units_per_object * self.stripe_count + column
            size = min(length, self.stripe_unit - within)
            yield number, stripe % units_per_object * self.stripe_unit + within, size
            offset, length = offset + size, length - size


def cephfs_object(inode: int, number: int) -> bytes:
    """Name of a CephFS file's object."""
    return b"%x.%08x" % (inode, number)


def rbd_object(image: str, number: int) -> bytes:
    """Name of an RBD image's object."""
    return b"rbd_data.%s.%016x" % (image.encode(), number)
