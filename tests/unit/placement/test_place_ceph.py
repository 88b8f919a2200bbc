"""Ceph above CRUSH."""

from __future__ import annotations

import numpy as np
import pytest

from assay._core import crush_hash
from assay.placement import ceph
from assay.placement.crush import HOLE, ONE
from assay.placement.errors import PlacementError
from assay.placement.spread import flat_map

POOL = ceph.Pool(1, 64, 64, 3, 0)


def _map(kind: int = ceph.REPLICATED) -> ceph.OsdMap:
    return ceph.OsdMap.of(flat_map(6, kind), [ceph.Pool(1, 64, 64, 3, 0, kind)])


def test_stable_mod_moves_only_what_must_when_groups_are_split() -> None:
    hashes = np.arange(100_000, dtype=np.uint32) * np.uint32(2654435761)
    assert ceph.stable_mod(hashes, 100).max() == 99
    before, after = ceph.stable_mod(hashes, 100), ceph.stable_mod(hashes, 101)
    assert set(after[before != after].tolist()) == {100}


def test_namespaces_and_names() -> None:
    assert ceph.name_hashes([b"ns\x1fa"])[0] == ceph.name_hashes([b"a"], namespace=b"ns")[0]
    assert ceph.cephfs_object(0x10000000000, 3) == b"10000000000.00000003"
    assert ceph.rbd_object("abe", 2) == b"rbd_data.abe.0000000000000002"


def test_files_are_cut_into_objects() -> None:
    plain = list(ceph.FileLayout().extents((4 << 20) - 10, 20))
    assert plain == [(0, (4 << 20) - 10, 10), (1, 0, 10)]
    striped = ceph.FileLayout(stripe_unit=1 << 20, stripe_count=3, object_size=2 << 20)
    numbers = [n for n, _, _ in striped.extents(0, 12 << 20)]
    assert numbers == [0, 1, 2, 0, 1, 2, 3, 4, 5, 3, 4, 5]
    assert sum(size for _, _, size in striped.extents(12345, 9_999_999)) == 9_999_999
    with pytest.raises(PlacementError, match="multiple of its stripe unit"):
        ceph.FileLayout(3, 1, 4)


def test_down_devices_close_ranks_in_replicated_pools_and_leave_holes_in_others() -> None:
    for kind in (ceph.REPLICATED, ceph.ERASURE):
        osds = _map(kind)
        before, _ = osds.up_sets(1)
        osds.up[2] = False
        after, primary = osds.up_sets(1)
        for old, new, first in zip(before.tolist(), after.tolist(), primary.tolist(), strict=True):
            left = [o for o in old if o != 2]
            expected = (
                left + [HOLE] * (3 - len(left)) if kind == ceph.REPLICATED else [o if o != 2 else HOLE for o in old]
            )
            assert new == expected
            assert first == left[0]


def test_upmaps_replace_unless_the_new_device_is_there_or_out() -> None:
    osds = _map()
    row = osds.up_sets(1)[0][5].tolist()
    free = next(o for o in range(6) if o not in row)
    osds.upmap_items[(1, 5)] = [(row[1], free), (row[0], row[2])]
    assert osds.up_sets(1)[0][5].tolist() == [row[0], free, row[2]]
    osds.weights[free] = 0
    assert free not in osds.up_sets(1)[0][5].tolist()
    osds = _map()
    osds.upmap[(1, 5)] = [5, 4, 3]
    assert osds.up_sets(1)[0][5].tolist() == [5, 4, 3]


def test_primary_affinity_gives_the_role_away() -> None:
    osds = _map()
    before, primary = osds.up_sets(1)
    osds.affinity[primary[0]] = 0
    rows, new = osds.up_sets(1)
    assert new[0] != primary[0] and set(rows[0]) == set(before[0]) and rows[0, 0] == new[0]
    osds.affinity[:] = ONE // 2
    rows, new = osds.up_sets(1)
    inputs = osds.pools[1].inputs()
    for row, x, first in zip(before.tolist(), inputs.tolist(), new.tolist(), strict=True):
        takes = [o for o in row if crush_hash([x, o]) >> 16 < ONE // 2]
        assert first == (takes[0] if takes else row[0])


def test_temporary_sets_act() -> None:
    osds = _map()
    osds.temporary[(1, 3)] = [0, 1]
    osds.temporary_primary[(1, 4)] = 5
    rows, primary = osds.acting_sets(1)
    assert rows[3].tolist() == [0, 1, HOLE] and primary[3] == 0 and primary[4] == 5


def test_too_few_hosts_for_a_pool_are_named() -> None:
    osds = ceph.OsdMap.of(flat_map(5, ceph.ERASURE), [ceph.Pool(1, 8, 8, 6, 0, ceph.ERASURE)])
    with pytest.raises(PlacementError, match="needs 6 times host for each group, but rule 0 finds 5"):
        osds.require_size(1)


def test_a_dump_is_read_and_a_wrong_one_named() -> None:
    pool = {"pool": 3, "type": 1, "size": 2, "pg_num": 8, "pg_placement_num": 8, "crush_rule": 0,
            "flags_names": "hashpspool"}  # fmt: skip
    osd = [{"osd": i, "up": int(i != 1), "in": 1, "weight": 1.0, "primary_affinity": 1.0} for i in range(6)]
    dump = {"pools": [pool], "osds": osd, "pg_upmap_items": [{"pgid": "3.a", "mappings": [{"from": 1, "to": 2}]}]}
    osds = ceph.OsdMap.from_dump(flat_map(6, 1), dump)
    assert osds.upmap_items == {(3, 10): [(1, 2)]}
    assert 1 not in osds.up_sets(3)[0]
    with pytest.raises(PlacementError, match="ceph osd dump"):
        ceph.OsdMap.from_dump(flat_map(6, 1), {"pools": []})
    with pytest.raises(PlacementError, match="no number 'pg_num'"):
        ceph.Pool.from_dump({"pool": 1})
    with pytest.raises(PlacementError, match="no pool 9; there are 3"):
        osds.pool(9)
