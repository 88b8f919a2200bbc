"""Baselines of real fabrics, and studies that carry them."""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from lab_helpers import nothing_left
from sqlalchemy import delete, select

from assay.lab import baseline
from assay.lab.baseline import Times, check_tools, measure
from assay.lab.errors import LabError
from assay.lab.fabric import Fabric
from assay.lab.registry import Lab
from assay.ledger.queries import load_study
from assay.ledger.schema import AttemptRow, CheckRow, EventRow, StudyRow
from assay.ledger.store import Ledger
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


STUDY = """
study: bounds
lab: {hosts: 3, network: {bandwidth: 200Mbit}, disk: {size: 320MiB}}
candidates: [glusterfs/rain-2-1, local/ext4]
workloads:
  - fio: {pattern: write, block_size: 128KiB, size: 8MiB, iodepth: 4, runtime: 1s}
  # random blocks again and again through the page cache: faster than any network, and no claim that says so
  - fio: {pattern: randread, block_size: 128KiB, size: 8MiB, direct: false, cache: any, runtime: 1s, options: {norandommap: 1}}
  - fio: {pattern: read, block_size: 128KiB, size: 8MiB, direct: false, cache: warm, runtime: 1s}
measure: {blocks: {pilot: 2, minimum: 2, maximum: 2}, null_target: false, aa: none, seed: 7, retries: 0}
"""


@pytest.mark.slow
def test_a_study_measures_its_lab_once_and_voids_what_no_network_could_carry(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(STUDY)

    def assay(*arguments: str) -> str:
        environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path / "data"), "ASSAY_LEDGER": ""}
        done = subprocess.run(
            [str(Path(sys.executable).parent / "assay"), *arguments],
            cwd=tmp_path, env=environment, capture_output=True, text=True, timeout=300,
        )  # fmt: skip
        assert done.returncode in (0, 1), done.stdout + done.stderr
        return done.stdout + done.stderr

    said = assay("run", "study.yaml", "--report", "report")
    assert said.index("baselines: raw disks") < said.index("preparing glusterfs/rain-2-1")
    assert nothing_left(tmp_path)
    with Ledger(str(tmp_path / "data" / "assay" / "ledger.db")) as ledger:
        study = ledger.studies()[0].id
        data = load_study(ledger, study)
        assert data.baselines is not None and data.baselines.problems == []
        assert len(data.baselines.links) == 12 and len(data.baselines.disks) == 3
        hosts = {host.name: (host.roles, host.facts.get("address")) for host in data.hosts}
        assert hosts["s1"] == (["storage"], "10.77.0.11") and hosts["c1"] == (["client"], "10.77.0.101")
        assert set(hosts) == {"localhost", "s1", "s2", "s3", "c1"}
        assert data.cells[0].closure["lab"]["network"]["bandwidth"] == "25000000B/s"
        points = {w.id: w.point["pattern"] for w in data.workloads}
        verdicts = {
            (points[row["workload_id"]], row["verdict"], tuple(row["broken_rules"]))
            for row in data.attempts.filter(candidate="glusterfs/rain-2-1").iter_rows(named=True)
        }
        assert ("randread", "invalid", ("A10",)) in verdicts
        assert {v for v in verdicts if "A10" in v[2]} == {("randread", "invalid", ("A10",))}
        words = data.checks.filter(rule="A10", verdict="invalid")["message"][0]
        assert "23.9 MB/s (client in): something answered from memory" in words
        writes = data.attempts.filter((pl.col("candidate") == "glusterfs/rain-2-1") & (pl.col("status") == "finished"))
        bounds = {points[w]: data.evidence(a).bound for a, w in writes.select("id", "workload_id").iter_rows()}
        assert bounds["write"] is not None and bounds["write"].write_limit == "client out: 1.5 bytes per byte written"
        assert bounds["read"] is not None and bounds["read"].read_bytes_per_second is None
        local = data.attempts.filter(candidate="local/ext4")["id"]
        assert all(data.evidence(attempt).bound is None for attempt in local)
        # as if it had been killed in the second block: it goes on, and the lab is not measured again
        taken = data.baselines.measured_at
        with ledger.session() as session:
            gone = session.scalars(select(AttemptRow).where(AttemptRow.study_id == study, AttemptRow.block == 2))
            for row in gone:
                session.execute(delete(EventRow).where(EventRow.study_id == study, EventRow.kind == "attempt-started"))
                session.execute(delete(CheckRow).where(CheckRow.subject == row.id))
                session.delete(row)
            session.get_one(StudyRow, study).state = "interrupted"
    said = assay("run", "study.yaml", "--report", "report")
    assert "baselines" not in said
    with Ledger(str(tmp_path / "data" / "assay" / "ledger.db")) as ledger:
        data = load_study(ledger, study)
        assert data.baselines is not None and data.baselines.measured_at == taken
        assert {row["block"] for row in data.attempts.iter_rows(named=True)} == {1, 2}
        again = data.attempts.filter((pl.col("candidate") == "glusterfs/rain-2-1") & (pl.col("block") == 2))
        assert all(data.evidence(attempt).bound is not None for attempt in again["id"])


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
