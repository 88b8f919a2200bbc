"""Volumes of GlusterFS: which bricks in which order, what fits, what a client's graph says."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.model.lab import Disk
from assay.model.layout import Layout, parse_layout
from assay.systems.base import AdapterError
from assay.systems.gluster_volume import (
    Range,
    bricks_in_order,
    check_hosts,
    check_room,
    create_arguments,
    graph_of,
    layout_of,
    parse_range,
    spread,
)

DATA = Path(__file__).parents[2] / "data" / "gluster"
MIB = 1 << 20


@pytest.mark.parametrize(
    ("text", "arguments"),
    [
        ("distributed", []),
        ("replicated-3", ["replica", "3"]),
        ("rain-4-2", ["disperse-data", "4", "redundancy", "2"]),
    ],
)
def test_layouts(text: str, arguments: list[str]) -> None:
    assert create_arguments(layout_of(text)) == arguments


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("replicated-1", "one copy is no replication; write glusterfs/distributed"),
        ("rain-2-2", "wants less parity than data; glusterfs/rain-3-2 would do"),
        ("rain-17-3", "at most 16 data bricks"),
        ("striped-4", "'striped-4' is not a layout; write distributed, replicated-N"),
    ],
)
def test_layouts_that_gluster_cannot_do(text: str, words: str) -> None:
    with pytest.raises(AdapterError, match=words):
        layout_of(text)


@pytest.mark.parametrize(("layout", "hosts", "per_host", "enough"), [
    ("rain-4-2", 5, 1, 6), ("rain-4-2", 7, 1, 12), ("rain-8-4", 6, 1, 12), ("replicated-3", 4, 1, 6),
    ("replicated-2", 1, 2, 2), ("rain-4-2", 7, 3, 8), ("replicated-3", 2, 3, 3),
])  # fmt: skip
def test_hosts_that_do_not_suffice_are_told_the_number_that_does(
    layout: str, hosts: int, per_host: int, enough: int
) -> None:
    with pytest.raises(AdapterError, match=f"set lab.hosts to {enough}$"):
        check_hosts(parse_layout(layout), hosts, per_host)
    check_hosts(parse_layout(layout), enough, per_host)


@given(st.integers(1, 40), st.integers(1, 4), st.integers(1, 12))
def test_no_set_has_two_bricks_on_one_host(hosts: int, per_host: int, width: int) -> None:
    layout = Layout("replicated", 1, width - 1)
    try:
        check_hosts(layout, hosts, per_host)
    except AdapterError:
        return
    bricks = bricks_in_order([f"s{i}" for i in range(hosts)], per_host)
    assert len(set(bricks)) == len(bricks) == hosts * per_host
    for start in range(0, len(bricks), width):
        members = [brick.partition(":")[0] for brick in bricks[start : start + width]]
        assert len(set(members)) == width


def test_room() -> None:
    rain = parse_layout("rain-4-2")
    check_room(rain, 6, Disk.model_validate({"size": "600MiB"}), "xfs", 1500 * MIB)
    with pytest.raises(
        AdapterError, match=r"takes 1\.5 times its size on 6 disks; lab\.disk\.size must be at least (\d+)MiB"
    ):
        check_room(rain, 6, Disk.model_validate({"size": "600MiB"}), "xfs", 4000 * MIB)
    check_room(rain, 6, Disk.model_validate({"size": "1300MiB"}), "xfs", 4000 * MIB)
    with pytest.raises(AdapterError, match="takes 3 times its size on 12 disks"):
        check_room(
            parse_layout("replicated-3"), 6, Disk.model_validate({"size": "600MiB", "per_host": 2}), "xfs", 4000 * MIB
        )


def test_hosts_are_lost_evenly_and_the_first_never() -> None:
    assert spread([["s1", "s2", "s3"], ["s4", "s5", "s6"]], kept="s1") == ["s6", "s3", "s5", "s2", "s4"]
    assert spread([["s1", "s2", "s3", "s4", "s5", "s6"]], kept="s1") == ["s6", "s5", "s4", "s3", "s2"]
    assert spread([["s1"], ["s2"], ["s3"]], kept="s1") == ["s3", "s2"]
    assert spread([["s1", "s2"], ["s1", "s2"]], kept="s1") == ["s2"], "several disks of a host are lost together"


@pytest.mark.parametrize(("name", "subvolumes", "sets"), [
    ("rain-4-2", ("assay-disperse-0",), 1), ("replicated-3", ("assay-replicate-0", "assay-replicate-1"), 2),
    ("distributed", ("assay-client-0", "assay-client-1"), 2),
])  # fmt: skip
def test_the_graph_of_a_client(name: str, subvolumes: tuple[str, ...], sets: int) -> None:
    graph = graph_of((DATA / f"{name}.vol").read_text())
    assert graph.volume == "assay"
    assert str(graph.layout) == name
    assert graph.subvolumes == subvolumes
    assert len(graph.sets) == sets
    assert [brick for members in graph.sets for brick in members] == list(graph.bricks)
    assert graph.bricks[:2] == ("s1:/run/b/1/brick", "s2:/run/b/1/brick")
    assert graph.clients[0] == "assay-client-0"
    assert "performance/write-behind" in graph.translators


@pytest.mark.parametrize("text", ["", "volume x\n type debug/trace\nend-volume\n", "nothing of the kind"])
def test_what_is_no_graph(text: str) -> None:
    with pytest.raises(AdapterError, match="not a GlusterFS volume"):
        graph_of(text)


def test_ranges() -> None:
    assert parse_range("000000000000000055555554" + "7ffffffd") == Range(0, 0, 0x55555554, 0x7FFFFFFD)
    with pytest.raises(ValueError, match="no layout"):
        parse_range("00")
