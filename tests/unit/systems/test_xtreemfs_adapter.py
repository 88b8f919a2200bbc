"""XtreemFS without an installation: layouts, where an installation's parts are found, property files, command lines, what its
attributes say (formats of XtreemFS 1.6), and what is refused before anything is touched."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.model.lab import Disk, Lab
from assay.systems import hosted
from assay.systems import xtreemfs_config as config
from assay.systems.base import AdapterError, capabilities
from assay.systems.catalogue import check_candidate, check_tuning, find_system
from assay.systems.xtreemfs import XtreemSystem, mount_process
from assay.systems.xtreemfs_config import Spread, spread_of

GIB = 1 << 30


def test_layouts() -> None:
    assert spread_of("distributed") == Spread()
    assert spread_of("striped-4") == Spread(width=4)
    assert spread_of("replicated-3") == Spread(copies=3)
    for layout in ("distributed", "striped-4", "replicated-3"):
        assert str(spread_of(layout)) == layout
        assert find_system(f"xtreemfs/{layout}") == (XtreemSystem, layout)


@pytest.mark.parametrize(("layout", "words"), [
    ("rain-4-2", "XtreemFS has no erasure code; write xtreemfs/replicated-3"),
    ("replicated-1", "one copy is no replication"),
    ("striped-1", "one stripe is no striping"),
    ("raid5", r"or striped-N \(width\)"),
])  # fmt: skip
def test_layouts_that_xtreemfs_has_not(layout: str, words: str) -> None:
    with pytest.raises(AdapterError, match=words):
        spread_of(layout)


def test_hosts_and_room() -> None:
    config.check_hosts(Spread(width=4), 4)
    with pytest.raises(AdapterError, match=r"xtreemfs/replicated-3 needs 3 hosts.*set lab\.hosts to 3"):
        config.check_hosts(Spread(copies=3), 2)
    disk = Disk.model_validate({"size": GIB})
    config.check_room(Spread(width=4), 4, disk, "xfs", 2 * GIB)
    with pytest.raises(AdapterError, match=r"takes 3 times its size on 3 disks; lab\.disk\.size must be at least"):
        config.check_room(Spread(copies=3), 3, disk, "xfs", 2 * GIB)


def test_tuning() -> None:
    check_tuning(
        "xtreemfs/striped-4", {"stripe": "256KiB", "mount": "--enable-async-writes", "osd.checksums.enabled": True}
    )
    assert config.tuned_properties({"osd.checksums.enabled": True, "mrc.no_atime": False, "brick": "xfs"}) == {
        "dir": {},
        "mrc": {"no_atime": "false"},
        "osd": {"checksums.enabled": "true"},
    }
    for key in ("osd.uuid", "mrc.listen.port", "dir.babudb.baseDir", "osd.object_dir", "mrc.capability_secret"):
        with pytest.raises(AdapterError, match="is what the lab sets by itself"):
            check_tuning("xtreemfs/striped-4", {key: "x"})
    with pytest.raises(AdapterError, match="'100' is no whole number of KiB"):
        check_tuning("xtreemfs/striped-4", {"stripe": "100"})
    with pytest.raises(AdapterError, match="has no brick file system 'zfs'"):
        check_tuning("xtreemfs/striped-4", {"brick": "zfs"})


@pytest.mark.parametrize(("jars", "programs"), [
    ("usr/share/java", "usr/bin"),
    ("java/xtreemfs-servers/target", "cpp/build"),
    (".", "."),
])  # fmt: skip
def test_an_installation_is_found_however_it_is_laid_out(tmp_path: Path, jars: str, programs: str) -> None:
    for file in (f"{jars}/XtreemFS.jar", f"{jars}/BabuDB.jar", f"{programs}/mount.xtreemfs"):
        (tmp_path / file).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / file).touch()
    roots = [tmp_path / "nothing", tmp_path]
    assert [jar.name for jar in config.find_jars(roots)] == ["XtreemFS.jar", "BabuDB.jar"], "its own JAR comes first"
    assert config.find_program("mount.xtreemfs", roots) == tmp_path / programs / "mount.xtreemfs"
    assert config.find_program("xtfsutil", roots) is None


def test_jars_of_others_are_no_installation(tmp_path: Path) -> None:
    (tmp_path / "lib").mkdir()
    (tmp_path / "lib" / "xtreemfs-client-tools.jar").touch()
    assert config.find_jars([tmp_path]) == []


def test_what_is_missing_is_told_with_the_command_that_helps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_SYSTEMS", str(tmp_path))
    monkeypatch.setattr("assay.systems.xtreemfs.roots", lambda: [tmp_path])
    monkeypatch.setattr(hosted.os, "geteuid", lambda: 0)
    monkeypatch.setattr(hosted, "FUSE", Path("/dev/null"))
    monkeypatch.setattr(
        XtreemSystem, "requirements", XtreemSystem.requirements[1:]
    )  # whether Java is here does not matter
    words = r"^XtreemFS' server JAR is missing; install it with: make -C XTREEMFS_SOURCE server client && .*ln -sfn XTREEMFS_SOURCE "
    with pytest.raises(AdapterError, match=words):
        check_candidate("xtreemfs/striped-2", None, Lab.model_validate({"hosts": 2}), 0)


def test_properties_of_the_services() -> None:
    def made(service: str, disk: int = 1, **tuned: str) -> dict[str, str]:
        return config.properties(service, host="s2", address="10.77.0.12", directory="/d", disk=disk, tuned=tuned)

    directory, metadata, storage = made("dir"), made("mrc"), made("osd", 2, report_free_space="false")
    assert (directory["listen.port"], directory["http_port"]) == ("32638", "30638")
    assert (metadata["listen.port"], metadata["http_port"]) == ("32636", "30636")
    assert (storage["listen.port"], storage["http_port"]) == ("32641", "30641")
    assert directory["babudb.sync"] == "FDATASYNC"
    assert metadata["babudb.logDir"] == "/d/log"
    assert metadata["capability_secret"] == storage["capability_secret"]
    assert {p["hostname"] for p in (directory, metadata, storage)} == {"10.77.0.12"}, "else it registers as 127.0.0.1"
    assert storage["uuid"] == "osd-s2-2"
    assert storage["report_free_space"] == "false", "the tuning wins"
    assert "dir_service.host" not in directory
    assert config.property_file({"a": "b", "c": "d"}) == "a = b\nc = d\n"


def test_command_lines() -> None:
    assert config.mkfs_arguments(Spread(width=4), 128 << 10) == [
        "-p",
        "RAID0",
        "-s",
        "128",
        "-w",
        "4",
        "-a",
        "POSIX",
        "s1/assay",
    ]
    assert config.replication_arguments(Spread(copies=3), Path("/m")) == (
        ["--set-drp", "--replication-policy", "WqRq", "--replication-factor", "3", "/m"]
    )
    command = config.java_command([Path("/x/xtreemfs.jar"), Path("/x/babudb.jar")], 256 << 20, "mrc", Path("/c"))
    assert command[0] == "java"
    assert "-Xmx256m" in command
    assert command[-4:] == ["-cp", "/x/xtreemfs.jar:/x/babudb.jar", "org.xtreemfs.mrc.MRC", "/c"]


def test_what_a_mount_says() -> None:
    assert config.usable_osds('{"osd-s1-1": "10.77.0.11:32640"}') == {"osd-s1-1": "10.77.0.11:32640"}
    striping = '{"pattern": "STRIPING_POLICY_RAID0", "width": %d, "size": 128}'
    assert config.volume_spread(striping % 4, "") == Spread(width=4)
    replicated = '{"replication-factor": 3, "update-policy": "WqRq", "replication-flags": 0}'
    assert config.volume_spread(striping % 1, replicated) == Spread(copies=3)
    osd = {"address": "10.77.0.11:32640", "vivaldi_coordinates": ""}
    replicas = [{"osds": [{"uuid": "a", **osd}, {"uuid": "b", **osd}]}, {"osds": [{"uuid": "c", **osd}]}]
    assert config.osds_of(json.dumps({"update-policy": "WqRq", "version": 1, "replicas": replicas})) == [
        ["a", "b"],
        ["c"],
    ]
    assert config.osds_of("{}") == []
    for text in ("", "[]", "nonsense"):
        with pytest.raises(AdapterError, match=r"xtreemfs\.usable_osds is not what was expected"):
            config.usable_osds(text)


def test_no_client_serves_a_mount_that_is_not_there() -> None:
    assert mount_process("/no/such/mount") == ""


def test_capabilities() -> None:
    wanted = {"go-cold", "settle", "byte-counters", "durability", "health", "kill-hosts", "resize"}
    assert set(capabilities(XtreemSystem)) == wanted
