"""What a study says: a pure function of its :class:`StudyData`, computed anew for every report.

The rules a sceptic should know, all fixed before the first attempt by the study's ``measure``:

* An attempt is *usable* when it finished and no check called it invalid. Of several usable tries in one
  block the first counts, so that nobody can choose among them. Attempts are never dropped for their value;
  outliers are flagged.
* Ratios are oriented: **above 1 always means that a is better**. For latency metrics, where smaller is
  better, the ratio is therefore latency of b over latency of a.
* There is one family of comparisons: every pair of subjects on every point that both can run. p values are
  adjusted over that whole family, so the verdict table and the winners' map can never contradict each
  other.
* The A/A pair goes through the same code as a family of its own. It has at most as many members, so its
  adjustment is at most as strict: it can only look worse than the real comparisons, not better.
* A comparison that involves an invalid cell is undecided, whatever its p value.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import TYPE_CHECKING, Any, Literal

from assay.campaign.bounds import CellBound, bounds_of
from assay.checks.registry import Weight, all_rules
from assay.model.study import Measure
from assay.model.verdict import Verdict, worst
from assay.stats.compare import Decision, PairedComparison, compare_family
from assay.stats.intervals import Interval, log_t_interval, median_interval, stein_interval
from assay.stats.outliers import outliers, slow_first

if TYPE_CHECKING:
    from assay.ledger.queries import StudyData
    from assay.ledger.schema import CellRow, ComparisonRow

#: Metric of a study -> column of ``StudyData.attempts``. Units there: bytes/s, 1/s, seconds.
METRIC_COLUMNS: Mapping[str, str] = {
    "bandwidth": "bandwidth",
    "iops": "iops",
    "latency-mean": "latency_mean",
    "latency-p50": "latency_p50",
    "latency-p95": "latency_p95",
    "latency-p99": "latency_p99",
}


def smaller_is_better(metric: str) -> bool:
    """Whether a smaller value of the metric is the better one (latencies)."""
    return metric.startswith("latency")


@dataclass(frozen=True)
class Tally:
    """How many attempts ended how; ``valid + unknown + invalid`` are the finished ones."""

    attempts: int = 0
    valid: int = 0
    unknown: int = 0
    invalid: int = 0
    failed: int = 0
    lost: int = 0
    not_applicable: int = 0

    @property
    def usable(self) -> int:
        """Finished and not invalid."""
        return self.valid + self.unknown

    @classmethod
    def of(cls, attempts: Iterable[Mapping[str, Any]]) -> Tally:
        """Count rows with ``status`` and ``verdict``; a row with ``count`` stands for so many."""
        kinds: Counter[str] = Counter()
        for row in attempts:
            kind = row["verdict"] if row["status"] == "finished" else row["status"]
            kinds[str(kind).replace("-", "_")] += row.get("count", 1)
        return cls(attempts=kinds.total(), **{k: n for k, n in kinds.items() if k in cls.__dataclass_fields__})


@dataclass(frozen=True)
class CellAnalysis:
    """One candidate on one workload point. Values are in bytes/s, 1/s or seconds, as the metric has it."""

    cell_id: str
    candidate: str
    role: str  # subject | twin | null | floor
    system: str
    workload_id: str
    workload: str  # its name
    point: Mapping[str, Any]
    not_applicable: str | None
    tally: Tally
    usable: tuple[str, ...]  # attempt ids, one per block, by block
    blocks: tuple[int, ...]  # their blocks
    values: tuple[float, ...]  # the study's metric, in the same order
    interval: Interval  # geometric mean of the values
    median: Interval  # order statistics
    intervals: Mapping[str, Interval]  # of every metric, by metric name
    means: Mapping[str, float]  # arithmetic means over the usable attempts, by metric name; NaN without values
    verdict: Verdict
    rules: tuple[str, ...]  # what keeps it from being valid
    flags: tuple[str, ...]  # broken rules that are shown and exclude nothing
    reason: str
    outliers: tuple[str, ...]  # attempt ids; flagged, never dropped
    slow_first: bool
    target_met: bool  # the interval's relative half-width is at most measure.half_width
    representative: str | None  # id of the usable attempt whose value is the (lower) median

    @property
    def n(self) -> int:
        """Number of blocks with a usable value."""
        return len(self.values)


@dataclass(frozen=True)
class Comparison:
    """Candidate a against candidate b on one point, paired within blocks; ratio > 1: a is better."""

    workload_id: str
    a: str
    b: str
    metric: str
    blocks: tuple[int, ...]
    result: PairedComparison

    @property
    def decision(self) -> Decision:
        """What the data say of a."""
        return self.result.decision

    @property
    def ratio(self) -> Interval:
        """Geometric mean of the per-block ratios with its interval; no unit."""
        return self.result.ratio


@dataclass(frozen=True)
class FalseAlarms:
    """The A/A line: the same candidate twice; every cell called different is a false alarm."""

    subject: str
    twin: str
    comparisons: tuple[Comparison, ...]

    @property
    def different(self) -> int:
        """Cells called faster or slower."""
        return sum(c.decision in (Decision.FASTER, Decision.SLOWER) for c in self.comparisons)

    @property
    def tested(self) -> int:
        """Cells with at least two pairs, the only ones that could raise an alarm."""
        return sum(c.result.n >= 2 for c in self.comparisons)


@dataclass(frozen=True)
class Floor:
    """What the harness alone does on one point, and how near each candidate comes to it.

    ``shares``: candidate -> share of the floor's performance (bandwidth or IOPS: candidate / floor; latency:
    floor / candidate). Near 1 the load generator was measured rather than the file system.
    """

    workload_id: str
    candidate: str
    role: str  # null | floor
    interval: Interval
    intervals: Mapping[str, Interval]
    shares: Mapping[str, float]


@dataclass(frozen=True)
class Winner:
    """The best candidate of one point, if the data can tell.

    winner: better than all others. tie: equivalent to ``tied``, better than the rest. undecided: contenders
    were not shown to be worse than the best estimate. alone: nothing to compare with. none: no usable value.
    """

    workload_id: str
    kind: Literal["winner", "tie", "undecided", "alone", "none"]
    best: str | None
    tied: tuple[str, ...]
    contenders: tuple[str, ...]


@dataclass(frozen=True)
class Analysis:
    """Everything that reports state about a study."""

    study_id: str
    metric: str
    measure: Measure
    baseline: str | None
    subjects: tuple[str, ...]  # labels by position; the first is the baseline
    cells: tuple[CellAnalysis, ...]  # by position of workload, then candidate
    comparisons: tuple[Comparison, ...]  # every pair of subjects per point; a is the later candidate
    false_alarms: tuple[FalseAlarms, ...]
    floors: tuple[Floor, ...]
    winners: tuple[Winner, ...]  # one per point
    tally: Tally  # of all attempts of the study
    sentences: tuple[str, ...]
    bounds: Mapping[str, CellBound]  # by cell id; of cells that have one

    @property
    def baseline_comparisons(self) -> tuple[Comparison, ...]:
        """Those against the baseline (b is the baseline)."""
        return tuple(c for c in self.comparisons if c.b == self.baseline)

    def cell(self, candidate: str, workload_id: str) -> CellAnalysis | None:
        """The cell of a candidate on a point, or None."""
        return next((c for c in self.cells if (c.candidate, c.workload_id) == (candidate, workload_id)), None)


def analyse(data: StudyData) -> Analysis:
    """Analyse one study; the same data always give the same answer."""
    from assay.campaign.verdicts import sentences

    measure = Measure.model_validate(data.study.declaration.get("measure") or {})
    rows = list(data.attempts.iter_rows(named=True))
    cells = _cells(data, rows, measure)
    subjects = tuple(c.label for c in data.candidates if c.role == "subject")
    points = [w.id for w in data.workloads]
    by_key = {(c.candidate, c.workload_id): c for c in cells}
    pairs = [(b, a) for a, b in combinations(subjects, 2)]
    comparisons = _compare(by_key, pairs, points, measure)
    twins = [(c.label, c.twin_of) for c in data.candidates if c.role == "twin" and c.twin_of]
    alarms = tuple(FalseAlarms(b, a, _compare(by_key, [(a, b)], points, measure)) for a, b in twins)
    analysis = Analysis(
        study_id=data.study.id,
        metric=measure.metric,
        measure=measure,
        baseline=subjects[0] if subjects else None,
        subjects=subjects,
        cells=cells,
        comparisons=comparisons,
        false_alarms=alarms,
        floors=_floors(data, by_key, subjects, points, measure.metric),
        winners=tuple(_winner(point, subjects, by_key, comparisons, measure.metric) for point in points),
        tally=Tally.of(rows),
        sentences=(),
        bounds=bounds_of(data),
    )
    return replace(analysis, sentences=sentences(analysis, {w.id: w.name for w in data.workloads}))


def comparison_rows(analysis: Analysis) -> list[ComparisonRow]:
    """The comparisons (those of the A/A pair too) as rows of the ledger; an infinite end is None."""
    from assay.ledger.schema import ComparisonRow

    aa = [c for alarms in analysis.false_alarms for c in alarms.comparisons]
    return [
        ComparisonRow(
            study_id=analysis.study_id,
            workload_id=c.workload_id,
            a=c.a,
            b=c.b,
            metric=c.metric,
            ratio=_finite(c.ratio.estimate),
            low=_finite(c.ratio.low),
            high=_finite(c.ratio.high),
            n=c.result.n,
            p_value=c.result.p_value,
            p_adjusted=c.result.p_adjusted,
            decision=c.decision.value,
            reason=c.result.reason,
        )
        for c in [*analysis.comparisons, *aa]
    ]


def _finite(value: float) -> float | None:
    return value if math.isfinite(value) else None


def _cells(data: StudyData, rows: Sequence[Mapping[str, Any]], measure: Measure) -> tuple[CellAnalysis, ...]:
    candidates = {c.label: c for c in data.candidates}
    workloads = {w.id: w for w in data.workloads}
    by_cell: dict[str, list[Mapping[str, Any]]] = {}
    for row in rows:
        by_cell.setdefault(row["cell_id"], []).append(row)
    judged: dict[str, list[tuple[str, Verdict]]] = {}
    for subject, rule, verdict in data.checks.filter(scope="cell").select("subject", "rule", "verdict").iter_rows():
        judged.setdefault(subject, []).append((rule, Verdict(verdict)))
    ordered = sorted(data.cells, key=lambda c: (workloads[c.workload_id].position, candidates[c.candidate].position))
    return tuple(
        _cell(
            cell,
            candidates[cell.candidate],
            workloads[cell.workload_id],
            by_cell.get(cell.id, []),
            judged.get(cell.id, []),
            measure,
        )
        for cell in ordered
    )


def _positive(value: Any) -> bool:
    return value is not None and math.isfinite(value) and value > 0


def _cell(
    cell: CellRow,
    candidate: Any,
    workload: Any,
    rows: Sequence[Mapping[str, Any]],
    judged: Sequence[tuple[str, Verdict]],
    measure: Measure,
) -> CellAnalysis:
    rules = all_rules()
    void = [(r, v) for r, v in judged if r not in rules or rules[r].weight is Weight.VOID]
    raised = {r for r, v in judged if v is Verdict.INVALID and (r, v) not in void}
    column = METRIC_COLUMNS[measure.metric]
    usable: dict[int, Mapping[str, Any]] = {}
    for row in sorted(rows, key=lambda r: (r["block"], r["try_number"])):
        if row["status"] == "finished" and row["verdict"] != Verdict.INVALID and _positive(row[column]):
            usable.setdefault(row["block"], row)
    kept = list(usable.values())
    values = [float(row[column]) for row in kept]
    series = {m: [float(r[c]) for r in kept if _positive(r[c])] for m, c in METRIC_COLUMNS.items()}
    intervals = {m: log_t_interval(v, measure.confidence) for m, v in series.items()}
    # the number of blocks followed from the pilot's variance, so the promised half width holds for Stein's interval only
    pilot = sum(int(row["block"]) <= measure.blocks.pilot for row in kept)
    if 2 <= pilot < len(values):
        intervals[measure.metric] = stein_interval(values, pilot, measure.confidence)
    interval = intervals[measure.metric]
    verdict, broken, reason = _cell_verdict(cell, rows, kept, void)
    odd = outliers(values)
    return CellAnalysis(
        cell_id=cell.id,
        candidate=cell.candidate,
        role=candidate.role,
        system=candidate.system,
        workload_id=cell.workload_id,
        workload=workload.name,
        point=workload.point,
        not_applicable=cell.not_applicable,
        tally=Tally.of(rows),
        usable=tuple(str(row["id"]) for row in kept),
        blocks=tuple(int(row["block"]) for row in kept),
        values=tuple(values),
        interval=interval,
        median=median_interval(values, measure.confidence),
        intervals=intervals,
        means={m: math.fsum(v) / len(v) if v else math.nan for m, v in series.items()},
        verdict=verdict,
        rules=broken,
        flags=tuple(sorted(raised)),
        reason=reason,
        outliers=tuple(str(row["id"]) for row, far in zip(kept, odd, strict=True) if far),
        slow_first=slow_first(values, larger_is_better=not smaller_is_better(measure.metric)),
        target_met=interval.is_finite and interval.relative_half_width <= measure.half_width,
        representative=_representative(kept, values),
    )


def _representative(rows: Sequence[Mapping[str, Any]], values: Sequence[float]) -> str | None:
    if not rows:
        return None
    order = sorted(range(len(values)), key=lambda i: (values[i], i))
    return str(rows[order[(len(order) - 1) // 2]]["id"])


def _cell_verdict(
    cell: CellRow,
    rows: Sequence[Mapping[str, Any]],
    kept: Sequence[Mapping[str, Any]],
    judged: Sequence[tuple[str, Verdict]],
) -> tuple[Verdict, tuple[str, ...], str]:
    """Invalid: a cell rule says so, or no attempt is usable. Unknown: a rule or a kept attempt is, or most
    blocks gave nothing usable (a selection). Void attempts that a retry replaced do not count."""
    if cell.not_applicable:
        return Verdict.UNKNOWN, (), f"not applicable: {cell.not_applicable}"
    if not rows:
        return Verdict.UNKNOWN, (), "no attempt yet"
    if not kept:
        broken = sorted({rule for row in rows for rule in row["broken_rules"]})
        failed = sum(row["status"] != "finished" for row in rows)
        return (
            Verdict.INVALID,
            tuple(broken),
            f"no usable attempt: {failed} failed, {len(rows) - failed} void",
        )
    bad = sorted({rule for rule, verdict in judged if verdict is Verdict.INVALID})
    if bad:
        return Verdict.INVALID, tuple(bad), f"broken: {', '.join(bad)}"
    open_rules = {rule for rule, verdict in judged if verdict is Verdict.UNKNOWN}
    open_rules |= {rule for row in kept if row["verdict"] == Verdict.UNKNOWN for rule in row["broken_rules"]}
    blocks = {row["block"] for row in rows}
    verdicts = [*(verdict for _, verdict in judged), *(Verdict(row["verdict"]) for row in kept)]
    if 2 * len(kept) < len(blocks):
        words = f"only {len(kept)} of {len(blocks)} blocks gave a usable attempt"
        return Verdict.UNKNOWN, tuple(sorted(open_rules)), words
    if worst(verdicts) is Verdict.UNKNOWN:
        return (
            Verdict.UNKNOWN,
            tuple(sorted(open_rules)),
            f"not shown: {', '.join(sorted(open_rules)) or 'checks'}",
        )
    return Verdict.VALID, (), ""


def _paired(a: CellAnalysis, b: CellAnalysis, metric: str) -> tuple[list[int], tuple[list[float], list[float]]]:
    """Blocks that both have, and the values in the order that makes ratio > 1 mean "a is better"."""
    of_a, of_b = dict(zip(a.blocks, a.values, strict=True)), dict(zip(b.blocks, b.values, strict=True))
    common = sorted(of_a.keys() & of_b.keys())
    first, second = [of_a[k] for k in common], [of_b[k] for k in common]
    return common, (second, first) if smaller_is_better(metric) else (first, second)


def _compare(
    cells: Mapping[tuple[str, str], CellAnalysis],
    pairs: Sequence[tuple[str, str]],
    points: Sequence[str],
    measure: Measure,
) -> tuple[Comparison, ...]:
    """One family: each pair (a, b) on each point where both cells are applicable."""
    keys: list[tuple[CellAnalysis, CellAnalysis]] = []
    for point in points:
        for a, b in pairs:
            cell_a, cell_b = cells.get((a, point)), cells.get((b, point))
            if cell_a and cell_b and not cell_a.not_applicable and not cell_b.not_applicable:
                keys.append((cell_a, cell_b))
    paired = [_paired(a, b, measure.metric) for a, b in keys]
    results = compare_family([values for _, values in paired], measure.margin, measure.confidence, measure.correction)
    return tuple(
        Comparison(a.workload_id, a.candidate, b.candidate, measure.metric, tuple(blocks), _veto(result, a, b))
        for (a, b), (blocks, _), result in zip(keys, paired, results, strict=True)
    )


def _veto(result: PairedComparison, a: CellAnalysis, b: CellAnalysis) -> PairedComparison:
    invalid = [c for c in (a, b) if c.verdict is Verdict.INVALID]
    if not invalid:
        return result
    words = "; ".join(f"the cell of {c.candidate} is invalid ({c.reason})" for c in invalid)
    return replace(result, decision=Decision.UNDECIDED, reason=words)


def _floors(
    data: StudyData,
    cells: Mapping[tuple[str, str], CellAnalysis],
    subjects: Sequence[str],
    points: Sequence[str],
    metric: str,
) -> tuple[Floor, ...]:
    found = []
    for point in points:
        for candidate in data.candidates:
            floor = cells.get((candidate.label, point))
            if candidate.role not in ("null", "floor") or floor is None or not floor.n:
                continue
            shares = {}
            for label in subjects:
                cell = cells.get((label, point))
                if cell is not None and cell.n:
                    ratio = cell.interval.estimate / floor.interval.estimate
                    shares[label] = 1 / ratio if smaller_is_better(metric) else ratio
            found.append(Floor(point, candidate.label, candidate.role, floor.interval, floor.intervals, shares))
    return tuple(found)


def _winner(
    point: str,
    subjects: Sequence[str],
    cells: Mapping[tuple[str, str], CellAnalysis],
    comparisons: Sequence[Comparison],
    metric: str,
) -> Winner:
    found = [cells[s, point] for s in subjects if (s, point) in cells]
    # A cell that cannot be run is out of the race; one that was run but gave nothing valid stays a contender.
    running = [c for c in found if not c.not_applicable]
    known = [c for c in running if c.n and c.verdict is not Verdict.INVALID]
    if not known:
        return Winner(point, "none", None, (), tuple(c.candidate for c in running))
    pick = min if smaller_is_better(metric) else max
    best = pick(known, key=lambda c: c.interval.estimate)
    if len(running) == 1:
        return Winner(point, "alone", best.candidate, (), ())
    says: dict[str, Decision] = {}
    flip = {Decision.FASTER: Decision.SLOWER, Decision.SLOWER: Decision.FASTER}
    for c in comparisons:
        if c.workload_id == point and c.a == best.candidate:
            says[c.b] = c.decision
        elif c.workload_id == point and c.b == best.candidate:
            says[c.a] = flip.get(c.decision, c.decision)
    others = [c.candidate for c in running if c.candidate != best.candidate]
    beaten = [o for o in others if says.get(o) is Decision.FASTER]
    tied = tuple(o for o in others if says.get(o) is Decision.EQUIVALENT)
    if len(beaten) == len(others):
        return Winner(point, "winner", best.candidate, (), (best.candidate,))
    if len(beaten) + len(tied) == len(others):
        return Winner(point, "tie", best.candidate, tied, (best.candidate, *tied))
    contenders = tuple(c.candidate for c in running if c.candidate not in beaten)  # in no order of merit
    return Winner(point, "undecided", None, (), contenders)
