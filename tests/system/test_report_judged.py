"""A report is judged by what it shows, and a template that hides losses is found out by the command that writes it."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from assay.cli.main import main
from assay.ledger.queries import load_study
from assay.ledger.store import Ledger
from assay.report import page

pytestmark = [pytest.mark.fio]

STUDY = """
study: judged
candidates: [{{system: "path:{0}/a", label: a}}, {{system: "path:{0}/b", label: b}}]
workloads: [{{fio: {{pattern: read, block_size: 64KiB, size: 1MiB, direct: false, cache: any, runtime: 0.3s}}}}]
measure: {{blocks: {{pilot: 2, minimum: 2, maximum: 2}}, null_target: false, aa: none, seed: 7}}
"""


def test_a_template_that_loses_rows_is_found_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    monkeypatch.delenv("ASSAY_LEDGER", raising=False)
    monkeypatch.chdir(tmp_path)
    for name in ("a", "b"):
        (tmp_path / name).mkdir()
    (tmp_path / "study.yaml").write_text(STUDY.format(tmp_path))

    def run(*arguments: str) -> int:
        monkeypatch.setattr(sys, "argv", ["assay", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        return int(ended.value.code or 0)

    def c9() -> tuple[str, str]:
        with Ledger() as ledger:
            data = load_study(ledger, ledger.studies()[0].id)
        (row,) = data.checks.filter(rule="C9").iter_rows(named=True)
        return row["verdict"], row["evidence"]

    assert run("run", "study.yaml", "--report", "report") in (0, 1)
    capsys.readouterr()
    assert run("report", "judged", "--format", "html,md,csv", "--out", "good") == 0
    assert "broken" not in capsys.readouterr().err
    verdict, evidence = c9()
    assert verdict == "valid"
    for table in ("report.html: all comparisons", "report.html: verdict", "report.md: candidates", "comparisons.csv"):
        assert table in evidence, "it is the report that was judged, not what it was made from"

    monkeypatch.setattr(page, "comparison_rows", lambda _: [])
    assert run("report", "judged", "--format", "html", "--out", "bad") == 1
    said = capsys.readouterr().err
    assert said.startswith("assay: bad: rule C9 is broken: table 'report.html: all comparisons' shows 0 ")
    assert c9()[0] == "invalid"
