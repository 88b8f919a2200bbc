"""Configuration of NFS servers and clients, and what the adapter refuses before it touches anything."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.model.lab import Disk, Lab
from assay.systems import nfs_client
from assay.systems.base import AdapterError, capabilities
from assay.systems.catalogue import check_candidate, check_tuning, find_system
from assay.systems.nfs import NfsSystem
from assay.systems.nfs_config import (
    check_parameter,
    check_room,
    complaints,
    ganesha_text,
    mount_options,
    parameters,
    url,
    version_of,
)

LOG = """\
22/11/2026 04:52:47 : epoch 6b02751e : s1 : nfs-ganesha-16[main] load_rados_config :CONFIG :EVENT :fine
22/11/2026 05:06:11 : epoch 6b02751e : s1 : nfs-ganesha-17[main] config_errs_to_log :CONFIG :CRIT :Config File (/x/g.conf:33): \
Unknown parameter (NoSuch)
22/11/2026 05:06:11 : epoch 6b02751e : s1 : nfs-ganesha-17[main] init :NFS STARTUP :CRIT :Config File (elsewhere)
"""


def test_it_is_one_server() -> None:
    assert find_system("nfs/distributed") == (NfsSystem, "distributed")
    assert set(capabilities(NfsSystem)) == {"go-cold", "settle", "byte-counters", "durability", "health", "put-get"}
    with pytest.raises(AdapterError, match=r"did you mean|known: "):
        check_candidate("nfs/replicated-2", None, Lab(), 0)


def test_room_is_that_of_one_disk() -> None:
    with pytest.raises(AdapterError, match=r"on one disk of one server; lab\.disk\.size must be at least 1190MiB"):
        check_candidate("nfs/distributed", None, Lab.model_validate({"disk": {"size": "600MiB"}}), 1 << 30)
    check_room(Disk(size=1190 << 20), "xfs", 1 << 30)


def test_the_configuration_of_the_server() -> None:
    text = ganesha_text(
        "10.77.0.11",
        "/run/b/1/export",
        Path("/r"),
        {"MDCACHE": {"Entries_HWMark": "5"}, "EXPORT": {"Anonymous_Uid": "7"}},
    )
    assert "NFS_CORE_PARAM {\n    Protocols = 3, 4;\n" in text
    assert "    Bind_addr = 10.77.0.11;\n" in text
    assert "    FSAL { Name = VFS; }\n    Anonymous_Uid = 7;\n}\n" in text
    assert "MDCACHE {\n    Entries_HWMark = 5;\n}\n" in text
    assert text.count("{") == text.count("}")


def test_parameters_of_the_server() -> None:
    assert parameters({"NFSv4.Delegations": True, "EXPORT.X": 3, "mount": "a.b=c"}) == {
        "NFSv4": {"Delegations": "true"},
        "EXPORT": {"X": "3"},
    }
    with pytest.raises(AdapterError, match=r"cannot be a value in ganesha\.conf"):
        parameters({"EXPORT.X": "1; } EVIL {"})
    for key, words in (
        ("CEPH.X", "is no parameter of NFS-Ganesha"),
        ("EXPORT.a b", "is no parameter of NFS-Ganesha"),
        ("EXPORT.Path", r"EXPORT\.Path is set by the lab"),
    ):
        with pytest.raises(AdapterError, match=words):
            check_parameter(key)
    check_parameter("MDCACHE.Entries_HWMark")


def test_what_the_server_complains_of() -> None:
    assert complaints(LOG) == "Config File (/x/g.conf:33): Unknown parameter (NoSuch)"
    assert complaints("") == ""


def test_versions_and_mount_options() -> None:
    assert version_of({}, "kernel") == "4.2"
    assert version_of({"version": 3}, "kernel") == "3"
    assert version_of({}, "libnfs") == "3"
    with pytest.raises(AdapterError, match=r"no version '2'; known: 3, 4\.0"):
        version_of({"version": 2}, "kernel")
    with pytest.raises(AdapterError, match="access libnfs speaks version 3 only"):
        version_of({"version": "4.1"}, "libnfs")
    assert mount_options("4.2", "nconnect=8") == "vers=4.2,nconnect=8"
    assert mount_options("3", "") == "vers=3,proto=tcp,nolock,mountport=20048"


def test_mount_commands() -> None:
    point = Path("/run/mnt/assay")
    assert nfs_client.mount_command("kernel", "10.77.0.11", point, "4.2", "nconnect=8") == [
        "mount", "-t", "nfs4", "-o", "vers=4.2,nconnect=8", "10.77.0.11:/assay", "/run/mnt/assay",
    ]  # fmt: skip
    assert nfs_client.mount_command("fuse-nfs", "10.77.0.11", point, "3", "")[:3] == [
        "fuse-nfs", "-n", "nfs://10.77.0.11/assay?version=3&nfsport=2049&mountport=20048",
    ]  # fmt: skip


def test_names_of_files() -> None:
    assert url("10.77.0.11", "a/b c") == "nfs://10.77.0.11/assay/a/b c?version=3&nfsport=2049&mountport=20048"
    for name in ("../a", "a/./b", "what?"):
        with pytest.raises(AdapterError, match="cannot be a name here"):
            url("10.77.0.11", name)


def test_access_is_the_kernels_where_it_can_and_refused_where_it_cannot(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(nfs_client, "kernel_speaks_nfs", lambda: True)
    assert nfs_client.access_of({}) == "kernel"
    assert nfs_client.access_of({"access": "libnfs"}) == "libnfs"
    nfs_client.check_access("kernel")
    monkeypatch.setattr(nfs_client, "kernel_speaks_nfs", lambda: False)
    monkeypatch.setattr(nfs_client, "search_path", lambda: "/nowhere")
    assert nfs_client.access_of({}) == "libnfs"
    with pytest.raises(
        AdapterError, match="this kernel has no NFS client; load it with: modprobe nfs, or set access: libnfs"
    ):
        check_tuning("nfs/distributed", {"access": "kernel"})
    with pytest.raises(AdapterError, match="fuse-nfs is missing, and no distribution packages it"):
        check_tuning("nfs/distributed", {"access": "fuse-nfs"})
    with pytest.raises(AdapterError, match="no access 'smb'; known: kernel, fuse-nfs, libnfs"):
        check_tuning("nfs/distributed", {"access": "smb"})
