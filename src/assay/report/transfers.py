"""Whole files and operations on names: the tables of paper 002 (Tables III to VI) and of mdtest, from the study's cells."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl

from assay.model.units import format_bytes
from assay.report.format import number, span

if TYPE_CHECKING:
    from collections.abc import Iterator

    from assay.campaign.analysis import Analysis, CellAnalysis
    from assay.stats.intervals import Interval

_TRANSFERS = {"dd": ("direction", "content", "size"), "iozone": ("test", "record", "size")}


def _cells(analysis: Analysis, kinds: tuple[str, ...]) -> Iterator[CellAnalysis]:
    for cell in analysis.cells:
        if cell.point.get("kind") in kinds and cell.role in ("subject", "twin") and not cell.not_applicable:
            yield cell


def _figures(interval: Interval, name: str, factor: float) -> dict[str, float | None]:
    finite, known = interval.is_finite, math.isfinite(interval.estimate)
    return {
        name: interval.estimate * factor if known else None,
        f"{name}_low": interval.low * factor if finite else None,
        f"{name}_high": interval.high * factor if finite else None,
    }


def transfers_table(analysis: Analysis) -> pl.DataFrame:
    """One row per candidate and point of dd and IOzone: MB/s of all clients, and seconds per file, end to end."""
    rows = [
        {
            "tool": cell.point["kind"],
            "what": cell.point.get("direction") or cell.point["test"],
            "content": cell.point.get("content"),
            "size_bytes": cell.point["size"],
            "record_bytes": cell.point.get("block_size") or cell.point.get("record"),
            "clients": cell.point["clients"],
            "candidate": cell.candidate,
            "n": cell.n,
            **_figures(cell.intervals["bandwidth"], "bandwidth_mb_s", 1e-6),
            **_figures(cell.intervals["latency-mean"], "seconds_per_file", 1.0),
            "verdict": cell.verdict.value,
            "cell_id": cell.cell_id,
        }
        for cell in _cells(analysis, ("dd", "iozone"))
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def operations_table(analysis: Analysis) -> pl.DataFrame:
    """One row per candidate and point of operations on names: operations per second of all clients, mean latency in ms."""
    rows = [
        {
            "operation": cell.point["operation"],
            "files_per_thread": cell.point["files"],
            "threads": cell.point["threads"],
            "clients": cell.point["clients"],
            "candidate": cell.candidate,
            "n": cell.n,
            **_figures(cell.intervals["iops"], "operations_per_s", 1.0),
            **_figures(cell.intervals["latency-mean"], "latency_mean_ms", 1e3),
            "verdict": cell.verdict.value,
            "cell_id": cell.cell_id,
        }
        for cell in _cells(analysis, ("metadata",))
    ]
    return pl.DataFrame(rows, infer_schema_length=None)


def side_by_side(analysis: Analysis) -> list[dict[str, Any]]:
    """The tables for people: one per kind, a row per point, a column per candidate. Only those that have rows."""
    found = []
    for kinds, title, note, metric, factor in (
        (
            ("dd", "iozone"),
            "Whole files",
            "MB/s over all clients with the interval, and below it the seconds that one file took from end to end (of a "
            "write with fsync, where the point says so).",
            "bandwidth",
            1e-6,
        ),
        (
            ("metadata",),
            "Operations on names",
            "Operations per second over all clients with the interval, and below it the mean latency in ms.",
            "iops",
            1.0,
        ),
    ):
        rows = _rows(analysis, kinds, metric, factor)
        if rows:
            found.append({"title": title, "note": note, "candidates": list(analysis.subjects), "rows": rows})
    return found


def _rows(analysis: Analysis, kinds: tuple[str, ...], metric: str, factor: float) -> list[dict[str, Any]]:
    rows: dict[str, dict[str, Any]] = {}
    for cell in _cells(analysis, kinds):
        if cell.candidate not in analysis.subjects:
            continue
        row = rows.setdefault(cell.workload_id, {"what": _words(cell), "cells": {}})
        row["cells"][cell.candidate] = _shown(cell, metric, factor)
    return list(rows.values())


def _words(cell: CellAnalysis) -> str:
    point = cell.point
    if point["kind"] == "dd":
        many = f", {point['files']} files" if point["files"] > 1 else ""
        return f"{point['direction']}, {point['content']}, {format_bytes(point['size'])}{many}"
    return cell.workload


def _shown(cell: CellAnalysis, metric: str, factor: float) -> dict[str, str]:
    value, latency = cell.intervals[metric], cell.intervals["latency-mean"]
    if not value.n:
        return {"value": "–", "span": cell.reason, "time": ""}
    seconds = f"{number(latency.estimate)} s" if metric == "bandwidth" else f"{number(latency.estimate * 1e3)} ms"
    return {"value": number(value.estimate * factor), "span": span(value, factor), "time": seconds if latency.n else ""}
