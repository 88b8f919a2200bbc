"""What a target more or less moves, against the least that any function would have to move."""

from __future__ import annotations

import numpy as np

from assay.placement import ceph, glusterfs
from assay.placement.errors import PlacementError
from assay.placement.measures import Movement, movement
from assay.placement.spread import Plan, flat_map

_HASHES = 1 << 16  # evenly spaced hashes that stand for names
# New targets fill with new files only; what is there stays until someone rebalances.
STAYS = ("single", "xtreemfs", "lustre", "eos", "hdfs", "moosefs", "tahoe")


def change_targets(plan: Plan, change: int) -> Movement:
    """Movement when ``change`` targets come (+) or go (-), the last ones: placement groups of Ceph, the files of a directory
    of GlusterFS after fix-layout and rebalance. Systems of :data:`STAYS` move nothing when targets come; when targets go
    it is what these held. Raises PlacementError when too few targets are left."""
    after = plan.targets + change
    if after < max(plan.parts, 1) or change == 0:
        raise PlacementError(
            f"{plan.targets} targets {change:+d}: at least {max(plan.parts, 1)} must be left, and a change"
        )
    if plan.system == "ceph":
        return _ceph(plan, after)
    if plan.system == "glusterfs":
        return _gluster(plan, after)
    if plan.system not in STAYS:
        raise PlacementError(f"unknown system {plan.system!r}")
    gone = max(-change, 0) / plan.targets
    return Movement(gone, gone if change < 0 else change / after)


def _ceph(plan: Plan, after: int) -> Movement:
    kind = ceph.ERASURE if plan.kind == "rain" else ceph.REPLICATED
    size = plan.parts if plan.kind in ("replicated", "rain") else 1
    most = max(plan.targets, after)
    pool = plan.pool or ceph.Pool(1, 4096, 4096, size, 0, kind)
    capacities, rows = [], []
    for count in (plan.targets, after):
        if plan.crush is None:
            osds = ceph.OsdMap.of(flat_map(count, pool.kind), [pool])
        else:
            if after > plan.targets:
                raise PlacementError("targets cannot be added to a given crush map; edit the map and compare the two")
            osds = ceph.OsdMap.of(plan.crush, [pool], plan.weights)
            osds.weights = osds.weights.copy()
            osds.weights[count:] = 0
        osds.require_size(pool.id)
        rows.append(osds.up_sets(pool.id)[0])
        capacity = np.zeros(most)
        for _, _, _, _, _, items, weights in osds.crush.buckets:
            for item, weight in zip(items, weights, strict=True):
                if 0 <= item < most:
                    capacity[item] = weight * float(osds.weights[item])
        capacities.append(capacity)
    return movement(rows[0], rows[1], capacities[0].tolist(), capacities[1].tolist())


def _gluster(plan: Plan, after: int) -> Movement:
    size = plan.parts if plan.kind in ("replicated", "rain") else 1
    if plan.targets % size or after % size:
        raise PlacementError(f"bricks come and go in sets of {size}")
    before_sets, after_sets = plan.targets // size, after // size
    names = [f"v-client-{i}" for i in range(max(before_sets, after_sets))]
    hashes = (np.arange(_HASHES, dtype=np.uint64) * (1 << 16) + 7).astype(np.uint32)
    old = glusterfs.new_layout("/", names[:before_sets])
    ranges = dict(zip(old.subvolumes, zip(old.starts, old.stops, strict=True), strict=True))
    left = names[:after_sets]
    known = [ranges.get(n, (0, 0)) for n in left]
    new = glusterfs.fix_layout(
        glusterfs.Layout(tuple(left), tuple(r[0] for r in known), tuple(r[1] for r in known)), "/"
    )
    number = {n: i for i, n in enumerate(names)}
    rows = [
        np.array([number[n] for n in layout.subvolumes], np.int32)[layout.find(hashes)].reshape(-1, 1)
        for layout in (old, new)
    ]
    shares = [[1.0 if i < count else 0.0 for i in range(len(names))] for count in (before_sets, after_sets)]
    return movement(rows[0], rows[1], shares[0], shares[1])
