"""What the MooseFS adapter refuses before it touches anything, and what candidates may say of it."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.model.lab import Disk, Lab
from assay.systems.base import AdapterError, capabilities
from assay.systems.catalogue import check_candidate, check_tuning, find_system
from assay.systems.moosefs import MooseSystem
from assay.systems.moosefs_config import (
    accepted_difference,
    check_room,
    check_setting,
    config_text,
    layout_of,
    layout_of_goal,
    settings,
)
from assay.systems.moosefs_mount import options_of


def test_it_is_found_by_its_layouts() -> None:
    for layout in ("distributed", "replicated-2", "replicated-9"):
        assert find_system(f"moosefs/{layout}") == (MooseSystem, layout)
    everything = {"go-cold", "settle", "byte-counters", "durability", "health", "kill-hosts", "resize", "cluster-map"}
    assert set(capabilities(MooseSystem)) == everything


@pytest.mark.parametrize(("layout", "words"), [
    ("rain-4-2", "has no erasure code; write moosefs/replicated-3"),
    ("replicated-1", "write moosefs/distributed"),
    ("replicated-10", "at most 9 copies"),
    ("striped-4", "is not a layout"),
])  # fmt: skip
def test_layouts_that_moosefs_does_not_have(layout: str, words: str) -> None:
    with pytest.raises(AdapterError, match=words):
        layout_of(layout)


def test_goals_are_layouts() -> None:
    assert [str(layout_of_goal(goal)) for goal in (1, 2, 3)] == ["distributed", "replicated-2", "replicated-3"]


def test_hosts_and_room_are_checked_before_anything_else() -> None:
    with pytest.raises(AdapterError, match=r"needs 3 hosts, .* the lab has 2; set lab\.hosts to 3"):
        check_candidate("moosefs/replicated-3", None, Lab(hosts=2), 0)
    lab = Lab.model_validate({"hosts": 3, "disk": {"size": "400MiB"}})
    with pytest.raises(
        AdapterError, match=r"takes 3 times its size on 3 disks; lab\.disk\.size must be at least 1382MiB"
    ):
        check_candidate("moosefs/replicated-3", None, lab, 1 << 30)
    check_room(layout_of("replicated-3"), 3, Disk(size=1382 << 20), "xfs", 1 << 30)


def test_tuning() -> None:
    check_tuning("moosefs/distributed", {"filesystem": "ext4", "mount": "mfscachemode=NEVER", "master.ATIME_MODE": 4})
    with pytest.raises(AdapterError, match="no file system 'zfs' for chunks; known: xfs, ext4, btrfs"):
        check_tuning("moosefs/distributed", {"filesystem": "zfs"})
    with pytest.raises(AdapterError, match=r"has no tuning 'metalogger\.X'"):
        check_tuning("moosefs/distributed", {"metalogger.X": 1})


def test_what_counts_as_balanced() -> None:
    assert accepted_difference({}) == 0.1
    assert accepted_difference({"master.ACCEPTABLE_PERCENTAGE_DIFFERENCE": 0.5}) == 0.005
    with pytest.raises(AdapterError, match="'much' is no number"):
        check_tuning("moosefs/distributed", {"master.ACCEPTABLE_PERCENTAGE_DIFFERENCE": "much"})


def test_settings_that_a_daemon_does_not_know(tmp_path: Path) -> None:
    program = tmp_path / "mfsmaster"
    program.write_bytes(b"\x7fELF...\0ATIME_MODE\0DATA_PATH\0...")
    check_setting("master.ATIME_MODE", program)
    with pytest.raises(AdapterError, match=r"mfsmaster knows no ATIME_MODES; see: man mfsmaster\.cfg"):
        check_setting("master.ATIME_MODES", program)
    with pytest.raises(AdapterError, match=r"master\.DATA_PATH is set by the lab"):
        check_setting("master.DATA_PATH", program)
    with pytest.raises(AdapterError, match="is no setting of MooseFS"):
        check_setting("master.atime mode", program)


def test_settings_of_a_lab_and_of_a_candidate() -> None:
    tuning = {"master.NICE_LEVEL": -5, "chunkserver.HDD_FSYNC_BEFORE_CLOSE": True, "mount": "x=y"}
    assert settings("master", tuning) == {
        "NICE_LEVEL": "-5",
        "REPLICATIONS_DELAY_INIT": "0",
        "CHUNKS_LOOP_MIN_TIME": "60",
        "CHUNKS_WRITE_REP_LIMIT": "2,1,0,4",
        "ACCEPTABLE_PERCENTAGE_DIFFERENCE": "10",
    }
    assert settings("chunkserver", tuning)["HDD_FSYNC_BEFORE_CLOSE"] == "1"
    assert config_text({"A": 1, "B": "x"}) == "A = 1\nB = x\n"


def test_operations_that_cannot_succeed_end() -> None:
    assert options_of({}) == "mfstimeout=10"
    assert options_of({"mount": "mfscachemode=NEVER"}) == "mfscachemode=NEVER,mfstimeout=10"
    assert options_of({"mount": "mfstimeout=0"}) == "mfstimeout=0"
