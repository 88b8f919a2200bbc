"""The HTML report: complete, self-contained, and safe with hostile labels."""

from __future__ import annotations

import dataclasses
import json
import re
import time
from html.parser import HTMLParser
from pathlib import Path

import polars as pl
import pytest
from synthetic import CHECK_SCHEMA, HOSTILE, Spec, study_data

from assay.campaign.analysis import Analysis, analyse
from assay.ledger.queries import StudyData
from assay.report import page, records
from assay.report.export import write_report
from assay.report.figures import build

SMALL = Spec(block_sizes=(4096, 1 << 20), patterns=("read", "randwrite"), threads=(1, 8), blocks=6)


class Page(HTMLParser):
    """Collects what a browser would act on: elements, attributes, visible text, scripts and styles."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str | None]]] = []
        self.text: list[str] = []
        self.scripts: list[str] = []
        self.styles: list[str] = []
        self._inside = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.elements.append((tag, dict(attrs)))
        self._inside = tag if tag in ("script", "style") else ""

    def handle_endtag(self, tag: str) -> None:
        if tag == self._inside:
            self._inside = ""

    def handle_data(self, data: str) -> None:
        {"script": self.scripts, "style": self.styles}.get(self._inside, self.text).append(data)


def render(spec: Spec) -> tuple[StudyData, Analysis, Page]:
    data = study_data(spec)
    analysis = analyse(data)
    return data, analysis, Page(page.render_html(data, analysis, build(data, analysis)))


@pytest.fixture(scope="module")
def rendered() -> tuple[StudyData, Analysis, Page]:
    return render(SMALL)


def test_no_network_reference(rendered: tuple[StudyData, Analysis, Page]) -> None:
    html = rendered[2]
    for tag, attributes in html.elements:
        assert tag not in ("iframe", "object", "embed", "base", "img", "audio", "video"), tag
        for name in ("src", "href", "action", "poster", "data", "srcset"):
            value = attributes.get(name) or ""
            assert value.startswith(("#", "data:,")) or not value, (tag, name, value)
    for style in html.styles:
        assert "url(" not in style
        assert "@import" not in style
    policy = next(a["content"] for t, a in html.elements if t == "meta" and "http-equiv" in a)
    assert policy is not None
    assert "default-src 'none'" in policy
    assert "http" not in policy
    own = [s for s in html.scripts if "vegaEmbed(element" in s]
    assert len(own) == 1
    assert "http" not in own[0]


def test_everything_is_there(rendered: tuple[StudyData, Analysis, Page]) -> None:
    data, analysis, html = rendered
    text = " ".join(" ".join(html.text).split())
    assert "Which local file system serves small random writes best?" in text
    for label in analysis.subjects:
        assert label in text
    for workload in data.workloads:
        assert workload.name in text
    for sentence in analysis.sentences:
        assert sentence in text
    assert "A/A false alarms 0 of 8" in text
    assert "Harness floor (null)" in text
    assert f"{analysis.tally.valid} of {analysis.tally.attempts}" in text
    assert "6 of at most 30" in text
    assert "rw=randread" in text  # the job file
    assert "fio --output-format=json+ job.fio" in text
    assert "6.12.0-amd64" in text
    assert "study: synthetic" in text
    assert "K3 is not satisfied" in text
    assert {t for t, _ in html.elements} >= {"main", "nav", "h1", "h2", "figure", "figcaption", "details"}


def test_numbers_on_the_page_are_those_of_the_analysis(rendered: tuple[StudyData, Analysis, Page]) -> None:
    _, analysis, html = rendered
    text = " ".join(html.text)
    for comparison in analysis.baseline_comparisons:
        if comparison.ratio.is_finite:
            assert page.number(comparison.ratio.estimate) in text
    rows = page.candidate_rows(analysis)
    for row in rows[1:]:
        mine = [c.decision.value for c in analysis.baseline_comparisons if c.a == row["label"]]
        for decision in ("faster", "slower", "equivalent", "undecided"):
            assert row[decision] == mine.count(decision)


def test_every_table_has_a_caption_and_scoped_heads(rendered: tuple[StudyData, Analysis, Page]) -> None:
    html = rendered[2]
    tags = [t for t, _ in html.elements]
    assert tags.count("table") == tags.count("caption") > 5
    assert all(a.get("scope") in ("col", "row") for t, a in html.elements if t == "th")
    charts = [a for t, a in html.elements if t == "div" and a.get("class") == "chart"]
    assert charts
    assert all(a.get("role") == "img" and a.get("aria-label") for a in charts)


def test_specs_match_the_charts(rendered: tuple[StudyData, Analysis, Page]) -> None:
    html = rendered[2]
    specs = json.loads(next(s for s in html.scripts if s.startswith("{")))
    drawn = [a["data-spec"] for t, a in html.elements if a.get("class") == "chart"]
    assert sorted(specs) == sorted(str(d) for d in drawn)
    assert {"ratios", "aa-ratios", "winners", "bandwidth-read", "trend-randwrite", "time-series", "latency-cdf"} <= set(
        specs
    )


def test_hostile_labels_stay_text() -> None:
    spec = dataclasses.replace(SMALL, candidates=(HOSTILE, "xfs"), question="</script><img src=x onerror=alert(1)>")
    data, _, html = render(spec)
    assert not any(t == "img" for t, _ in html.elements)
    assert len([t for t, _ in html.elements if t == "script"]) == 3
    assert not any(name.startswith("on") for _, attributes in html.elements for name in attributes)
    text = " ".join(html.text)
    assert HOSTILE in text
    assert data.study.declaration["question"] in text
    specs = json.loads(next(s for s in html.scripts if s.startswith("{")))
    assert any(row["candidate"] == HOSTILE for row in specs["bandwidth-read"]["datasets"]["rows"])


def test_banners_for_scale_unfinished_study_and_broken_study_rule() -> None:
    data = study_data(dataclasses.replace(SMALL, scale=0.1, volatile=("local/xfs",)))
    data.study.state = "interrupted"
    findings = [
        (data.study.id, "C5", "study", "invalid", "not random", "{}"),
        (data.study.id, "C2", "study", "invalid", "nothing decided at point0000", "{}"),
    ]
    checks = data.checks.vstack(pl.DataFrame(findings, schema=CHECK_SCHEMA, orient="row"))
    data = dataclasses.replace(data, checks=checks)
    html = Page(page.render_html(data, analyse(data), []))
    text = " ".join(" ".join(html.text).split())
    assert "10.0 % of the declared ones (scale 0.1)" in text
    assert "has not ended (interrupted)" in text
    assert "Rule C5 is broken for the whole study: not random" in text
    assert "C2 broken nothing decided at read 4KiB 1 thr" in text
    assert "Rule C2 is broken" not in text  # a flag, shown where trust is discussed
    assert "xfs and ext4 differ in durability tier (volatile against device)" in text


@pytest.mark.parametrize(
    "spec",
    [
        dataclasses.replace(SMALL, blocks=0),
        dataclasses.replace(SMALL, blocks=1),
        dataclasses.replace(SMALL, aa=False, null=False),
        Spec(candidates=("ext4",), block_sizes=(4096,), threads=(1,), patterns=("read",), blocks=2),
        dataclasses.replace(SMALL, metric="latency-p99"),
    ],
    ids=["no attempts", "one block", "no A/A, no null", "one candidate", "latency"],
)
def test_studies_at_the_edge_are_reported_too(spec: Spec) -> None:
    _, analysis, html = render(spec)
    text = " ".join(" ".join(html.text).split())
    assert "nan" not in re.findall(r"\w+", text)
    assert "inf" not in re.findall(r"\w+", text)
    if not spec.aa:
        assert "No A/A pair was run" in text
        assert "Harness floor not measured" in text
    if spec.metric.startswith("latency"):
        assert "smaller is better" in text
        assert "▼ worse" in text
    assert analysis.sentences


@pytest.mark.slow
def test_size_and_time_of_a_large_study(tmp_path: Path) -> None:
    spec = Spec(threads=(1, 8), block_sizes=(4096, 65536, 1 << 20), patterns=("read", "write", "randread", "randwrite"),
                candidates=("ext4", "xfs", "btrfs", "zfs"), blocks=10)  # fmt: skip
    data = study_data(spec)
    assert len(data.attempts) > 1000
    analysis = analyse(data)
    start = time.process_time()
    (path,) = write_report(data, analysis, tmp_path, {"html"})
    assert time.process_time() - start < 8.0
    assert path.stat().st_size < 5_000_000


def test_bulk_data_are_thinned_to_the_budget() -> None:
    from assay.report import frames

    data = study_data(Spec(blocks=2, failures=False))
    series, curves = frames.time_series_and_latencies(data, analyse(data), frames.points(data))
    cells = 24 * 3
    assert cells * frames.FEWEST_POINTS <= len(series) <= frames.POINT_BUDGET
    assert len(curves) <= 1.2 * frames.POINT_BUDGET
    last = max(row["share"] for row in curves)
    assert last == 1.0


def test_of_very_many_attempts_the_bad_ones_are_listed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(records, "MOST_ATTEMPTS", 30)
    data = study_data(SMALL)
    rows = records.attempt_rows(data, analyse(data))
    assert len(rows) == 30
    assert sum(row["verdict"] != "valid" for row in rows) == data.attempts.filter(pl.col("verdict") != "valid").height
    html = " ".join(page.render_html(data, analyse(data), []).split())
    assert f"30 of {len(data.attempts)} attempts" in html
    assert "<code>attempts.csv</code> has every one" in html
