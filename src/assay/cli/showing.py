"""``assay status``, ``report``, ``compare``, ``check``, ``export`` and ``import``: reading the ledger."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from assay.cli.errors import BadInput
from assay.cli.studies import find_row
from assay.ledger.queries import Counts, count_studies, load_study
from assay.ledger.store import Ledger

if TYPE_CHECKING:
    from rich.table import Table

    from assay.ledger.queries import StudyData


def show_status(key: str | None, ledger_url: str | None, as_json: bool) -> int:
    """Print counts of attempts; of all studies, or of one with what is left. Raises BadInput, LedgerError."""
    with Ledger(ledger_url) as ledger:
        row = find_row(key, ledger) if key is not None else None
        counts = count_studies(ledger, row.id if row is not None else None)
        if row is not None and not as_json:
            from assay.cli.console import stdout
            from assay.report.terminal import status_table

            stdout().print(status_table(load_study(ledger, row.id)))
            return 0
    if as_json:
        print(json.dumps([_status(c) for c in counts]))
        return 0
    if not counts:
        print("the ledger holds no study yet; run one: assay run local-quick")
        return 0
    from rich.markup import escape
    from rich.table import Table

    from assay.cli.console import stdout

    table = Table(
        "study", "id", "state", "cells", "blocks", "attempts", "valid", "unknown", "void", "failed", "lost",
        box=None, pad_edge=False,
    )  # fmt: skip
    for c in counts:
        table.add_row(escape(c.study.name), c.study.id, _state(c), *(str(_status(c)[k]) for k in _COLUMNS))
    stdout().print(table)
    return 0


_COLUMNS = ("cells", "blocks", "attempts", "valid", "unknown", "void", "failed", "lost")


def _state(counts: Counts) -> str:
    return counts.study.state if counts.study.state != "running" else "running or killed; assay run resumes it"


def _status(c: Counts) -> dict[str, Any]:
    return {
        "study": c.study.name,
        "id": c.study.id,
        "state": c.study.state,
        "outcome": c.study.outcome,
        "scale": c.study.scale,
        "cells": c.cells,
        "blocks": c.blocks,
        "attempts": c.of(),
        "valid": c.of("finished", "valid"),
        "unknown": c.of("finished", "unknown"),
        "void": c.of("finished", "invalid"),
        "failed": c.of("failed"),
        "lost": c.of("lost"),
    }


def make_report(key: str, ledger_url: str | None, formats: str, out: Path | None, as_json: bool) -> int:
    """Write the report of a study in the formats asked for; 1 when what it shows breaks a rule. Raises BadInput,
    LedgerError, OSError."""
    from assay.campaign.analysis import analyse
    from assay.cli.reporting import write_and_judge

    wanted = {f.strip() for f in formats.split(",") if f.strip()}
    with Ledger(ledger_url) as ledger:
        data = load_study(ledger, find_row(key, ledger).id)
        try:
            place = out or Path(f"assay-report-{data.study.id}")
            written, right = write_and_judge(ledger, data, analyse(data), place, wanted)
        except ValueError as error:
            raise BadInput(f"--format: {error}") from None
    if as_json:
        print(json.dumps([str(p.absolute()) for p in written]))
    else:
        for path in written:
            print(path.absolute())
    return 0 if right else 1


def show_comparison(a: str, b: str, key: str | None, ledger_url: str | None, as_json: bool) -> int:
    """Compare two candidates of one study, or two studies. Raises BadInput, LedgerError."""
    from assay.campaign.analysis import analyse
    from assay.report.compare import CompareError, as_records, compare_candidates, compare_studies

    with Ledger(ledger_url) as ledger:
        first, second = (None, None) if key is not None else (ledger.find_study(a), ledger.find_study(b))
        try:
            if first is not None and second is not None:
                analyses = [analyse(load_study(ledger, row.id)) for row in (first, second)]
                result = compare_studies(analyses[0], analyses[1], a, b)
            else:
                data = load_study(ledger, find_row(key, ledger).id)
                _known_candidate(a, data)
                _known_candidate(b, data)
                result = compare_candidates(analyse(data), a, b)
        except CompareError as error:
            raise BadInput(str(error)) from None
    if as_json:
        print(json.dumps(as_records(result)))
        return 0
    from assay.cli.console import stdout
    from assay.report.terminal import compare_table

    stdout().print(compare_table(result))
    return 0


def _known_candidate(label: str, data: StudyData) -> None:
    labels = [c.label for c in data.candidates]
    if label not in labels:
        raise BadInput(
            f"{label!r} is no candidate of study {data.study.name} and no study; candidates: {', '.join(labels)}"
        )


def show_checks(key: str, ledger_url: str | None, all_verdicts: bool, as_json: bool) -> int:
    """Print verdicts; 1 when a check that voids has found something, else 0. Raises BadInput, LedgerError."""
    with Ledger(ledger_url) as ledger:
        data = load_study(ledger, find_row(key, ledger).id)
    named = _subjects(data)
    rows = [
        {**row, "evidence": json.loads(row["evidence"]), **named.get(row["subject"], {})}
        for row in data.checks.sort("rule", "subject").iter_rows(named=True)
        if all_verdicts or row["verdict"] != "valid"
    ]
    code = 1 if "invalid" in data.attempts["verdict"].to_list() else 0
    if as_json:
        print(json.dumps({"study": data.study.id, "exit_code": code, "checks": rows}))
        return code
    from assay.cli.console import stdout

    console = stdout()
    console.print(_checks_table(rows, each=all_verdicts))
    total = data.checks.height
    broken = data.checks.filter(data.checks["verdict"] == "invalid").height
    unknown = data.checks.filter(data.checks["verdict"] == "unknown").height
    console.print(
        f"{total} verdicts: {total - broken - unknown} valid, {unknown} unknown, {broken} invalid; "
        "a rule of weight void excludes the attempt, one of weight flag is shown only",
        highlight=False,
    )
    return code


def _checks_table(rows: list[dict[str, Any]], *, each: bool) -> Table:
    """One line per verdict (``each``), or one per rule, cell and verdict with the number of attempts."""
    from rich.markup import escape
    from rich.table import Table

    from assay.checks.registry import all_rules

    weights = {rule.id: rule.weight.value for rule in all_rules().values()}
    groups: dict[tuple[Any, ...], list[dict[str, Any]]] = {}
    for number, row in enumerate(rows):
        cell = (row.get("candidate", ""), row.get("point", "whole study"))
        groups.setdefault((row["rule"], row["verdict"], *cell, number if each else 0), []).append(row)
    table = Table(
        "rule", "weight", "verdict", "candidate", "workload point", "blocks", "finding", box=None, pad_edge=False
    )
    for (rule, verdict, candidate, point, _), members in groups.items():
        blocks = sorted({row["block"] for row in members if "block" in row})
        shown = ", ".join(map(str, blocks)) if len(blocks) <= 3 else f"{len(blocks)} of them"
        table.add_row(
            rule,
            weights.get(rule, ""),
            verdict,
            escape(candidate),
            escape(point),
            shown,
            escape(members[-1]["message"]),
        )
    return table


def _subjects(data: StudyData) -> dict[str, dict[str, Any]]:
    points = {w.id: w.name for w in data.workloads}
    named: dict[str, dict[str, Any]] = {
        c.id: {"candidate": c.candidate, "point": points[c.workload_id]} for c in data.cells
    }
    for a in data.attempts.iter_rows(named=True):
        named[a["id"]] = {"candidate": a["candidate"], "point": points[a["workload_id"]], "block": a["block"]}
    return named


def export_bundle(key: str, file: Path, ledger_url: str | None, as_json: bool) -> int:
    """Write a study as one file. Raises BadInput, LedgerError, OSError."""
    from assay.ledger.bundle import write_bundle

    with Ledger(ledger_url) as ledger:
        row = find_row(key, ledger)
        size = write_bundle(ledger, row.id, file)
    print(
        json.dumps({"study": row.id, "file": str(file), "bytes": size}) if as_json else f"{file}: {size / 1e6:.2f} MB"
    )
    return 0


def import_bundle(file: Path, ledger_url: str | None, as_json: bool) -> int:
    """Take a bundle into the ledger. Raises BundleError, LedgerError, OSError."""
    from assay.ledger.bundle import read_bundle

    with Ledger(ledger_url) as ledger:
        study = read_bundle(ledger, file)
    print(json.dumps({"study": study}) if as_json else f"study {study}; see: assay report {study}")
    return 0
