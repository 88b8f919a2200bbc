"""What is written into control groups of either version; that it works is measured in tests/system/test_limits.py."""

from __future__ import annotations

import subprocess
from pathlib import Path

import pytest

from assay.lab.limits import join, settings
from assay.model.lab import Limits

GIB = 1 << 30


@pytest.mark.parametrize(
    ("cpus", "v1", "v2"),
    [
        (0.25, ("10000", "2500"), "2500 10000"),
        (1, ("10000", "10000"), "10000 10000"),
        (2.5, ("10000", "25000"), "25000 10000"),
        (0.1, ("10000", "1000"), "1000 10000"),
        (0.05, ("100000", "5000"), "5000 100000"),  # the kernel takes no quota below 1 ms
        (0.01, ("100000", "1000"), "1000 100000"),
    ],
)
def test_cores_are_quota_over_period(cpus: float, v1: tuple[str, str], v2: str) -> None:
    limits = Limits(cpus=cpus)
    assert settings(limits, "cpu", 1) == [("cpu.cfs_period_us", v1[0]), ("cpu.cfs_quota_us", v1[1])]
    assert settings(limits, "cpu", 2) == [("cpu.max", v2)]
    assert settings(limits, "memory", 1) == settings(limits, "memory", 2) == []


def test_swap_is_no_way_out_of_a_memory_limit() -> None:
    limits = Limits(memory=GIB)
    both = ("memory.limit_in_bytes", str(GIB)), ("memory.memsw.limit_in_bytes", str(GIB))
    assert settings(limits, "memory", 1) == list(both), "memory first: the kernel wants swap and memory to be no less"
    assert settings(limits, "memory", 2) == [("memory.max", str(GIB)), ("memory.swap.max", "0")]
    assert settings(limits, "cpu", 2) == []


def test_a_command_joins_its_groups_and_keeps_its_process_id(tmp_path: Path) -> None:
    groups = [tmp_path / "a", tmp_path / "b c"]
    for group in groups:
        group.mkdir()
    command = [*join([str(g) for g in groups]), "sh", "-c", 'echo $$ "$@"', "sh", "with space", "--", "*"]
    done = subprocess.run(command, capture_output=True, text=True, check=True)
    pid, _, rest = done.stdout.strip().partition(" ")
    assert rest == "with space -- *"
    assert [(g / "cgroup.procs").read_text().strip() for g in groups] == [pid, pid]


def test_a_command_does_not_run_outside_its_groups(tmp_path: Path) -> None:
    done = subprocess.run([*join([str(tmp_path / "gone")]), "echo", "ran"], capture_output=True, check=False)
    assert done.returncode not in (0, 1)
    assert done.stdout == b""
    assert join([]) == []
