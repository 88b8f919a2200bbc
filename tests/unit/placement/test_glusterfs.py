"""GlusterFS: layouts cover every hash, names are munged, live answers are read."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.placement import glusterfs
from assay.placement.errors import PlacementError


@given(
    st.integers(1, 40),
    st.text("abcü/._-", min_size=1, max_size=12),
    st.one_of(st.none(), st.integers(1, 5000)),
)
def test_every_hash_has_one_subvolume(count: int, path: str, step: int | None) -> None:
    chunks = None if step is None else [1 + i * step for i in range(count)]
    layout = glusterfs.new_layout(f"/{path}", [f"v-client-{i}" for i in range(count)], chunks)
    ranges = sorted(zip(layout.starts, layout.stops, strict=True))
    assert ranges[0][0] == 0 and ranges[-1][1] == 0xFFFFFFFF
    assert all(a[1] + 1 == b[0] for a, b in itertools.pairwise(ranges))
    edges = np.array([r for pair in ranges for r in pair], np.uint32)
    found = layout.find(edges)
    assert [layout.starts[i] <= e <= layout.stops[i] for i, e in zip(found, edges.tolist(), strict=True)]


def test_a_custom_regex_munges_as_the_built_in_rule_does() -> None:
    names = [b".a.b.c", b"..x", b"a.b", b".x.", b".file1.aXb3Zq", "näme".encode(), b".\n.\n"]
    default = glusterfs.name_hashes(names)
    spelled = glusterfs.name_hashes(names, regex=rb"^\.(.+)\.[^.]+$")
    assert (default == spelled).all()
    assert glusterfs.name_hashes([b"x~1~"], extra_regex=rb"^(.+)~\d+~$")[0] == glusterfs.name_hashes([b"x"])[0]


def test_a_layout_with_a_gap_is_named() -> None:
    layout = glusterfs.Layout(("a", "b"), (0, 0x80000000), (0x10, 0xFFFFFFFF))
    low = next(n for n in (b"%d" % i for i in range(100)) if glusterfs.name_hashes([n])[0] < 0x80000000)
    with pytest.raises(PlacementError, match="no range for"):
        layout.bricks_of([low])


def test_layouts_come_from_xattrs() -> None:
    values = {
        "v-client-1": bytes.fromhex("0000000000000001" + "80000000" + "ffffffff"),
        "v-client-0": bytes.fromhex("0000000000000001" + "00000000" + "7fffffff"),
    }
    layout = glusterfs.Layout.from_xattrs(values)
    assert layout == glusterfs.Layout(("v-client-0", "v-client-1"), (0, 0x80000000), (0x7FFFFFFF, 0xFFFFFFFF))
    with pytest.raises(PlacementError, match="3 bytes instead of 16"):
        glusterfs.Layout.from_xattrs({"v-client-0": b"abc"})


def test_fix_layout_moves_less_than_a_new_layout_would() -> None:
    names = [f"v-client-{i}" for i in range(5)]
    old = glusterfs.new_layout("/d", names[:4])
    padded = glusterfs.Layout(tuple(names), (*old.starts, 0), (*old.stops, 0))
    fixed = glusterfs.fix_layout(padded, "/d")
    hashes = (np.arange(1 << 14, dtype=np.uint64) << np.uint64(18)).astype(np.uint32)
    before = padded.find(hashes)
    assert (fixed.find(hashes) != before).mean() <= (glusterfs.new_layout("/d", names).find(hashes) != before).mean()


def test_shards_of_an_extent() -> None:
    assert glusterfs.shard_names("g", 0, 1) == [None]
    assert glusterfs.shard_names("g", (64 << 20) - 1, 2) == [None, b"g.1"]
    assert glusterfs.shard_names("g", 128 << 20, 1) == [b"g.2"]
    assert glusterfs.shard_names("g", 0, 0) == []


def test_pathinfo_of_directories_and_files_is_read() -> None:
    text = (
        "((<DISTRIBUTE:tv-dht> <POSIX(/b0):vm:/b0/d1> <POSIX(/b1):vm:/b1/d1>) "
        "(tv-dht-layout (tv-client-0 2147483646 4294967295) (tv-client-1 0 2147483645)))"
    )
    layout, bricks = glusterfs.parse_pathinfo(text)
    assert layout is not None and layout.starts == (2147483646, 0)
    assert bricks == ("vm:/b0", "vm:/b1")
    assert glusterfs.parse_pathinfo("(<DISTRIBUTE:v-dht> <POSIX(/b2):vm:/b2/a>)") == (None, ("vm:/b2",))


def test_a_misplaced_file_is_found() -> None:
    layout = glusterfs.new_layout("/", ["v-client-0", "v-client-1"])
    names = [b"f%d" % i for i in range(100)]
    found = {n: (f"h:/b{i}",) for n, i in zip(names, layout.find(glusterfs.name_hashes(names)), strict=True)}
    assert glusterfs.misplaced(layout, found) == []
    other = next(n for n in names if found[n] != found[names[0]])
    found[names[0]] = found[other]
    assert glusterfs.misplaced(layout, found) == [names[0]]
