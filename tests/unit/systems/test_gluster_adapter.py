"""What the GlusterFS adapter refuses before it touches anything, and what candidates may say of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.model.lab import Lab
from assay.systems import hosted, requirements
from assay.systems.base import AdapterError, capabilities
from assay.systems.catalogue import check_candidate, check_tuning, find_system
from assay.systems.existing import ExistingSystem
from assay.systems.gluster import GlusterSystem, shard_bytes, volume_options


def test_it_is_found_by_its_layouts() -> None:
    for layout in ("distributed", "replicated-2", "replicated-12", "rain-4-2", "rain-10-4"):
        assert find_system(f"glusterfs/{layout}") == (GlusterSystem, layout)
    with pytest.raises(AdapterError, match="unknown candidate 'glusterfs/rain42'; did you mean 'glusterfs/rain-K-M'"):
        find_system("glusterfs/rain42")


def test_capabilities_are_all_there_and_fewer_for_what_is_not_ours() -> None:
    everything = {"go-cold", "settle", "byte-counters", "durability", "health", "kill-hosts", "resize", "cluster-map"}
    assert set(capabilities(GlusterSystem)) == everything
    assert not {"kill-hosts", "resize", "cluster-map"} & set(capabilities(ExistingSystem))


def test_tuning() -> None:
    check_tuning("glusterfs/rain-4-2", {"brick": "xfs", "shard": "64MiB", "mount": "x=y", "client.event-threads": 4})
    with pytest.raises(AdapterError, match="has no tuning 'bricks'; known: brick, shard, mount"):
        check_tuning("glusterfs/rain-4-2", {"bricks": "xfs"})
    with pytest.raises(AdapterError, match="no brick file system 'zfs'; known: xfs, ext4, btrfs"):
        check_tuning("glusterfs/rain-4-2", {"brick": "zfs"})
    with pytest.raises(AdapterError, match="is no volume option of GlusterFS"):
        check_tuning("glusterfs/rain-4-2", {"client. event": 4})
    with pytest.raises(AdapterError, match="shard: '1MiB' is no size of a shard"):
        check_tuning("glusterfs/rain-4-2", {"shard": "1MiB"})


def test_values_of_volume_options_are_what_gluster_reads() -> None:
    tuning = {"performance.strict-o-direct": True, "client.event-threads": 4, "brick": "ext4", "shard": "64MiB"}
    assert volume_options(tuning) == {
        "features.shard": "on",
        "features.shard-block-size": str(64 << 20),
        "performance.strict-o-direct": "on",
        "client.event-threads": "4",
    }
    assert volume_options({"cluster.lookup-optimize": False}) == {"cluster.lookup-optimize": "off"}


@pytest.mark.parametrize("value", ["0", "much", "4MiB1", 4 << 20 | 1, "5TiB"])
def test_sizes_that_are_no_shard(value: object) -> None:
    with pytest.raises(AdapterError, match=r"^shard: "):
        shard_bytes(value)


def test_hosts_and_room_are_checked_before_anything_else() -> None:
    lab = Lab.model_validate({"hosts": 5, "disk": {"size": "400MiB"}})
    with pytest.raises(AdapterError, match=r"set lab\.hosts to 6"):
        check_candidate("glusterfs/rain-4-2", None, lab, 0)
    with pytest.raises(AdapterError, match=r"lab\.disk\.size must be at least"):
        check_candidate("glusterfs/distributed", None, lab, 4 << 30)


def test_root_and_tools_are_missing(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hosted.os, "geteuid", lambda: 1000)
    with pytest.raises(AdapterError, match="needs root"):
        GlusterSystem.preflight("rain-4-2", Lab(), 0)
    monkeypatch.setattr(hosted.os, "geteuid", lambda: 0)
    monkeypatch.setattr(hosted, "FUSE", Path("/dev/no-such-device"))
    with pytest.raises(AdapterError, match="modprobe fuse"):
        GlusterSystem.preflight("rain-4-2", Lab(), 0)
    monkeypatch.setattr(hosted, "FUSE", Path("/dev/null"))
    monkeypatch.setattr(requirements, "search_path", lambda: "/nowhere")
    line = "glusterd is missing; install it with: apt-get install -y glusterfs-server"
    with pytest.raises(AdapterError, match=line):
        GlusterSystem.preflight("rain-4-2", Lab(), 0)


@pytest.mark.parametrize(("system", "mount", "words"), [
    ("glusterfs/rain-4-2", "/does/not/exist", "does not exist"),
    ("local/xfs", "/tmp", "mounts of local cannot be recognised; write path:DIR"),
])  # fmt: skip
def test_existing_mounts_that_are_something_else(system: str, mount: str, words: str) -> None:
    with pytest.raises(AdapterError, match=words):
        check_candidate(system, mount, Lab(), 0)


def test_an_existing_mount_of_another_type(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=rf"^{tmp_path} is \w+ \(mounted at .*\), not fuse\.glusterfs$"):
        check_candidate("glusterfs/rain-4-2", str(tmp_path), Lab(), 0)
