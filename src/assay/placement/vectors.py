"""Vectors: results of real systems in files, and how many of them the functions here give too.

A file is told by its columns or keys, which are those of ``tests/data/placement``. Each reader yields one pair (expected,
got) per check, so that a count of differences is honest about what was looked at.
"""

from __future__ import annotations

import csv
import hashlib
import io
import json
import struct
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any

import numpy as np

from assay._core import crush_hash, crush_ln, superfast_hash
from assay.placement import ceph, crush, eos, glusterfs, striping, tahoe
from assay.placement.errors import PlacementError

Pairs = Iterator[tuple[object, object]]


@dataclass
class Verdict:
    """What a file of vectors came to."""

    system: str
    checked: int = 0
    differ: int = 0
    examples: list[str] = field(default_factory=list)  # of differences
    notes: list[str] = field(default_factory=list)  # what could not be looked at, and why

    def take(self, pairs: Pairs) -> Verdict:
        """Count pairs."""
        for expected, got in pairs:
            self.checked += 1
            if expected != got:
                self.differ += 1
                if len(self.examples) < 5:
                    self.examples.append(f"expected {expected}, got {got}")
        return self


def verify(data: bytes, system: str | None = None, companions: Mapping[str, bytes] | None = None) -> Verdict:
    """Compare a file of vectors with the functions here.

    ``system`` limits what the file may be; ``companions`` are files that lie beside it, by name: placement groups need
    the maps of ``ceph_crush_mappings_*.json``. Raises PlacementError for a file of another kind or a damaged one.
    """
    try:
        text = data.decode()
        found, pairs, notes = _reader(text, companions or {})
        if system is not None and system != found:
            raise PlacementError(f"these are vectors of {found}, not of {system}")
        return Verdict(found, notes=notes).take(pairs)
    except (KeyError, IndexError, TypeError, UnicodeDecodeError, ValueError) as error:
        if isinstance(error, PlacementError):
            raise
        raise PlacementError(f"the vectors are damaged: {error!r}") from None


def _reader(text: str, companions: Mapping[str, bytes]) -> tuple[str, Pairs, list[str]]:
    notes: list[str] = []
    if text.lstrip()[:1] in ("{", "["):
        document = json.loads(text)
        keys = set(document) if isinstance(document, dict) else set(document[0])
        for known, (system, read) in _JSON.items():
            if known <= keys:
                return system, read(document, companions, notes), notes
        raise PlacementError(f"no placement vectors: keys {', '.join(sorted(keys))[:100]}")
    rows = csv.DictReader(io.StringIO(text))
    names = set(rows.fieldnames or ())
    for known, (system, read_rows) in _CSV.items():
        if known <= names:
            return system, read_rows(rows), notes
    raise PlacementError(f"no placement vectors: columns {', '.join(sorted(names))[:100]}")


# --- Ceph ---


def _ceph_hashes(document: Any, *_: object) -> Pairs:
    for n in range(1, 6):
        for *words, expected in document[f"hash32_{n}"]:
            yield expected, crush_hash(words)
    for u, expected in document["crush_ln_samples"]:
        yield int(str(expected), 16), crush_ln(u)
    every = b"".join(struct.pack("<Q", crush_ln(u)) for u in range(1 << 16))
    yield document["crush_ln_sha256_le64_all_65536"], hashlib.sha256(every).hexdigest()


def _ceph_tables(document: Any, *_: object) -> Pairs:
    """The two tables rebuilt from the description in the file, and crush_ln from them, at all arguments."""
    low_rule = document["LL"]
    offset = int(low_rule["formula"].rsplit("+", 1)[1], 16)
    own = {int(k): v for k, v in low_rule["exceptions_k_to_offset"].items()}

    def log(numerator: int, denominator: int) -> int:
        from decimal import Decimal, getcontext

        getcontext().prec = 60
        return int((1 + Decimal(numerator) / denominator).ln() / Decimal(2).ln() * (1 << 48))

    plain = set(low_rule["zero_offset_k"])
    low = [log(k, 1 << 15) + own.get(k, 0 if k in plain else offset) for k in range(256)]
    high = [*(log(k, 128) for k in range(128)), 0xFFFF00000000]
    reciprocal = [-(-(1 << 55) // (128 + k)) for k in range(129)]
    for u in range(1 << 16):
        x, exponent = u + 1, 15
        if not x & 0x18000:
            shift = 16 - x.bit_length()
            x, exponent = x << shift, 15 - shift
        k = (x >> 8) - 128
        yield (exponent << 44) + ((high[k] + low[x * reciprocal[k] >> 48 & 0xFF]) >> 4), crush_ln(u)


def _ceph_mappings(document: Any, *_: object) -> Pairs:
    for entry in document:
        crush_map = crush.read_map(entry["crushmap_text"].encode())
        weights = crush.reweights(crush_map)
        for device, weight in entry["osd_reweight_16_16"].items():
            weights[int(device)] = weight
        for key, rows in entry["mappings"].items():
            rule, size, inputs = key.split("_")
            first = int(inputs.removeprefix("x").split("..")[0])
            xs = np.arange(first, first + len(rows))
            # crushtool takes the weight set of pool 0, else the default one
            got = crush.map_inputs(crush_map, int(rule[4:]), xs, int(size[1:]), weights, pool=0)
            yield from ((expected, got.row(i)) for i, expected in enumerate(rows))


def _ceph_groups(document: Any, companions: Mapping[str, bytes], notes: list[str]) -> Pairs:
    maps = _companion_maps(companions)
    pools: dict[str, ceph.Pool] = {}
    for group in document["pgs"]:
        pool = ceph.Pool(1, group["pg_num"], group["pgp_num"], len(group["osds"]), 0)
        pools[group["map"]] = pool
        yield group["pps"], int(pool.inputs()[group["ps"]])
    by_map = {p["map"]: p["crush"] for p in document["pgs"]}
    sets = {}
    for name, pool in pools.items():
        text = maps.get(by_map[name].removeprefix("sv_").removesuffix(".bin"))
        if text is None:
            notes.append(f"sets of {name} not compared: its crush map {by_map[name]} is not beside the file")
        else:
            sets[name] = ceph.OsdMap.of(crush.read_map(text.encode()), [pool]).up_sets(1)
    for group in document["pgs"]:
        if group["map"] in sets:
            rows, primary = sets[group["map"]]
            yield (group["osds"], group["primary"]), (rows[group["ps"]].tolist(), int(primary[group["ps"]]))
    for entry in document["object_map"]:
        name = entry["name"].encode()
        number = int(pools[entry["map"]].groups_of([name])[0])
        yield (entry["hash"], entry["ps"]), (int(ceph.name_hashes([name])[0]), number)
        if entry["map"] in sets:
            yield entry["osds"], sets[entry["map"]][0][number].tolist()


def _companion_maps(companions: Mapping[str, bytes]) -> dict[str, str]:
    for name, data in companions.items():
        if name.startswith("ceph_crush_mappings"):
            return {entry["name"]: entry["crushmap_text"] for entry in json.loads(data)}
    return {}


def _ceph_upmaps(document: Any, companions: Mapping[str, bytes], notes: list[str]) -> Pairs:
    text = _companion_maps(companions).get("hosts3x4racks3")
    pool = ceph.Pool(1, document["pg_num"], document["pg_num"], 3, 0)
    groups = {ceph.parse_group(k): [tuple(i) for i in v] for k, v in document["items"].items()}
    if text is None:
        notes.append("not compared: the crush map of ceph_crush_mappings_*.json is not beside the file")
        return
    plain = ceph.OsdMap.of(crush.read_map(text.encode()), [pool])
    before, _ = plain.up_sets(1)
    plain.upmap_items = groups  # type: ignore[assignment]
    after, _ = plain.up_sets(1)
    for key in document["items"]:
        number = ceph.parse_group(key)[1]
        yield (document["before"][key], document["after"][key]), (before[number].tolist(), after[number].tolist())


# --- GlusterFS ---


def _gluster_hashes(rows: csv.DictReader[str]) -> Pairs:
    for row in rows:
        name = row["name"].encode()
        munged = row["munged_default_rsync_regex"].encode()
        plain = int(glusterfs.name_hashes([name], regex=b"")[0])
        got = (int(glusterfs.name_hashes([name])[0]), plain, superfast_hash(name))
        yield int(row["dm_hash_of_munged"], 16), got[0]
        yield int(row["dm_hash_of_munged"], 16), int(glusterfs.name_hashes([munged], regex=b"")[0])
        yield int(row["dm_hash_of_name"], 16), got[1]
        yield int(row["superfasthash_of_name"], 16), got[2]


def _gluster_layout(rows: csv.DictReader[str]) -> Pairs:
    for path, group in groupby(rows, key=lambda r: r["dir_path"]):
        yield from _ranges(path, list(group), "subvol tv-client-N", "tv-client-", None)


def _gluster_weighted(rows: csv.DictReader[str]) -> Pairs:
    for path, group in groupby(rows, key=lambda r: r["dir"]):
        entries = list(group)
        yield from _ranges(path, entries, "subvol", "wv-client-", [int(r["chunks_MiB"]) for r in entries])


def _ranges(path: str, rows: list[dict[str, str]], column: str, prefix: str, chunks: list[int] | None) -> Pairs:
    layout = glusterfs.new_layout(path, [f"{prefix}{r[column]}" for r in rows], chunks)
    got = dict(zip(layout.subvolumes, zip(layout.starts, layout.stops, strict=True), strict=True))
    for row in rows:
        yield (int(row["start"], 16), int(row["stop"], 16)), got[f"{prefix}{row[column]}"]


def _gluster_ec(document: Any, *_: object) -> Pairs:
    data, parity = document["K"], document["R"]
    gfid = bytes.fromhex(document["gfid"])
    yield document["first_child"], glusterfs.read_child(gfid, data + parity)
    size = 1 << 20  # of the file when the recording began
    for case in document["cases"]:
        offset, length = case["off"], case["len"]
        readers = sorted(glusterfs.ec_readers(gfid, data, parity))
        if case["kind"] == "w":
            access = glusterfs.ec_write(offset, length, size, data, parity)
            writes = [["writev", b, access.brick_bytes, access.brick_offset] for b in range(data + parity)]
            extents = access.reads
            size = max(size, offset + length)
        else:
            writes, extents = [], (glusterfs.ec_read(offset, length, data),)
        reads = [["readv", b, n, at] for b in readers for at, n in extents]
        yield (sorted(case["reads"]), sorted(case["writes"])), (sorted(reads), writes)


# --- the others ---


def _xtreemfs(rows: csv.DictReader[str]) -> Pairs:
    def access(row: dict[str, str]) -> tuple[int, ...]:
        return tuple(int(row[c]) for c in ("stripe_kb", "width", "offset", "len"))

    for (kib, width, offset, length), group in groupby(rows, key=access):
        pieces = list(striping.xtreemfs_pieces(offset, length, kib * 1024, width))
        for row in group:
            piece = pieces[int(row["seq"])]
            expected = tuple(int(row[c]) for c in ("object_no", "osd_index", "obj_offset", "size"))
            yield expected, (piece.object, piece.column, piece.offset, piece.size)


def _lustre(rows: csv.DictReader[str]) -> Pairs:
    for row in rows:
        n = {k: int(v) for k, v in row.items()}
        end = None if n["comp_end"] < 0 else n["comp_end"]
        component = striping.LustreComponent(n["comp_start"], end, n["stripe_size"], n["stripe_count"])
        got = component.intersection(n["stripeno"], n["ext_start"], n["ext_end"])
        yield (n["obj_start"], n["obj_end_inclusive"]), got


def _eos_geometry(rows: csv.DictReader[str]) -> Pairs:
    for row in rows:
        rain = striping.EosRain(int(row["ndata"]), int(row["stripe_width"]), row["layout"] == "raiddp")
        expected = (int(row["data_stripe"]), int(row["local_off(excl 4096B header)"]), int(row["block_in_group"]))
        yield expected, rain.locate(int(row["global_off"]))


def _eos_hash(rows: csv.DictReader[str]) -> Pairs:
    for row in rows:
        yield int(row["xxh3_64_hex"], 16), eos.read_rank(int(row["fid"]), int(row["fsid"]), int(row["salt"]))


def _hdfs(rows: csv.DictReader[str]) -> Pairs:
    for row in rows:
        policy = striping.HdfsStriping(int(row["ndata"]), int(row["cell"]))
        of = policy.internal_length if row["kind"] == "internalBlockLength" else policy.offset_in_group
        yield int(row["result"]), of(int(row["arg1"]), int(row["arg2"]))


def _tahoe(document: Any, *_: object) -> Pairs:
    count = len(document["vectors"][0]["order"])
    seeds = [hashlib.sha256(b"server-%d" % i).digest() for i in range(count)]
    for vector in document["vectors"]:
        index = tahoe.storage_index(bytes.fromhex(vector["key"]))
        yield vector["storage_index"], index.hex()
        order = tahoe.permuted_ring(index, seeds)
        yield vector["order"], order
        yield vector["first_hash"], hashlib.sha1(index + seeds[order[0]]).hexdigest()
    for entry in document["convergence"]:
        plaintext = _plaintext(entry)
        if plaintext is None:
            continue
        secret = bytes.fromhex(entry["convergence"])
        key = tahoe.convergent_key(plaintext, entry["k"], entry["n"], entry["segsize"], secret)
        yield (entry["enckey"], entry["storage_index"]), (key.hex(), tahoe.storage_index(key).hex())


def _plaintext(entry: Mapping[str, Any]) -> bytes | None:
    """The plaintext, which the file gives by digest: one byte repeated, or a known greeting."""
    first, length = bytes.fromhex(entry["data_byte0"]), entry["data_len"]
    for guess in (first * length, b"hello world"):
        if hashlib.sha256(guess).hexdigest() == entry["data_hex_sha256"]:
            return guess
    return None


_JSON: dict[frozenset[str], tuple[str, Callable[[Any, Mapping[str, bytes], list[str]], Pairs]]] = {
    frozenset({"hash32_1", "crush_ln_samples"}): ("ceph", _ceph_hashes),
    frozenset({"LL", "RH", "LH"}): ("ceph", _ceph_tables),
    frozenset({"crushmap_text", "mappings"}): ("ceph", _ceph_mappings),
    frozenset({"pgs", "object_map"}): ("ceph", _ceph_groups),
    frozenset({"items", "before", "after"}): ("ceph", _ceph_upmaps),
    frozenset({"first_child", "fragment", "cases"}): ("glusterfs", _gluster_ec),
    frozenset({"vectors", "convergence", "seeds_rule"}): ("tahoe", _tahoe),
}
_CSV: dict[frozenset[str], tuple[str, Callable[[csv.DictReader[str]], Pairs]]] = {
    frozenset({"dm_hash_of_munged", "superfasthash_of_name"}): ("glusterfs", _gluster_hashes),
    frozenset({"dir_path", "subvol tv-client-N"}): ("glusterfs", _gluster_layout),
    frozenset({"dir", "chunks_MiB"}): ("glusterfs", _gluster_weighted),
    frozenset({"stripe_kb", "object_no", "osd_index"}): ("xtreemfs", _xtreemfs),
    frozenset({"comp_start", "stripeno", "obj_start"}): ("lustre", _lustre),
    frozenset({"data_stripe", "block_in_group"}): ("eos", _eos_geometry),
    frozenset({"fid", "fsid", "xxh3_64_hex"}): ("eos", _eos_hash),
    frozenset({"kind", "cell", "arg1", "result"}): ("hdfs", _hdfs),
}
