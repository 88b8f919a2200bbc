"""EOS: layout ids, which file systems of a group hold a file, and where the parts of a RAIN file are.

Follows ``common/LayoutId.hh``, ``mgm/placement/*`` and ``fst/layout/*`` (e63126c6). Geometry and the hash that ranks file
systems for reading are verified (``eos_rain_geometry_real_cc.csv``, ``eos_hashFid_xxh3.csv``); the schedulers draw lots
(RANDOM, seeded) and follow the source, with tests of frequencies.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from assay._core import xxh3_64
from assay.placement.errors import PlacementError

TYPES = {0: "plain", 1: "replica", 2: "archive", 3: "raiddp", 4: "raid6", 5: "qrain", 6: "raid5"}
PARITY = {"plain": 0, "replica": 0, "raid5": 1, "raid6": 2, "raiddp": 2, "archive": 3, "qrain": 4}
_BLOCKS = [4 << 10, 64 << 10, 128 << 10, 512 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20]


@dataclass(frozen=True)
class LayoutId:
    """What a file's layout id says; ``block`` in bytes."""

    kind: str
    stripes: int
    block: int

    @staticmethod
    def decode(number: int) -> LayoutId:
        """From the 32-bit id. Raises PlacementError for a type that does not exist."""
        kind = TYPES.get(number >> 4 & 0xF)
        code = number >> 16 & 0xF
        if kind is None or code >= len(_BLOCKS):
            raise PlacementError(f"layout id {number:#x} has an unknown type or block size")
        return LayoutId(kind, (number >> 8 & 0xFF) + 1, _BLOCKS[code])

    @property
    def data(self) -> int:
        """Stripes that hold data."""
        return self.stripes - PARITY[self.kind] if PARITY[self.kind] else 1


def read_rank(fid: int, fsid: int, salt: int = 0) -> int:
    """The 64-bit hash by which the flat scheduler ranks file systems for reading: the lowest ``rank / weight`` wins."""
    return xxh3_64(struct.pack("<QQQ", fid, fsid, salt))


def entry_server(fid: int, stripes: Sequence[int]) -> int:
    """The file system through which a RAIN file is written: ``selectedfs[fid % n]``."""
    return stripes[fid % len(stripes)]


class FlatScheduler:
    """Places the stripes of new files in one group of file systems (``FlatScheduler``, strategies by name)."""

    def __init__(self, weights: Sequence[int], strategy: str, rng: np.random.Generator) -> None:
        """``weights`` of the file systems (their capacity in TB upstream). Raises PlacementError."""
        if strategy not in ("roundrobin", "random", "weightedrandom"):
            raise PlacementError(f"unknown strategy {strategy!r}; known: roundrobin, random, weightedrandom")
        self.weights, self.strategy, self.rng = np.asarray(weights, float), strategy, rng
        self._next = 0

    def place(self, stripes: int) -> list[int]:
        """File systems of a new file's stripes. RANDOM unless the strategy is roundrobin."""
        n = len(self.weights)
        if not 1 <= stripes <= n:
            raise PlacementError(f"{stripes} stripes in a group of {n} file systems")
        if self.strategy == "roundrobin":
            first, self._next = self._next, self._next + stripes
            return [(first + i) % n for i in range(stripes)]
        share = self.weights / self.weights.sum() if self.strategy == "weightedrandom" else None
        return [int(i) for i in self.rng.choice(n, stripes, replace=False, p=share)]


class GeoTreeScheduler:
    """Places files in groups, one group after the other, and spreads each over the branches of a tree of geotags.

    Among equally used branches the draw is weighted by the best score below them (100 for an idle disk). RANDOM.
    """

    def __init__(self, groups: Sequence[Sequence[str]], rng: np.random.Generator) -> None:
        """``groups`` holds the geotag (such as ``dc1::rack2``) of every file system of each group."""
        if not groups or not all(groups):
            raise PlacementError("groups need file systems")
        self.groups, self.rng = groups, rng
        self._next = 0

    def place(self, stripes: int) -> tuple[int, list[int]]:
        """(group, file systems in it) of a new file's stripes. Raises PlacementError when no group is large enough."""
        for _ in self.groups:
            group, self._next = self._next, (self._next + 1) % len(self.groups)
            if len(self.groups[group]) >= stripes:
                return group, self._in_group(self.groups[group], stripes)
        raise PlacementError(f"no group has {stripes} file systems")

    def _in_group(self, tags: Sequence[str], stripes: int) -> list[int]:
        paths = [(*tag.split("::"), str(i)) for i, tag in enumerate(tags)]
        chosen: list[int] = []
        for _ in range(stripes):
            free = [i for i in range(len(tags)) if i not in chosen]
            depth = 0
            while len(free) > 1:
                branches = sorted({paths[i][: depth + 1] for i in free})
                used = [sum(paths[c][: depth + 1] == b for c in chosen) for b in branches]
                least = [b for b, u in zip(branches, used, strict=True) if u == min(used)]
                branch = least[int(self.rng.integers(len(least)))]
                free = [i for i in free if paths[i][: depth + 1] == branch]
                depth += 1
            chosen.append(free[0])
        return chosen
