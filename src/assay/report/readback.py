"""Reading finished reports back, as a reader would: visible words and tables of decisions, nothing else.

This shares no code with what writes the reports, so that a template that loses a row is noticed (rules C1 and C9, see
:mod:`assay.campaign.rendered`).
"""

from __future__ import annotations

import html
import re
from collections import Counter
from collections.abc import Iterable, Sequence
from html.parser import HTMLParser
from pathlib import Path

from assay.campaign.rendered import Rendered
from assay.checks.subjects import TableView

_SIGNS = {"▲": "faster", "▼": "slower", "=": "equivalent", "?": "undecided"}
#: ``▲ faster`` in a cell of the page, ``▲ **1.23**`` in one of Markdown.
_DECISION = re.compile(r"([▲▼=?]) (?:(?:better|worse|faster|slower|equivalent|undecided)\b|\*\*)")
#: Tables of decisions that a document must have: one that is missing shows no row.
_ON_PAGE, _IN_MARKDOWN = ("candidates", "verdict", "all comparisons"), ("candidates", "verdict")
_UNSEEN = ("script", "style", "title")


def read_back(files: Iterable[Path], baseline: str | None) -> list[Rendered]:
    """What the written files show; those that show neither words nor decisions are left out. ``baseline``: label that
    the verdict tables compare with. Raises OSError."""
    found = []
    for file in files:
        if file.suffix == ".html":
            found.append(read_html(file.name, file.read_text(encoding="utf-8"), baseline))
        elif file.suffix == ".md":
            found.append(read_markdown(file.name, file.read_text(encoding="utf-8"), baseline))
        elif file.name in ("comparisons.csv", "comparisons.parquet"):
            found.append(Rendered(file.name, (_read_frame(file),), None))
    return found


def read_html(name: str, text: str, baseline: str | None) -> Rendered:
    """The page."""
    page = _Page()
    page.feed(text)
    page.close()
    return Rendered(name, _views(page.tables, baseline, _ON_PAGE), _plain(page.words))


def read_markdown(name: str, text: str, baseline: str | None) -> Rendered:
    """The summary in Markdown."""
    tables: list[list[list[str]]] = []
    inside = False
    for line in text.splitlines():
        if line.startswith("| "):
            if not inside:
                tables.append([])
            tables[-1].append([_unescaped(cell) for cell in line[2:].removesuffix(" |").split(" | ")])
        inside = line.startswith("| ")
    return Rendered(name, _views(tables, baseline, _IN_MARKDOWN), _plain([_unescaped(text)]))


def _read_frame(file: Path) -> TableView:
    import polars as pl

    frame = pl.read_csv(file) if file.suffix == ".csv" else pl.read_parquet(file)
    mine = frame.filter(pl.col("family") == "candidates")["decision"]
    return TableView("all comparisons", dict(Counter(mine.to_list())))


def _views(tables: Iterable[list[list[str]]], baseline: str | None, expected: Sequence[str]) -> tuple[TableView, ...]:
    views = [view for table in tables if table and (view := _view(table[0], table[1:], baseline)) is not None]
    missing = [name for name in expected if name not in {view.name for view in views}]
    views += [TableView(name, {}, None if name == "all comparisons" else baseline) for name in missing]
    return tuple(views)


def _view(heads: Sequence[str], rows: Sequence[Sequence[str]], baseline: str | None) -> TableView | None:
    """A table of decisions, known by its heads; None for any other table."""
    columns = {_SIGNS[head[0]]: i for i, head in enumerate(heads) if head[:1] in _SIGNS and head[1:2] == " "}
    if len(columns) == len(_SIGNS):
        sums = {d: sum(int(row[i]) for row in rows if row[i].isdigit()) for d, i in columns.items()}
        return TableView("candidates", sums, baseline)
    every_pair = "a" in heads and "b" in heads
    columns_of_ratios = [i for i, head in enumerate(heads) if head.lower().endswith("(ratio)") or head == "Ratio"]
    if not columns_of_ratios:
        return None
    found = [_DECISION.search(row[i]) for row in rows for i in columns_of_ratios if i < len(row)]
    signs = Counter(_SIGNS[match[1]] for match in found if match)
    return TableView("all comparisons", dict(signs)) if every_pair else TableView("verdict", dict(signs), baseline)


def _plain(words: Iterable[str]) -> str:
    return " ".join(" ".join(words).split())


def _unescaped(markdown: str) -> str:
    return html.unescape(re.sub(r"\\(.)", r"\1", markdown))


class _Page(HTMLParser):
    """Visible words of a page, and its tables as rows of cells, the heads first."""

    def __init__(self) -> None:
        super().__init__(convert_charrefs=True)
        self.words: list[str] = []
        self.tables: list[list[list[str]]] = []
        self._cell: list[str] | None = None
        self._unseen = 0

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:  # noqa: ARG002
        if tag in _UNSEEN:
            self._unseen += 1
        elif tag == "table":
            self.tables.append([])
        elif tag == "tr" and self.tables:
            self.tables[-1].append([])
        elif tag in ("td", "th") and self.tables and self.tables[-1]:
            self._cell = []
        elif tag == "br":
            self.handle_data(" ")

    def handle_endtag(self, tag: str) -> None:
        if tag in _UNSEEN:
            self._unseen -= 1
        elif tag in ("td", "th") and self._cell is not None:
            self.tables[-1][-1].append(_plain(["".join(self._cell)]))
            self._cell = None

    def handle_data(self, data: str) -> None:
        if self._unseen:
            return
        self.words.append(data)
        if self._cell is not None:
            self._cell.append(data)
