"""Which charts a report has, with their titles, captions and alternative texts."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

from assay.report import charts, frames
from assay.report.format import UNITS

if TYPE_CHECKING:
    from assay.campaign.analysis import Analysis
    from assay.ledger.queries import StudyData

Section = Literal["ratios", "aa", "winners", "bars", "trends", "series", "latency"]


@dataclass(frozen=True)
class Figure:
    """One chart. ``id`` is also its file name; ``caption`` says what is drawn, ``alt`` what it shows."""

    id: str
    section: Section
    title: str
    caption: str
    alt: str
    drawing: charts.Drawing

    @property
    def spec(self) -> dict[str, Any]:
        """The Vega-Lite specification."""
        return self.drawing.spec()


def _slug(text: str) -> str:
    return "-".join("".join(c if c.isalnum() else " " for c in text.lower()).split()) or "all"


def build(data: StudyData, analysis: Analysis) -> list[Figure]:
    """All figures that the data allow, in the order of the report. Figures without data are left out."""
    of = frames.points(data)
    palette = charts.Palette(analysis.subjects)
    found = [*_ratio_figures(analysis, of), *_winner_figure(analysis, of, palette)]
    percent = f"{100 * analysis.measure.confidence:g} %"
    for group, members in frames.groups(of).items():
        rows = frames.bars(analysis, members)
        if rows:
            found.append(
                Figure(
                    f"bandwidth-{_slug(group)}",
                    "bars",
                    f"Bandwidth: {group}",
                    f"Geometric mean over blocks, MB/s; whiskers: {percent} interval, cut off at twice the highest bar.",
                    f"Bars of the bandwidth of {_names(analysis)} for {group} by block size and threads.",
                    charts.bandwidth_bars(rows, palette),
                )
            )
        rows = frames.trends(analysis, members)
        if len({row["x"] for row in rows}) > 1:
            over = "Threads" if len({p.threads for p in members}) > 1 else "Block size (KiB)"
            found.append(
                Figure(
                    f"trend-{_slug(group)}",
                    "trends",
                    f"Bandwidth, IOPS and latency over {over.lower().split(' (')[0]}: {group}",
                    f"Both axes are logarithmic; whiskers: {percent} interval.",
                    f"Lines of bandwidth, operations per second and mean latency of {_names(analysis)} for {group}.",
                    charts.trend_lines(rows, palette, over),
                )
            )
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


def _winner_figure(analysis: Analysis, of: Sequence[frames.Point], palette: charts.Palette) -> list[Figure]:
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
