"""HDFS: which data nodes hold a block (``BlockPlacementPolicyDefault``, ``BlockPlacementPolicyRackFaultTolerant``).

RANDOM: the real name node draws from an unseeded generator; here a seeded one. Follows the source of trunk; nodes are taken
to be alive, unloaded and with room. Tests hold frequencies and the rules on racks.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from assay.placement.errors import PlacementError


class DataNodes:
    """Racks of the data nodes, by number, and a generator for the draws."""

    def __init__(self, racks: Sequence[int], rng: np.random.Generator) -> None:
        """Raises PlacementError when there are none."""
        if not racks:
            raise PlacementError("no data nodes")
        self.racks = list(racks)
        self.rng = rng
        self.by_rack = {r: [i for i, of in enumerate(racks) if of == r] for r in dict.fromkeys(racks)}

    def replicas(self, count: int, writer: int | None = None) -> list[int]:
        """Nodes of a block's replicas under the default policy: the writer's own node, one in another rack, one beside
        that, the others anywhere, never more per rack than ``(count - 1) // racks + 2``. RANDOM."""
        count = min(count, len(self.racks))
        limit = (count - 1) // len(self.by_rack) + 2
        if len(self.by_rack) > 1 and limit == count > 1:
            limit -= 1
        first = writer if writer is not None else self._any(range(len(self.racks)), [], count)
        chosen = [first if first is not None else 0]
        while len(chosen) < count:
            everywhere = [i for i in range(len(self.racks)) if i not in chosen]
            remote = [i for i in everywhere if self.racks[i] != self.racks[chosen[0]]]
            if len(chosen) == 1:
                wanted = remote
            elif len(chosen) == 2:
                same = self.racks[chosen[0]] == self.racks[chosen[1]]
                wanted = remote if same else [i for i in everywhere if self.racks[i] == self.racks[chosen[1]]]
            else:
                wanted = everywhere
            node = self._any(wanted, chosen, limit)
            if node is None:
                node = self._any(everywhere, chosen, limit)
            if node is None:
                node = self._any(everywhere, chosen, count)
            chosen.append(node if node is not None else everywhere[0])
        return chosen

    def erasure_set(self, total: int) -> list[int]:
        """Nodes of a block group of ``total`` internal blocks: spread over as many racks as there are. RANDOM.

        Raises PlacementError when there are fewer nodes than blocks."""
        if total > len(self.racks):
            raise PlacementError(f"a block group needs {total} data nodes, there are {len(self.racks)}")
        chosen: list[int] = []
        limit = -(-total // len(self.by_rack))
        for most in (max(limit - 1, 1), limit, total):
            while len(chosen) < total:
                node = self._any([i for i in range(len(self.racks)) if i not in chosen], chosen, most)
                if node is None:
                    break
                chosen.append(node)
        return chosen

    def _any(self, among: Sequence[int], chosen: Sequence[int], per_rack: int) -> int | None:
        held = [self.racks[i] for i in chosen]
        usable = [i for i in among if held.count(self.racks[i]) < per_rack]
        return int(usable[int(self.rng.integers(len(usable)))]) if usable else None
