"""What is drawn is what was measured: marks in SVG and pixels in PNG against the analysis."""

from __future__ import annotations

import math
from collections import defaultdict

import numpy as np
import pytest
import vl_convert
from drawn import Mark, area, marks, pixels
from synthetic import LINK, Spec, lab_spec, study_data

from assay.campaign.analysis import Analysis, analyse
from assay.report import drawing, frames, papers
from assay.report.figures import Figure, build

HEIGHT = 190  # pixels of a panel of bars


@pytest.fixture(scope="module")
def study() -> tuple[Analysis, dict[str, Figure]]:
    data = study_data(lab_spec(blocks=4))
    analysis = analyse(data)
    return analysis, {figure.id: figure for figure in build(data, analysis)}


def svg_of(figure: Figure) -> str:
    return vl_convert.vegalite_to_svg(figure.spec)


def cells_of(analysis: Analysis, pattern: str, labels: tuple[str, ...]) -> dict[tuple[str, str, int], float]:
    """(candidate, block, threads) -> MB/s"""
    blocks = {4096: "4 KiB", 131072: "128 KiB", 1 << 20: "1 MiB"}
    return {
        (c.candidate, blocks[c.point["block_size"]], c.point["threads"]): c.intervals["bandwidth"].estimate / 1e6
        for c in analysis.cells
        if c.candidate in labels and c.point["pattern"] == pattern and c.n
    }


RAIN = ("glusterfs/rain-4-2", "ceph/rain-4-2")


@pytest.mark.parametrize(
    ("figure", "pattern", "labels"),
    [
        ("bandwidth-write", "write", ("glusterfs/distributed", "glusterfs/replicated-3", *RAIN, "local/xfs")),
        ("layout-rain-bandwidth-write", "write", RAIN),
        ("layout-rain-bandwidth-read", "read", RAIN),
        ("layout-none-bandwidth-read", "read", ("local/xfs",)),
    ],
)
def test_bars_are_the_cells_and_as_high_as_their_values(
    study: tuple[Analysis, dict[str, Figure]], figure: str, pattern: str, labels: tuple[str, ...]
) -> None:
    analysis, figures = study
    wanted = cells_of(analysis, pattern, labels)
    bars = marks(svg_of(figures[figure]), "bar")
    drawn = {(m.says["candidate"], m.says["Block size"], int(m.says["Threads"])): m for m in bars}
    assert len(bars) == len(drawn)
    assert drawn.keys() == wanted.keys()
    palette = drawing.Palette(analysis.subjects)
    pixels_per_megabyte = None
    for key, mark in drawn.items():
        assert mark.number("Bandwidth, MB/s") == pytest.approx(wanted[key], rel=1e-3)
        assert mark.colour == palette.colour_of(key[0])
        assert mark.top + mark.height == pytest.approx(HEIGHT)
        if mark.number("Bandwidth (MB/s)") < wanted[key] * 0.999:  # cut off: its figure is written into it
            assert key[0] == "local/xfs"
            continue
        scale = mark.height / wanted[key]
        pixels_per_megabyte = pixels_per_megabyte or scale
        assert scale == pytest.approx(pixels_per_megabyte, rel=1e-3)


def test_bars_that_are_cut_off_carry_their_figure(study: tuple[Analysis, dict[str, Figure]]) -> None:
    analysis, figures = study
    svg = svg_of(figures["bandwidth-write"])
    wanted = cells_of(analysis, "write", ("local/xfs",))
    cut = {m.says["candidate"]: m for m in marks(svg, "text mark") if "↑" in m.text}
    assert set(cut) == {"local/xfs"}
    shown = sorted(float(m.text.split()[0].replace(",", "")) for m in marks(svg, "text mark") if "↑" in m.text)
    top = max(m.number("Bandwidth (MB/s)") for m in marks(svg, "bar"))
    assert shown == pytest.approx(sorted(v for v in wanted.values() if v > top), rel=6e-3)
    assert "↑" not in svg_of(figures["layout-none-bandwidth-write"])


def test_the_bound_is_one_line_where_all_share_it(study: tuple[Analysis, dict[str, Figure]]) -> None:
    _, figures = study
    svg = svg_of(figures["layout-rain-bandwidth-read"])
    bars = marks(svg, "bar")
    scale = bars[0].height / bars[0].number("Bandwidth (MB/s)")
    rules = [m for m in marks(svg, "rule mark") if m.colour == papers.BOUND]
    assert len(rules) == 2  # panels: 1 and 8 threads
    for rule in rules:
        assert HEIGHT - rule.top == pytest.approx(scale * LINK / 1e6, rel=1e-3)
        assert rule.width >= 130  # across the panel
        assert rule.says["Bound by"].startswith("client in: 1 byte per byte read")
    words = [m.text for m in marks(svg, "text mark")]
    assert words == ["network bound 120 MB/s"] * 2
    assert not marks(svg, "tick")


def test_bounds_that_differ_lie_over_their_bars(study: tuple[Analysis, dict[str, Figure]]) -> None:
    _, figures = study
    svg = svg_of(figures["layout-rain-bandwidth-write"])
    bars = marks(svg, "bar")
    scale = bars[0].height / bars[0].number("Bandwidth (MB/s)")
    overhead = {"glusterfs/rain-4-2": 1.5, "ceph/rain-4-2": 1.0}
    ticks = marks(svg, "tick")
    assert len(ticks) == len(bars) == 8
    for tick in ticks:
        assert HEIGHT - (tick.top + tick.height / 2) == pytest.approx(
            scale * LINK / 1e6 / overhead[tick.says["candidate"]], rel=0.01
        )
    assert [m.text for m in marks(svg, "text mark")] == ["79.7", "120"] * 4


def test_a_bound_beyond_the_axis_is_told_in_words() -> None:
    slow = {"glusterfs/distributed": 0.02}
    data = study_data(
        lab_spec(candidates=tuple(slow), factors=slow, patterns=("write",), block_sizes=(4096,), threads=(1,), blocks=3)
    )
    figures = {f.id: f for f in build(data, analyse(data))}
    svg = svg_of(figures["bandwidth-write"])
    assert not [m for m in marks(svg, "rule mark") if m.colour == papers.BOUND]
    assert [m.text for m in marks(svg, "text mark")] == ["↑ network bound 120 MB/s"]


@pytest.mark.parametrize("figure", ["trend-write", "layout-rain-trend-write"])
def test_trends_are_the_cells_on_logarithmic_axes(study: tuple[Analysis, dict[str, Figure]], figure: str) -> None:
    analysis, figures = study
    svg = svg_of(figures[figure])
    labels = RAIN if figure.startswith("layout") else analysis.subjects
    for metric, title, factor in (
        ("bandwidth", "Bandwidth (MB/s)", 1e-6),
        ("iops", "IOPS (1/s)", 1.0),
        ("latency-mean", "Mean latency (ms)", 1e3),
    ):
        points = [m for m in marks(svg, "point") if title in m.says]
        cells = [c for c in analysis.cells if c.candidate in labels and c.point["pattern"] == "write"]
        shown = sorted((m.says["candidate"], int(m.says["Threads"]), m.number(title)) for m in points)
        wanted = sorted((c.candidate, c.point["threads"], c.intervals[metric].estimate * factor) for c in cells)
        assert [s[:2] for s in shown] == [w[:2] for w in wanted]
        assert [s[2] for s in shown] == pytest.approx([w[2] for w in wanted], rel=1e-3)
        _on_a_line([math.log(m.number(title)) for m in points], [m.top + m.height / 2 for m in points], tolerance=1.0)
        lines = [m for m in marks(svg, "line mark") if title in m.says and "candidate" in m.says]
        assert len(lines) == 2 * len(labels)  # one per candidate and block size


def _on_a_line(x: list[float], y: list[float], tolerance: float) -> None:
    fit = np.polyfit(x, y, 1)
    assert float(np.abs(np.polyval(fit, x) - np.array(y)).max()) <= tolerance
    assert fit[0] < 0  # larger values lie higher


def test_bounds_in_trends(study: tuple[Analysis, dict[str, Figure]]) -> None:
    _, figures = study
    (first, *_), (iops, *_) = (figures["layout-rain-trend-write"].spec["datasets"][f"rows{i}"] for i in (0, 1))
    assert {"mark", "quantity", "value"} <= first.keys() & iops.keys()
    rows = figures["layout-rain-trend-write"].spec["datasets"]
    bounds: dict[str, set[float]] = defaultdict(set)
    for row in rows["rows0"]:
        if row["mark"] == "bound":
            bounds[row["owner"]].add(round(row["value"], 1))
    assert bounds == {"glusterfs/rain-4-2": {79.7}, "ceph/rain-4-2": {119.5}} or bounds == {
        "glusterfs/rain-4-2": {79.7},
        "ceph/rain-4-2": {119.6},
    }
    in_operations = {row["value"] for row in rows["rows1"] if row["mark"] == "bound" and row["panel"] == "4 KiB"}
    assert max(in_operations) == pytest.approx(LINK / 4096, rel=1e-3)
    assert not [row for row in rows["rows2"] if row["mark"] == "bound"]  # latencies have none
    svg = svg_of(figures["layout-rain-trend-read"])
    words = [m.text for m in marks(svg, "text mark")]
    assert words.count("network bound 120") == 2
    assert svg.count("stroke-dasharray") >= 4


def test_an_endless_interval_does_not_press_the_lines_together() -> None:
    """Intervals from two blocks of a noisy system span many orders of magnitude."""
    noisy = {"local/xfs": 1.5}
    data = study_data(
        lab_spec(candidates=("local/xfs",), noisy=noisy, patterns=("read",), block_sizes=(4096,), blocks=2, weather=1.0)
    )
    analysis = analyse(data)
    figure = next(f for f in build(data, analysis) if f.id == "trend-read")
    svg = svg_of(figure)
    (one, eight) = [m for m in marks(svg, "point") if "Bandwidth (MB/s)" in m.says]
    cells = [c.intervals["bandwidth"] for c in analysis.cells if c.role == "subject"]
    assert max(i.high for i in cells) / min(i.low for i in cells) > 1e6
    distance = abs(math.log(one.number("Bandwidth (MB/s)") / eight.number("Bandwidth (MB/s)")))
    assert abs(one.top - eight.top) > distance / math.log(16 * math.exp(distance)) * 100  # of 150 pixels


def test_ratios_lie_where_they_belong() -> None:
    data = study_data(Spec(block_sizes=(4096, 1 << 20), patterns=("read", "randwrite"), threads=(1,), blocks=6))
    analysis = analyse(data)
    figure = next(f for f in build(data, analysis) if f.id == "ratios")
    points = marks(svg_of(figure), "point")
    finite = [c for c in analysis.baseline_comparisons if c.ratio.is_finite]
    assert sorted(m.number("Ratio") for m in points) == pytest.approx(
        sorted(c.ratio.estimate for c in finite), rel=1e-3
    )
    x = [-math.log(m.number("Ratio")) for m in points]
    _on_a_line(x, [m.left + m.width / 2 for m in points], tolerance=1.0)


@pytest.mark.parametrize("figure", ["bandwidth-write", "layout-rain-bandwidth-read"])
def test_no_bar_is_missing_in_the_png(study: tuple[Analysis, dict[str, Figure]], figure: str) -> None:
    """The renderer of PNGs once dropped clipped bars that the SVG had."""
    analysis, figures = study
    spec = {**figures[figure].spec, "background": "white"}
    image = pixels(vl_convert.vegalite_to_png(spec, scale=1.0))
    wanted: dict[str, float] = defaultdict(float)
    for mark in marks(vl_convert.vegalite_to_svg(spec), "bar"):
        wanted[mark.colour] += mark.width * mark.height
    assert set(wanted) == {drawing.Palette(analysis.subjects).colour_of(m) for m in _shown(figures[figure])}
    for colour, expected in wanted.items():
        # whiskers and figures lie over the bars, and their edges are blurred; the legend adds a square
        assert area(image, colour) == pytest.approx(expected, rel=0.15, abs=200)


def _shown(figure: Figure) -> set[str]:
    return {row["candidate"] for row in figure.spec["datasets"]["rows"] if row["mark"] == "bar"}


def test_colours_and_shapes_of_a_candidate_are_its_own_in_every_chart() -> None:
    palette = drawing.Palette(("a", "b", "c"))
    assert palette.only(["c"]).colour_of("c") == palette.colour_of("c")
    assert palette.only(["c"]).scale.to_dict() == {"domain": ["c"], "range": [drawing.COLOURS[2]]}
    assert palette.only(["c"]).shapes.to_dict()["range"] == [drawing.SHAPES[2]]


def test_layout_groups(study: tuple[Analysis, dict[str, Figure]]) -> None:
    analysis, figures = study
    data = study_data(lab_spec(blocks=4))
    assert frames.layouts(data, analysis) == {
        "distributed": ("glusterfs/distributed",),
        "replicated": ("glusterfs/replicated-3",),
        "rain": RAIN,
        "none": ("local/xfs",),
    }
    assert figures["layout-rain-bandwidth-write"].title == "RAIN layout, write: bandwidth"
    local = study_data(Spec(block_sizes=(4096,), patterns=("read",), blocks=3))
    assert not [f for f in build(local, analyse(local)) if f.section == "layouts"]


def test_marks_are_read_from_paths() -> None:
    square = '<svg><path aria-label="a: 1; b: x" aria-roledescription="bar" fill="#fff" d="M1,2h3v4h-3Z"/></svg>'
    assert marks(square, "bar") == [Mark("bar", {"a": "1", "b": "x"}, 1, 2, 3, 4, "#fff", "")]
