"""A study of whole files and operations on names, end to end: valid, recomputed from what dd and the loop have left behind."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
ASSAY = str(Path(sys.executable).parent / "assay")
#: A busy machine and short runs: its CPUs (R4, W6), its disks (R6), stragglers (A8), attempts that scatter or are too few (A5, A6,
#: K5), and a data set that fits into memory (W1). All other rules must hold.
BUSY = {"A5", "A6", "A8", "K5", "R4", "R6", "W1", "W6"}
STUDY = """
study: kinds
candidates: [local/ext4, local/xfs]
lab: {disk: {size: 330MiB}}
workloads:
  - dd: {size: 2MiB, block_size: 4KiB, content: [random, zeros], files: 3, clients: 2}
  - metadata: {files: 200, threads: 2}
measure: {metric: iops, blocks: {pilot: 3, minimum: 3, maximum: 3}, seed: 7}
"""


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Path:
    place = tmp_path_factory.mktemp("kinds")
    (place / "kinds.yaml").write_text(STUDY)
    assay(place, "run", "kinds.yaml", "--report", "report")
    assay(place, "report", "kinds", "--format", "csv,md", "--out", "report")
    return place


def assay(place: Path, *arguments: str) -> str:
    done = subprocess.run(
        [ASSAY, *arguments],
        cwd=place,
        env={**os.environ, "XDG_DATA_HOME": str(place / "data"), "ASSAY_LEDGER": ""},
        capture_output=True,
        text=True,
        timeout=300,
    )
    assert done.returncode in (0, 1), done.stdout + done.stderr
    assert "Traceback" not in done.stderr
    return done.stdout


def test_nothing_is_void_or_unknown_but_for_the_load_of_the_machine(ran: Path) -> None:
    checks = json.loads(assay(ran, "check", "kinds", "--json"))["checks"]
    assert checks
    wrong = {(c["rule"], c["message"]) for c in checks if c["verdict"] != "valid"}
    assert {rule for rule, _ in wrong} <= BUSY, wrong


def test_cells_that_the_null_engine_cannot_run_are_not_applicable(ran: Path) -> None:
    attempts = pl.read_csv(ran / "report" / "attempts.csv")
    null = attempts.filter(pl.col("candidate") == "null")
    assert set(null.filter(pl.col("status") == "not-applicable")["workload"].str.split(" ").list.first()) == {
        "create", "stat", "rename", "readdir", "unlink",
    }  # fmt: skip
    assert set(attempts.filter(pl.col("candidate") != "null")["status"]) == {"finished"}


def test_the_tables_are_the_attempts(ran: Path) -> None:
    attempts = pl.read_csv(ran / "report" / "attempts.csv").filter(pl.col("verdict") != "invalid")
    transfers = pl.read_csv(ran / "report" / "transfers.csv")
    operations = pl.read_csv(ran / "report" / "operations.csv")
    assert len(transfers) == 4 * 3, "two candidates and the A/A twin"
    assert len(operations) == 5 * 3
    for table, column, value in (
        (transfers, "bandwidth_mb_s", "bandwidth_mb_s"),
        (operations, "operations_per_s", "iops_per_s"),
    ):
        for row in table.iter_rows(named=True):
            mine = attempts.filter(pl.col("cell_id") == row["cell_id"])[value]
            assert row[column] == pytest.approx(mine.log().mean() and 2.718281828459045 ** float(mine.log().mean()))  # type: ignore[arg-type]


def test_the_report_has_both_tables(ran: Path) -> None:
    page = (ran / "report" / "report.html").read_text()
    for title in ("Whole files", "Operations on names"):
        assert f">{title}</h2>" in page
    assert "write, random, 2MiB, 3 files" in page


def test_nothing_is_left_on_the_machine(ran: Path) -> None:
    assert not list((ran / "data" / "assay" / "labs").glob("*/sources/*"))
    assert str(ran) not in Path("/proc/mounts").read_text()
