"""Chart definitions, one function per chart, used alike for HTML, PNG and SVG; see :mod:`assay.report.drawing`."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import altair as alt

from assay.report.drawing import COLUMNS, PANEL, Drawing, Palette, Row, columns_for, ink_on, named, ordered

DECISION_COLOURS = {
    "faster": "#009E73",
    "better": "#009E73",
    "equivalent": "#0072B2",
    "undecided": "#8A8F98",
    "slower": "#D55E00",
    "worse": "#D55E00",
}
DECISION_SHAPES = {
    "faster": "triangle-up",
    "better": "triangle-up",
    "equivalent": "square",
    "undecided": "circle",
    "slower": "triangle-down",
    "worse": "triangle-down",
}
UNDECIDED = "#C9CDD3"
TIE = "#A9D6E5"


def winners_map(rows: Sequence[Row], palette: Palette) -> Drawing:
    """Who wins on which block size and number of threads; ties and undecided fields are told, never guessed."""
    fills = {c: palette.colour_of(c) for c in palette.candidates} | {"tie": TIE, "undecided": UNDECIDED}
    present = [name for name in fills if any(row["shown"] == name for row in rows)]
    rows = [{**row, "ink": ink_on(fills[row["shown"]])} for row in rows]
    longest = max(len(row["text"]) for row in rows)
    cell = max(74, min(190, 7 * longest + 16))
    blocks, threads = ordered(rows, "block", "block_size"), sorted({row["threads"] for row in rows})
    base = alt.Chart().encode(
        x=alt.X("block:N", sort=blocks, title="Block size", axis=alt.Axis(labelAngle=0)),
        y=alt.Y("threads:O", title="Threads", sort="descending"),
        tooltip=[
            alt.Tooltip("text:N", title="Best"),
            alt.Tooltip("kind:N", title="Kind"),
            alt.Tooltip("block:N", title="Block size"),
            alt.Tooltip("threads:O", title="Threads"),
        ],
    )
    fields = base.mark_rect(stroke="#FFFFFF", strokeWidth=2, cornerRadius=3).encode(
        color=alt.Color(
            "shown:N",
            scale=alt.Scale(domain=present, range=[fills[name] for name in present]),
            legend=alt.Legend(title="Best candidate", orient="top", labelLimit=320),
        )
    )
    words = base.mark_text(fontSize=11, limit=cell - 6, fontWeight="bold").encode(
        text="text:N", color=alt.Color("ink:N", scale=None)
    )
    chart = alt.layer(fields, words, data=named("rows")).properties(width=alt.Step(cell), height=alt.Step(34))
    columns = max(1, min(COLUMNS, 1080 // (cell * len(blocks) + 60)))
    order = list(dict.fromkeys(row["group"] for row in rows))
    header = alt.Header(labelFontWeight="bold")
    faceted = chart.facet(facet=alt.Facet("group:N", title=None, sort=order, header=header), columns=columns)
    places = {g: {(r["block"], r["threads"]) for r in rows if r["group"] == g} for g in order}
    if any(len(here) < len(blocks) * len(threads) for here in places.values()):
        # Patterns with points of their own get axes of their own, or most of the map would be empty.
        faceted = faceted.resolve_scale(x="independent", y="independent")
    return Drawing(faceted, {"rows": list(rows)})


def ratio_plot(rows: Sequence[Row], margin: float, title: str) -> Drawing:
    """Ratios with their intervals around 1, the margin of equivalence shaded; one panel per pair."""
    present = [d for d in DECISION_COLOURS if any(row["decision"] == d for row in rows)]
    order = list(dict.fromkeys(row["point"] for row in rows))
    pairs = list(dict.fromkeys(row["pair"] for row in rows))
    # The band is drawn once per panel; drawn for every row it would not be translucent any more.
    heads = {pair: next(row["point"] for row in rows if row["pair"] == pair) for pair in pairs}
    rows = [{**row, "head": row["point"] == heads[row["pair"]]} for row in rows]
    y = alt.Y("point:N", sort=order, title=None, axis=alt.Axis(labelLimit=230, grid=True))
    x = alt.X("ratio:Q", title=title, scale=alt.Scale(type="log", nice=False, padding=10), axis=alt.Axis(format="~g"))
    shade = (
        alt.Chart()
        .transform_filter("datum.head")
        .mark_rect(color="#0072B2", opacity=0.10)
        .encode(x=alt.datum(1 / (1 + margin), type="quantitative"), x2=alt.datum(1 + margin, type="quantitative"))
    )
    one = (
        alt.Chart()
        .transform_filter("datum.head")
        .mark_rule(strokeDash=[4, 3], color="#8A8F98")
        .encode(x=alt.datum(1, type="quantitative"))
    )
    legend = alt.Legend(title="Decision", orient="top")
    fills = alt.Scale(domain=present, range=[DECISION_COLOURS[d] for d in present])
    shapes = alt.Scale(domain=present, range=[DECISION_SHAPES[d] for d in present])
    colour = alt.Color("decision:N", scale=fills, legend=legend)
    shape = alt.Shape("decision:N", scale=shapes, legend=legend)
    base = alt.Chart().encode(y=y, color=colour)
    spans = base.mark_rule(strokeWidth=2).encode(x=alt.X("low:Q", title=title), x2="high:Q")
    dots = base.mark_point(filled=True, size=70, opacity=1).encode(
        x=x,
        shape=shape,
        tooltip=[
            alt.Tooltip("point:N", title="Point"),
            alt.Tooltip("ratio:Q", title="Ratio", format=".3f"),
            alt.Tooltip("low:Q", title="from", format=".3f"),
            alt.Tooltip("high:Q", title="to", format=".3f"),
            alt.Tooltip("decision:N", title="Decision"),
            alt.Tooltip("n:Q", title="Blocks"),
        ],
    )
    chart = alt.layer(shade, one, spans, dots, data=named("rows")).properties(
        width=340, height=max(60, 20 * len(order))
    )
    header = alt.Header(labelFontWeight="bold")
    faceted = chart.facet(facet=alt.Facet("pair:N", title=None, sort=pairs, header=header), columns=2)
    return Drawing(faceted, {"rows": list(rows)})


def time_series(rows: Sequence[Row], palette: Palette) -> Drawing:
    """Bandwidth over time of one attempt per cell; thick inside the steady window, faint outside."""
    order = list(dict.fromkeys(row["point"] for row in rows))
    x = alt.X("t:Q", title="Time since start (s)")
    y = alt.Y("v:Q", title="MB/s", scale=alt.Scale(zero=True), axis=alt.Axis(minExtent=38, tickCount=4))
    base = alt.Chart().encode(x=x, y=y, color=palette.colour())
    whole = base.mark_line(strokeWidth=1, opacity=0.45)
    steady = base.transform_filter("datum.steady").mark_line(strokeWidth=2.6)
    start = (
        alt.Chart()
        .transform_filter("datum.steady")
        .mark_rule(strokeDash=[3, 3], opacity=0.7)
        .encode(x=alt.X("min(t):Q", title="Time since start (s)"), color=palette.colour())
    )
    chart = _panels(alt.layer(whole, steady, start, data=named("rows")), order)
    return Drawing(chart.resolve_scale(y="independent"), {"rows": list(rows)})


def latency_curves(rows: Sequence[Row], palette: Palette) -> Drawing:
    """Cumulative distribution of latency (merged histograms of all clients), logarithmic in time."""
    order = list(dict.fromkeys(row["point"] for row in rows))
    directions = sorted({row["direction"] for row in rows})
    mixed = len({(row["point"], row["direction"]) for row in rows}) > len(order)
    dash = alt.StrokeDash("direction:N", sort=directions, legend=alt.Legend(title="Direction", orient="top"))
    chart = (
        alt.Chart(named("rows"))
        .mark_line(interpolate="step-after", strokeWidth=2)
        .encode(
            x=alt.X("ms:Q", title="Latency (ms)", scale=alt.Scale(type="log", nice=False), axis=alt.Axis(format="~g")),
            y=alt.Y("share:Q", title="Operations up to it", axis=alt.Axis(format=".0%")),
            color=palette.colour(),
            detail="direction:N",
        )
    )
    if mixed:
        chart = chart.encode(strokeDash=dash)
    return Drawing(_panels(chart, order).resolve_scale(x="independent"), {"rows": list(rows)})


def _panels(chart: Any, order: list[str]) -> alt.FacetChart:
    header = alt.Header(labelFontWeight="bold", labelLimit=PANEL)
    facet = alt.Facet("point:N", title=None, sort=order, header=header)
    return chart.properties(width=PANEL, height=130).facet(facet=facet, columns=columns_for(len(order), PANEL))
