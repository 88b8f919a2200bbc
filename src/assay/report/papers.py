"""The figures of the papers: bars of bandwidth by threads and block size, trends of bandwidth, IOPS and latency, both with
what the network lets through."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import altair as alt

from assay.report.drawing import Drawing, Palette, Row, columns_for, ink_on, named, ordered
from assay.report.format import number

BOUND = "#B3261E"
_BOUND_STYLE: dict[str, Any] = {"strokeWidth": 1.5, "strokeDash": [5, 3], "color": BOUND}
#: A bound further above the highest bar than this is told in words: drawn, it would press all bars to the ground.
_FAR = 2.5
_LEAST = 4.0  # factor between the ends of a logarithmic axis
_NARROWEST_NUMBER = 25  # pixels per bar that a figure of three digits still fits on
_BOUND_TIPS = [
    alt.Tooltip("share:N", title="Reached"),
    alt.Tooltip("bound:Q", title="Network's bound, MB/s", format=",.4~g"),
    alt.Tooltip("limit:N", title="Bound by"),
]
TREND_HEIGHT = 150  # height of a panel of trends, pixels
LETTERS = 17  # height that a line of words needs, pixels


def bandwidth_bars(rows: Sequence[Row], palette: Palette) -> Drawing:
    """Bars per block size, one panel per number of threads, as the papers draw them; whiskers are intervals. The network's
    bound is one line across a panel where all bars share it, else a short line over each bar."""
    blocks = ordered(rows, "block", "block_size")
    x = alt.X("block:N", sort=blocks, title="Block size", axis=alt.Axis(labelAngle=0))
    offset = alt.XOffset("candidate:N", sort=list(palette.shown))
    width = max(130, min(420, 26 * len(blocks) * max(1, len(palette.shown))))
    top = _axis_top(rows)
    scale = alt.Scale(zero=True, domain=[0, top], nice=False)  # nice would end the axis above bars that are cut off

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
        alt.layer(*layers, data=named("rows"))
        .properties(width=width, height=190)
        .facet(
            facet=alt.Facet(
                "threads:O",
                title=None,
                header=alt.Header(labelExpr="'Threads: ' + datum.value", labelFontWeight="bold"),
            ),
            columns=columns_for(len({row["threads"] for row in rows}), width),
        )
        .resolve_scale(x="shared")
    )
    return Drawing(chart, {"rows": [*bars, *marks]})


def _bar(row: Row, top: float, palette: Palette) -> Row:
    """A bar, cut off at the top of the axis with its figure written into it when it is higher."""
    over = row["value"] > top
    ink = ink_on(palette.colour_of(row["candidate"]))
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
    panels = ordered(rows, "panel", "order")
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
        mine = [row for row in rows if row["quantity"] == quantity]
        low, high = _range(mine)
        y = alt.Y("value:Q", title=quantity, scale=alt.Scale(type="log", nice=False, padding=14, domain=[low, high]))
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
        bars = base.mark_rule(strokeWidth=1.5, clip=True).encode(y=alt.Y("low:Q", title=quantity), y2="high:Q")
        limits = _bound_lines(mine, palette, (high / low) ** (LETTERS / TREND_HEIGHT))
        layers: list[Any] = [lines, bars, dots]
        if limits:
            layers += _limit_layers(x, y)
        stacked.append(
            alt.layer(*layers, data=named(f"rows{i}"))
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


def _range(rows: Sequence[Row]) -> tuple[float, float]:
    """Ends of a logarithmic axis, a factor of _LEAST apart at least: or noise of a few percent would fill a panel. An
    interval from two blocks may span ten orders of magnitude, so whiskers are cut off a factor of _LEAST beyond the rest."""
    shown = [v for row in rows for v in (row["value"], row["bound"]) if v]
    whiskers = [v for row in rows for v in (row["low"], row["high"]) if v]
    low = max(min([*whiskers, *shown]), min(shown) / _LEAST)
    high = min(max([*whiskers, *shown]), max(shown) * _LEAST)
    middle, half = math.sqrt(low * high), math.sqrt(_LEAST)
    return min(low, middle / half), max(high, middle * half)


def _bound_lines(rows: Sequence[Row], palette: Palette, closest: float) -> list[Row]:
    """The bounds of one quantity as lines over x: one for all candidates of a panel where they share it, else one each.
    Lines nearer to the one above than a factor of ``closest`` get no words."""
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
