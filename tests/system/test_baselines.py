"""Baselines of real fabrics, and studies that carry them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from lab_helpers import nothing_left

from assay.lab import baseline
from assay.lab.baseline import Times, check_tools, measure
from assay.lab.errors import LabError
from assay.lab.fabric import Fabric
from assay.lab.registry import Lab
from assay.model.bounds import payload_bytes_per_second
from assay.model.lab import Lab as LabDeclaration

pytestmark = [pytest.mark.root, pytest.mark.fio]
QUICK = Times(pair=0.2, disk=0.2)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    lab = Lab("baselines", "test")
    yield lab
    lab.remove()
    assert nothing_left(tmp_path)


def fabric(lab: Lab, **shape: Any) -> Fabric:
    return Fabric(lab, "base", LabDeclaration.model_validate({"disk": {"size": "320MiB"}, **shape}))


def test_all_of_a_small_lab(lab: Lab) -> None:
    made = fabric(lab, hosts=2, clients=1, network={"bandwidth": "1Gbit"})
    made.up()
    lines: list[str] = []
    try:
        found = measure(made, lines.append, QUICK)
    finally:
        made.down()
    assert found.problems == []
    assert [(link.source, link.target) for link in found.links] == [
        ("s1", "s2"), ("s1", "c1"), ("s2", "s1"), ("s2", "c1"), ("c1", "s1"), ("c1", "s2"),
    ]  # fmt: skip
    link = payload_bytes_per_second(125_000_000)
    # no stream is faster than a shaped link, however busy this machine is; how much slower depends on that
    assert all(0.3 * link < each.bytes_per_second < 1.02 * link for each in found.links)
    assert 0.3 * link < found.all_to_client_bytes_per_second["c1"] < 1.06 * link
    assert 0.3 * link < found.client_to_all_bytes_per_second["c1"] < 1.06 * link
    assert [(d.host, d.disk) for d in found.disks] == [("s1", 0), ("s2", 0)]
    assert all(d.read_bytes_per_second > 1e6 and d.write_bytes_per_second > 1e6 for d in found.disks)
    assert set(found.clock_offset_seconds) == {"s1", "s2", "c1"}
    assert all(abs(offset) < 0.01 for offset in found.clock_offset_seconds.values()), "one kernel, one clock"
    assert all(0 <= share <= 1 for share in found.idle_cpu_busy_share.values()) and len(found.idle_cpu_busy_share) == 3
    assert set(found.round_trip_seconds) == {"s1", "s2"}
    assert all(0 < seconds < 0.1 for seconds in found.round_trip_seconds.values())
    assert lines == [f"baselines: {part}" for part in ("idle CPU and clocks", "raw disks", "network between hosts")]
    assert found.best_link_bytes_per_second is not None


def test_unshaped_links_and_several_disks(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(baseline, "UNSHAPED_BYTES", 64 << 20)
    made = fabric(lab, hosts=1, clients=1, disk={"size": "320MiB", "per_host": 2})
    made.up()
    try:
        found = measure(made, times=QUICK)
    finally:
        made.down()
    assert found.problems == []
    assert statistics.median(each.bytes_per_second for each in found.links) > 125e6, "not shaped"
    assert [(d.host, d.disk) for d in found.disks] == [("s1", 0), ("s1", 1)]


def test_what_fails_is_said_and_ends_nothing(lab: Lab) -> None:
    made = fabric(lab, hosts=2, clients=1, network={"bandwidth": "1Gbit"}, disk={"size": "320MiB"})
    made.up()
    try:
        made.cut(made.storage[1], off=True)
        found = measure(made, times=Times(pair=0.1, disk=0.1))
    finally:
        made.down()
    assert {(link.source, link.target) for link in found.links} == {("s1", "c1"), ("c1", "s1")}
    assert any("s1 to s2" in problem for problem in found.problems)
    assert any("round trip c1 to s2" in problem for problem in found.problems)
    assert all("\n" not in problem for problem in found.problems)
    assert len(found.disks) == 2
    assert set(found.round_trip_seconds) == {"s1"}


def test_a_dead_host_is_said_too(lab: Lab) -> None:
    made = fabric(lab, hosts=2, clients=1, network={"bandwidth": "1Gbit"})
    made.up()
    try:
        made.storage[1].kill()
        found = measure(made, times=Times(pair=0.1, disk=0.1))
    finally:
        made.down()
    assert any("host s2 is down" in problem for problem in found.problems)
    assert len(found.disks) == 1


@pytest.mark.parametrize("tool", ["iperf3", "fio"])
def test_a_missing_tool_is_one_line_with_the_command(
    tool: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for other in {"iperf3", "fio"} - {tool}:
        (tmp_path / other).symlink_to("/bin/true")
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(LabError, match=f"{tool} is missing.*apt-get install -y {tool}.*baselines: false") as caught:
        check_tools()
    assert "\n" not in str(caught.value)
