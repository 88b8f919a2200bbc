"""A ledger of 100,000 attempts: how long ``assay status`` and a report take, as ratio to sqlite3 reading the same rows.

One real study is run (or taken from --bundle) and its attempts are copied under new identities until the ledger holds
--attempts of them, each with its verdicts.

    .venv/bin/python benchmarks/ledger.py --attempts 100000
"""

from __future__ import annotations

import argparse
import json
import sqlite3
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from sqlalchemy import insert
from sqlalchemy import inspect as sa_inspect

from assay.campaign.executor import Runner
from assay.cli.progress import ConsoleProgress
from assay.ledger.schema import AttemptRow, BlockRow, CandidateRow, CellRow, CheckRow, LabRow, StudyRow, WorkloadRow
from assay.ledger.store import Ledger
from assay.model.source import load_study

STUDY = """
study: original
candidates: [tmpfs, {system: tmpfs, label: other}]
workloads:
  - fio: {pattern: [read, write, randread, randwrite], block_size: [4KiB, 16KiB, 64KiB, 256KiB, 1MiB], threads: 1,
          iodepth: 1, size: 4MiB, runtime: 0.05s}
measure: {aa: none, blocks: {pilot: 5, minimum: 5, maximum: 5}}
"""
TABLES = (LabRow, CandidateRow, WorkloadRow, CellRow, BlockRow, AttemptRow, CheckRow)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--attempts", type=int, default=100_000)
    parser.add_argument("--keep", default=None, help="directory for the ledger; default: a temporary one")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="assay-ledger-") as place:
        root = Path(options.keep or place)
        file = root / "ledger.db"
        with Ledger(str(file)) as ledger:
            if not ledger.studies():
                with ConsoleProgress() as progress:
                    Runner(ledger, load_study(STUDY, "benchmark"), STUDY, progress=progress).run()
                _multiply(ledger, options.attempts)
            study = ledger.studies()[-1].id
        assay = str(Path(sys.executable).parent / "assay")
        counted, status_floor = _raw(file, "SELECT study_id, status, verdict, count(*) FROM attempt GROUP BY 1, 2, 3")
        attempts = sum(row[3] for row in counted)
        rows, report_floor = _raw(
            file,
            f"SELECT a.*, c.* FROM attempt a JOIN check_verdict c ON c.subject = a.id AND c.study_id = '{study}' "
            f"WHERE a.study_id = '{study}'",
        )
        status_seconds = _timed([assay, "status", "--ledger", str(file), "--json"])
        report_seconds = _timed([assay, "report", study, "--ledger", str(file), "--out", str(root / "report")])
        size = file.stat().st_size
    result = {
        "attempts": attempts,
        "ledger_bytes": size,
        "status_seconds": round(status_seconds, 3),
        "status_over_sqlite3": round(status_seconds / status_floor, 1),
        "report_seconds": round(report_seconds, 3),
        "report_rows": len(rows),
        "report_over_sqlite3": round(report_seconds / report_floor, 1),
        "holds": attempts >= options.attempts and status_seconds < 1 and report_seconds < 10,
    }
    print(json.dumps(result))
    return 0 if result["holds"] else 1


def _multiply(ledger: Ledger, wanted: int) -> None:
    """Copy the one study, rows and verdicts, until the ledger holds ``wanted`` attempts."""
    from sqlalchemy import select

    with ledger.reading() as session:
        study = _plain(session.scalars(select(StudyRow)).one())
        tables = {table: [_plain(row) for row in session.scalars(select(table))] for table in TABLES}
    copies = -(-wanted // len(tables[AttemptRow])) - 1
    for number in range(copies):
        mark = f"z{number:03d}"  # no id begins so: they are hexadecimal
        with ledger.session() as session:
            session.execute(
                insert(StudyRow), [{**study, "id": mark, "name": f"copy-{mark}", "created_at": 1e9 + number}]
            )
            for table, rows in tables.items():
                session.execute(insert(table), [_renamed(table, row, study["id"], mark) for row in rows])
        if number % 50 == 0:
            print(f"{number} of {copies} copies", file=sys.stderr)


def _renamed(table: type, row: dict, study: str, mark: str) -> dict:
    changed = {**row, "study_id": mark}
    if table is CheckRow:
        changed["subject"] = mark if row["subject"] == study else mark + row["subject"][4:]
    elif "id" in row and table is not WorkloadRow:
        changed["id"] = mark if row["id"] == study else mark + row["id"][4:]
    if "cell_id" in row:
        changed["cell_id"] = mark + row["cell_id"][4:]
    return changed


def _plain(row: object) -> dict:
    return {c.key: getattr(row, c.key) for c in sa_inspect(type(row)).column_attrs}


def _raw(file: Path, query: str) -> tuple[list[tuple], float]:
    started = time.perf_counter()
    with sqlite3.connect(f"file:{file}?mode=ro", uri=True) as connection:
        rows = connection.execute(query).fetchall()
    return rows, time.perf_counter() - started


def _timed(argv: list[str]) -> float:
    """Median of three runs of the whole process."""
    seconds = []
    for _ in range(3):
        started = time.perf_counter()
        subprocess.run(argv, check=True, capture_output=True)
        seconds.append(time.perf_counter() - started)
    return sorted(seconds)[1]


if __name__ == "__main__":
    sys.exit(main())
