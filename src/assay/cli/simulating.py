"""``assay place simulate``: a workload over systems and layouts, as a table, CSV, JSON or a chart."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from assay.cli.errors import BadInput
from assay.model.layout import parse_layout
from assay.model.units import parse_bytes, parse_seconds
from assay.placement import workload
from assay.placement.crush import read_map
from assay.placement.errors import PlacementError
from assay.placement.simulate import simulate
from assay.placement.spread import Plan
from assay.placement.whatif import change_targets


@dataclass(frozen=True)
class SimulateRequest:
    """What ``assay place simulate`` was asked for."""

    systems: tuple[str, ...]
    targets: tuple[int, ...]
    streams: tuple[int, ...]
    trace: Path | None = None
    fio: str | None = None
    fileset: str | None = None
    stripe_unit: str | None = None
    width: int | None = None
    crushmap: Path | None = None
    threshold: int = 30
    idle_seconds: bool = True
    once: bool = False
    within: str = "300s"
    seed: int = 0
    change: int = 0
    chart: Path | None = None
    format: str = "table"


def run_simulation(request: SimulateRequest) -> int:
    """Print the measures of every combination. Raises BadInput."""
    if request.format not in ("table", "csv", "json"):
        raise BadInput(f"unknown format {request.format!r}; known: table, csv, json")
    try:
        rows = _what_if(request) if request.change else _measure(request)
    except (PlacementError, ValueError) as error:
        raise BadInput(str(error)) from None
    if request.format == "json":
        print(json.dumps(rows))
    elif request.format == "csv":
        print(",".join(rows[0]))
        for row in rows:
            print(",".join(str(v) for v in row.values()))
    else:
        _table(rows)
    if request.chart and not request.change:
        _chart(rows, request.chart)
        print(f"chart: {request.chart}", file=sys.stderr)
    return 0


def _measure(request: SimulateRequest) -> list[dict[str, Any]]:
    accesses = _workload(request)
    rows = []
    for plan in _plans(request):
        for streams in request.streams:
            found = simulate(
                accesses, plan, streams=streams, seed=request.seed, within_seconds=parse_seconds(request.within),
                once=request.once, threads=os.cpu_count() or 1,
            )  # fmt: skip
            for op in workload.CLASSES:
                if not found.rows[op].any():
                    continue
                e = found.evenness(op, request.threshold, idle_seconds=request.idle_seconds)
                shares = [*e.active_shares, 0.0, 0.0][:3]
                rows.append(
                    _named(plan)
                    | {
                        "streams": streams, "op": op, "sd_counts": round(e.sd_counts, 3), "cv": round(e.cv_counts, 4),
                        "sd_binary": round(e.sd_binary, 4), "mean_active": round(e.mean_active, 3),
                        "active_0": round(shares[0], 4), "active_1": round(shares[1], 4),
                        "active_2": round(shares[2], 4), "load_imbalance": round(e.load_imbalance, 3),
                        "capacity_imbalance": round(found.capacity_imbalance, 3), "seconds": e.seconds,
                        "seed": request.seed if found.random or streams > 1 else None,
                    }
                )  # fmt: skip
    if not rows:
        raise PlacementError("nothing was read or written")
    return rows


def _what_if(request: SimulateRequest) -> list[dict[str, Any]]:
    rows = []
    for plan in _plans(request):
        moved = change_targets(plan, request.change)
        rows.append(
            _named(plan)
            | {
                "change": request.change, "moved": round(moved.moved, 4), "least": round(moved.least, 4),
                "over_least": round(moved.moved / moved.least, 3) if moved.least else None,
            }
        )  # fmt: skip
    return rows


def _named(plan: Plan) -> dict[str, Any]:
    parts = {"rain": f"rain-{plan.data}-{plan.parity}", "replicated": f"replicated-{plan.parts}"}
    layout = parts.get(plan.kind, f"striped-{plan.width}" if plan.kind == "striped" else plan.kind)
    return {"candidate": f"{plan.system}/{layout}", "targets": plan.targets}


def _plans(request: SimulateRequest) -> list[Plan]:
    unit = parse_bytes(request.stripe_unit) if request.stripe_unit else None
    crush = read_map(request.crushmap.read_bytes()) if request.crushmap else None
    plans = []
    for text in request.systems:
        system, _, layout = text.partition("/")
        for targets in request.targets or ((crush.max_devices,) if crush else (6,)):
            plan = Plan(system, targets, unit=unit, crush=crush if system == "ceph" else None)
            plans.append(_with_layout(plan, layout, request.width or targets))
    return plans


def _with_layout(plan: Plan, layout: str, width: int) -> Plan:
    if not layout or layout.startswith("striped"):
        own = layout.partition("-")[2]
        if plan.system in ("ceph", "glusterfs", "hdfs", "moosefs", "eos") and not layout:
            return replace(plan, kind="distributed")
        return replace(plan, kind="striped", width=int(own) if own.isdigit() else width)
    parsed = parse_layout(layout)
    if parsed.kind not in ("replicated", "rain", "distributed"):
        raise PlacementError(f"{plan.system}/{layout}: layouts are distributed, striped-W, replicated-N and rain-K-M")
    return replace(plan, kind=parsed.kind, data=parsed.data, parity=parsed.parity)


# --- workloads ---


def _workload(request: SimulateRequest) -> workload.Accesses:
    given = [request.trace, request.fio, request.fileset]
    if sum(g is not None for g in given) != 1:
        raise BadInput("give one workload: --trace FILE, --fio SPEC or --fileset SPEC")
    if request.trace:
        import polars as pl

        read = pl.read_parquet if request.trace.suffix == ".parquet" else pl.read_csv
        try:
            frame = read(request.trace)
        except pl.exceptions.PolarsError as error:
            raise BadInput(f"{request.trace}: {error}") from None
        return workload.from_columns({c: frame[c].to_numpy() for c in frame.columns})
    if request.fio:
        pattern, options = _spec(request.fio, {"bs": parse_bytes, "size": parse_bytes, "threads": int, "rate": float,
                                               "runtime": parse_seconds})  # fmt: skip
        return workload.fio_pattern(
            pattern, block_size=options.get("bs", 4096), size=options.get("size", 1 << 30),
            threads=options.get("threads", 1), operations_per_second=options.get("rate", 100.0),
            seconds=options.get("runtime", 60.0), seed=request.seed,
        )  # fmt: skip
    count, options = _spec(request.fileset or "", {"size": parse_bytes, "rate": parse_bytes})
    sizes = [options.get("size", 1 << 20)] * int(count)
    return workload.fileset(sizes, bytes_per_second=options.get("rate", 100_000_000))


def _spec(text: str, known: dict[str, Callable[[Any], Any]]) -> tuple[str, dict[str, Any]]:
    """``first:key=value,key=value``."""
    first, _, rest = text.partition(":")
    options = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if key not in known:
            raise BadInput(f"unknown option {key!r} in {text!r}; known: {', '.join(known)}")
        options[key] = known[key](value)
    return first, options


# --- out ---


def _table(rows: list[dict[str, Any]]) -> None:
    from rich.table import Table

    from assay.cli.console import stdout

    shown = [c for c in rows[0] if c not in ("seconds", "seed")]
    table = Table(box=None, pad_edge=False)
    for name in shown:
        table.add_column(name.replace("_", " "), no_wrap=name == "candidate")
    for row in rows:
        table.add_row(*("" if row[c] is None else str(row[c]) for c in shown))
    stdout().print(table)


def _chart(rows: list[dict[str, Any]], path: Path) -> None:
    """Deviation over streams, a panel for each operation and measure, a line for each candidate and number of targets."""
    import altair as alt

    measures = {"sd_counts": "deviation of counts", "sd_binary": "binary deviation"}
    values = [
        {"streams": r["streams"], "op": r["op"], "what": name, "value": r[key],
         "line": f"{r['candidate']}, {r['targets']} targets"}
        for r in rows for key, name in measures.items()
    ]  # fmt: skip
    chart = (
        alt.Chart(alt.Data(values=values))
        .mark_line(point=True)
        .encode(
            x=alt.X("streams:Q", title="streams"),
            y=alt.Y("value:Q", title=None),
            color=alt.Color("line:N", title=None),
        )
        .properties(width=320, height=220)
        .facet(row=alt.Row("op:N", title=None), column=alt.Column("what:N", title=None))
        .resolve_scale(y="independent")
    )
    if path.suffix not in (".html", ".png", ".svg", ".pdf", ".json"):
        raise BadInput(f"{path}: charts are written as .html, .png, .svg, .pdf or .json")
    chart.save(str(path))
