"""The same tables on a terminal, as Rich renderables. Labels are plain text, never Rich markup."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import polars as pl
from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from assay.campaign.analysis import Analysis, CellAnalysis, Tally, smaller_is_better
from assay.model.units import format_seconds
from assay.model.verdict import Verdict
from assay.report.bounds import bound_words
from assay.report.format import DECISION_SIGNS, UNITS, better_words, number, span
from assay.stats.compare import Decision, PairedComparison

if TYPE_CHECKING:
    from assay.ledger.queries import StudyData
    from assay.report.compare import CompareResult

_STYLES = {
    Decision.FASTER: "green",
    Decision.SLOWER: "red",
    Decision.EQUIVALENT: "blue",
    Decision.UNDECIDED: "dim",
}
_VERDICTS = {Verdict.VALID: "green", Verdict.INVALID: "red", Verdict.UNKNOWN: "yellow"}


def _table(title: str, caption: str = "") -> Table:
    return Table(title=Text(title), caption=Text(caption) if caption else None, title_justify="left",
                 caption_justify="left", header_style="bold", show_lines=False)  # fmt: skip


def _decision(result: PairedComparison, metric: str, note: str = "") -> Text:
    ratio, decision = result.ratio, result.decision
    text = Text(f"{DECISION_SIGNS[decision]} {number(ratio.estimate)} ", style=_STYLES[decision])
    text.append(f"[{span(ratio)}]", style="dim")
    text.append(f" {better_words(metric, decision)}", style=_STYLES[decision])
    if note:
        text.append(f" ({note})", style="red")
    return text


def _value(cell: CellAnalysis | None, metric: str) -> Text:
    if cell is None or not cell.n:
        return Text("not applicable" if cell and cell.not_applicable else "–", style="dim")
    factor = UNITS[metric].factor
    text = Text(number(cell.interval.estimate * factor))
    if cell.interval.is_finite:
        text.append(f" ±{_half_width(cell)} %", style="dim")
    return text


def _half_width(cell: CellAnalysis) -> str:
    """In percent; beyond a factor of ten the number itself says nothing more."""
    if not cell.interval.is_finite:
        return "–"
    percent = 100 * cell.interval.relative_half_width
    return number(percent, 2) if percent < 1000 else "over 1,000"


def _note(cell: CellAnalysis | None) -> str:
    if cell is None or cell.verdict is Verdict.VALID or cell.not_applicable:
        return ""
    return f"{cell.verdict.value} {' '.join(cell.rules)}".strip()


def verdict_table(analysis: Analysis) -> RenderableType:
    """The verdict: per workload point the baseline's value, each candidate's ratio and decision, and the best; below
    it the sentences of the analysis, the A/A line among them."""
    unit, percent = UNITS[analysis.metric], f"{100 * analysis.measure.confidence:g} %"
    caption = f"ratio to {analysis.baseline} within blocks [{percent} interval]; above 1 is better"
    if smaller_is_better(analysis.metric):
        caption += " (ratios of latencies are inverted)"
    if analysis.bounds:
        caption += "; bound: what the network lets through for the layout"
    table = _table("Verdict", caption)
    table.add_column("workload point", no_wrap=True)
    table.add_column(Text(f"{analysis.baseline} ({unit.symbol})"), justify="right", no_wrap=True)
    for label in analysis.subjects[1:]:
        table.add_column(Text(label))
    table.add_column("best")
    by_key = {(c.a, c.workload_id): c for c in analysis.baseline_comparisons}
    cells = {(c.candidate, c.workload_id): c for c in analysis.cells}
    names = {c.workload_id: c.workload for c in analysis.cells}
    for winner in analysis.winners:
        point = winner.workload_id
        base = cells.get((analysis.baseline or "", point))
        row = [Text(names.get(point, point)), _value(base, analysis.metric).append(_of_bound(analysis, base))]
        for label in analysis.subjects[1:]:
            comparison, cell = by_key.get((label, point)), cells.get((label, point))
            text = (
                _decision(comparison.result, analysis.metric, _note(cell))
                if comparison
                else Text("not applicable" if cell and cell.not_applicable else "–", style="dim")
            )
            row.append(text.append(_of_bound(analysis, cell, figure=True)))
        best = {"undecided": "?", "none": "–"}.get(winner.kind, " ≈ ".join(winner.contenders or (winner.best or "",)))
        table.add_row(*row, Text(best, style="bold" if winner.kind == "winner" else ""))
    return Group(table, *(Text(f"• {sentence}") for sentence in analysis.sentences))


def _of_bound(analysis: Analysis, cell: CellAnalysis | None, *, figure: bool = False) -> Text:
    """A line of its own below the value: ``76.0 MB/s, 95 % of bound``; nothing without a bound."""
    bound = bound_words(analysis, cell)
    if bound is None or bound.share is None or cell is None:
        return Text("")
    value = f"{number(cell.intervals['bandwidth'].estimate * UNITS['bandwidth'].factor)} MB/s, " if figure else ""
    return Text(f"\n{value}{bound.share_text} of bound", style="red" if bound.above else "dim")


def cells_table(analysis: Analysis) -> RenderableType:
    """Absolute figures of every cell."""
    table = _table("Cells", "geometric means over blocks; MB/s = 10^6 bytes per second, latencies in ms")
    for name in ("workload point", "candidate", "verdict"):
        table.add_column(name)
    for name in ("n", "MB/s", "IOPS", "mean ms", "p99 ms", "± %", *(["of bound"] if analysis.bounds else [])):
        table.add_column(name, justify="right", no_wrap=True)
    for cell in analysis.cells:
        figures = [
            number(cell.intervals[m].estimate * UNITS[m].factor)
            for m in ("bandwidth", "iops", "latency-mean", "latency-p99")
        ]
        width = _half_width(cell)
        bound = bound_words(analysis, cell)
        shares = [bound.share_text if bound else "–"] if analysis.bounds else []
        words = "not applicable" if cell.not_applicable else " ".join([cell.verdict.value, *cell.rules])
        style = "dim" if cell.not_applicable else _VERDICTS[cell.verdict]
        table.add_row(
            Text(cell.workload), Text(cell.candidate), Text(words, style=style), str(cell.n), *figures, width, *shares
        )
    return table


def status_table(data: StudyData) -> RenderableType:
    """What is done and what is left, per candidate; needs no analysis."""
    study = data.study
    spent = (data.attempts["ended_at"] - data.attempts["started_at"]).alias("seconds")
    grouped = data.attempts.with_columns(spent).group_by("candidate", "status", "verdict")
    by_label: dict[str, list[dict[str, Any]]] = {}
    for row in grouped.agg(count=pl.len(), seconds=pl.col("seconds").sum()).iter_rows(named=True):
        by_label.setdefault(row["candidate"], []).append(row)
    blocks = dict(data.attempts.group_by("candidate").agg(pl.col("block").n_unique()).iter_rows())
    applicable: dict[str, int] = {}
    for cell in data.cells:
        applicable[cell.candidate] = applicable.get(cell.candidate, 0) + (cell.not_applicable is None)
    table = _table(f"Study {study.name} ({study.id}): {study.state}", study.outcome or "")
    table.add_column("candidate")
    for name in ("cells", "blocks", "valid", "unknown", "invalid", "failed", "lost", "measured for"):
        table.add_column(name, justify="right", no_wrap=True)
    for candidate in data.candidates:
        mine = by_label.get(candidate.label, [])
        tally = Tally.of(mine)
        seconds = sum(row["seconds"] for row in mine)
        table.add_row(
            Text(candidate.label),
            str(applicable.get(candidate.label, 0)),
            f"{blocks.get(candidate.label, 0)} of {len(data.blocks)}",
            Text(str(tally.valid), style="green"),
            Text(str(tally.unknown), style="yellow" if tally.unknown else "dim"),
            Text(str(tally.invalid), style="red" if tally.invalid else "dim"),
            Text(str(tally.failed), style="red" if tally.failed else "dim"),
            Text(str(tally.lost), style="red" if tally.lost else "dim"),
            format_seconds(seconds),
        )
    return table


def compare_table(result: CompareResult) -> RenderableType:
    """The answer of ``assay compare``."""
    unit = UNITS[result.metric]
    table = _table(f"{result.a} against {result.b}", f"{result.method}; ratio above 1: {result.a} is better")
    table.add_column("workload point")
    if result.kind == "studies":
        table.add_column("candidate")
    table.add_column(Text(f"{result.a} ({unit.symbol})"), justify="right", no_wrap=True)
    table.add_column(Text(f"{result.b} ({unit.symbol})"), justify="right", no_wrap=True)
    table.add_column("ratio, interval, decision")
    for row in result.rows:
        names = [Text(row.workload)] + ([Text(row.candidate)] if result.kind == "studies" else [])
        table.add_row(*names, _value(row.a, row.metric), _value(row.b, row.metric), _decision(row.result, row.metric))
    notes = [
        Text(f"only in {side}: {'; '.join(cells)}", style="dim")
        for side, cells in ((result.a, result.only_a), (result.b, result.only_b))
        if cells
    ]
    return Group(table, *notes)
