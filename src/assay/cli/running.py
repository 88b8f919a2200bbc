"""``assay plan``, ``run`` and ``quick``."""

from __future__ import annotations

import json
import signal
import sys
from pathlib import Path
from typing import Any

from assay.campaign.deploy import preflight, tool_facts
from assay.campaign.executor import Ended, Runner
from assay.cli.errors import BadInput
from assay.cli.progress import ConsoleProgress
from assay.cli.studies import find_study
from assay.lab import remote
from assay.lab.environment import memory_bytes
from assay.lab.host import HostError, LocalHost
from assay.lab.mounts import ANSWER_SECONDS
from assay.ledger.queries import load_study
from assay.ledger.store import Ledger
from assay.model import units
from assay.model.plan import Plan, block_order, disk_for, estimate, make_plan
from assay.model.study import Study
from assay.workloads import fio_files


def show_plan(key: str, scale: float, candidates: list[str] | None, as_json: bool) -> int:
    """Print what a run would do. Raises StudyError, PlanError, BadInput, AdapterError."""
    with Ledger() as ledger:
        found = find_study(key, ledger)
    study = _with_candidates(found.study, candidates)
    seed = study.measure.seed or 0
    plan = make_plan(study, study_id="plan", seed=seed, scale=scale, memory_bytes=memory_bytes())
    preflight(study, plan)
    tools = tool_facts(plan, LocalHost())
    cost = estimate(plan, study)
    order = block_order(plan, 1, list(plan.cells))
    if as_json:
        named = {cell: {"candidate": c, "point": plan.point(p).name} for cell, (c, p) in plan.cells.items()}
        print(json.dumps({"study": study.study, "scale": scale, "cells": named, "first_block": order, **cost}))
        return 0
    _print_plan(study, plan, cost, order, tools)
    return 0


def _print_plan(study: Study, plan: Plan, cost: dict[str, float], order: list[str], tools: dict[str, Any]) -> None:
    from rich.markup import escape
    from rich.table import Table

    from assay.cli.console import stdout

    console = stdout()
    console.print(f"[bold]{study.study}[/bold]  {escape(study.question)}")
    if plan.scale != 1:
        console.print(f"scaled by {plan.scale:g}: sizes and times are not the declared ones")
    table = Table("candidate", "role", "tuning", box=None, pad_edge=False)
    for c in plan.candidates:
        table.add_row(escape(c.label), f"A/A twin of {c.twin_of}" if c.twin_of else c.role, escape(str(c.tuning or "")))
    console.print(table)
    cells = Table("workload point", "data per candidate (MB)", "time per attempt (s)", box=None, pad_edge=False)
    for p in plan.points:
        cells.add_row(escape(p.name), f"{p.point.dataset_bytes / 1e6:.1f}", f"{p.point.runtime + p.point.ramp:g}")
    console.print(cells)
    blocks = study.measure.blocks
    seeded = (
        f"seed {study.measure.seed}" if study.measure.seed is not None else "the seed is drawn when the study starts"
    )
    first = ", ".join(f"{c} {plan.point(p).name}" for c, p in (plan.cells[i] for i in order[:4]))
    disk = disk_for(study, plan).size or 0
    console.print(
        f"{len(plan.cells)} cells = {len(plan.candidates)} candidates x {len(plan.points)} points; "
        f"{blocks.pilot} pilot blocks, then {blocks.minimum} to {blocks.maximum} by Stein's rule\n"
        f"order: randomised in every block ({seeded}); e.g. {escape(first)}, ...\n"
        f"time: {units.format_seconds(cost['block_seconds'])} per block, {units.format_seconds(cost['pilot_seconds'])} for "
        f"the pilot, at most {units.format_seconds(cost['maximum_seconds'])}"
        + (f"; budget {units.format_seconds(study.measure.budget)}" if study.measure.budget else "")
        + f"\ndata: {cost['dataset_bytes'] / 1e9:.2f} GB written once; disk of each local candidate {disk / 1e9:.2f} GB\n"
        f"tools: {escape(json.dumps(tools))}",
        highlight=False,
    )


def run_study(
    key: str,
    ledger_url: str | None,
    budget: str | None,
    scale: float | None,
    candidates: list[str] | None,
    new: bool,
    report_to: Path | None,
    as_json: bool,
) -> int:
    """Run or resume, then conclude, print the verdict and write the report. Returns the exit code."""
    with Ledger(ledger_url) as ledger:
        found = find_study(key, ledger)
        if scale is None:
            scale = found.row.scale if found.row is not None else 1.0
        study = _with_candidates(found.study, candidates)
        if budget is not None:
            try:
                seconds = units.parse_seconds(budget)
            except ValueError as error:
                raise BadInput(f"--budget: {error}") from None
            study = study.model_copy(update={"measure": study.measure.model_copy(update={"budget": seconds})})
        return _run(ledger, study, found.text, scale, new, report_to, as_json)


def run_quick(paths: list[str], ledger_url: str | None, budget: str, report_to: Path | None, as_json: bool) -> int:
    """Compare mounted directories with a small built-in study."""
    directories = [str(Path(p).absolute()) for p in paths]
    direct = all(_takes_direct_io(Path(d)) for d in directories)
    declared = {
        "study": "quick",
        "question": f"Which of {', '.join(directories)} is faster?",
        "candidates": [{"system": f"path:{d}", "label": d[-60:]} for d in directories],
        "workloads": [
            {"fio": {"pattern": ["randread", "randwrite"], "block_size": "4KiB", "threads": 4, "iodepth": 8,
                     "size": "32MiB", "runtime": "1s", "direct": direct}},
            {"fio": {"pattern": ["read", "write"], "block_size": "1MiB", "threads": 1, "iodepth": 8,
                     "size": "128MiB", "runtime": "1s", "direct": direct}},
        ],
        "measure": {"budget": budget, "blocks": {"pilot": 5, "minimum": 5, "maximum": 15}},
    }  # fmt: skip
    text = json.dumps(declared, indent=2)
    from assay.model.source import load_study as parse

    study = parse(text, "quick")  # JSON is YAML: one path into the product for every study
    with Ledger(ledger_url) as ledger:
        return _run(ledger, study, text, 1.0, True, report_to, as_json)


def _run(
    ledger: Ledger, study: Study, text: str, scale: float, new: bool, report_to: Path | None, as_json: bool
) -> int:
    from assay.campaign.analysis import analyse
    from assay.cli.reporting import write_and_judge
    from assay.report.terminal import verdict_table

    signal.signal(signal.SIGTERM, _interrupt)
    with ConsoleProgress() as progress:
        runner = Runner(ledger, study, text, scale=scale, new=new, progress=progress)
        if runner.row is not None and runner.row.state != "ended":
            progress.note(f"resuming study {runner.study_id}")
        ended = runner.run()
    data = load_study(ledger, ended.study_id)
    analysis = analyse(data)
    directory = report_to or Path(f"assay-report-{ended.study_id}")
    written, right = write_and_judge(ledger, data, analysis, directory, {"html"})
    code = 130 if not ended.complete else _exit_code(analysis) if right else 1
    if as_json:
        print(json.dumps(_summary(ended, analysis, written, code)))
        return code
    from assay.cli.console import stdout

    console = stdout()
    console.print(verdict_table(analysis))
    if ended.already:
        console.print(
            f"study {ended.study_id} had ended before ({ended.reason}); run it anew with --new", highlight=False
        )
    else:
        console.print(f"study {ended.study_id}: {ended.reason}", highlight=False)
    print(f"report: {written[0].absolute()}")
    return code


def _summary(ended: Ended, analysis: Any, written: list[Path], code: int) -> dict[str, Any]:
    return {
        "study": ended.study_id,
        "complete": ended.complete,
        "reason": ended.reason,
        "exit_code": code,
        "report": str(written[0].absolute()),
        "comparisons": [
            {
                "a": c.a, "b": c.b, "point": c.workload_id, "decision": c.decision.value, "ratio": c.ratio.estimate,
                "low": c.ratio.low, "high": c.ratio.high if c.ratio.high != float("inf") else None,
            }
            for c in analysis.baseline_comparisons
        ],
    }  # fmt: skip


def _exit_code(analysis: Any) -> int:
    from assay.model.verdict import Verdict

    return (
        1
        if any(cell.verdict is Verdict.INVALID or (cell.n == 0 and not cell.not_applicable) for cell in analysis.cells)
        else 0
    )


def _with_candidates(study: Study, candidates: list[str] | None) -> Study:
    if not candidates:
        return study
    names = [name.strip() for given in candidates for name in given.split(",") if name.strip()]
    declared = study.model_dump(mode="json") | {"candidates": names}
    return Study.model_validate(declared)


def _interrupt(*_: object) -> None:
    raise KeyboardInterrupt


def _takes_direct_io(directory: Path) -> bool:
    """Whether a file opened with O_DIRECT can be made in a directory (some network file systems refuse)."""
    host = LocalHost()
    try:
        if host.call(remote.unusable, directory, timeout_seconds=ANSWER_SECONDS) is not None:
            return True  # preflight has the better message
        if host.call(fio_files.direct_works, directory, timeout_seconds=ANSWER_SECONDS):
            return True
    except (HostError, ValueError):
        return True
    except OSError:
        pass
    finally:
        host.close()
    print(f"assay: {directory} does not take direct I/O; comparing through the page cache", file=sys.stderr)
    return False
