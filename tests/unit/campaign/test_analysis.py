"""The analysis finds what was planted, recomputes to the same numbers by another path, and claims nothing more."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path

import numpy as np
import polars as pl
import pytest
from scipy import stats

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))

from synthetic import CHECK_SCHEMA, Spec, study_data  # pyright: ignore[reportMissingImports]

from assay.campaign.analysis import Analysis, analyse, comparison_rows
from assay.campaign.subjects import cell_subjects, study_subject
from assay.checks.registry import Scope, run_rules
from assay.ledger.queries import StudyData
from assay.model.verdict import Verdict
from assay.stats.compare import Decision

SMALL = Spec(block_sizes=(4096, 1 << 20), threads=(1, 8))


@pytest.fixture(scope="module")
def data() -> StudyData:
    return study_data(SMALL)


@pytest.fixture(scope="module")
def analysis(data: StudyData) -> Analysis:
    return analyse(data)


def decisions(analysis: Analysis, a: str, pattern: str) -> set[Decision]:
    cells = {c.workload_id: c for c in analysis.cells}
    return {
        c.decision
        for c in analysis.baseline_comparisons
        if c.a == a and cells[c.workload_id].point["pattern"] == pattern
    }


def test_planted_effects_are_found_and_equality_is_called_equivalent(analysis: Analysis) -> None:
    assert decisions(analysis, "xfs", "randwrite") == {Decision.FASTER}
    assert decisions(analysis, "xfs", "read") == {Decision.EQUIVALENT}
    assert decisions(analysis, "btrfs", "randwrite") == {Decision.SLOWER}
    assert decisions(analysis, "btrfs", "read") == {Decision.SLOWER}
    assert Decision.UNDECIDED in decisions(analysis, "btrfs", "randread")  # noise of 8 % hides 3 %


def test_ratio_of_a_planted_effect_lies_in_its_interval(analysis: Analysis) -> None:
    found = [c for c in analysis.baseline_comparisons if c.a == "xfs" and c.decision is Decision.FASTER]
    assert len(found) == 4
    for comparison in found:
        assert comparison.ratio.low * 0.98 < 1.25 < comparison.ratio.high * 1.02


def test_aa_pair_raises_no_alarm(analysis: Analysis) -> None:
    (alarms,) = analysis.false_alarms
    assert (alarms.subject, alarms.twin) == ("ext4", "ext4 (A/A)")
    assert (alarms.different, alarms.tested) == (0, 16)


def test_figures_recomputed_with_numpy(data: StudyData, analysis: Analysis) -> None:
    frame = data.attempts.filter((pl.col("status") == "finished") & (pl.col("verdict") != "invalid"))
    planned = analysis.measure.blocks.pilot
    for cell in analysis.cells:
        of_cell = frame.filter(cell_id=cell.cell_id).sort("block")
        x = of_cell["bandwidth"].to_numpy()
        assert cell.n == len(x)
        if not len(x):
            continue
        logs = np.log(x)
        # Stein: the spread comes from the pilot alone, whose blocks decided how many more there would be
        pilot = int((of_cell["block"] <= planned).sum())
        spread, freedom = (
            (logs[:pilot].std(ddof=1), pilot - 1) if 2 <= pilot < len(x) else (logs.std(ddof=1), len(x) - 1)
        )
        half = stats.t.ppf(0.975, freedom) * spread / math.sqrt(len(x))
        expected = np.exp([logs.mean(), logs.mean() - half, logs.mean() + half])
        assert np.allclose([cell.interval.estimate, cell.interval.low, cell.interval.high], expected)
        assert cell.means["bandwidth"] == pytest.approx(x.mean())
        assert cell.median.estimate == pytest.approx(np.median(x))
        assert cell.target_met == (math.expm1(half) <= 0.05)


def _p_value(logs: np.ndarray) -> float:
    t = logs.mean() / (logs.std(ddof=1) / math.sqrt(len(logs)))
    return float(2 * stats.t.sf(abs(t), len(logs) - 1))


def test_comparisons_recomputed_with_numpy(data: StudyData, analysis: Analysis) -> None:
    usable = data.attempts.filter((pl.col("status") == "finished") & (pl.col("verdict") != "invalid"))
    values = {(r["candidate"], r["workload_id"], r["block"]): r["bandwidth"] for r in usable.iter_rows(named=True)}
    raw: list[float] = []
    for c in analysis.comparisons:
        blocks = [b for b in range(10) if (c.a, c.workload_id, b) in values and (c.b, c.workload_id, b) in values]
        assert list(c.blocks) == blocks
        logs = np.array([math.log(values[c.a, c.workload_id, b] / values[c.b, c.workload_id, b]) for b in blocks])
        raw.append(_p_value(logs) if len(logs) > 1 else 1.0)
        if len(logs):
            assert c.ratio.estimate == pytest.approx(math.exp(logs.mean()))
    order = np.argsort(raw)
    holm, running = np.empty(len(raw)), 0.0
    for rank, i in enumerate(order):
        running = max(running, min(1.0, raw[i] * (len(raw) - rank)))
        holm[i] = running
    assert np.allclose(np.array([c.result.p_adjusted for c in analysis.comparisons], dtype=float), holm)


def test_failed_attempt_is_kept_and_its_retry_counts(data: StudyData, analysis: Analysis) -> None:
    cell = analysis.cell("xfs", "point0001")
    assert cell is not None
    assert (cell.tally.attempts, cell.tally.failed, cell.n) == (11, 1, 10)
    assert cell.verdict is Verdict.VALID
    assert analysis.tally.attempts == len(data.attempts)


def test_void_attempt_leaves_its_block_out_on_both_sides(analysis: Analysis) -> None:
    cell = analysis.cell("ext4", "point0002")
    assert cell is not None
    assert 4 not in cell.blocks
    pair = next(c for c in analysis.comparisons if c.workload_id == "point0002" and c.b == "ext4")
    assert 4 not in pair.blocks
    assert pair.result.n == 9


def test_cell_without_valid_attempt_is_invalid_and_nothing_is_claimed(analysis: Analysis) -> None:
    cell = analysis.cell("btrfs", "point0005")
    assert cell is not None
    assert (cell.verdict, cell.rules) == (Verdict.INVALID, ("K3",))
    for comparison in analysis.comparisons:
        if comparison.workload_id == "point0005" and "btrfs" in (comparison.a, comparison.b):
            assert comparison.decision is Decision.UNDECIDED
            assert "btrfs is invalid" in comparison.result.reason
    winner = next(w for w in analysis.winners if w.workload_id == "point0005")
    assert winner.kind == "undecided"
    assert "btrfs" in winner.contenders


def test_unknown_is_never_valid(analysis: Analysis) -> None:
    cell = analysis.cell("btrfs", "point0004")
    assert cell is not None
    assert (cell.verdict, cell.rules) == (Verdict.UNKNOWN, ("A1",))


def test_broken_flag_is_shown_and_excludes_nothing(analysis: Analysis) -> None:
    cell = analysis.cell("btrfs", "point0007")
    assert cell is not None
    assert (cell.verdict, cell.flags) == (Verdict.VALID, ("K4",))


def test_broken_void_rule_of_a_cell_vetoes_its_comparisons(data: StudyData) -> None:
    cell = next(c for c in data.cells if c.candidate == "btrfs" and c.workload_id == "point0015")
    row = (cell.id, "Z9", "cell", "invalid", "an unknown rule counts as void", "{}")
    checks = pl.concat([data.checks, pl.DataFrame([row], schema=CHECK_SCHEMA, orient="row")])
    found = analyse(dataclasses.replace(data, checks=checks))
    comparison = next(c for c in found.baseline_comparisons if c.a == "btrfs" and c.workload_id == "point0015")
    assert comparison.decision is Decision.UNDECIDED
    assert comparison.ratio.high < 1  # the ratio stays visible


def test_winners(analysis: Analysis) -> None:
    by_point = {w.workload_id: w for w in analysis.winners}
    assert (by_point["point0012"].kind, by_point["point0012"].best) == ("winner", "xfs")
    assert by_point["point0000"].kind == "tie"
    assert set(by_point["point0000"].contenders) == {"ext4", "xfs"}
    assert by_point["point0008"].kind in ("undecided", "tie")


def test_latency_ratios_above_one_are_better_too() -> None:
    found = analyse(study_data(dataclasses.replace(SMALL, metric="latency-p99")))
    assert decisions(found, "xfs", "randwrite") == {Decision.FASTER}
    assert decisions(found, "btrfs", "randwrite") == {Decision.SLOWER}
    assert {w.best for w in found.winners if w.workload_id >= "point0012"} == {"xfs"}
    assert all(0 < s < 0.1 for floor in found.floors for s in floor.shares.values())


def test_harness_floor_shares(analysis: Analysis) -> None:
    assert len(analysis.floors) == 16
    for floor in analysis.floors:
        assert floor.role == "null"
        assert floor.shares["ext4"] == pytest.approx(1 / 40, rel=0.1)


def test_one_block_decides_nothing() -> None:
    found = analyse(study_data(dataclasses.replace(SMALL, blocks=1)))
    assert {c.decision for c in found.comparisons} == {Decision.UNDECIDED}
    assert all(w.kind == "undecided" for w in found.winners)
    assert not any(c.interval.is_finite or c.target_met for c in found.cells)
    assert found.false_alarms[0].tested == 0
    assert any("proves nothing yet" in s for s in found.sentences)


def test_study_without_attempts_and_study_of_one_candidate() -> None:
    empty = analyse(study_data(dataclasses.replace(SMALL, blocks=0)))
    assert {c.verdict for c in empty.cells} == {Verdict.UNKNOWN}
    assert {w.kind for w in empty.winners} == {"none"}
    single = analyse(study_data(Spec(candidates=("ext4",), block_sizes=(4096,), failures=False)))
    assert single.comparisons == ()
    assert {w.kind for w in single.winners} == {"alone"}


def test_not_applicable_cells_are_out_of_the_race() -> None:
    data = study_data(dataclasses.replace(SMALL, failures=False))
    gone = next(c for c in data.cells if c.candidate == "btrfs" and c.workload_id == "point0000")
    gone.not_applicable = "no O_DIRECT"
    attempts = data.attempts.filter(pl.col("cell_id") != gone.id)
    found = analyse(dataclasses.replace(data, attempts=attempts))
    assert not any(c.workload_id == "point0000" and c.a == "btrfs" for c in found.comparisons)
    winner = next(w for w in found.winners if w.workload_id == "point0000")
    assert winner.kind == "tie"
    assert "btrfs" not in winner.contenders


def test_sentences_tell_losses_and_the_false_alarm_line(analysis: Analysis) -> None:
    text = "\n".join(analysis.sentences)
    assert "btrfs against ext4: slower on 11" in text
    assert "xfs against ext4: slower on 0, faster on 4" in text
    assert "called different on 0 of 16 points" in text
    assert "1 is invalid" in text


def test_rows_of_the_ledger(analysis: Analysis) -> None:
    rows = comparison_rows(analysis)
    assert len(rows) == 16 * 3 + 16
    assert len({(r.workload_id, r.a, r.b, r.metric) for r in rows}) == len(rows)
    for row in rows:
        assert all(v is None or math.isfinite(v) for v in (row.ratio, row.low, row.high))
        assert len(row.decision) <= 12


def test_analysis_is_deterministic(data: StudyData, analysis: Analysis) -> None:
    again = analyse(data)
    assert [dataclasses.astuple(c.result) for c in again.comparisons if c.result.n] == [
        dataclasses.astuple(c.result) for c in analysis.comparisons if c.result.n
    ]


def test_study_rules_accept_what_the_analysis_says() -> None:
    data = study_data(dataclasses.replace(SMALL, failures=False))
    findings = run_rules(Scope.STUDY, study_subject(data, analyse(data)))
    assert {f.rule: f.message for f in findings if f.verdict is not Verdict.VALID} == {}


def test_unlike_tiers_are_said(data: StudyData) -> None:
    data = study_data(dataclasses.replace(SMALL, volatile=("local/xfs",)))
    subject = study_subject(data, analyse(data))
    said = {(c.a, c.b): c.said for c in subject.comparisons if c.point_id == "point0000"}
    assert said == {("xfs", "ext4"): ("tier",), ("btrfs", "ext4"): (), ("btrfs", "xfs"): ("tier",)}


def test_cell_subjects_hold_all_attempts_and_their_siblings(data: StudyData, analysis: Analysis) -> None:
    subjects = {s.cell_id: s for s in cell_subjects(data, analysis)}
    assert len(subjects) == len(data.cells)
    assert sum(len(s.attempts) for s in subjects.values()) == len(data.attempts)
    random_read = analysis.cell("ext4", "point0008")
    assert random_read is not None
    sibling = analysis.cell("ext4", "point0000")
    assert sibling is not None
    assert subjects[random_read.cell_id].siblings == {"sequential-read": list(sibling.values)}
    for subject in subjects.values():
        assert len(subject.values) == len(subject.value_ids)
        for finding in run_rules(Scope.CELL, subject):
            assert "could not be done" not in finding.message
