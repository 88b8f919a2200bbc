"""Systems that draw lots: rules that hold always, and frequencies.

Chi-square tests at the level 1e-6, so that they fail by chance about never; with 40,000 draws over 8 targets they find a
share that is off by a tenth of itself with a power above 0.999 (noncentrality 40000 * 0.1^2 / 8 per target and more).
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np
import pytest
from scipy.stats import chi2 as chi2_distribution
from scipy.stats import chisquare, ncx2

from assay.placement import eos, hdfs, lustre, moosefs, tahoe, xtreemfs
from assay.placement.errors import PlacementError

LEVEL = 1e-6
DRAWS = 40_000


def _rng() -> np.random.Generator:
    return np.random.default_rng(20261122)


def _as_expected(observed: Sequence[int], shares: Sequence[float]) -> bool:
    counts = np.asarray(observed, float)
    return chisquare(counts, np.asarray(shares) / sum(shares) * counts.sum()).pvalue > LEVEL


def test_the_power_is_what_the_docstring_says() -> None:
    shifted = np.array([1.1, 0.9] + [1.0] * 6) / 8
    noncentrality = DRAWS * float(((shifted - 1 / 8) ** 2 * 8).sum())
    assert ncx2.sf(chi2_distribution.isf(LEVEL, 7), 7, noncentrality) > 0.999
    assert not _as_expected((shifted * DRAWS).astype(int).tolist(), [1] * 8)


def test_xtreemfs_draws_osds_uniformly_in_order() -> None:
    rng, first, held = _rng(), np.zeros(8, int), np.zeros(8, int)
    for _ in range(DRAWS // 2):
        chosen = xtreemfs.select_osds(range(8), 3, rng)
        assert len(set(chosen)) == 3
        first[chosen[0]] += 1
        held[chosen] += 1
    assert _as_expected(first.tolist(), [1] * 8)
    assert held.std() / held.mean() < 0.02
    assert xtreemfs.select_osds([1, 2], 5, rng) in ([1, 2], [2, 1])
    with pytest.raises(PlacementError):
        xtreemfs.select_osds([], 1, rng)


def test_lustre_goes_round_when_space_is_even() -> None:
    allocator = lustre.Allocator([lustre.Target(i // 2, 1 << 40) for i in range(6)], _rng())
    assert allocator.balanced()
    files = [allocator.allocate(2) for _ in range(300)]
    used = np.bincount([o for f in files for o in f], minlength=6)
    assert used.max() - used.min() <= 2
    assert all(len(set(f)) == 2 for f in files)
    assert lustre.round_robin_order([0, 0, 1, 1, 2, 2]) == [0, 2, 4, 1, 3, 5]


def test_lustre_draws_by_free_space_when_it_is_not() -> None:
    free = [1 << 40, 1 << 40, 1 << 38, 1 << 38]
    rng, used = _rng(), np.zeros(4, int)
    for _ in range(5000):  # a first file each time: penalties are those of an idle system
        allocator = lustre.Allocator([lustre.Target(i, a) for i, a in enumerate(free)], rng)
        assert not allocator.balanced()
        used[allocator.allocate(1)[0]] += 1
    assert _as_expected(used.tolist(), free)


def test_lustre_spreads_by_penalties() -> None:
    allocator = lustre.Allocator([lustre.Target(i, 1 << (40 - i % 2)) for i in range(8)], _rng())
    for _ in range(200):
        chosen = allocator.allocate(4)
        assert len(set(chosen)) == 4
    assert allocator.allocate(99) and len(allocator.allocate(99)) == 8


def test_hdfs_rules_on_racks() -> None:
    racks = [0, 0, 0, 1, 1, 1, 2, 2]
    nodes = hdfs.DataNodes(racks, _rng())
    second = np.zeros(8, int)
    for _ in range(DRAWS // 4):
        a, b, c = nodes.replicas(3, writer=0)
        assert a == 0 and racks[b] != 0 and racks[c] == racks[b] and b != c
        second[b] += 1
    assert _as_expected(second[3:].tolist(), [1] * 5)
    for _ in range(500):
        chosen = nodes.erasure_set(6)
        assert len(set(chosen)) == 6
        assert max(np.bincount([racks[i] for i in chosen])) == 2
    with pytest.raises(PlacementError, match="needs 9 data nodes"):
        nodes.erasure_set(9)


def test_moosefs_follows_capacity() -> None:
    sizes = [1, 2, 3, 2]
    servers, used = moosefs.ChunkServers(sizes, _rng()), np.zeros(4)
    for _ in range(8000):
        used[servers.place(1)] += 1
    assert np.abs(used / used.sum() - np.array(sizes) / 8).max() < 0.05
    assert sorted(servers.place(4)) == [0, 1, 2, 3]
    with pytest.raises(PlacementError):
        servers.place(5)


def test_eos_flat_scheduler() -> None:
    turn = eos.FlatScheduler([1] * 4, "roundrobin", _rng())
    assert [turn.place(3) for _ in range(2)] == [[0, 1, 2], [3, 0, 1]]
    weighted, used = eos.FlatScheduler([1, 2, 1, 4], "weightedrandom", _rng()), np.zeros(4, int)
    for _ in range(DRAWS // 4):
        used[weighted.place(1)] += 1
    assert _as_expected(used.tolist(), [1, 2, 1, 4])
    with pytest.raises(PlacementError, match="unknown strategy"):
        eos.FlatScheduler([1], "best", _rng())


def test_eos_geotree_spreads_over_branches_and_groups() -> None:
    group = ["a::r1", "a::r2", "b::r1", "b::r2"]
    tree = eos.GeoTreeScheduler([group, group], _rng())
    for turn in range(400):
        number, chosen = tree.place(2)
        assert number == turn % 2
        assert {group[i][0] for i in chosen} == {"a", "b"}
    with pytest.raises(PlacementError, match="no group has 5"):
        tree.place(5)


def test_eos_layout_ids_and_entry() -> None:
    assert eos.LayoutId.decode(0x20640542) == eos.LayoutId("raid6", 6, 1 << 20)
    assert eos.LayoutId.decode(0x20640542).data == 4
    assert eos.entry_server(7, [10, 11, 12]) == 11
    with pytest.raises(PlacementError):
        eos.LayoutId.decode(0xF0)


def test_tahoe_places_shares_among_the_first_of_the_ring() -> None:
    seeds = [hashlib.sha256(b"%d" % i).digest() for i in range(30)]
    index = tahoe.storage_index(bytes(16))
    ring = tahoe.permuted_ring(index, seeds)
    encoding, rng, used = tahoe.Encoding(), _rng(), np.zeros(30, int)
    assert encoding.servers(index, seeds) == ring[:10]
    for _ in range(4000):
        chosen = encoding.servers(index, seeds, rng)
        assert len(set(chosen)) == 10
        used[chosen] += 1
    assert set(np.flatnonzero(used)) == set(ring[:20])
    assert _as_expected(used[ring[:20]].tolist(), [1] * 20)
    assert encoding.segment_size(10) == 12 and encoding.segments(0, 1, 10) == range(1)
    with pytest.raises(PlacementError, match="no encoding"):
        tahoe.Encoding(5, 3)
