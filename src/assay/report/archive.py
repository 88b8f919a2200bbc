"""Plots of a fitted file-size profile: CDF and CCDF on log axes, with the archives, the centre and the envelopes."""

from __future__ import annotations

from typing import Any

import altair as alt
import vl_convert as vlc

from assay.archive.fit import Profile
from assay.report.drawing import COLOURS

_WIDTH, _HEIGHT = 420, 300
_CENTRE = "#111111"
_BANDS = ("#9DB7D5", "#D5E1EE")  # the narrow envelope darker
_SMALLEST = 1e-7  # share that the CCDF still shows


def _rows(profile: Profile, complement: bool) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    lines, bands = [], []

    def value(f: float) -> float | None:
        share = 1 - f if complement else f
        return share if share > _SMALLEST or not complement else None

    for i in range(profile.cut):
        size = 2.0 ** (i + 1) * 1024
        lines.append({"size": size, "share": value(profile.median[i]), "curve": "centre", "kind": "fit"})
        for name, f in zip(profile.archives, profile.empirical[:, i], strict=True):
            lines.append({"size": size, "share": value(f), "curve": name, "kind": "data"})
        for e in profile.envelopes:
            low, high = value(e.upper[i] if complement else e.lower[i]), value(e.lower[i] if complement else e.upper[i])
            bands.append({"size": size, "low": low if low is not None else _SMALLEST, "high": high,
                          "level": f"{round(100 * e.level)} %"})  # fmt: skip
    return [r for r in lines if r["share"] is not None], [r for r in bands if r["high"] is not None]


def _panel(profile: Profile, complement: bool) -> Any:
    lines, bands = _rows(profile, complement)
    x = alt.X(
        "size:Q", title="file size (bytes), half-open buckets", scale=alt.Scale(type="log", base=2),
        axis=alt.Axis(labelExpr="datum.value >= 1073741824 ? datum.value / 1073741824 + ' GiB' : datum.value >= 1048576 ? "
                      "datum.value / 1048576 + ' MiB' : datum.value / 1024 + ' KiB'", tickCount=6),
    )  # fmt: skip
    scale = alt.Scale(type="log", domain=[_SMALLEST, 1]) if complement else alt.Scale(domain=[0, 1])
    title = "share of files at or above the size" if complement else "share of files below the size"
    y = alt.Y("share:Q", title=title, scale=scale)
    layers: list[Any] = []
    for e, colour in reversed(list(zip(profile.envelopes, _BANDS, strict=False))):
        level = f"{round(100 * e.level)} %"
        data = alt.Data(values=[r for r in bands if r["level"] == level])
        layers.append(
            alt.Chart(data).mark_area(color=colour, opacity=0.8).encode(
                x=x, y=alt.Y("low:Q", title=title, scale=scale), y2="high:Q"
            )
        )  # fmt: skip
    colours = alt.Scale(
        domain=list(profile.archives), range=[COLOURS[i % len(COLOURS)] for i in range(len(profile.archives))]
    )
    layers.append(
        alt.Chart(alt.Data(values=[r for r in lines if r["kind"] == "data"])).mark_point(size=26, filled=True).encode(
            x=x, y=y, color=alt.Color("curve:N", scale=colours, legend=alt.Legend(title="archive", orient="bottom", columns=2,
                                                                              labelLimit=260)),
        )
    )  # fmt: skip
    layers.append(
        alt.Chart(alt.Data(values=[r for r in lines if r["kind"] == "fit"]))
        .mark_line(color=_CENTRE, strokeWidth=2)
        .encode(x=x, y=y)
    )
    return alt.layer(*layers).properties(width=_WIDTH, height=_HEIGHT, title="CCDF" if complement else "CDF")


def fit_plots(profile: Profile) -> dict[str, bytes]:
    """``fit.svg`` and ``fit.png``: the centre as a line, archives as points, envelopes as bands."""
    said = " and ".join(f"{round(100 * e.level)} %" for e in profile.envelopes)
    what = f"envelopes {said} ({profile.envelopes[0].method})" if said else "no envelope"
    chart = alt.hconcat(
        _panel(profile, False),
        _panel(profile, True),
        title=f"{profile.name}: {profile.model}, {profile.mode} mode, {what}",
    )
    spec = chart.to_json()
    return {"fit.svg": vlc.vegalite_to_svg(spec).encode(), "fit.png": vlc.vegalite_to_png(spec, scale=2)}


def difference_plots(comparison: list[dict[str, Any]]) -> dict[str, bytes]:
    """``difference.svg`` and ``.png``: bars of the difference from the archives' mean, as in the paper's Figures 2 and 3;
    empty when no archives were run."""
    rows = [r for r in comparison if r["percent"] is not None]
    if not rows:
        return {}
    chart = (
        alt.Chart(alt.Data(values=rows))
        .mark_bar()
        .encode(
            x=alt.X("cell:N", title="fileset", sort=None, axis=alt.Axis(labelAngle=-40)),
            xOffset=alt.XOffset("share:N", sort=None),
            y=alt.Y("percent:Q", title="difference from the archives' mean (%)"),
            color=alt.Color("share:N", sort=None, title="of capacity", scale=alt.Scale(range=list(COLOURS))),
        )
        .properties(width=max(240, 60 * len({r["cell"] for r in rows})), height=_HEIGHT)
        .facet(column=alt.Column("threads:O", title="reading threads"))
    )
    spec = chart.to_json()
    return {
        "difference.svg": vlc.vegalite_to_svg(spec).encode(),
        "difference.png": vlc.vegalite_to_png(spec, scale=2),
    }
