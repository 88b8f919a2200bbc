"""What all charts share: colours, shapes, panels, and a definition with its rows.

Functions of :mod:`assay.report.charts` and :mod:`assay.report.papers` take rows of :mod:`assay.report.frames` and a
:class:`Palette` and return a :class:`Drawing`; no data are computed there. Every axis has its unit in the title. Types are
always explicit because rows are embedded as they are.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import altair as alt

Row = dict[str, Any]

#: Okabe and Ito's colours, distinct for colour-blind readers; then three more for large studies.
COLOURS = (
    "#0072B2", "#E69F00", "#009E73", "#CC79A7", "#56B4E9", "#D55E00", "#8A7FC7", "#B8A100", "#7A8A99", "#A0522D",
)  # fmt: skip
SHAPES = ("circle", "square", "cross", "diamond", "triangle-up", "triangle-down", "triangle-right", "triangle-left")
PANEL = 270  # width of a panel, pixels
COLUMNS = 3


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


def ordered(rows: Sequence[Row], label: str, by: str) -> list[str]:
    """The labels of rows, in order of another field."""
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


def named(name: str) -> alt.NamedData:
    """Rows that come later, by name."""
    return alt.NamedData(name=name)


def columns_for(panels: int, width: int) -> int:
    """As many columns as fit on a page, if possible such that the last row is full: an empty place still gets an axis."""
    most = max(1, min(panels, 1080 // (width + 22)))
    full = [n for n in range(2, most + 1) if panels % n == 0]
    return max(full, default=most)


def ink_on(background: str) -> str:
    """Black or white, whichever can be read on a colour ``#RRGGBB``."""
    red, green, blue = (int(background[i : i + 2], 16) for i in (1, 3, 5))
    return "#14181F" if 0.299 * red + 0.587 * green + 0.114 * blue > 128 else "#FFFFFF"
