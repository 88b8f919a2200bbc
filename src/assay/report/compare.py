"""``assay compare A B``: two candidates of one study, or one candidate's cells in two studies."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Literal

from assay.campaign.analysis import Analysis, CellAnalysis, Comparison, smaller_is_better
from assay.model.verdict import Verdict
from assay.stats.compare import Decision, PairedComparison, adjust, decide, unpaired_ratio


class CompareError(Exception):
    """The two sides cannot be compared; the message is one clear line."""


@dataclass(frozen=True)
class CompareRow:
    """One cell of A against the same cell of B. Ratio > 1: A is better, for latencies too."""

    workload_id: str
    workload: str
    candidate: str  # of A; of both when studies are compared
    a: CellAnalysis | None
    b: CellAnalysis | None
    metric: str
    result: PairedComparison

    @property
    def decision(self) -> Decision:
        """What the data say of A."""
        return self.result.decision


@dataclass(frozen=True)
class CompareResult:
    """All rows, and how they were obtained."""

    a: str
    b: str
    kind: Literal["candidates", "studies"]
    metric: str
    method: str  # in words
    rows: tuple[CompareRow, ...]
    only_a: tuple[str, ...] = ()  # cells without a counterpart
    only_b: tuple[str, ...] = ()

    def count(self, decision: Decision) -> int:
        """Rows with this decision."""
        return sum(row.decision is decision for row in self.rows)


def compare_candidates(analysis: Analysis, a: str, b: str) -> CompareResult:
    """Candidate a against b, paired within blocks: the very comparisons of the report, turned around if need be.

    Their p values stay adjusted over the whole study, so that this answer and the report's are one. Raises
    CompareError when one is not a candidate of the study, or the pair is not part of its family.
    """
    labels = list(dict.fromkeys(c.candidate for c in analysis.cells))
    for label in (a, b):
        if label not in labels:
            raise CompareError(f"the study has no candidate {label!r}; it has {', '.join(labels)}")
    if a == b:
        raise CompareError(f"{a!r} is compared with itself; name two candidates")
    known = [*analysis.comparisons, *(c for alarms in analysis.false_alarms for c in alarms.comparisons)]
    rows = []
    for comparison in known:
        if {comparison.a, comparison.b} != {a, b}:
            continue
        straight = comparison if comparison.a == a else reverse(comparison, analysis.measure.margin)
        cell_a, cell_b = (analysis.cell(label, comparison.workload_id) for label in (a, b))
        assert cell_a is not None
        rows.append(
            CompareRow(
                comparison.workload_id,
                cell_a.workload,
                a,
                cell_a,
                cell_b,
                analysis.metric,
                straight.result,
            )
        )
    if not rows:
        raise CompareError(
            f"{a!r} and {b!r} are not compared by the study: only its subjects are, and the A/A pair with each other"
        )
    method = f"paired within blocks, {analysis.measure.correction} over the whole study"
    return CompareResult(a, b, "candidates", analysis.metric, method, tuple(rows))


def reverse(comparison: Comparison, margin: float) -> Comparison:
    """The same statement about b against a. p values do not change; the words of the reason are written anew."""
    result = comparison.result
    interval = result.ratio

    def turned(value: float) -> float:
        return math.inf if value == 0 else 1 / value

    ratio = replace(
        interval,
        estimate=turned(interval.estimate),
        low=0.0 if math.isinf(interval.high) else turned(interval.high),
        high=turned(interval.low),
    )
    flip = {Decision.FASTER: Decision.SLOWER, Decision.SLOWER: Decision.FASTER}
    decision = flip.get(result.decision, result.decision)
    turned_result = replace(result, ratio=ratio, decision=decision)
    if result.n >= 2:
        reworded = decide(turned_result, margin, round(1 - interval.confidence, 12))
        # A decision that an invalid cell took away must stay taken away.
        turned_result = reworded if reworded.decision is decision else turned_result
    return replace(comparison, a=comparison.b, b=comparison.a, result=turned_result)


def compare_studies(first: Analysis, second: Analysis, a: str = "A", b: str = "B") -> CompareResult:
    """Study ``first`` against ``second`` on the cells of the same candidate and point, unpaired (Welch on logs).

    Blocks of two studies do not match, so everything that changed between them is in the ratio. p values are
    adjusted over these cells with the rules of ``first``. Raises CompareError when the metrics differ or no cell is
    common.
    """
    if first.metric != second.metric:
        raise CompareError(
            f"the studies measure different things: {first.metric} and {second.metric}; choose studies of one metric"
        )
    of_a, of_b = _subject_cells(first), _subject_cells(second)
    common = [key for key in of_a if key in of_b]
    if not common:
        raise CompareError("the studies have no cell in common (same candidate and same workload point)")
    measure = first.measure
    pairs = [(of_a[key], of_b[key]) for key in common]
    raw = [_unpaired(x, y, first.metric, measure.confidence) for x, y in pairs]
    adjusted = adjust([r.p_value for r in raw], measure.correction)
    alpha = round(1 - measure.confidence, 12)
    rows = []
    for (x, y), result, p in zip(pairs, raw, adjusted, strict=True):
        decided = _veto(decide(replace(result, p_adjusted=float(p)), measure.margin, alpha), x, y)
        rows.append(CompareRow(x.workload_id, x.workload, x.candidate, x, y, first.metric, decided))
    method = f"unpaired, {measure.correction} over {len(rows)} cells; includes all that changed in between"
    return CompareResult(a, b, "studies", first.metric, method, tuple(rows), _names(of_a, of_b), _names(of_b, of_a))


def _subject_cells(analysis: Analysis) -> dict[tuple[str, str], CellAnalysis]:
    return {(c.candidate, c.workload_id): c for c in analysis.cells if c.role == "subject" and not c.not_applicable}


def _names(mine: dict[tuple[str, str], CellAnalysis], theirs: dict[tuple[str, str], CellAnalysis]) -> tuple[str, ...]:
    return tuple(f"{c.candidate}, {c.workload}" for key, c in mine.items() if key not in theirs)


def _unpaired(a: CellAnalysis, b: CellAnalysis, metric: str, confidence: float) -> PairedComparison:
    first, second = (b.values, a.values) if smaller_is_better(metric) else (a.values, b.values)
    return unpaired_ratio(first, second, confidence)


def _veto(result: PairedComparison, *cells: CellAnalysis) -> PairedComparison:
    invalid = [c for c in cells if c.verdict is Verdict.INVALID]
    if not invalid:
        return result
    words = "; ".join(f"the cell of {c.candidate} is invalid ({c.reason})" for c in invalid)
    return replace(result, decision=Decision.UNDECIDED, reason=words)


def as_records(result: CompareResult) -> Sequence[dict[str, object]]:
    """Rows for ``--json``: plain values, null for what is infinite or missing. Figures in bytes/s, 1/s or seconds."""

    def finite(value: float | None) -> float | None:
        return value if value is not None and math.isfinite(value) else None

    return [
        {
            "workload": row.workload,
            "candidate": row.candidate,
            "metric": row.metric,
            "a": finite(row.a.interval.estimate) if row.a else None,
            "b": finite(row.b.interval.estimate) if row.b else None,
            "ratio": finite(row.result.ratio.estimate),
            "low": finite(row.result.ratio.low),
            "high": finite(row.result.ratio.high),
            "n": row.result.n,
            "p_value": finite(row.result.p_value),
            "p_adjusted": finite(row.result.p_adjusted),
            "decision": row.decision.value,
            "reason": row.result.reason,
        }
        for row in result.rows
    ]
