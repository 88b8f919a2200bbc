"""Writing reports: every file under a temporary name first, then renamed, so that no half report is ever seen."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from assay.campaign.analysis import Analysis
    from assay.ledger.queries import StudyData
    from assay.report.figures import Figure

FORMATS = frozenset({"html", "md", "csv", "parquet", "png", "svg"})
_DRAWN = {"html", "png", "svg"}
_PNG_SCALE = 2.0  # pixels per point: sharp on paper and on dense screens


def write_report(
    data: StudyData, analysis: Analysis, directory: Path, formats: Iterable[str] = ("html",)
) -> list[Path]:
    """Write the report in each format and return the files, in order of format.

    ``report.html`` and ``report.md``; ``cells``, ``comparisons``, ``attempts`` and ``checks`` as CSV and Parquet;
    one PNG or SVG per chart in ``charts/``. The charts are drawn in this process: no browser, no network.

    Raises ValueError for an unknown format and OSError when the directory cannot be written.
    """
    wanted = set(formats)
    if unknown := wanted - FORMATS:
        raise ValueError(f"unknown report format {sorted(unknown)[0]!r}; known: {', '.join(sorted(FORMATS))}")
    directory.mkdir(parents=True, exist_ok=True)
    figures: list[Figure] = []
    if wanted & _DRAWN:
        from assay.report.figures import build

        figures = build(data, analysis)
    written: list[Path] = []
    if "html" in wanted:
        from assay.report.page import render_html

        written.append(_text(directory / "report.html", render_html(data, analysis, figures)))
    if "md" in wanted:
        from assay.report.markdown import render_markdown

        written.append(_text(directory / "report.md", render_markdown(data, analysis)))
    if wanted & {"csv", "parquet"}:
        written += _tables(data, analysis, directory, wanted)
    for kind in ("png", "svg"):
        if kind in wanted:
            (directory / "charts").mkdir(exist_ok=True)
            written += [_chart(figure, directory / "charts", kind) for figure in figures]
    return written


def _atomically(path: Path, write: Callable[[Path], object]) -> Path:
    temporary = path.with_name(f".{path.name}.{os.getpid()}.tmp")
    try:
        write(temporary)
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise
    return path


def _text(path: Path, text: str) -> Path:
    return _atomically(path, lambda temporary: temporary.write_text(text, encoding="utf-8"))


def _tables(data: StudyData, analysis: Analysis, directory: Path, wanted: set[str]) -> list[Path]:
    from assay.report.tables import all_tables

    written = []
    for name, frame in all_tables(data, analysis).items():
        if "csv" in wanted:
            written.append(_atomically(directory / f"{name}.csv", frame.write_csv))
        if "parquet" in wanted:
            written.append(_atomically(directory / f"{name}.parquet", frame.write_parquet))
    return written


def _chart(figure: Figure, directory: Path, kind: str) -> Path:
    import vl_convert

    spec = figure.spec
    spec["background"] = "white"
    if kind == "svg":
        return _text(directory / f"{figure.id}.svg", vl_convert.vegalite_to_svg(spec))
    image = vl_convert.vegalite_to_png(spec, scale=_PNG_SCALE)
    return _atomically(directory / f"{figure.id}.png", lambda temporary: temporary.write_bytes(image))
