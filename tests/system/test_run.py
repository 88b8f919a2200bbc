"""A study end to end through the command line, on real file systems, with the figures recomputed from raw data."""

from __future__ import annotations

import itertools
import json
import os
import random
import sqlite3
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

pytestmark = [pytest.mark.root, pytest.mark.fio, pytest.mark.slow]

ASSAY = str(Path(sys.executable).parent / "assay")
STUDY = """
study: whole
question: Does <b>everything</b> work?
candidates: [local/ext4, {system: local/xfs, label: "xfs & co", tuning: {mount: noatime}}, tmpfs]
lab: {disk: {size: 330MiB}}
workloads:
  - fio: {pattern: [randread, write], block_size: 16KiB, threads: 2, iodepth: 4, size: 8MiB, runtime: 0.3s}
  - {name: two clients, fio: {pattern: rw, block_size: 64KiB, clients: 2, size: 8MiB, runtime: 0.3s, read_share: 70%}}
measure: {blocks: {pilot: 3, minimum: 3, maximum: 4}, seed: 7}
"""
VARIANTS = """
study: variants
candidates: [local/ext4]
lab: {disk: {size: 330MiB}}
workloads:
  - fio: {pattern: randwrite, block_size: 4KiB, size: 4MiB, verify: crc32c, runtime: 0.3s}
  - fio: {pattern: read, block_size: 128KiB, size: 8MiB, direct: false, cache: warm, runtime: 0.3s}
  - fio: {pattern: read, block_size: 128KiB, size: 64MiB, direct: false, cache: cold, time_based: false, runtime: 5s}
  - fio: {pattern: randwrite, block_size: 8KiB, size: 8MiB, direct: false, cache: any, fsync: 8, runtime: 0.3s}
  - fio: {pattern: randread, block_size: 8KiB, size: 8MiB, engine: psync, iodepth: 1, rate: 4MB/s, runtime: 1s}
measure: {blocks: {pilot: 2, minimum: 2, maximum: 2}, null_target: false, aa: none, seed: 7}
"""


def assay(place: Path, *arguments: str, code: int | tuple[int, ...] = (0, 1), **environment: str) -> str:
    done = subprocess.run(
        [ASSAY, *arguments],
        cwd=place,
        env={**os.environ, "XDG_DATA_HOME": str(place / "data"), "ASSAY_LEDGER": "", **environment},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode in ((code,) if isinstance(code, int) else code), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("whole")
    (place / "whole.yaml").write_text(STUDY)
    result = json.loads(assay(place, "run", "whole.yaml", "--json", "--report", "report"))
    assert result["complete"]
    (place / "result.json").write_text(json.dumps(result))
    return place


def attempts(place: Path) -> list[dict[str, Any]]:
    with sqlite3.connect(place / "data" / "assay" / "ledger.db") as connection:
        connection.row_factory = sqlite3.Row
        return [dict(row) for row in connection.execute("SELECT * FROM attempt ORDER BY started_at")]


def evidence(row: dict[str, Any]) -> dict[str, Any]:
    return json.loads(row["evidence"])


def test_every_cell_has_its_blocks_and_nothing_is_left(place: Path) -> None:
    rows = attempts(place)
    cells = {row["cell_id"] for row in rows}
    assert len(cells) == 5 * 3  # ext4, xfs, tmpfs, the A/A twin and null; three points
    assert {row["block"] for row in rows} >= {1, 2, 3}
    assert all(row["status"] == "finished" for row in rows)
    assert str(place) not in Path("/proc/self/mountinfo").read_text()
    assert not list((place / "data" / "assay" / "labs").glob("*"))


def test_blocks_are_randomised_and_candidates_interleaved(place: Path) -> None:
    orders: dict[int, list[str]] = {}
    for row in attempts(place):
        if row["try_number"] == 1:
            orders.setdefault(row["block"], []).append(row["cell_id"])
    assert len({tuple(order) for order in orders.values()}) == len(orders), "two blocks in the same order"
    assert all(len(order) == len(set(order)) for order in orders.values())
    names = [evidence(row)["candidate"] for row in attempts(place) if row["block"] == 1]
    assert sum(a != b for a, b in itertools.pairwise(names)) > 5, "candidates are run one after the other"


def test_figures_equal_raw_data(place: Path) -> None:
    """Bandwidth, operations and percentiles recomputed from fio's own output and from the Parquet samples."""
    files = place / "data" / "assay" / "ledger.files"
    checked = 0
    for row in attempts(place):
        known = evidence(row)
        if known["role"] == "null":
            continue
        frame = pl.read_parquet(files / row["samples_hash"][:2] / f"{row['samples_hash']}.parquet")
        for direction, summary in known["summary"]["directions"].items():
            bins = frame.filter((pl.col("kind") == "histogram") & (pl.col("direction") == direction))
            merged = bins.group_by("x").agg(pl.col("y").sum()).sort("x")
            latencies = np.repeat(merged["x"].to_numpy(), merged["y"].cast(pl.Int64).to_numpy())
            assert len(latencies) == summary["operations"]
            for q, value in summary["latency_percentiles_seconds"].items():
                rank = int(np.ceil(float(q) / 100 * len(latencies))) - 1
                assert value == pytest.approx(latencies[rank] / 1e9)
                checked += 1
            sizes = known["point"]["block_size"]
            assert summary["bytes"] == summary["operations"] * sizes
            assert summary["iops"] * sizes == pytest.approx(summary["bandwidth_bytes_per_second"])
    assert checked > 50


def test_devices_confirm_what_fio_counted(place: Path) -> None:
    for row in attempts(place):
        known = evidence(row)
        if not known["system"].startswith("local/"):
            continue
        moved = {
            kind: known["after"]["devices"][0][kind] - known["before"]["devices"][0][kind]
            for kind in ("read_bytes", "written_bytes")
        }
        total = known["summary"]["directions"]
        if "read" in total:
            assert moved["read_bytes"] >= 0.99 * total["read"]["bytes"]
        if "write" in total:
            assert moved["written_bytes"] >= 0.99 * total["write"]["bytes"]


def test_environment_and_artefacts_are_kept(place: Path) -> None:
    known = evidence(random.Random(1).choice([r for r in attempts(place) if evidence(r)["role"] == "subject"]))
    assert known["environment"]["kernel"] == os.uname().release
    assert known["environment"]["memory_bytes"] > 1 << 28
    assert "sysctl" in known["environment"]
    assert known["observed"]["tools"]["fio"]["localhost"].startswith("fio-")
    assert {"c0.fio", "c0.json"} <= set(known["artefacts"])


def test_tuning_reaches_the_mount(place: Path) -> None:
    mounts = {evidence(r)["candidate"]: evidence(r)["before"]["mount"] for r in attempts(place)}
    assert "noatime" in mounts["xfs & co"]["options"].split(",")
    assert "noatime" not in mounts["local/ext4"]["options"].split(",")


def test_rerun_changes_nothing(place: Path) -> None:
    before = len(attempts(place))
    again = assay(place, "run", "whole.yaml", "--report", "again")
    assert "had ended before" in again
    assert len(attempts(place)) == before


def test_reading_commands(place: Path) -> None:
    study = json.loads((place / "result.json").read_text())["study"]
    (state,) = json.loads(assay(place, "status", "--json"))
    assert (state["id"], state["state"], state["attempts"]) == (study, "ended", len(attempts(place)))
    assert "whole" in assay(place, "status", "whole")
    checks = json.loads(assay(place, "check", "whole", "--all", "--json"))["checks"]
    per_attempt = {c["rule"] for c in checks if c["scope"] == "attempt"}
    assert {"W1", "W3", "W5", "W6", "W7", "W9", "K1", "K2", "K3", "R3", "R4", "R5", "R6"} <= per_attempt
    assert {c["rule"] for c in checks if c["scope"] == "study"} == {f"C{i}" for i in range(1, 10)}
    assert {"K4", "K5", "A5", "A6"} <= {c["rule"] for c in checks if c["scope"] == "cell"}
    rows = json.loads(assay(place, "compare", "local/ext4", "xfs & co", "--json"))
    assert len(rows) == 3
    assert "undecided" in assay(place, "compare", "whole", "whole") or "equivalent" in assay(
        place, "compare", "whole", "whole"
    )


def test_cold_was_proven_and_a_warm_claim_is_no_cold_one(place: Path) -> None:
    checks = json.loads(assay(place, "check", "whole", "--all", "--json"))["checks"]
    proven = [c for c in checks if c["rule"] == "K3" and c.get("candidate") == "local/ext4"]
    assert proven
    assert all(c["verdict"] == "valid" for c in proven)


def test_report_in_every_format(place: Path) -> None:
    listed = assay(place, "report", "whole", "--format", "html,md,csv,parquet,svg", "--out", "all")
    names = {Path(line).name for line in listed.splitlines()}
    assert {"report.html", "report.md", "attempts.csv", "attempts.parquet"} <= names
    html = (place / "all" / "report.html").read_text()
    assert "<b>everything</b>" not in html
    assert "xfs &amp; co" in html
    assert pl.read_csv(place / "all" / "attempts.csv").height == len(attempts(place))


def test_bundle_travels(place: Path) -> None:
    assay(place, "export", "whole", "whole.assay.zip")
    other = f"sqlite:///{place / 'other.db'}"
    assay(place, "import", "whole.assay.zip", "--ledger", other)
    mine = json.loads(assay(place, "check", "whole", "--json"))
    theirs = json.loads(assay(place, "check", "whole", "--json", "--ledger", other))
    assert mine == theirs
    assay(place, "report", "whole", "--ledger", other, "--out", "theirs")
    again = assay(place, "import", "whole.assay.zip", "--ledger", other, code=2)
    assert again == ""


def test_workload_variants(tmp_path: Path) -> None:
    (tmp_path / "variants.yaml").write_text(VARIANTS)
    assay(tmp_path, "run", "variants.yaml", "--json")
    checks = json.loads(assay(tmp_path, "check", "variants", "--all", "--json"))["checks"]
    rows = [(evidence(r), r) for r in attempts(tmp_path)]
    assert all(known["status"] == "finished" for known, _ in rows), [known["error"] for known, _ in rows]
    for known, row in rows:
        point = known["point"]
        verdicts = {c["rule"]: c for c in checks if c["subject"] == row["id"]}
        read = known["after"]["devices"][0]["read_bytes"] - known["before"]["devices"][0]["read_bytes"]
        if point["verify"] != "none":
            assert known["clients"][0]["verify_errors"] == 0
            assert verdicts["A9"]["verdict"] == "valid"
        if point["cache"] == "warm":
            assert read < 0.1 * known["summary"]["directions"]["read"]["bytes"], "a warm pass read the device"
        if point["cache"] == "cold" and not point["direct"]:
            assert read >= point["dataset_bytes"] if "dataset_bytes" in point else read >= point["size"]
            assert verdicts["K3"]["verdict"] == "valid"
        if point["rate"]:
            assert row["bandwidth"] == pytest.approx(point["rate"], rel=0.1)


def test_kisti_preset_scaled(tmp_path: Path) -> None:
    """The paper's own matrix, shrunk: the scale is recorded and shown."""
    (tmp_path / "d").mkdir()
    plan = json.loads(
        assay(tmp_path, "plan", "kisti-2021", "--scale", "0.001", "-c", f"path:{tmp_path}/d", "--json", code=0)
    )
    points = {c["point"] for c in plan["cells"].values()}
    assert len(points) == 4 * 3 * 4
    refused = ["run", "kisti-2021", "--scale", "0.001", "-c", f"path:{tmp_path}/d", "--budget", "20s"]
    assay(tmp_path, *refused, code=2)  # 48 points do not fit into 20 s, and that is said before anything is made
    assert not list((tmp_path / "d").iterdir())
    text = assay(tmp_path, "presets", "show", "kisti-2021", code=0)
    text = (
        text.replace("[4KiB, 128KiB, 1024KiB]", "128KiB")
        .replace("[1, 2, 4, 8]", "2")
        .replace("[local/ext4, local/xfs, local/btrfs]", f"['path:{tmp_path}/d']")
    )
    (tmp_path / "mine.yaml").write_text(text + "measure: {blocks: {pilot: 2, minimum: 2, maximum: 2}}\n")
    result = json.loads(assay(tmp_path, "run", "mine.yaml", "--scale", "0.001", "--json"))
    html = Path(result["report"]).read_text()
    assert "0.001" in html
    points = {json.dumps(evidence(r)["point"], sort_keys=True) for r in attempts(tmp_path)}
    assert len(points) == 4
    assert all(json.loads(p)["runtime"] == 0.5 and json.loads(p)["iodepth"] == 32 for p in points)


@pytest.mark.postgresql
def test_a_study_in_postgresql(tmp_path: Path, postgresql_url: str) -> None:
    (tmp_path / "d").mkdir()
    (tmp_path / "study.yaml").write_text(
        f"study: pg\ncandidates: ['path:{tmp_path}/d']\n"
        "workloads: [{fio: {pattern: randread, block_size: 4KiB, size: 1MiB, runtime: 0.2s}}]\n"
        "measure: {blocks: {pilot: 2, minimum: 2, maximum: 2}, retries: 0}\n"
    )
    result = json.loads(assay(tmp_path, "run", "study.yaml", "--json", "--ledger", postgresql_url))
    assert result["complete"]
    (state,) = json.loads(assay(tmp_path, "status", "--json", "--ledger", postgresql_url))
    assert state["attempts"] == 3 * 2
    assay(tmp_path, "report", "pg", "--ledger", postgresql_url, "--format", "md")
