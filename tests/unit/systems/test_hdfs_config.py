"""Which layouts HDFS has here, what hosts and room they need, and the files that its services read."""

from __future__ import annotations

from pathlib import Path
from xml.etree import ElementTree

import pytest

from assay.model.lab import Disk
from assay.model.layout import Layout
from assay.systems.base import AdapterError
from assay.systems.hdfs_config import (
    CLIENT_OPTIONS,
    LAB_OPTIONS,
    POLICIES,
    check_hosts,
    check_room,
    client_options,
    hdfs_options,
    java_arguments,
    layout_of,
    options_of,
    policy_of,
    site_xml,
)

GIB = 1 << 30


def test_layouts_and_their_policies() -> None:
    assert policy_of(layout_of("distributed")) is None
    assert policy_of(layout_of("replicated-3")) is None
    assert {(k, m): policy_of(layout_of(f"rain-{k}-{m}")) for k, m in POLICIES} == {
        (3, 2): "RS-3-2-1024k",
        (6, 3): "RS-6-3-1024k",
        (10, 4): "RS-10-4-1024k",
    }


@pytest.mark.parametrize(("layout", "words"), [
    ("rain-4-2", r"no erasure-coding policy for that; known: hdfs/rain-3-2, hdfs/rain-6-3, hdfs/rain-10-4$"),
    ("rain-2-1", r"hdfs/rain-10-4; hdfs-native cannot read XOR-2-1-1024k$"),
    ("replicated-1", r"one copy is no replication; write hdfs/distributed"),
    ("striped-4", r"is not a layout"),
])  # fmt: skip
def test_layouts_that_hdfs_has_not(layout: str, words: str) -> None:
    with pytest.raises(AdapterError, match=words):
        layout_of(layout)


def test_every_part_needs_a_host_although_hdfs_would_accept_fewer() -> None:
    check_hosts(Layout("rain", 6, 3), 9)
    with pytest.raises(AdapterError, match=r"hdfs/rain-6-3 needs 9 hosts, .* the lab has 6; set lab\.hosts to 9"):
        check_hosts(Layout("rain", 6, 3), 6)
    with pytest.raises(AdapterError, match=r"set lab\.hosts to 3"):
        check_hosts(Layout("replicated", 1, 2), 2)


def test_room_for_data_and_for_a_block_of_every_writer() -> None:
    disk = Disk.model_validate({"size": GIB})
    check_room(Layout("rain", 3, 2), 6, disk, "xfs", 512 << 20)
    with pytest.raises(
        AdapterError, match=r"takes 3 times its size on 3 disks, .*lab\.disk\.size must be at least \d+MiB"
    ):
        check_room(Layout("replicated", 1, 2), 3, disk, "xfs", GIB)
    with pytest.raises(AdapterError, match="room for 9 blocks of 128 MiB"):
        check_room(Layout("distributed"), 1, disk, "xfs", 1, writers=8)


def test_the_files_say_the_same_on_every_host() -> None:
    options = hdfs_options(Layout("rain", 3, 2), 2, Path("/lab/exclude"), {"dfs.blocksize": "64m"})
    assert options["dfs.datanode.data.dir"] == "file:///run/b/1/data,file:///run/b/2/data"
    assert options["dfs.replication"] == "1"
    assert options["dfs.namenode.ec.system.default.policy"] == "RS-3-2-1024k"
    assert options["dfs.blocksize"] == "64m"
    assert options.items() >= LAB_OPTIONS.items()
    assert hdfs_options(Layout("replicated", 1, 2), 1, Path("/x"), {})["dfs.replication"] == "3"
    tree = ElementTree.fromstring(site_xml({**options, "odd": "<a & b>"}))
    read = {p.findtext("name"): p.findtext("value") for p in tree.iter("property")}
    assert read == {**options, "odd": "<a & b>"}


def test_the_clients_patience_is_not_the_datanodes() -> None:
    """A DataNode reads dfs.client.socket-timeout too and drops writers that wait for a dead host meanwhile."""
    assert "dfs.client.socket-timeout" not in hdfs_options(Layout("distributed"), 1, Path("/x"), {})
    assert client_options({}) == CLIENT_OPTIONS
    tuned = client_options({"dfs.client.socket-timeout": "1", "dfs.blocksize": "64m"})
    assert tuned["dfs.client.socket-timeout"] == "1"
    assert "dfs.blocksize" not in tuned


def test_options_from_the_tuning() -> None:
    known = frozenset({"dfs.datanode.synconclose", "dfs.blocksize"})
    tuning = {"dfs.datanode.synconclose": True, "dfs.blocksize": "64m", "heap": "1GiB"}
    assert options_of(tuning, known) == {"dfs.datanode.synconclose": "true", "dfs.blocksize": "64m"}
    assert options_of({"dfs.any": 3}) == {"dfs.any": "3"}, "nothing is known when it is not installed"
    with pytest.raises(AdapterError, match=r"HDFS has no option 'dfs\.blocksise'; Hadoop would ignore it"):
        options_of({"dfs.blocksise": 1}, known)
    with pytest.raises(AdapterError, match=r"dfs\.replication is what the lab sets by itself"):
        options_of({"dfs.replication": 2}, known)
    with pytest.raises(AdapterError, match="is no option of HDFS"):
        options_of({"fs.defaultFS": "x"}, known)


def test_arguments_of_java_survive_odd_paths() -> None:
    text = java_arguments([Path('/a b/"x".jar')], Path("/conf"), 256 << 20, Path("/c.jsa"))
    lines = text.splitlines()
    assert '"-Xmx256m"' in lines
    assert '"-XX:SharedArchiveFile=/c.jsa"' in lines
    assert lines[-1] == '"/a b/\\"x\\".jar:/conf"'
    assert "Shared" not in java_arguments([], Path("/conf"), 256 << 20, None)
