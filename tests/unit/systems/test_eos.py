"""EOS' documented output, and what is refused without one. No EOS runs here: `eos` is a script with the documentation's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.lab.host import LocalHost
from assay.model.lab import Lab as LabDeclaration
from assay.systems.base import AdapterError, capabilities
from assay.systems.catalogue import check_candidate, check_tuning
from assay.systems.eos import (
    EosSystem,
    directory_attributes,
    healthy,
    manager_of,
    namespace_path,
    parse_attributes,
    parse_filesystems,
    parse_monitoring,
    parse_version,
)

ATTRIBUTES = """sys.eos.btime="1761832881.81783206"
sys.forced.blocksize="4k"
sys.forced.checksum="adler"
sys.forced.layout="replica"
sys.forced.nstripes="2"
sys.forced.space="default"
user.note="a = \\"b\\""
"""
FILE_SYSTEMS = """\
host=fst1.example port=1095 id=1 uuid=ab24ec6f-a448-434f-ae80-d2f2869b2d79 path=/data/fst/01 schedgroup=default.0 stat.boot=booted configstatus=rw headroom=1000000000  stat.errc=0 stat.errmsg=  stat.disk.load=0.00 stat.disk.readratemb=0 stat.disk.writeratemb=0 stat.ropen=0 stat.wopen=0 stat.statfs.freebytes=10000000000 stat.statfs.usedbytes=2000000000 stat.statfs.capacity=12000000000 stat.usedfiles=0 local.drain=nodrain stat.active=online stat.disk.iops=240 stat.disk.bw=127.00 stat.geotag=Serbia stat.health=unknown%20raid stat.health.indicator=0
host=fst2.example port=1095 id=2 path=/data/fst/02 schedgroup=erasure.3 stat.boot=booted configstatus=drain stat.errc=5 stat.errmsg=Input/output%20error stat.active=online stat.statfs.capacity=12000000000
host=fst3.example port=1095 id=3 path=/data/fst/03 schedgroup=default.0 stat.boot=down configstatus=rw stat.active=offline stat.statfs.usedbytes= stat.statfs.capacity=
host=fst3.example port=1095 id=4 path=/data/fst/04 schedgroup=spare stat.boot=opserror configstatus=off stat.active=offline
"""
VERSION = "EOS_INSTANCE=eosdev\nEOS_SERVER_VERSION=5.3.36 EOS_SERVER_RELEASE=1\nEOS_CLIENT_VERSION=5.3.30 EOS_CLIENT_RELEASE=1\n"


def test_attributes_of_a_directory() -> None:
    found = parse_attributes(ATTRIBUTES)
    assert found["sys.forced.layout"] == "replica"
    assert found["sys.forced.nstripes"] == "2"
    assert len(found) == 7
    assert parse_attributes('   sys.forced.layout="raid6" \n') == {"sys.forced.layout": "raid6"}
    assert parse_attributes("") == {}


def test_monitoring_format() -> None:
    first = parse_monitoring(FILE_SYSTEMS)[0]
    assert (first["stat.errmsg"], first["stat.health"], first["stat.disk.bw"]) == ("", "unknown raid", "127.00")
    assert parse_monitoring("\n \n") == []
    assert parse_monitoring("a?configstatus@rw=1624647716261888 b=x=y") == [
        {"a?configstatus@rw": "1624647716261888", "b": "x=y"}
    ]


def test_file_systems() -> None:
    found = parse_filesystems(FILE_SYSTEMS)
    assert [(f.id, f.space, f.usable) for f in found] == [
        (1, "default", True),
        (2, "erasure", False),
        (3, "default", False),
        (4, "spare", False),
    ]
    assert (found[0].used_bytes, found[0].capacity_bytes) == (2_000_000_000, 12_000_000_000)
    assert found[1].error == "Input/output error"
    assert (found[2].used_bytes, found[2].capacity_bytes) == (0, 0)
    with pytest.raises(AdapterError, match="told of no file system"):
        parse_filesystems("type=spaceview name=default\n")


def test_health() -> None:
    found = parse_filesystems(FILE_SYSTEMS)
    assert healthy(found[:1]) == (True, "1 file systems booted and online, 1 writable")
    good, words = healthy(found)
    assert good is False
    assert words == (
        "fs 2 (fst2.example:/data/fst/02) Input/output error; fs 3 (fst3.example:/data/fst/03) is not booted"
    )
    assert healthy(found[3:]) == (False, "no file system of EOS is switched on")


@pytest.mark.parametrize(("layout", "tuning", "expected"), [
    ("distributed", {}, {"layout": "plain", "nstripes": "1", "checksum": "adler", "space": "default"}),
    ("replicated-3", {"blocksize": "4k"},
     {"layout": "replica", "nstripes": "3", "checksum": "adler", "space": "default", "blocksize": "4k"}),
    ("rain-4-2", {}, {"layout": "raid6", "nstripes": "6", "blocksize": "1M", "blockchecksum": "crc32c"}),
    ("rain-4-2", {"code": "raiddp", "space": "erasure"}, {"layout": "raiddp", "nstripes": "6", "space": "erasure"}),
    ("rain-4-1", {}, {"layout": "raid5", "nstripes": "5"}),
    ("rain-5-3", {}, {"layout": "archive", "nstripes": "8"}),
    ("rain-8-4", {"checksum": "none"}, {"layout": "qrain", "nstripes": "12", "checksum": "none"}),
])  # fmt: skip
def test_layouts_as_attributes(layout: str, tuning: dict[str, str], expected: dict[str, str]) -> None:
    found = {name.removeprefix("sys.forced."): value for name, value in directory_attributes(layout, tuning).items()}
    assert found.items() >= expected.items()
    assert list(found)[:2] == ["layout", "nstripes"]


def test_codes_that_do_not_fit() -> None:
    with pytest.raises(AdapterError, match="1 to 4 parity stripes"):
        directory_attributes("rain-8-5", {})
    for layout in ("rain-6-2", "rain-4-1"):
        with pytest.raises(AdapterError, match="cannot be coded with raiddp"):
            directory_attributes(layout, {"code": "raiddp"})
    with pytest.raises(AdapterError, match="no erasure code 'raid7'; known: raid5, raid6, raiddp, archive, qrain"):
        check_tuning("eos/rain-4-2", {"code": "raid7"})
    check_tuning("eos/rain-4-2", {"code": "raiddp", "space": "erasure"})


@pytest.mark.parametrize(("source", "point", "directory", "path"), [
    ("mgm.example:/eos/", "/eos", "/eos/dev/own", "/eos/dev/own"),
    ("mgm.example:/eos/dev/", "/mnt/eos", "/mnt/eos/own", "/eos/dev/own"),
    ("eosuser", "/eos/user", "/eos/user/l/own", "/eos/user/l/own"),
    ("mgm.example:/eos/", "/eos", "/eos", "/eos"),
])  # fmt: skip
def test_paths_in_the_namespace(source: str, point: str, directory: str, path: str) -> None:
    assert namespace_path(source, point, Path(directory)) == path


def test_version() -> None:
    assert parse_version(VERSION) == "5.3.36"
    assert parse_version("") == ""


def test_refused_without_a_mount_and_on_another_file_system(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=r"mount it and say where, \{system: eos/rain-4-2, mount: /mnt/eos\}"):
        check_candidate("eos/rain-4-2", None, LabDeclaration(), 1 << 20)
    with pytest.raises(AdapterError, match=r"^/.* not fuse\.eosxd or fuse$"):
        check_candidate("eos/rain-4-2", str(tmp_path), LabDeclaration(), 1 << 20)
    host = LocalHost()
    try:
        with pytest.raises(AdapterError, match=r"is no mount of EOS: eos\.mgmurl: "):
            manager_of(host, tmp_path)
        assert EosSystem.mount_kind().health(host, tmp_path)[0] is None
    finally:
        host.close()
    assert "kill-hosts" not in capabilities(EosSystem)
