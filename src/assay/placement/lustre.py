"""Lustre's allocators: which OSTs the stripes of a new file go to (``lod/lod_qos.c``, ``obdclass/lu_tgt_descs.c``).

RANDOM in part: the start of a round robin and every draw by free space come from a seeded generator here. They follow the
source; the real allocator lives in kernel servers, so tests hold the frequencies against the weights they should have.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from assay.placement.errors import PlacementError

_THRESHOLD = 17 * 256 // 100  # qos_threshold_rr
_PRIORITY_WIDE = 256 - 90 * 256 // 100  # 256 - qos_prio_free


@dataclass
class Target:
    """An OST: its server, free bytes, and the penalty of recent use."""

    server: int
    available: int
    penalty: int = 0
    used_at: float = 0.0


@dataclass
class Allocator:
    """State of one pool of OSTs, as a MDT keeps it."""

    targets: Sequence[Target]
    rng: np.random.Generator
    threshold: int = _THRESHOLD  # 256 never looks at free space
    max_age_seconds: float = 5.0
    _start: int = 0
    _count: int = 0
    _offset: int = 0
    _server_penalty: dict[int, int] = field(default_factory=dict)
    _server_used_at: dict[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not self.targets:
            raise PlacementError("no OSTs")
        self._ring = round_robin_order([t.server for t in self.targets])

    def balanced(self) -> bool:
        """Whether free space is even enough for round robin."""
        free = [t.available >> 8 for t in self.targets]
        return max(free) * (256 - self.threshold) // 256 < min(free) or self.threshold >= 256

    def allocate(self, stripes: int, now_seconds: float = 0.0) -> list[int]:
        """OSTs of a new file's stripes, as many as there are at most. RANDOM (see the module)."""
        stripes = len(self.targets) if stripes < 1 else min(stripes, len(self.targets))
        return self._round_robin(stripes) if self.balanced() else self._by_space(stripes, now_seconds)

    def _round_robin(self, stripes: int) -> list[int]:
        n = len(self._ring)
        self._count -= 1
        if self._count < 0:
            self._start = int(self.rng.integers(n))
            self._count = (2000 // n + 30) * n
        elif self._start >= n:
            self._start -= n
            if stripes > 1 and n % stripes != 1:
                self._offset += 1
        chosen = []
        for _ in range(stripes):
            chosen.append(self._ring[(self._start + self._offset) % n])
            self._start += 1
        return chosen

    def _by_space(self, stripes: int, now: float) -> list[int]:
        servers = sorted({t.server for t in self.targets})
        members = {s: [t for t in self.targets if t.server == s] for s in servers}
        n, chosen = len(self.targets), []
        per_target = {
            i: (_PRIORITY_WIDE * (t.available >> 8) >> 9) // max(n - 1, 1) << (len(servers) == 1)
            for i, t in enumerate(self.targets)
        }
        per_server = {
            s: (_PRIORITY_WIDE * sum(t.available >> 8 for t in members[s]) >> 8)
            // (len(members[s]) * max(len(servers) - 1, 1))
            >> 1
            for s in servers
        }
        for t in self.targets:
            t.penalty = self._aged(t.penalty, now - t.used_at)
        for s in servers:
            self._server_penalty[s] = self._aged(self._server_penalty.get(s, 0), now - self._server_used_at.get(s, 0.0))
        while len(chosen) < stripes:
            weights = [
                0 if i in chosen else max(0, (t.available >> 8) - t.penalty - self._server_penalty[t.server])
                for i, t in enumerate(self.targets)
            ]
            total = sum(weights)
            free = [i for i in range(n) if i not in chosen]
            if total == 0:
                chosen.append(free[int(self.rng.integers(len(free)))])
            else:
                draw = int(self.rng.integers(total))
                chosen.append(int(np.searchsorted(np.cumsum(weights), draw, side="right")))
            self._used(chosen[-1], per_target, per_server, now)
        return chosen

    def _aged(self, penalty: int, age_seconds: float) -> int:
        ages = age_seconds / self.max_age_seconds
        if ages > 32:
            return 0
        return penalty >> int(ages) if ages > 1 else penalty

    def _used(self, index: int, per_target: dict[int, int], per_server: dict[int, int], now: float) -> None:
        target = self.targets[index]
        target.penalty = (target.penalty >> 1) + per_target[index] * len(self.targets)
        server = target.server
        self._server_penalty[server] = (self._server_penalty[server] >> 1) + per_server[server] * len(per_server)
        target.used_at = self._server_used_at[server] = now
        for s in per_server:
            self._server_penalty[s] = max(0, self._server_penalty[s] - per_server[s])
        for i, t in enumerate(self.targets):
            t.penalty = max(0, t.penalty - per_target[i])


def round_robin_order(servers: Sequence[int]) -> list[int]:
    """OSTs in the order of a round robin: those of each server spread evenly, large servers first
    (``lod_qos_calc_rr``)."""
    groups = {s: [i for i, of in enumerate(servers) if of == s] for s in dict.fromkeys(servers)}
    n, slots = len(servers), [-1] * len(servers)
    for members in sorted(groups.values(), key=len, reverse=True):
        for j, index in enumerate(members):
            place = j * n // len(members)
            while slots[place] >= 0:
                place = (place + 1) % n
            slots[place] = index
    return slots
