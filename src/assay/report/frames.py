"""Rows for the charts, computed from a study and its analysis. Units: MB/s, 1/s, ms, seconds."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.campaign.bounds import layout_of
from assay.model.units import format_bytes
from assay.report.bounds import bound_words
from assay.report.format import UNITS, better_words, significant

if TYPE_CHECKING:
    from assay.campaign.analysis import Analysis, CellAnalysis, Comparison
    from assay.ledger.queries import StudyData
    from assay.model.evidence import Samples

Row = dict[str, Any]

#: Embedded points of all time series, and of all latency curves, together; more cells get fewer points each.
POINT_BUDGET = 12_000
MOST_POINTS = 60
FEWEST_POINTS = 12


@dataclass(frozen=True)
class Point:
    """A workload point on the axes of the papers' figures; ``variant`` names every other axis that varies."""

    workload_id: str
    name: str
    pattern: str
    block_size: int  # bytes
    threads: int
    variant: str

    @property
    def block(self) -> str:
        """Block size for people, with its unit; of operations on names there is none."""
        if not self.block_size:
            return "names"
        text = format_bytes(self.block_size)
        digits = text.rstrip("BKMGTPkia")
        return f"{digits} {text[len(digits) :]}"

    @property
    def group(self) -> str:
        """Pattern and variant: what one figure shows."""
        return f"{self.pattern} · {self.variant}" if self.variant else self.pattern


def points(data: StudyData) -> list[Point]:
    """The workload points by position."""
    found = []
    for row in data.workloads:
        pattern, block, threads = _place(row.kind, row.point)
        told = f"{pattern} {format_bytes(block)} {threads} thr" if row.kind == "fio" else pattern
        variant = row.name.replace(told, "", 1)
        if row.kind != "fio" and block:
            variant = variant.replace(format_bytes(block), "", 1)
        variant = " ".join(variant.split()) if variant != row.name else row.name
        found.append(Point(row.id, row.name, pattern, block, threads, variant))
    return found


def _place(kind: str, point: dict[str, Any]) -> tuple[str, int, int]:
    """What a figure is of, and where a point lies in it: bytes on one axis (fio's block size, dd's file size, IOzone's
    record; 0 where there are none), threads or clients on the other."""
    threads = int(point.get("threads", 1))
    if kind == "dd":
        return f"dd {point['direction']}", int(point["size"]), int(point["clients"])
    if kind == "iozone":
        return f"iozone {point['test']}", int(point["record"]), threads
    if kind == "metadata":
        return str(point["operation"]), 0, threads
    return str(point.get("pattern", kind)), int(point.get("block_size", 0)), threads


def groups(of: Sequence[Point]) -> dict[str, list[Point]]:
    """Points by figure, in order."""
    found: dict[str, list[Point]] = {}
    for point in of:
        found.setdefault(point.group, []).append(point)
    return found


#: Groups of candidates in the order of the figures, by kind of layout.
LAYOUTS = {
    "distributed": "Distributed layout",
    "replicated": "Replicated layout",
    "rain": "RAIN layout",
    "none": "No layout (one host)",
}


def layouts(data: StudyData, analysis: Analysis) -> dict[str, tuple[str, ...]]:
    """Candidates by layout, as the papers' figures have them: kind -> labels. Only groups with candidates."""
    kinds = {c.label: (layout.kind if (layout := layout_of(c.system)) else "none") for c in data.candidates}
    found = {kind: tuple(s for s in analysis.subjects if kinds[s] == kind) for kind in LAYOUTS}
    return {kind: labels for kind, labels in found.items() if labels}


def _cells(
    analysis: Analysis, of: Sequence[Point], labels: Sequence[str] | None = None
) -> Iterator[tuple[Point, CellAnalysis]]:
    by_key = {(c.candidate, c.workload_id): c for c in analysis.cells}
    for point in of:
        for label in analysis.subjects if labels is None else labels:
            cell = by_key.get((label, point.workload_id))
            if cell is not None and cell.n:
                yield point, cell


def bars(analysis: Analysis, of: Sequence[Point], labels: Sequence[str] | None = None) -> list[Row]:
    """Bandwidth per candidate (all, or those of ``labels``), block size and number of threads, with the network's bound."""
    found = []
    for point, cell in _cells(analysis, of, labels):
        interval, factor = cell.intervals["bandwidth"], UNITS["bandwidth"].factor
        if not interval.n:  # operations on names move no data
            continue
        bound = bound_words(analysis, cell)
        found.append(
            {
                "candidate": cell.candidate,
                "block": point.block,
                "block_size": point.block_size,
                "threads": point.threads,
                "value": significant(interval.estimate * factor),
                "low": significant(interval.low * factor) if interval.is_finite else None,
                "high": significant(interval.high * factor) if interval.is_finite else None,
                "n": interval.n,
                "verdict": cell.verdict.value,
                "bound": significant(bound.megabytes) if bound else None,
                "share": bound.text if bound else "no bound known",
                "limit": bound.reason if bound else "",
            }
        )
    return found


def trends(analysis: Analysis, of: Sequence[Point], labels: Sequence[str] | None = None) -> list[Row]:
    """Bandwidth, IOPS and mean latency over threads (or block size when threads do not vary), one row each; ``bound`` is
    the network's, in the unit of the quantity."""
    over_threads = len({p.threads for p in of}) > 1
    found = []
    for point, cell in _cells(analysis, of, labels):
        bound = bound_words(analysis, cell)
        most = (
            {"bandwidth": bound.megabytes, "iops": bound.megabytes * 1e6 / point.block_size}
            if bound and point.block_size
            else {}
        )
        for metric in ("bandwidth", "iops", "latency-mean"):
            unit, interval = UNITS[metric], cell.intervals[metric]
            if not interval.n:
                continue
            found.append(
                {
                    "candidate": cell.candidate,
                    "quantity": unit.title,
                    "x": point.threads if over_threads else point.block_size / 1024,
                    "panel": point.block if over_threads else f"{point.threads} threads",
                    "order": point.block_size if over_threads else point.threads,
                    "value": significant(interval.estimate * unit.factor),
                    "low": significant(interval.low * unit.factor) if interval.is_finite else None,
                    "high": significant(interval.high * unit.factor) if interval.is_finite else None,
                    "bound": significant(most.get(metric)),
                    "share": bound.text if bound else "no bound known",
                }
            )
    return found


def winners(analysis: Analysis, of: Sequence[Point]) -> list[Row]:
    """Who wins where: ``shown`` is the colour, ``text`` what is written into the field."""
    by_id = {w.workload_id: w for w in analysis.winners}
    found = []
    for point in of:
        winner = by_id.get(point.workload_id)
        if winner is None:
            continue
        text = {
            "winner": winner.best or "",
            "tie": " ≈ ".join(winner.contenders),
            "undecided": "? " + " / ".join(winner.contenders),
            "alone": winner.best or "",
            "none": "no valid value",
        }[winner.kind]
        shown = winner.best if winner.best else "undecided"
        found.append(
            {
                "group": point.group,
                "block": point.block,
                "block_size": point.block_size,
                "threads": point.threads,
                "shown": "tie" if winner.kind == "tie" else shown,
                "text": text,
                "kind": winner.kind,
            }
        )
    return found


def ratios(comparisons: Sequence[Comparison], of: Sequence[Point]) -> list[Row]:
    """Ratio with interval and decision per point; ``pair`` names the two candidates."""
    names = {p.workload_id: p.name for p in of}
    found = []
    for c in comparisons:
        finite = c.ratio.is_finite
        found.append(
            {
                "point": names[c.workload_id],
                "pair": f"{c.a} against {c.b}",
                "ratio": significant(c.ratio.estimate),
                "low": significant(c.ratio.low) if finite else None,
                "high": significant(c.ratio.high) if finite else None,
                "decision": better_words(c.metric, c.decision),
                "n": c.result.n,
            }
        )
    return found


def _points_per_curve(analysis: Analysis) -> int:
    cells = sum(1 for c in analysis.cells if c.role == "subject" and c.representative)
    return max(FEWEST_POINTS, min(MOST_POINTS, POINT_BUDGET // max(cells, 1)))


def _thin(times: list[float], values: list[float], most: int) -> tuple[list[float], list[float]]:
    """Means over runs of neighbours, at the mean of their times."""
    step = math.ceil(len(times) / most)
    if step <= 1:
        return times, values
    starts = range(0, len(times), step)

    def mean(of: list[float], i: int) -> float:
        part = of[i : i + step]
        return math.fsum(part) / len(part)

    return [mean(times, i) for i in starts], [mean(values, i) for i in starts]


def bandwidth_series(samples: Samples) -> tuple[list[float], list[float]]:
    """Seconds and MB/s, summed over clients and directions on the grid of the sampling interval."""
    total: dict[int, float] = {}
    width = 0.0
    for client in samples.clients:
        for series in client.series:
            if series.quantity != "bandwidth" or series.interval_seconds <= 0:
                continue
            width = width or series.interval_seconds
            for at, value in zip(series.seconds, series.values, strict=True):
                slot = round(at / width)
                total[slot] = total.get(slot, 0.0) + value * 1e-6
    slots = sorted(total)
    return [slot * width for slot in slots], [total[slot] for slot in slots]


def latency_curve(samples: Samples, direction: str, most: int) -> list[tuple[float, float]]:
    """The merged histogram of all clients as a cumulative curve: (latency in ms, share of operations up to it)."""
    counts: dict[int, int] = {}
    for client in samples.clients:
        for name, histogram in client.histograms.items():
            if name == direction:
                for latency, count in zip(histogram.latency_ns, histogram.counts, strict=True):
                    if count:
                        counts[latency] = counts.get(latency, 0) + count
    total = sum(counts.values())
    if not total:
        return []
    ordered = sorted(counts.items())
    curve, seen, last = [], 0, -1.0
    for i, (latency, count) in enumerate(ordered):
        seen += count
        here = seen / total
        # Equal steps in share alone would lose the tail, where the interest is.
        in_tail = any(last < mark <= here for mark in (0.99, 0.999, 0.9999))
        if here - last >= 1 / most or in_tail or i in (0, len(ordered) - 1):
            curve.append((max(latency, 1) / 1e6, here))
            last = here
    return curve


def time_series_and_latencies(data: StudyData, analysis: Analysis, of: Sequence[Point]) -> tuple[list[Row], list[Row]]:
    """Bandwidth over time and latency curves of one attempt per cell: that whose value is the (lower) median.

    Reads samples of these attempts only, so that the report of a large study stays small and fast; the raw series
    of every attempt are in the ledger and in ``assay export``.
    """
    most = _points_per_curve(analysis)
    series: list[Row] = []
    curves: list[Row] = []
    for point, cell in _cells(analysis, of):
        assert cell.representative is not None
        samples = data.samples(cell.representative)
        if samples is None:
            continue
        summary = data.evidence(cell.representative).summary
        steady = summary.steady if summary else None
        common = {"point": point.name, "candidate": cell.candidate}
        for at, value in zip(*_thin(*bandwidth_series(samples), most), strict=True):
            inside = bool(steady and steady.found and steady.start_seconds <= at <= steady.stop_seconds)
            series.append({**common, "t": significant(at), "v": significant(value, 4), "steady": inside})
        directions = sorted({d for client in samples.clients for d in client.histograms})
        for direction in directions:
            curves += [
                {**common, "direction": direction, "ms": significant(ms, 4), "share": round(part, 4)}
                for ms, part in latency_curve(samples, direction, most)
            ]
    return series, curves
