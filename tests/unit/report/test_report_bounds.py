"""Shares of the network's bound, the same in every table."""

from __future__ import annotations

import polars as pl
import pytest
from rich.console import Console
from synthetic import LINK, Spec, lab_spec, study_data

from assay.campaign.analysis import Analysis, analyse
from assay.ledger.queries import StudyData
from assay.report import tables, terminal
from assay.report.bounds import BoundWords, bound_words, share_words
from assay.report.markdown import render_markdown
from assay.report.page import render_html

WRITE_BOUND = {  # MB/s
    "glusterfs/distributed": LINK / 1e6,
    "glusterfs/replicated-3": LINK / 3e6,
    "glusterfs/rain-4-2": LINK / 1.5e6,
    "ceph/rain-4-2": LINK / 1e6,  # its primary sends the fragments
    "local/xfs": None,
}


@pytest.fixture(scope="module")
def data() -> StudyData:
    return study_data(lab_spec())


@pytest.fixture(scope="module")
def analysis(data: StudyData) -> Analysis:
    return analyse(data)


def test_cells_table(analysis: Analysis) -> None:
    for row in tables.cells_table(analysis).filter(role="subject", pattern="write").iter_rows(named=True):
        wanted = WRITE_BOUND[row["candidate"]]
        if wanted is None:
            assert (row["bound_mb_s"], row["share_of_bound"], row["bound_reason"]) == (None, None, None)
            continue
        assert row["bound_mb_s"] == pytest.approx(wanted)
        assert row["share_of_bound"] == pytest.approx(row["bandwidth_mb_s"] / wanted)
        assert row["bound_reason"].startswith("client out: ")


def test_attempts_table(data: StudyData, analysis: Analysis) -> None:
    table = tables.attempts_table(data, analysis)
    assert len(table) == len(data.attempts)
    bounded = table.filter(pl.col("bound_mb_s").is_not_null())
    assert set(bounded["candidate"]) == {*WRITE_BOUND, "glusterfs/distributed (A/A)"} - {"local/xfs"}
    recomputed = (bounded["bandwidth_mb_s"] / bounded["bound_mb_s"]).to_list()
    assert bounded["share_of_bound"].to_list() == pytest.approx(recomputed)


def test_page_markdown_and_terminal_say_the_same_shares(data: StudyData, analysis: Analysis) -> None:
    cell = next(c for c in analysis.cells if c.candidate == "glusterfs/rain-4-2" and c.workload == "write 1MiB 8 thr")
    words = bound_words(analysis, cell)
    assert words is not None
    assert words.title == "bound 79.7 MB/s: client out: 1.5 bytes per byte written"
    assert words.share == pytest.approx(cell.intervals["bandwidth"].estimate / (LINK / 1.5))
    page = render_html(data, analysis, [])
    assert f"{words.share_text} of bound" in page
    assert f'title="{words.title}"' in page
    row = next(line for line in render_markdown(data, analysis).splitlines() if line.startswith("| write 1MiB 8 thr"))
    assert row.count("of bound") == 4  # not the local disk
    assert f"; {words.share_text} of bound" in row
    assert "- glusterfs/rain-4-2: bound 79.7 MB/s: client out: 1.5 bytes per byte" in render_markdown(data, analysis)
    console = Console(width=240, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(terminal.verdict_table(analysis), terminal.cells_table(analysis))
    assert f"MB/s, {words.share_text} of bound" in console.export_text()


def test_without_bounds_nothing_is_said() -> None:
    data = study_data(Spec(block_sizes=(4096,), patterns=("read",), threads=(1,), blocks=3))
    analysis = analyse(data)
    cells = tables.cells_table(analysis)
    assert cells["share_of_bound"].null_count() == len(cells)
    assert tables.attempts_table(data, analysis)["share_of_bound"].null_count() == len(data.attempts)
    assert "of bound" not in render_markdown(data, analysis)
    assert "<th" in (page := render_html(data, analysis, []))
    assert "Network's bound" not in page
    assert not [s for s in analysis.sentences if "network" in s]


def test_words() -> None:
    assert [share_words(s) for s in (None, 0.004, 0.953, 0.999, 1.0, 1.044)] == [
        "–", "0.40 %", "95 %", "99.9 %", "100 %", "104 %",
    ]  # fmt: skip
    assert BoundWords(100.0, 1.05, "", True).above
    assert not BoundWords(100.0, 1.01, "", True).above
    assert BoundWords(100.0, None, "", False).text == ""
    assert "as measured, not shaped" in BoundWords(100.0, 0.5, "client in", False).title
