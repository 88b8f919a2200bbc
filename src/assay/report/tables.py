"""The tables of a report as Polars frames: one row per cell, comparison, attempt and check verdict.

Units are part of the column names: ``mb_s`` = 10^6 bytes per second, ``ms`` = milliseconds. An infinite or missing
number is null. All columns are plain scalars, so that CSV, Parquet and Markdown carry the same values.
"""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

import polars as pl

from assay.campaign.analysis import METRIC_COLUMNS, smaller_is_better
from assay.report.bounds import bound_words
from assay.report.format import UNITS
from assay.report.lab import degraded_table, lab_table
from assay.report.transfers import operations_table, transfers_table
from assay.stats.intervals import Interval

if TYPE_CHECKING:
    from assay.campaign.analysis import Analysis
    from assay.ledger.queries import StudyData

_COLUMN = {
    "bandwidth": "bandwidth_mb_s",
    "iops": "iops_per_s",
    "latency-mean": "latency_mean_ms",
    "latency-p50": "latency_p50_ms",
    "latency-p95": "latency_p95_ms",
    "latency-p99": "latency_p99_ms",
}

#: What each column means; the glossary of the report.
GLOSSARY: dict[str, str] = {
    "attempts": "Executions of the cell, all of them, failed and void ones included.",
    "n": "Blocks with a usable attempt: finished, and not called invalid by any check.",
    "interval": "Geometric mean over blocks with its confidence interval (Student's t on logarithms; once more blocks than the pilot were run, Stein's interval, whose spread is the pilot's); 'too few values' "
    "when n is too small to say anything.",
    "median": "Median over blocks; its interval from order statistics assumes no distribution (needs n ≥ 6 at 95 %).",
    "ratio": "Geometric mean over blocks of candidate / baseline within the same block; above 1 the candidate is "
    "better. For latencies, where smaller is better, it is baseline / candidate, so above 1 is still better.",
    "decision": "faster or slower (better or worse): p after adjustment is below 1 − confidence and the interval "
    "excludes 1. equivalent: the whole interval lies within the margin. undecided: the data allow both.",
    "p adjusted": "p value adjusted over the whole family of comparisons of the study.",
    "valid, invalid, unknown": "Verdict of the checks. Unknown means that something could not be shown; it is never "
    "counted as valid. Nothing is said about invalid cells.",
    "outliers": "Attempts with a modified z-score beyond 14.8; flagged, never dropped.",
    "target met": "Whether the interval is as narrow as the study asked for.",
    "share of floor": "How near a candidate comes to the harness floor: the same load on fio's null engine or on "
    "memory. Near 100 % the load generator was measured, not the file system.",
    "bound": "The most user data per second that the lab's links let through for a layout, from the messages the layout "
    "sends per byte: a client that writes 1.5 bytes per byte of user data (RAIN 4+2) has a bound of 1/1.5 of its link.",
    "share of bound": "Bandwidth over that bound. Near 100 % the link was measured; a result above it is impossible "
    "on shaped links, and its attempt is invalid. A low share says that something else is the limit.",
    "A/A": "The first candidate a second time under another label. Every difference found there is a false alarm.",
    "MB/s": "10^6 bytes per second. KiB and MiB are 2^10 and 2^20 bytes.",
}


def _scaled(value: float, factor: float) -> float | None:
    return value * factor if math.isfinite(value) else None


def _interval(interval: Interval, name: str, factor: float) -> dict[str, float | None]:
    finite = interval.is_finite
    return {
        name: _scaled(interval.estimate, factor),
        f"{name}_low": interval.low * factor if finite else None,
        f"{name}_high": interval.high * factor if finite else None,
    }


def cells_table(analysis: Analysis) -> pl.DataFrame:
    """One row per cell: every metric's geometric mean with interval, the median, counts and verdict."""
    rows: list[dict[str, Any]] = []
    for cell in analysis.cells:
        point, tally = cell.point, cell.tally
        row: dict[str, Any] = {
            "workload": cell.workload,
            "candidate": cell.candidate,
            "role": cell.role,
            "system": cell.system,
            "pattern": point.get("pattern"),
            "block_size_bytes": point.get("block_size"),
            "threads": point.get("threads"),
            "iodepth": point.get("iodepth"),
            "verdict": "not applicable" if cell.not_applicable else cell.verdict.value,
            "rules": " ".join(cell.rules),
            "reason": cell.reason,
            "n": cell.n,
            "attempts": tally.attempts,
            "attempts_valid": tally.valid,
            "attempts_unknown": tally.unknown,
            "attempts_invalid": tally.invalid,
            "attempts_failed": tally.failed,
            "attempts_lost": tally.lost,
        }
        for metric, column in _COLUMN.items():
            row |= _interval(cell.intervals[metric], column, UNITS[metric].factor)
            row[f"{column}_arithmetic_mean"] = _scaled(cell.means[metric], UNITS[metric].factor)
        bound = bound_words(analysis, cell)
        row |= {
            "bound_mb_s": bound.megabytes if bound else None,
            "share_of_bound": bound.share if bound else None,
            "bound_reason": bound.reason if bound else None,
        }
        column = _COLUMN[analysis.metric]
        row |= _interval(cell.median, f"median_{column}", UNITS[analysis.metric].factor)
        row |= {
            "outliers": len(cell.outliers),
            "slow_first": cell.slow_first,
            "target_met": cell.target_met,
            "cell_id": cell.cell_id,
            "workload_id": cell.workload_id,
        }
        rows.append(row)
    figures = {name: pl.Float64 for row in rows[:1] for name in row if "_mb_s" in name or "_ms" in name}
    figures |= {name: pl.Float64 for row in rows[:1] for name in row if "iops" in name}
    figures |= {"share_of_bound": pl.Float64, "bound_reason": pl.String} if rows else {}
    return pl.DataFrame(rows, schema_overrides=figures, infer_schema_length=None)


def comparisons_table(analysis: Analysis) -> pl.DataFrame:
    """One row per comparison; ``family`` is "candidates" or "A/A"."""
    names = {c.workload_id: c.workload for c in analysis.cells}
    aa = [c for alarms in analysis.false_alarms for c in alarms.comparisons]
    rows = [
        {
            "family": family,
            "workload": names[c.workload_id],
            "a": c.a,
            "b": c.b,
            "metric": c.metric,
            "better": "smaller" if smaller_is_better(c.metric) else "larger",
            **_interval(c.ratio, "ratio", 1.0),
            "n": c.result.n,
            "p_value": c.result.p_value,
            "p_adjusted": c.result.p_adjusted,
            "decision": c.decision.value,
            "reason": c.result.reason,
            "workload_id": c.workload_id,
        }
        for family, comparisons in (("candidates", analysis.comparisons), ("A/A", aa))
        for c in comparisons
    ]
    real, text = pl.Float64, pl.String
    return pl.DataFrame(
        rows,
        schema={
            "family": text, "workload": text, "a": text, "b": text, "metric": text, "better": text, "ratio": real,
            "ratio_low": real, "ratio_high": real, "n": pl.Int64, "p_value": real, "p_adjusted": real,
            "decision": text, "reason": text, "workload_id": text,
        },
    )  # fmt: skip


def attempts_table(data: StudyData, analysis: Analysis) -> pl.DataFrame:
    """One row per attempt in order of start; ``started_s`` counts from the first attempt."""
    bounds = {cell: bound.bytes_per_second for cell, bound in analysis.bounds.items()}
    bound = pl.col("cell_id").replace_strict(bounds, default=None, return_dtype=pl.Float64)
    names = {w.id: w.name for w in data.workloads}
    frame = data.attempts
    metrics = [
        (pl.col(column) * UNITS[metric].factor).alias(_COLUMN[metric]) for metric, column in METRIC_COLUMNS.items()
    ]
    return frame.select(
        pl.col("workload_id").replace_strict(names, return_dtype=pl.String).alias("workload"),
        "candidate",
        "block",
        pl.col("try_number").alias("try"),
        "status",
        "verdict",
        pl.col("broken_rules").list.join(" ").alias("rules"),
        (pl.col("started_at") - pl.col("started_at").min()).alias("started_s"),
        (pl.col("ended_at") - pl.col("started_at")).alias("seconds"),
        *metrics,
        (bound * 1e-6).alias("bound_mb_s"),
        (pl.col("bandwidth") / bound).alias("share_of_bound"),
        pl.col("id").alias("attempt_id"),
        "cell_id",
    )


def checks_table(data: StudyData) -> pl.DataFrame:
    """One row per verdict of a check, with its evidence as JSON text."""
    return data.checks.select("rule", "scope", "verdict", "message", "subject", "evidence").sort(
        "rule", "scope", "subject"
    )


def all_tables(data: StudyData, analysis: Analysis) -> dict[str, pl.DataFrame]:
    """All tables by file name; those of the lab and of single kinds of workload only where there is something in them."""
    lab = {"lab": lab_table(data.baselines)} if data.baselines is not None else {}
    degraded = degraded_table(data)
    lab |= {"degraded": degraded} if len(degraded) else {}
    kinds = {"transfers": transfers_table(analysis), "operations": operations_table(analysis)}
    lab |= {name: table for name, table in kinds.items() if len(table)}
    return {
        "cells": cells_table(analysis),
        "comparisons": comparisons_table(analysis),
        "attempts": attempts_table(data, analysis),
        "checks": checks_table(data),
        **lab,
    }
