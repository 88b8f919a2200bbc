"""Charts of a trace's characterisation, as SVG files."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import altair as alt
import vl_convert

READ, WRITE, OTHER = "#0072B2", "#E69F00", "#009E73"
_MIB = 1 << 20


def write_charts(info: dict[str, Any], directory: Path) -> list[Path]:
    """Write mix.svg (bytes over time), operations.svg (rate over time) and sizes.svg; returns their paths."""
    directory.mkdir(parents=True, exist_ok=True)
    written = []
    for name, chart in (("mix", _mix(info)), ("operations", _operations(info)), ("sizes", _sizes(info))):
        path = directory / f"{name}.svg"
        path.write_text(vl_convert.vegalite_to_svg(chart.properties(width=640, height=240).to_dict()))
        written.append(path)
    return written


def _colour(*names: str) -> alt.Color:
    return alt.Color("kind:N", title=None, scale=alt.Scale(domain=list(names), range=[READ, WRITE][: len(names)]))


def _mix(info: dict[str, Any]) -> alt.Chart:
    width = info["interval_seconds"]
    rows = [
        {"seconds": at * width, "rate": moved / width / _MIB, "kind": kind}
        for at, (read, written, _) in enumerate(info["mix"])
        for kind, moved in (("read", read), ("written", written))
    ]
    return alt.Chart(alt.Data(values=rows), title="Bytes moved").mark_area(opacity=0.7, interpolate="step").encode(
        x=alt.X("seconds:Q", title="Time, s"),
        y=alt.Y("rate:Q", title="MiB/s", stack=True),
        color=_colour("read", "written"),
    )  # fmt: skip


def _operations(info: dict[str, Any]) -> alt.Chart:
    width = info["interval_seconds"]
    rows = [{"seconds": at * width, "rate": count / width} for at, (_, _, count) in enumerate(info["mix"])]
    return alt.Chart(alt.Data(values=rows), title="Operations").mark_line(color=OTHER, interpolate="step").encode(
        x=alt.X("seconds:Q", title="Time, s"), y=alt.Y("rate:Q", title="Operations/s")
    )  # fmt: skip


def _sizes(info: dict[str, Any]) -> alt.Chart:
    rows = [
        {"size": size, "share": count, "kind": kind}
        for kind, bins in (("read", info["read_sizes"]), ("written", info["write_sizes"]))
        for size, count in bins
    ]
    return alt.Chart(alt.Data(values=rows), title="Sizes of requests").mark_bar().encode(
        x=alt.X("size:O", title="Up to, bytes"),
        y=alt.Y("share:Q", title="Requests"),
        color=_colour("read", "written"),
        xOffset="kind:N",
    )  # fmt: skip
