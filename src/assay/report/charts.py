"""Chart definitions, one function per chart, used alike for HTML, PNG and SVG.

A function takes rows of :mod:`assay.report.frames` and a :class:`Palette` and returns a :class:`Drawing`; no
data are computed here. Every axis has its unit in the title. Types are always explicit because rows are embedded
as they are.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

from assay.report.format import number

Row = dict[str, Any]

#: Okabe and Ito's colours, distinct for colour-blind readers; then three more for large studies.
COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8A7FC7", "#B8A100", "#7A8A99", "#A0522D",
)  # fmt: skip
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
SHAPES = ("circle", "square", "cross", "diamond", "triangle-up", "triangle-down", "triangle-right", "triangle-left")
BOUND = "#B3261E"
_BOUND_STYLE: dict[str, Any] = {"strokeWidth": 1.5, "strokeDash": [5, 3], "color": BOUND}
#: A bound further above the highest bar than this is told in words: drawn, it would press all bars to the ground.
_FAR = 2.5
_NARROWEST_NUMBER = 25  # pixels per bar that a figure of three digits still fits on
_BOUND_TIPS = [
    alt.Tooltip("share:N", title="Reached"),
    alt.Tooltip("bound:Q", title="Network's bound, MB/s", format=",.4~g"),
    alt.Tooltip("limit:N", title="Bound by"),
]
UNDECIDED = "#C9CDD3"
TIE = "#A9D6E5"
PANEL = 270  # width of a panel, pixels
COLUMNS = 3
TREND_HEIGHT = 150  # height of a panel of trends, pixels
LETTERS = 17  # height that a line of words needs, pixels


@dataclass(frozen=True)
class Palette:
    """One colour per candidate, the same in all charts; ``shown``: those of one chart."""

    candidates: tuple[str, ...]
    shown: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        if not self.shown:
            object.__setattr__(self, "shown", self.candidates)

    def only(self, labels: Sequence[str]) -> Palette:
        """The same colours for a chart of some candidates."""
        return Palette(self.candidates, tuple(labels))

    def colour_of(self, candidate: str) -> str:
        """The candidate's colour."""
        return COLOURS[self.candidates.index(candidate) % len(COLOURS)]

    @property
    def scale(self) -> alt.Scale:
        """Altair scale from candidate to colour."""
        return alt.Scale(domain=list(self.shown), range=[self.colour_of(c) for c in self.shown])

    @property
    def shapes(self) -> alt.Scale:
        """Altair scale from candidate to shape; like the colours, a candidate's own in every chart."""
        order = [SHAPES[self.candidates.index(c) % len(SHAPES)] for c in self.shown]
        return alt.Scale(domain=list(self.shown), range=order)

    @property
    def legend(self) -> alt.Legend:
        """The legend that colour and shape share; two different ones would contradict each other."""
        return alt.Legend(title="Candidate", orient="top", labelLimit=320, symbolOpacity=1, symbolStrokeWidth=3)

    def colour(self, symbol: str | None = None) -> alt.Color:
        """Colour by the field ``candidate``; ``symbol``: the legend's, where the marks do not tell it."""
        legend = self.legend
        if symbol:
            legend.symbolType = symbol
        return alt.Color("candidate:N", scale=self.scale, legend=legend)

    def shape(self) -> alt.Shape:
        """Shape by the same field, for readers who cannot rely on colour."""
        return alt.Shape("candidate:N", scale=self.shapes, legend=self.legend)


def _ordered(rows: Sequence[Row], label: str, by: str) -> list[str]:
    return [text for _, text in sorted({(row[by], row[label]) for row in rows})]


@dataclass(frozen=True)
class Drawing:
    """A chart definition and the rows it names. Rows stay outside the definition, which Altair validates and copies
    many times over; they are put in at the end, as Vega-Lite's ``datasets``."""

    chart: alt.TopLevelMixin
    rows: dict[str, list[Row]]

    def spec(self, *, validate: bool = False) -> dict[str, Any]:
        """The complete Vega-Lite specification; with ``validate``, checked against the schema (the tests do)."""
        return {**self.chart.to_dict(validate=validate), "datasets": self.rows}


def _named(name: str) -> alt.NamedData:
    return alt.NamedData(name=name)


def bandwidth_bars(rows: Sequence[Row], palette: Palette) -> Drawing:
    """Bars per block size, one panel per number of threads, as the papers draw them; whiskers are intervals. The network's
    bound is one line across a panel where all bars share it, else a short line over each bar."""
    blocks = _ordered(rows, "block", "block_size")
    x = alt.X("block:N", sort=blocks, title="Block size", axis=alt.Axis(labelAngle=0))
    offset = alt.XOffset("candidate:N", sort=list(palette.shown))
    width = max(130, min(420, 26 * len(blocks) * max(1, len(palette.shown))))
    top = _axis_top(rows)
    scale = alt.Scale(zero=True, domain=[0, top], nice=True)

    def of(mark: str) -> alt.Chart:
        return alt.Chart().transform_filter(f"datum.mark == '{mark}'")

    # no clip= on the bars: none is taller than the axis, and the PNG renderer drops clipped bars altogether
    y = alt.Y("drawn:Q", title="Bandwidth (MB/s)", scale=scale)
    drawn = (
        of("bar")
        .mark_bar(cornerRadiusEnd=2)
        .encode(
            x=x,
            xOffset=offset,
            y=y,
            color=palette.colour("square"),
            tooltip=[
                alt.Tooltip("candidate:N", title="Candidate"),
                alt.Tooltip("block:N", title="Block size"),
                alt.Tooltip("threads:Q", title="Threads"),
                alt.Tooltip("value:Q", title="Bandwidth, MB/s", format=",.4~g"),
                alt.Tooltip("low:Q", title="from", format=",.4~g"),
                alt.Tooltip("high:Q", title="to", format=",.4~g"),
                alt.Tooltip("n:Q", title="Blocks"),
                alt.Tooltip("verdict:N", title="Cell is"),
                *_BOUND_TIPS,
            ],
        )
    )
    whiskers = (
        of("bar")
        .transform_filter("!datum.cut")
        .mark_rule(strokeWidth=1.5, color="#4A4F57", clip=True)
        .encode(x=x, xOffset=offset, y=alt.Y("low:Q", title="Bandwidth (MB/s)", scale=scale), y2="high:Q")
    )
    bars = [_bar(row, top, palette) for row in rows]
    marks = _bound_marks(rows, top)
    layers: list[Any] = [drawn, whiskers]
    if any(row["cut"] for row in bars):
        style = of("bar").transform_filter("datum.cut").mark_text(angle=270, align="right", dx=-4, fontSize=10)
        layers.append(style.encode(x=x, xOffset=offset, y=y, text="cut:N", color=alt.Color("ink:N", scale=None)))
    if any(row["mark"] == "rule" for row in marks):
        layers.append(of("rule").mark_rule(**_BOUND_STYLE).encode(y=y, tooltip=_BOUND_TIPS[1:]))
    if any(row["mark"] == "tick" for row in marks):
        tick = of("tick").mark_tick(orient="horizontal", thickness=2, color=BOUND, opacity=1)
        tips = [alt.Tooltip("candidate:N", title="Candidate"), *_BOUND_TIPS]
        layers.append(tick.encode(x=x, xOffset=offset, y=y, tooltip=tips))
        if width / max(1, len(blocks) * len(palette.shown)) >= _NARROWEST_NUMBER:
            figure = (
                of("tick")
                .transform_filter("isValid(datum.label)")
                .mark_text(baseline="bottom", dy=-3, color=BOUND, fontSize=9)
            )
            layers.append(figure.encode(x=x, xOffset=offset, y=y, text="label:N"))
    if any(row["mark"] in ("rule", "above") for row in marks):
        words = alt.Chart().transform_filter("datum.mark == 'rule' || datum.mark == 'above'")
        style = words.mark_text(align="right", baseline="bottom", dy=-3, color=BOUND, fontSize=10.5)
        layers.append(style.encode(text="label:N", y=y, x=alt.value("width")))
    chart = (
        alt.layer(*layers, data=_named("rows"))
        .properties(width=width, height=190)
        .facet(
            facet=alt.Facet(
                "threads:O",
                title=None,
                header=alt.Header(labelExpr="'Threads: ' + datum.value", labelFontWeight="bold"),
            ),
            columns=_columns(len({row["threads"] for row in rows}), width),
        )
        .resolve_scale(x="shared")
    )
    return Drawing(chart, {"rows": [*bars, *marks]})


def _columns(panels: int, width: int) -> int:
    """As many columns as fit on a page, if possible such that the last row is full: an empty place still gets an axis."""
    most = max(1, min(panels, 1080 // (width + 22)))
    full = [n for n in range(2, most + 1) if panels % n == 0]
    return max(full, default=most)


def _bar(row: Row, top: float, palette: Palette) -> Row:
    """A bar, cut off at the top of the axis with its figure written into it when it is higher."""
    over = row["value"] > top
    ink = _on(palette.colour_of(row["candidate"]))
    return {
        "mark": "bar", **row, "drawn": min(row["value"], top), "cut": f"{number(row['value'])} ↑" if over else "", "ink": ink
    }  # fmt: skip


def _axis_top(rows: Sequence[Row]) -> float:
    """MB/s at the top of the bars' axis. A local disk many times as fast as everything that goes through the network would
    press the others to the ground: then these decide, and its bars are cut off."""
    bounded = [row for row in rows if row["bound"] is not None]
    if bounded and max(row["value"] for row in rows) > _FAR * max(row["value"] for row in bounded):
        rows = bounded
    # an interval from two blocks may reach a hundred times beyond every bar: it is cut off, or no bar could be seen
    highest = max((row["value"] for row in rows), default=1.0)
    reach = max((row["high"] for row in rows if row["high"] is not None), default=highest)
    near = [row["bound"] for row in rows if row["bound"] is not None and row["bound"] <= _FAR * highest]
    return max(min(max(reach, highest), 2 * highest), *near, 0.0)


def _bound_marks(rows: Sequence[Row], top: float) -> list[Row]:
    """``rule``: one bound for a whole panel; ``above``: the same, but beyond the axis, told in words; ``tick``: over one
    bar. Rows of the bars' own shape, because a facet needs all its layers in one table."""
    marks: list[Row] = []
    for threads in dict.fromkeys(row["threads"] for row in rows):
        panel = [row for row in rows if row["threads"] == threads]
        bounds = {row["bound"] for row in panel}
        if len(bounds) == 1 and None not in bounds:
            (bound,) = bounds
            limit = " / ".join(dict.fromkeys(row["limit"] for row in panel))
            common = {"threads": threads, "bound": bound, "limit": limit}
            words = f"network bound {number(bound)} MB/s"
            if bound <= top:
                marks.append({"mark": "rule", "drawn": bound, "label": words, **common})
            else:
                marks.append({"mark": "above", "drawn": top, "label": f"↑ {words}", **common})
            continue
        names = ("candidate", "block", "block_size", "threads", "bound", "share", "limit")
        last = None
        for row in panel:
            here = row["block"], row["bound"]
            if row["bound"] is not None and row["bound"] <= top:
                # neighbours with the same bound make one line, which needs its figure once
                label = {"label": number(row["bound"])} if here != last else {}
                marks.append({"mark": "tick", "drawn": row["bound"], **label, **{k: row[k] for k in names}})
            last = here
    return marks


def trend_lines(rows: Sequence[Row], palette: Palette, x_title: str) -> Drawing:
    """Bandwidth, IOPS and latency, one row of panels each, over threads or block size; both axes are logarithmic. The
    network's bound is a dashed line: one for all where they share it, else one in each candidate's colour."""
    panels = _ordered(rows, "panel", "order")
    ticks = sorted({row["x"] for row in rows})
    x = alt.X(
        "x:Q",
        title=x_title,
        scale=alt.Scale(type="log", base=2, nice=False, padding=12),
        axis=alt.Axis(values=ticks, format=",~g", labelOverlap=True),
    )
    # A row of panels per quantity: own y axis each, or milliseconds would share a scale with operations.
    quantities = list(dict.fromkeys(row["quantity"] for row in rows))
    stacked, own = [], {}
    for i, quantity in enumerate(quantities):
        y = alt.Y("value:Q", title=quantity, scale=alt.Scale(type="log", nice=False, padding=14))
        base = alt.Chart().transform_filter("datum.mark == 'value'").encode(x=x, color=palette.colour())
        lines = base.mark_line(strokeWidth=2).encode(y=y)
        dots = base.mark_point(filled=True, size=42, opacity=1).encode(
            y=y,
            shape=palette.shape(),
            tooltip=[
                alt.Tooltip("candidate:N", title="Candidate"),
                alt.Tooltip("x:Q", title=x_title, format=",~g"),
                alt.Tooltip("value:Q", title=quantity, format=",.4~g"),
                alt.Tooltip("low:Q", title="from", format=",.4~g"),
                alt.Tooltip("high:Q", title="to", format=",.4~g"),
                alt.Tooltip("bound:Q", title="Network's bound", format=",.4~g"),
                alt.Tooltip("share:N", title="Reached"),
            ],
        )
        bars = base.mark_rule(strokeWidth=1.5).encode(y=alt.Y("low:Q", title=quantity), y2="high:Q")
        mine = [row for row in rows if row["quantity"] == quantity]
        limits = _bound_lines(mine, palette)
        layers: list[Any] = [lines, bars, dots]
        if limits:
            layers += _limit_layers(x, y)
        stacked.append(
            alt.layer(*layers, data=_named(f"rows{i}"))
            .properties(width=210, height=TREND_HEIGHT)
            .facet(column=alt.Column("panel:N", sort=panels, title=None, header=alt.Header(labelFontWeight="bold")))
        )
        own[f"rows{i}"] = [*({"mark": "value", **row} for row in mine), *limits]
    # one panel each stand side by side, as in the papers
    return Drawing(alt.hconcat(*stacked) if len(panels) == 1 else alt.vconcat(*stacked), own)


def _limit_layers(x: alt.X, y: alt.Y) -> list[alt.Chart]:
    """Dashed lines of the bounds and their words; ``ink`` is the colour, the candidate's or that of all."""
    bound = alt.Chart().transform_filter("datum.mark == 'bound'")
    ink = alt.Color("ink:N", scale=None)
    lines = bound.mark_line(strokeDash=[5, 3], strokeWidth=1.5).encode(x=x, y=y, color=ink, detail="owner:N")
    words = bound.transform_filter("isValid(datum.label)").mark_text(
        align="right", baseline="bottom", dy=-3, fontSize=10
    )
    return [lines, words.encode(x=x, y=y, text="label:N", color=ink)]


def _bound_lines(rows: Sequence[Row], palette: Palette) -> list[Row]:
    """The bounds of one quantity as lines over x: one for all candidates of a panel where they share it, else one each."""
    shown = [v for row in rows for v in (row["value"], row["low"], row["high"], row["bound"]) if v]
    closest = (max(shown) / min(shown)) ** (LETTERS / TREND_HEIGHT) if shown else 1.0
    found: list[Row] = []
    for panel in dict.fromkeys(row["panel"] for row in rows):
        lines: dict[tuple[Any, ...], tuple[list[str], dict[float, float]]] = {}
        for label in dict.fromkeys(row["candidate"] for row in rows):
            mine = [row for row in rows if (row["panel"], row["candidate"]) == (panel, label)]
            curve = {row["x"]: row["bound"] for row in mine if row["bound"] is not None}
            if not curve:
                continue
            level = len(set(curve.values())) == 1
            key = (next(iter(curve.values())),) if level else tuple(sorted(curve.items()))
            owners, points = lines.setdefault(key, ([], {}))
            owners.append(label)
            points.update(curve)
        above = math.inf
        for owners, points in sorted(lines.values(), key=lambda line: -max(line[1].values())):
            ink = BOUND if len(lines) == 1 else palette.colour_of(owners[0])
            common = {"mark": "bound", "panel": panel, "owner": ", ".join(owners), "ink": ink}
            ordered = sorted(points.items())
            drawn = [{**common, "x": x, "value": bound} for x, bound in ordered]
            end = ordered[-1][1]
            if above / end > closest:  # else the words would stand in the line above
                drawn[-1]["label"] = ("network bound " if len(lines) == 1 else "bound ") + number(end)
            above = end
            found += drawn
    return found


def _on(background: str) -> str:
    red, green, blue = (int(background[i : i + 2], 16) for i in (1, 3, 5))
    return "#14181F" if 0.299 * red + 0.587 * green + 0.114 * blue > 128 else "#FFFFFF"


def winners_map(rows: Sequence[Row], palette: Palette) -> Drawing:
    """Who wins on which block size and number of threads; ties and undecided fields are told, never guessed."""
    fills = {c: palette.colour_of(c) for c in palette.candidates} | {"tie": TIE, "undecided": UNDECIDED}
    present = [name for name in fills if any(row["shown"] == name for row in rows)]
    rows = [{**row, "ink": _on(fills[row["shown"]])} for row in rows]
    longest = max(len(row["text"]) for row in rows)
    cell = max(74, min(190, 7 * longest + 16))
    blocks, threads = _ordered(rows, "block", "block_size"), sorted({row["threads"] for row in rows})
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
    chart = alt.layer(fields, words, data=_named("rows")).properties(width=alt.Step(cell), height=alt.Step(34))
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
    chart = alt.layer(shade, one, spans, dots, data=_named("rows")).properties(
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
    chart = _panels(alt.layer(whole, steady, start, data=_named("rows")), order)
    return Drawing(chart.resolve_scale(y="independent"), {"rows": list(rows)})


def latency_curves(rows: Sequence[Row], palette: Palette) -> Drawing:
    """Cumulative distribution of latency (merged histograms of all clients), logarithmic in time."""
    order = list(dict.fromkeys(row["point"] for row in rows))
    directions = sorted({row["direction"] for row in rows})
    mixed = len({(row["point"], row["direction"]) for row in rows}) > len(order)
    dash = alt.StrokeDash("direction:N", sort=directions, legend=alt.Legend(title="Direction", orient="top"))
    chart = (
        alt.Chart(_named("rows"))
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
    return chart.properties(width=PANEL, height=130).facet(facet=facet, columns=_columns(len(order), PANEL))
