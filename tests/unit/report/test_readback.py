"""Reports are judged by what they show: every row that a template loses, and every difference it hides, is found."""

from __future__ import annotations

import re
import time
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest
from synthetic import HOSTILE, Spec, lab_spec, study_data

from assay.campaign.analysis import Analysis, analyse
from assay.campaign.rendered import Rendered, judge_rendered
from assay.checks.registry import Finding
from assay.checks.subjects import TableView
from assay.ledger.queries import StudyData
from assay.model.verdict import Verdict
from assay.report.export import write_report
from assay.report.readback import read_back, read_html, read_markdown
from assay.stats.compare import Decision

FORMATS = {"html", "md", "csv", "parquet"}
SMALL = Spec(block_sizes=(4096,), patterns=("read", "randwrite"), threads=(1, 8), blocks=6, volatile=("local/xfs",))
SPECS = {
    "bandwidth": SMALL,
    "latency": Spec(**{**vars(SMALL), "metric": "latency-p99"}),
    "hostile names": Spec(**{**vars(SMALL), "candidates": (HOSTILE, "a | b", "▲ faster"), "factors": {"a | b": 0.7}}),
    "hosts and bounds": lab_spec(),
}

Study = tuple[StudyData, Analysis, Path]


@pytest.fixture(scope="module")
def studies(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Study]:
    made = {}
    for name, spec in SPECS.items():
        data = study_data(spec)
        analysis = analyse(data)
        place = tmp_path_factory.mktemp("report")
        write_report(data, analysis, place, FORMATS)
        made[name] = (data, analysis, place)
    return made


def judge(study: Study, documents: list[Rendered]) -> dict[str, Finding]:
    data, analysis, _ = study
    return {f.rule: f for f in judge_rendered(data, analysis, documents)}


def documents(study: Study, *suffixes: str) -> list[Rendered]:
    _, analysis, place = study
    return read_back(sorted(p for p in place.iterdir() if p.suffix in suffixes), analysis.baseline)


@pytest.mark.parametrize("name", SPECS)
def test_what_is_written_is_what_there_is(studies: dict[str, Study], name: str) -> None:
    study = studies[name]
    _, analysis, _ = study
    shown = documents(study, ".html", ".md", ".csv", ".parquet")
    assert {d.name: [t.name for t in d.tables] for d in shown} == {
        "report.html": ["candidates", "verdict", "all comparisons"],
        "report.md": ["candidates", "verdict"],
        "comparisons.csv": ["all comparisons"],
        "comparisons.parquet": ["all comparisons"],
    }
    counts = {d.value: sum(c.decision is d for c in analysis.comparisons) for d in Decision}
    assert sum(counts.values()) > 0
    for document in shown:
        for table in document.tables:
            if table.against is None:
                assert {d: table.rows.get(d, 0) for d in counts} == counts
    found = judge(study, shown)
    assert {rule: f.verdict for rule, f in found.items()} == {"C1": Verdict.VALID, "C9": Verdict.VALID}, found


def _html(study: Study) -> str:
    return (study[2] / "report.html").read_text(encoding="utf-8")


def _drop_row(text: str) -> str:
    """Without one row of the table of all comparisons that has a loss."""
    start = text.index("every pair of candidates")
    row = re.search(r"<tr>(?:(?!</tr>).)*?▼(?:(?!</tr>).)*?</tr>", text[start:], re.S)
    assert row
    return text[:start] + text[start:].replace(row[0], "", 1)


def _after(text: str, mark: str, old: str, new: str) -> str:
    start = text.index(mark)
    return text[:start] + text[start:].replace(old, new, 1)


SABOTAGE: dict[str, tuple[Callable[[str], str], str, str]] = {
    "a loss is left out": (_drop_row, "C9", "all comparisons' shows"),
    "a loss is called a tie": (
        lambda t: _after(t, "every pair", '<span aria-hidden="true">▼</span>', '<span aria-hidden="true">=</span>'),
        "C9",
        "shows",
    ),
    "the verdict table ends early": (
        lambda t: re.sub(r"(<caption><span>Every workload point.*?<tbody>).*?</tbody>", r"\1</tbody>", t, flags=re.S),
        "C9",
        "'report.html: verdict' shows 0",
    ),
    "a count is wrong": (
        lambda t: re.sub(r'<td class="n">\d+((?:</td><td class="n">\d+){3}</td>)', r'<td class="n">77\1', t, count=1),
        "C9",
        "shows 81 slower",
    ),
    "a difference is not said": (lambda t: t.replace("differ in durability tier", "differ"), "C1", "differ in tier"),
}


@pytest.mark.parametrize("name", SABOTAGE)
def test_what_a_report_hides_is_found(studies: dict[str, Study], name: str) -> None:
    study = studies["bandwidth"]
    change, rule, words = SABOTAGE[name]
    text = _html(study)
    damaged = change(text)
    assert damaged != text
    shown = read_html("report.html", damaged, study[1].baseline)
    found = judge(study, [shown])
    assert found[rule].verdict is Verdict.INVALID
    assert words in found[rule].message
    assert all(f.verdict is Verdict.VALID for r, f in found.items() if r != rule)


def test_markdown_and_frames_are_judged_too(studies: dict[str, Study], tmp_path: Path) -> None:
    study = studies["bandwidth"]
    text = (study[2] / "report.md").read_text(encoding="utf-8")
    shown = read_markdown("report.md", text.replace("▲ **", "= **", 1), study[1].baseline)
    assert judge(study, [shown])["C9"].verdict is Verdict.INVALID
    shown = read_markdown("report.md", text.replace("not like with like", "…").replace(" differ in ", " … "), "ext4")
    assert judge(study, [shown])["C1"].verdict is Verdict.INVALID
    pl.read_csv(study[2] / "comparisons.csv").slice(1).write_csv(tmp_path / "comparisons.csv")
    found = judge(study, read_back([tmp_path / "comparisons.csv"], study[1].baseline))
    assert found["C9"].verdict is Verdict.INVALID and "C1" not in found, "a table has no words"


def test_a_page_without_any_table_is_not_fine(studies: dict[str, Study]) -> None:
    study = studies["bandwidth"]
    found = judge(study, [read_html("report.html", "<p>All is well.</p>", study[1].baseline)])
    assert found["C9"].verdict is Verdict.INVALID
    assert list(found["C9"].evidence["tables"]) == [
        f"report.html: {name}" for name in ("candidates", "verdict", "all comparisons")
    ]
    assert found["C1"].verdict is Verdict.INVALID


def test_nothing_to_judge(studies: dict[str, Study]) -> None:
    study = studies["bandwidth"]
    assert judge(study, []) == {}
    assert judge(study, read_back([Path("charts/x.svg"), Path("cells.csv")], None)) == {}
    alone = study_data(Spec(candidates=("ext4",), block_sizes=(4096,), threads=(1,), blocks=3))
    table = Rendered("x", (TableView("verdict", {"faster": 1}),), "")
    assert judge_rendered(alone, analyse(alone), [table]) == []


def test_only_what_is_visible_counts() -> None:
    page = "<title>t</title><style>s</style><script>'<table>'</script><table><tr><th>a<th>b</table><p>x  &amp;\ny</p>"
    shown = read_html("p", page, None)
    assert shown.text == "a b x & y"


def test_reading_back_is_quick(studies: dict[str, Study]) -> None:
    study = studies["bandwidth"]
    begun = time.process_time()
    read_html("report.html", _html(study), "ext4")
    assert time.process_time() - begun < 2.0
