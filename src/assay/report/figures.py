"""Which charts a report has, with their titles, captions and alternative texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from assay.report import charts, frames, papers
from assay.report.drawing import Drawing, Palette
from assay.report.format import UNITS

if TYPE_CHECKING:
    from assay.campaign.analysis import Analysis
    from assay.ledger.queries import StudyData

Section = Literal["ratios", "aa", "winners", "bars", "trends", "layouts", "series", "latency"]


@dataclass(frozen=True)
class Figure:
    """One chart. ``id`` is also its file name; ``caption`` says what is drawn, ``alt`` what it shows."""

    id: str
    section: Section
    title: str
    caption: str
    alt: str
    drawing: Drawing

    @property
    def spec(self) -> dict[str, Any]:
        """The Vega-Lite specification."""
        return self.drawing.spec()


def _slug(text: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in text.lower()).split()) or "all"


def build(data: StudyData, analysis: Analysis) -> list[Figure]:
    """All figures that the data allow, in the order of the report. Figures without data are left out."""
    of = frames.points(data)
    palette = Palette(analysis.subjects)
    found = [*_ratio_figures(analysis, of), *_winner_figure(analysis, of, palette)]
    layouts = frames.layouts(data, analysis)
    for group, members in frames.groups(of).items():
        found += _bars_and_trends(analysis, members, palette, group, _Place("bars", "trends"))
    if len(layouts) > 1:
        for group, members in frames.groups(of).items():
            for kind, labels in layouts.items():
                place = _Place("layouts", "layouts", f"{frames.LAYOUTS[kind]}, ", f"layout-{kind}-")
                found += _bars_and_trends(analysis, members, palette.only(labels), group, place)
    series, curves = frames.time_series_and_latencies(data, analysis, of)
    if series:
        found.append(
            Figure(
                "time-series",
                "series",
                "Bandwidth over time",
                "One attempt per cell, the one of median value. Thick: the steady window, from the dashed line; faint: "
                "outside it, or no steady state found. Long series are drawn as means of neighbouring intervals; "
                "the ledger has every sample.",
                f"Bandwidth over time of {_names(analysis)}, one panel per workload point.",
                charts.time_series(series, palette),
            )
        )
    if curves:
        found.append(
            Figure(
                "latency-cdf",
                "latency",
                "Latency distributions",
                "Share of operations that took at most this long, from the merged histograms of all clients of one "
                "attempt per cell, the one of median value. Further left is better.",
                f"Cumulative latency distributions of {_names(analysis)}, one panel per workload point.",
                charts.latency_curves(curves, palette),
            )
        )
    return found


@dataclass(frozen=True)
class _Place:
    """Where a pair of figures goes, and what stands before their titles and ids."""

    bars: Section
    trends: Section
    title: str = ""
    prefix: str = ""


def _left_out(drawing: Drawing) -> str:
    """What the bars' axis does not show, in words."""
    rows = drawing.rows["rows"]
    bars = [row for row in rows if row["mark"] == "bar"]
    told = {row["threads"] for row in rows if row["mark"] in ("rule", "above")}
    bounded = sum(row["bound"] is not None and row["threads"] not in told for row in bars)
    text = " A bound far above all bars is not drawn." if bounded > sum(row["mark"] == "tick" for row in rows) else ""
    return text + (" Bars with an arrow are cut off and carry their figure." if any(row["cut"] for row in bars) else "")


def _bars_and_trends(
    analysis: Analysis, members: Sequence[frames.Point], palette: Palette, group: str, place: _Place
) -> list[Figure]:
    """The two figures that the papers have per layout and pattern: bars of bandwidth, trends of all three quantities."""
    found = []
    percent = f"{100 * analysis.measure.confidence:g} %"
    names = ", ".join(palette.shown)
    bounded = ""
    if any(c.candidate in palette.shown and c.cell_id in analysis.bounds for c in analysis.cells):
        bounded = " Red: the most that the network lets through for the layout; its reason is in the tooltip."
    rows = frames.bars(analysis, members, palette.shown)
    # one bar alone is no figure of its own
    if rows and (len(rows) > 1 or not place.prefix):
        drawing = papers.bandwidth_bars(rows, palette)
        found.append(
            Figure(
                f"{place.prefix}bandwidth-{_slug(group)}",
                place.bars,
                f"{place.title or 'Bandwidth: '}{group}{': bandwidth' if place.title else ''}",
                f"Geometric mean over blocks, MB/s; whiskers: {percent} interval, cut off at twice the highest bar."
                f"{bounded}{_left_out(drawing)}",
                f"Bars of the bandwidth of {names} for {group} by block size and threads.",
                drawing,
            )
        )
    rows = frames.trends(analysis, members, palette.shown)
    if len({row["x"] for row in rows}) > 1:
        over = "Threads" if len({p.threads for p in members}) > 1 else "Block size (KiB)"
        what = f"bandwidth, IOPS and latency over {over.lower().split(' (')[0]}"
        dashed = (
            " Dashed: the most that the network lets through for the layout, "
            "in the candidate's colour unless all share it."
            if bounded
            else ""
        )
        found.append(
            Figure(
                f"{place.prefix}trend-{_slug(group)}",
                place.trends,
                f"{place.title}{group}: {what}" if place.title else f"{what[0].upper()}{what[1:]}: {group}",
                f"Both axes are logarithmic; whiskers: {percent} interval.{dashed}",
                f"Lines of bandwidth, operations per second and mean latency of {names} for {group}.",
                papers.trend_lines(rows, palette, over),
            )
        )
    return found


def _names(analysis: Analysis) -> str:
    return ", ".join(analysis.subjects)


def _ratio_figures(analysis: Analysis, of: Sequence[frames.Point]) -> list[Figure]:
    words = UNITS[analysis.metric].words.lower() if analysis.metric != "iops" else "IOPS"
    title = f"Ratio of {words} (above 1: the first is better)"
    margin = analysis.measure.margin
    caption = (
        f"Ratio within blocks with its {100 * analysis.measure.confidence:g} % interval; shaded: the margin of "
        f"±{100 * margin:g} % within which candidates are called equivalent."
    )
    found = []
    rows = frames.ratios(analysis.baseline_comparisons, of)
    if rows:
        alternative = f"Ratios of each candidate against {analysis.baseline} per workload point."
        chart = charts.ratio_plot(rows, margin, title)
        heading = f"Every candidate against {analysis.baseline}"
        found.append(Figure("ratios", "ratios", heading, caption, alternative, chart))
    rows = frames.ratios([c for alarms in analysis.false_alarms for c in alarms.comparisons], of)
    if rows:
        alternative = "Ratios of the A/A pair per workload point; all should be close to 1."
        chart = charts.ratio_plot(rows, margin, title)
        heading = "The same candidate against itself (A/A)"
        found.append(Figure("aa-ratios", "aa", heading, caption, alternative, chart))
    return found


def _winner_figure(analysis: Analysis, of: Sequence[frames.Point], palette: Palette) -> list[Figure]:
    rows = frames.winners(analysis, of)
    if len(analysis.subjects) < 2 or not rows:
        return []
    caption = (
        "A field has a candidate's colour only when it was shown to be better than every other one. A ≈ B: equivalent, "
        "and better than the rest. ? A / B: undecided between these; grey is a result, not a gap."
    )
    alternative = "Map of the best candidate by block size and threads, one panel per pattern."
    chart = charts.winners_map(rows, palette)
    return [Figure("winners", "winners", "Best candidate by block size and threads", caption, alternative, chart)]
