"""MooseFS 4: which chunk servers hold a new chunk (``mfsmaster/matocsserv.c``).

Proportional to capacity and nearly deterministic: each server carries a distance that grows while others are chosen; only
the re-draw after ``10 * servers`` creations is RANDOM (seeded). Follows the source; servers are taken to be idle.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from assay.placement.errors import PlacementError

CHUNK = 64 << 20  # bytes


@dataclass
class ChunkServers:
    """The servers' sizes in bytes, and the book-keeping of what they were given."""

    sizes: Sequence[int]
    rng: np.random.Generator
    _distance: list[float] = field(default_factory=list)
    _correction: list[float] = field(default_factory=list)
    _created: int = 0

    def __post_init__(self) -> None:
        if not self.sizes or min(self.sizes) <= 0:
            raise PlacementError("chunk servers need a size")
        self._shuffle()

    def _expected(self, i: int) -> float:
        """How many chunks lie between two of a server's, on average."""
        return sum(self.sizes) / self.sizes[i]

    def _shuffle(self) -> None:
        self._distance = [float(self.rng.integers(max(int(self._expected(i)), 1))) for i in range(len(self.sizes))]
        self._correction = [0.0] * len(self.sizes)
        self._created = 0

    def place(self, goal: int) -> list[int]:
        """Servers of a new chunk's copies. RANDOM only where the book-keeping starts anew. Raises PlacementError."""
        if not 1 <= goal <= len(self.sizes):
            raise PlacementError(f"{goal} copies on {len(self.sizes)} chunk servers")
        if self._created >= 10 * len(self.sizes):
            self._shuffle()
        servers = range(len(self.sizes))
        wait = [(self._expected(i) + self._correction[i]) / (self._distance[i] + 1) for i in servers]
        chosen = sorted(servers, key=wait.__getitem__)[:goal]
        for i in servers:
            self._distance[i] += goal
        for rank, i in enumerate(chosen):
            self._correction[i] += self._expected(i) - (self._distance[i] + rank + 1 - goal)
            self._distance[i] = goal - rank - 1
        self._created += 1
        return chosen
