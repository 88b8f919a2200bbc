"""Tables, Markdown, images, terminal output and ``assay compare``."""

from __future__ import annotations

import dataclasses
import math
import xml.etree.ElementTree as ET
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from polars.testing import assert_frame_equal
from rich.console import Console
from synthetic import HOSTILE, Spec, study_data

from assay.campaign.analysis import Analysis, analyse
from assay.ledger.queries import StudyData
from assay.report import compare, frames, tables, terminal
from assay.report.export import write_report
from assay.report.figures import build
from assay.report.format import number, significant, span
from assay.report.markdown import escape, render_markdown
from assay.stats.compare import Decision
from assay.stats.intervals import Interval

SMALL = Spec(block_sizes=(4096, 1 << 20), patterns=("read", "randwrite"), threads=(1, 8))


@pytest.fixture(scope="module")
def data() -> StudyData:
    return study_data(SMALL)


@pytest.fixture(scope="module")
def analysis(data: StudyData) -> Analysis:
    return analyse(data)


def test_csv_and_parquet_hold_the_same_tables(data: StudyData, analysis: Analysis, tmp_path: Path) -> None:
    written = write_report(data, analysis, tmp_path, {"csv", "parquet"})
    assert sorted(p.name for p in written) == sorted(
        f"{t}.{k}" for t in ("attempts", "cells", "checks", "comparisons") for k in ("csv", "parquet")
    )
    for name, frame in tables.all_tables(data, analysis).items():
        assert_frame_equal(pl.read_parquet(tmp_path / f"{name}.parquet"), frame)
        again = pl.read_csv(tmp_path / f"{name}.csv", schema=frame.schema)
        # CSV cannot tell an empty text from none.
        texts = pl.col(pl.String).fill_null("")
        assert_frame_equal(again.with_columns(texts), frame.with_columns(texts))


def test_cells_table_recomputed(data: StudyData, analysis: Analysis) -> None:
    cells = tables.cells_table(analysis)
    good = data.attempts.filter((pl.col("status") == "finished") & (pl.col("verdict") != "invalid"))
    for row in cells.filter(pl.col("n") > 0).iter_rows(named=True):
        mine = good.filter(cell_id=row["cell_id"])
        assert row["n"] == len(mine)
        assert row["bandwidth_mb_s"] == pytest.approx(np.exp(np.log(mine["bandwidth"].to_numpy()).mean()) / 1e6)
        assert row["latency_p99_ms"] == pytest.approx(np.exp(np.log(mine["latency_p99"].to_numpy()).mean()) * 1e3)
        assert row["iops_per_s_arithmetic_mean"] == pytest.approx(mine["iops"].to_numpy().mean())


def test_attempts_table_keeps_every_attempt(data: StudyData, analysis: Analysis) -> None:
    table = tables.attempts_table(data, analysis)
    assert table["attempt_id"].to_list() == data.attempts["id"].to_list()
    expected = data.attempts["bandwidth"].drop_nulls().to_numpy().sum() / 1e6
    assert table["bandwidth_mb_s"].sum() == pytest.approx(expected)
    assert "failed" in table["status"]


def test_images_are_valid(tmp_path: Path) -> None:
    small = study_data(Spec(block_sizes=(4096, 65536), patterns=("read",), threads=(1,), blocks=3, failures=False))
    written = write_report(small, analyse(small), tmp_path, {"png", "svg"})
    assert {p.suffix for p in written} == {".png", ".svg"}
    assert len(written) == 2 * 7
    for path in written:
        content = path.read_bytes()
        if path.suffix == ".png":
            assert content.startswith(b"\x89PNG\r\n\x1a\n")
            assert content.endswith(b"IEND\xaeB`\x82")
        else:
            root = ET.fromstring(content)
            assert root.tag.endswith("svg")
            assert len(list(root.iter("{http://www.w3.org/2000/svg}path"))) > 5
    assert not list(tmp_path.rglob("*.tmp"))


def test_specifications_obey_the_schema(data: StudyData, analysis: Analysis) -> None:
    for figure in build(data, analysis):
        spec = figure.drawing.spec(validate=True)
        assert spec["datasets"]
        assert figure.alt
        assert figure.caption


def test_failed_write_leaves_the_old_report(
    data: StudyData, analysis: Analysis, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "report.md").write_text("old")

    def full_disk(*_: object) -> Path:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(Path, "replace", full_disk)
    with pytest.raises(OSError, match="No space"):
        write_report(data, analysis, tmp_path, {"md"})
    assert [p.name for p in tmp_path.iterdir()] == ["report.md"]
    assert (tmp_path / "report.md").read_text() == "old"


def test_unknown_format_is_refused(data: StudyData, analysis: Analysis, tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="unknown report format 'pdf'; known: csv, html"):
        write_report(data, analysis, tmp_path, {"pdf"})
    assert not list(tmp_path.iterdir())


def test_markdown(data: StudyData, analysis: Analysis) -> None:
    text = render_markdown(data, analysis)
    lines = text.splitlines()
    assert lines[0] == "## Which local file system serves small random writes best?"
    widths = {line.count("|") for line in lines if line.startswith("| read")}
    assert widths == {6}
    assert "▲ **1.25**" in text
    assert "harness floor (null)" in text
    assert "| btrfs | " in text


def test_markdown_escapes() -> None:
    data = study_data(dataclasses.replace(SMALL, candidates=(HOSTILE, "xfs"), blocks=3))
    text = render_markdown(data, analyse(data))
    assert "<script" not in text
    assert {line.count(" | ") for line in text.splitlines() if line.startswith("| read")} == {3}
    assert escape("a|b\n*c*") == "a\\|b \\*c\\*"


def test_winners_rows_tell_ties_and_undecided(data: StudyData, analysis: Analysis) -> None:
    rows = frames.winners(analysis, frames.points(data))
    by_kind = {row["kind"]: row for row in rows}
    assert by_kind["winner"]["shown"] == by_kind["winner"]["text"] == "xfs"
    assert by_kind["tie"]["shown"] == "tie"
    assert by_kind["undecided"]["shown"] == "undecided"
    assert by_kind["undecided"]["text"].startswith("? ")


def test_series_sum_clients_and_directions(data: StudyData) -> None:
    attempt = data.attempts.filter(status="finished")["id"][0]
    samples = data.samples(attempt)
    assert samples is not None
    times, values = frames.bandwidth_series(samples)
    assert times == [float(s) for s in range(1, 61)]
    expected = np.sum([c.series[0].values for c in samples.clients], axis=0) / 1e6
    assert np.allclose(values, expected)


def test_latency_curve_is_the_merged_histogram(data: StudyData) -> None:
    attempt = data.attempts.filter(status="finished")["id"][0]
    samples = data.samples(attempt)
    assert samples is not None
    curve = frames.latency_curve(samples, "read", 60)
    histograms = [c.histograms["read"] for c in samples.clients]
    pooled = np.concatenate([np.repeat(h.latency_ns, h.counts) for h in histograms])
    for ms, part in curve:
        assert part == pytest.approx((pooled <= ms * 1e6 + 0.5).mean(), abs=1e-9)
    assert curve[-1][1] == 1.0
    assert [m for m, _ in curve] == sorted(m for m, _ in curve)


def test_compare_candidates_says_what_the_report_says(analysis: Analysis) -> None:
    straight = compare.compare_candidates(analysis, "btrfs", "ext4")
    turned = compare.compare_candidates(analysis, "ext4", "btrfs")
    report = {c.workload_id: c for c in analysis.baseline_comparisons if c.a == "btrfs"}
    flip = {Decision.FASTER: Decision.SLOWER, Decision.SLOWER: Decision.FASTER}
    assert len(straight.rows) == 8
    for row, back in zip(straight.rows, turned.rows, strict=True):
        assert row.result == report[row.workload_id].result
        assert back.decision is flip.get(row.decision, row.decision)
        if row.result.ratio.is_finite:
            assert back.result.ratio.estimate == pytest.approx(1 / row.result.ratio.estimate)
            assert back.result.ratio.low == pytest.approx(1 / row.result.ratio.high)
            assert back.result.p_adjusted == row.result.p_adjusted
        assert back.decision.value in back.result.reason or back.decision in (
            Decision.UNDECIDED,
            Decision.EQUIVALENT,
        )


def test_compare_with_the_twin_and_with_nonsense(analysis: Analysis) -> None:
    assert compare.compare_candidates(analysis, "ext4", "ext4 (A/A)").count(Decision.FASTER) == 0
    for a, b, message in (
        ("ext4", "zfs", "no candidate 'zfs'"),
        ("ext4", "ext4", "itself"),
        ("xfs", "null", "not comp"),
    ):
        with pytest.raises(compare.CompareError, match=message):
            compare.compare_candidates(analysis, a, b)


def test_compare_studies() -> None:
    slower = {"xfs": 1.01, ("xfs", "randwrite"): 1.0, "btrfs": 0.9, ("btrfs", "randwrite"): 0.55}
    other = analyse(
        study_data(dataclasses.replace(SMALL, factors=slower, weather=0.01, patterns=("randwrite",), failures=False))
    )
    first = analyse(study_data(dataclasses.replace(SMALL, weather=0.01, patterns=("randwrite",), failures=False)))
    result = compare.compare_studies(first, other)
    decided = {(row.candidate, row.decision) for row in result.rows}
    assert ("xfs", Decision.FASTER) in decided
    assert ("btrfs", Decision.EQUIVALENT) in decided
    assert ("btrfs", Decision.FASTER) not in decided
    assert len(compare.as_records(result)) == 12
    with pytest.raises(compare.CompareError, match="different things"):
        compare.compare_studies(first, analyse(study_data(dataclasses.replace(SMALL, metric="iops", blocks=2))))


def test_terminal_tables(data: StudyData, analysis: Analysis) -> None:
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    for renderable in (
        terminal.verdict_table(analysis),
        terminal.cells_table(analysis),
        terminal.status_table(data),
        terminal.compare_table(compare.compare_candidates(analysis, "xfs", "ext4")),
    ):
        console.print(renderable)
    text = console.export_text()
    assert "▲ 1.25" in text
    assert "invalid K3" in text
    assert "10 of 10" in text
    assert "called different on 0 of 8 points" in text


def test_terminal_shows_labels_as_they_are() -> None:
    data = study_data(dataclasses.replace(SMALL, candidates=("[red]x[/red]", "xfs"), blocks=2))
    console = Console(width=160, record=True, file=open("/dev/null", "w"))  # noqa: SIM115, PTH123
    console.print(terminal.verdict_table(analyse(data)), terminal.status_table(data))
    assert "[red]x[/red]" in console.export_text()


def test_numbers() -> None:
    assert [number(x) for x in (1234567.0, 999.5, 12.345, 0.012345, 0.0, None, math.nan, math.inf, -2.5)] == [
        "1,230,000", "1,000", "12.3", "0.0123", "0", "–", "–", "∞", "−2.50",
    ]  # fmt: skip
    assert number(3.2e-9) == "3.20e−09"
    assert significant(math.inf) is None
    assert span(Interval(1.0, 0.0, math.inf, 1, 0.95, "t")) == "too few values"
