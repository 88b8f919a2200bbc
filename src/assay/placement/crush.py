"""Crush maps and mappings over ``assay._core`` (upstream ``src/crush``).

Verified against crushtool 16.2.15: the vectors of ``ceph_crush_mappings_16.2.15.json`` and random maps with every bucket
algorithm, legacy tunables, weight sets, device classes, reweights and holes (tests/system/test_crushtool.py).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay._core import CrushMap, crush_hash_with
from assay.placement.errors import PlacementError

HOLE = 0x7FFFFFFF  # the position of an erasure-coded set that no device could be found for
ONE = 0x10000  # weight 1.0
DEFAULT_CHOOSE_ARGS = -1
_CHUNK = 1 << 18  # inputs mapped at once where results are only printed


@dataclass(frozen=True)
class Mappings:
    """Devices of each input: row ``i`` holds ``lengths[i]`` of them, then ``HOLE``."""

    items: NDArray[np.int32]
    lengths: NDArray[np.uint8]

    def row(self, i: int) -> list[int]:
        """What input number ``i`` was mapped to."""
        return self.items[i, : self.lengths[i]].tolist()


def read_map(data: bytes) -> CrushMap:
    """A crush map from its text form (``crushtool -d``), JSON dump (``ceph osd crush dump``) or compiled form
    (``ceph osd getcrushmap``). Raises PlacementError naming line, byte, bucket or rule.

    Text holds weights with few decimals: take a dump or the compiled form where mappings must be exact.
    """
    try:
        return CrushMap(data)
    except ValueError as error:
        raise PlacementError(str(error)) from None


def reweights(crush: CrushMap, changes: Mapping[int, float] | None = None) -> NDArray[np.uint32]:
    """Reweights in 16.16: 1.0 for every device in a bucket, 0 (out) for other ids, then ``changes`` (0 to 1).

    As crushtool's ``--weight`` does. Raises PlacementError for a device that the map does not know.
    """
    weights = np.where(np.array(crush.present, bool), ONE, 0).astype(np.uint32)
    for device, weight in (changes or {}).items():
        if not 0 <= device < len(weights):
            raise PlacementError(f"device {device} is not in the crush map, whose ids end at {len(weights) - 1}")
        weights[device] = min(max(int(np.float32(weight) * ONE), 0), ONE)
    return weights


def map_inputs(
    crush: CrushMap,
    rule: int,
    inputs: ArrayLike,
    size: int,
    weights: NDArray[np.uint32] | None = None,
    *,
    pool: int = DEFAULT_CHOOSE_ARGS,
    threads: int = 1,
) -> Mappings:
    """The devices that ``rule`` gives each input (32 bits), at most ``size``. ``pool`` selects the weight set.

    Raises PlacementError for an unknown rule or size.
    """
    xs = np.ascontiguousarray(inputs, dtype=np.uint32)
    chosen = reweights(crush) if weights is None else weights
    try:
        items, lengths = crush.map(rule, xs, size, chosen.astype(np.int64), pool, threads)
    except ValueError as error:
        raise PlacementError(str(error)) from None
    rows = np.frombuffer(items, np.int32).reshape(len(xs), size).copy()
    held = np.frombuffer(lengths, np.uint8)
    rows[np.arange(size) >= held[:, None]] = HOLE
    return Mappings(rows, held)


def crushtool_lines(
    crush: CrushMap,
    rule: int,
    size: int,
    first: int,
    last: int,
    weights: NDArray[np.uint32] | None = None,
    *,
    pool_id: int | None = None,
    threads: int = 1,
) -> Iterator[str]:
    """Blocks of text that together equal ``crushtool --test --show-mappings`` for inputs ``first`` to ``last``.

    With ``pool_id`` inputs are hashed with it first, as crushtool's ``--pool-id`` does. Weight sets are those of pool 0,
    else the default ones: so crushtool. Raises PlacementError for an unknown rule or size.
    """
    chosen = (reweights(crush) if weights is None else weights).astype(np.int64)
    if not chosen.any():
        return  # crushtool prints nothing when every device is out
    for begin in range(first, last + 1, _CHUNK):
        labels = np.arange(begin, min(begin + _CHUNK, last + 1), dtype=np.int64).astype(np.uint32)
        xs = labels
        if pool_id is not None:
            xs = np.frombuffer(crush_hash_with(labels, pool_id & 0xFFFFFFFF), np.uint32)
        try:
            yield crush.crushtool_lines(rule, labels, xs, size, chosen, 0, threads)
        except ValueError as error:
            raise PlacementError(str(error)) from None


def failure_domains(crush: CrushMap, rule: int) -> tuple[str, int] | None:
    """The type that a rule spreads over, and how many of it have weight below what the rule takes: the most targets it
    can give. None when the rule has several choices. Raises PlacementError for an unknown rule."""
    rules = {r[0]: r[5] for r in crush.rules}
    if rule not in rules:
        known = ", ".join(map(str, sorted(rules)))
        raise PlacementError(f"the map has no rule {rule}; it has {known}")
    steps = rules[rule]
    takes = [int(s.removeprefix("Take(").rstrip(")")) for s in steps if s.startswith("Take")]
    choices = [s for s in steps if s.startswith("Choose {")]
    if len(takes) != 1 or len(choices) != 1:
        return None
    type_id = int(choices[0].rsplit("type_id: ", 1)[1].rstrip(" }"))
    buckets = {b[0]: b for b in crush.buckets}
    kind = crush.type_names.get(type_id, str(type_id))
    found, waiting = set(), [takes[0]]
    while waiting:
        item = waiting.pop()
        bucket = buckets.get(item)
        if (bucket is None and type_id == 0) or (bucket is not None and bucket[2] == kind):
            found.add(item)
        elif bucket is not None:
            waiting += [i for i, w in zip(bucket[5], bucket[6], strict=True) if w > 0]
    return kind, len(found)
