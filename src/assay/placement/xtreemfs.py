"""XtreemFS: which OSDs a new file gets (``MRCHelper.createReplica`` with the default policies FILTER_DEFAULT, SORT_RANDOM).

RANDOM: the real MRC shuffles with an unseeded generator; here a seeded one draws a uniform ordered choice. The bytes of a
file then go to its OSDs as :func:`assay.placement.striping.xtreemfs_pieces` says. Follows the source (a1b4c532).
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from assay.placement.errors import PlacementError

DEFAULT_STRIPE = 128 << 10  # bytes


def select_osds(usable: Sequence[int], width: int, rng: np.random.Generator) -> list[int]:
    """OSDs of a new file: ``width`` of the usable ones in random order, all of them if there are fewer (the real width
    shrinks silently too). RANDOM. Raises PlacementError when there is none."""
    if not usable or width < 1:
        raise PlacementError("no usable OSD, or a width below 1")
    return [int(i) for i in rng.permutation(np.asarray(usable))[:width]]
