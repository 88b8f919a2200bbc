"""What the HDFS adapter refuses before it touches anything, and what candidates may say of it."""

from __future__ import annotations

import zipfile
from pathlib import Path

import pytest

from assay.model.lab import Lab
from assay.systems import hdfs_install, hosted
from assay.systems.base import AdapterError, capabilities
from assay.systems.catalogue import check_candidate, check_tuning, find_system
from assay.systems.hdfs import HdfsSystem, heap_bytes, path_of


@pytest.fixture
def nothing_installed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("ASSAY_SYSTEMS", str(tmp_path))
    return tmp_path / "hdfs"


def test_it_is_found_by_its_layouts() -> None:
    for layout in ("distributed", "replicated-3", "rain-3-2", "rain-10-4"):
        assert find_system(f"hdfs/{layout}") == (HdfsSystem, layout)


def test_it_is_used_by_put_and_get() -> None:
    wanted = {"go-cold", "settle", "byte-counters", "durability", "health", "kill-hosts", "resize", "put-get"}
    assert set(capabilities(HdfsSystem)) == wanted


def test_tuning(nothing_installed: Path) -> None:
    assert not nothing_installed.exists()
    check_tuning("hdfs/rain-3-2", {"brick": "ext4", "heap": "512MiB", "dfs.datanode.synconclose": True})
    with pytest.raises(AdapterError, match="has no tuning 'replication'; known: brick, heap, dfs"):
        check_tuning("hdfs/rain-3-2", {"replication": 2})
    with pytest.raises(AdapterError, match="hdfs has no brick file system 'zfs'; known: xfs, ext4"):
        check_tuning("hdfs/rain-3-2", {"brick": "zfs"})
    with pytest.raises(AdapterError, match="'8MiB' is too little for a NameNode; at least 96MiB"):
        check_tuning("hdfs/rain-3-2", {"heap": "8MiB"})


def test_a_name_that_hdfs_does_not_know_is_refused_where_it_is_installed(nothing_installed: Path) -> None:
    library = nothing_installed / "lib"
    library.mkdir(parents=True)
    with zipfile.ZipFile(library / f"hadoop-hdfs-{hdfs_install.HADOOP_VERSION}.jar", "w") as jar:
        jar.writestr(
            "hdfs-default.xml", "<configuration><property><name> dfs.blocksize </name></property></configuration>"
        )
        jar.writestr("org/apache/hadoop/hdfs/DFSConfigKeys.class", b"\x01\x00\x18dfs.datanode.synconclose\x01\x00dfs.")
    assert hdfs_install.option_names() == {"dfs.blocksize", "dfs.datanode.synconclose"}
    check_tuning("hdfs/distributed", {"dfs.blocksize": "64m", "dfs.datanode.synconclose": True})
    with pytest.raises(AdapterError, match=r"HDFS has no option 'dfs\.block\.size'"):
        check_tuning("hdfs/distributed", {"dfs.block.size": "64m"})


def test_hosts_are_checked_before_anything_else() -> None:
    with pytest.raises(AdapterError, match=r"hdfs/rain-6-3 needs 9 hosts.*; set lab\.hosts to 9"):
        check_candidate("hdfs/rain-6-3", None, Lab.model_validate({"hosts": 6}), 0)


def test_what_is_missing_is_told_with_the_command_that_gets_it(
    nothing_installed: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hosted.os, "geteuid", lambda: 0)
    java, hadoop, client = hdfs_install.requirements()
    assert java.remedy == "apt-get install -y openjdk-17-jre-headless"
    assert hadoop.find() is None
    assert hadoop.remedy == (
        "apt-get install -y --no-install-recommends maven && "
        f"mvn -q -B -f {hdfs_install.POM} dependency:copy-dependencies -DoutputDirectory={nothing_installed / 'lib'}"
    )
    assert client.remedy.endswith(f"pip install hdfs-native=={hdfs_install.CLIENT_VERSION}")
    assert hdfs_install.POM.read_text().count(hdfs_install.HADOOP_VERSION) == 4, (
        "the POM asks for the version named here"
    )
    monkeypatch.setattr(HdfsSystem, "requirements", (hadoop, client))
    with pytest.raises(
        AdapterError, match=r"^Hadoop 3\.5\.0 in .*/hdfs/lib is missing; install it with: apt-get .*mvn"
    ):
        HdfsSystem.preflight("distributed", Lab.model_validate({"hosts": 1, "disk": {"size": "1GiB"}}), 0)


def test_names_stay_below_the_layouts_directory() -> None:
    assert path_of("a/b") == "/assay/a/b"
    for name in ("", "/etc/passwd", "a/../../b"):
        with pytest.raises(AdapterError, match="is no relative name"):
            path_of(name)


def test_heaps() -> None:
    assert heap_bytes("1GiB") == 1 << 30
    with pytest.raises(AdapterError, match=r"^heap: "):
        heap_bytes("much")
