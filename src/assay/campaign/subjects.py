"""What the rules about cells and studies look at, filled from a study and its analysis."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.campaign.analysis import Analysis, CellAnalysis, Comparison, comparison_rows
from assay.checks.subjects import CellSubject, ComparisonView, StudySubject, TableView
from assay.model.point import FLOORLESS
from assay.stats.compare import Decision

if TYPE_CHECKING:
    from assay.ledger.queries import StudyData

#: Part of a point that names its pattern; two cells that differ in nothing else are related (rule K4).
_PATTERN = "pattern"


#: What a footing consists of, in the words of reports.
DIFFERENCES: Mapping[str, str] = {"tier": "durability tier", "data set": "data set", "hosts": "hosts"}


@dataclass(frozen=True)
class Footing:
    """What must be alike before two cells may be compared (rule C1). Empty: not known."""

    tier: str  # durability tier
    dataset: str  # bytes of the data set, as text
    hosts: tuple[str, ...]  # that generated the load

    def differences(self, other: Footing) -> tuple[str, ...]:
        """What is known to differ: "tier", "data set", "hosts"."""
        pairs = (
            ("tier", self.tier, other.tier),
            ("data set", self.dataset, other.dataset),
            ("hosts", self.hosts, other.hosts),
        )
        return tuple(what for what, mine, theirs in pairs if mine and theirs and mine != theirs)


def footings(data: StudyData, analysis: Analysis) -> dict[tuple[str, str], Footing]:
    """Footing of each subject's cells by (candidate, workload id); reads the evidence of one attempt per cell."""
    found = {}
    first = dict(data.attempts.reverse().select("cell_id", "id").iter_rows())
    for cell in analysis.cells:
        attempt_id = cell.representative or first.get(cell.cell_id)
        if cell.role == "subject" and attempt_id is not None:
            evidence = data.evidence(attempt_id)
            found[cell.candidate, cell.workload_id] = Footing(
                evidence.durability.declared if evidence.durability else "",
                str(evidence.dataset_bytes) if evidence.dataset_bytes or cell.point.get("kind") == "metadata" else "",
                tuple(sorted({client.host for client in evidence.clients})),
            )
    return found


def cell_subjects(data: StudyData, analysis: Analysis) -> Iterator[CellSubject]:
    """The subjects of the cell rules, one per cell that was attempted. Reads the evidence of every attempt."""
    ids: dict[str, list[str]] = {}
    for cell_id, attempt_id in data.attempts.sort("block", "try_number").select("cell_id", "id").iter_rows():
        ids.setdefault(cell_id, []).append(attempt_id)
    sequential = {_place(c): c for c in analysis.cells if c.point.get(_PATTERN) == "read"}
    for cell in analysis.cells:
        if cell.cell_id not in ids:
            continue
        siblings: dict[str, list[float]] = {}
        if cell.point.get(_PATTERN) == "randread" and (sibling := sequential.get(_place(cell))) is not None:
            siblings["sequential-read"] = bandwidths(data, sibling)
        yield CellSubject(
            cell_id=cell.cell_id,
            metric=analysis.metric,
            attempts=[data.evidence(attempt_id) for attempt_id in ids[cell.cell_id]],
            values=list(cell.values),
            value_ids=list(cell.usable),
            siblings=siblings,
        )


def _place(cell: CellAnalysis) -> tuple[str, str]:
    """Candidate and point without its pattern."""
    return cell.candidate, repr(sorted((k, v) for k, v in cell.point.items() if k != _PATTERN))


def bandwidths(data: StudyData, cell: CellAnalysis) -> list[float]:
    """Bandwidth (bytes/s) of the cell's usable attempts, in block order."""
    known = dict(data.attempts.filter(cell_id=cell.cell_id).select("id", "bandwidth").iter_rows())
    return [float(known[attempt_id]) for attempt_id in cell.usable if known.get(attempt_id) is not None]


def study_subject(data: StudyData, analysis: Analysis) -> StudySubject:
    """The subject of the study rules: the comparisons as the ledger holds them, and the order of execution."""
    footing = footings(data, analysis)
    by_key = {(c.candidate, c.workload_id): c for c in analysis.cells}
    blocks = sorted(data.blocks, key=lambda block: block.number)
    executed = _executed(data)
    null = {f.workload_id: f.interval.estimate for f in analysis.floors if f.role == "null"}
    # the rows that go into the ledger, from which every table of comparisons is made; the A/A pair has its own line
    roles = {c.label: c.role for c in data.candidates}
    twins = {label for label, role in roles.items() if role == "twin"}
    rows = [row for row in comparison_rows(analysis) if not {row.a, row.b} & twins]
    shown = {d.value: 0 for d in Decision} | Counter(row.decision for row in rows)
    return StudySubject(
        metric=analysis.metric,
        n_cells=len(data.cells),  # those that turn out not to apply too: they stand in the first block
        blocks=[list(block.cells) for block in blocks],
        executed=[executed.get(block.number, []) for block in blocks],
        comparisons=[_view(c, by_key, footing) for c in analysis.comparisons],
        aa_decisions=[c.decision.value for alarms in analysis.false_alarms for c in alarms.comparisons],
        has_null=any(c.role == "null" and c.tally.attempts for c in analysis.cells),
        floors=null,
        floorless=frozenset(w.id for w in data.workloads if w.kind in FLOORLESS),
        alpha=round(1 - analysis.measure.confidence, 12),
        correction=analysis.measure.correction,
        margin=analysis.measure.margin,
        seed=data.study.seed,
        block_numbers=[block.number for block in blocks],
        points={
            cell.id: cell.workload_id
            for cell in data.cells
            if roles[cell.candidate] in ("subject", "twin") and not cell.not_applicable and cell.id not in data.given_up
        },
        tables=[TableView("comparisons in the ledger", shown)],
        aggregates=[],  # no figure of a report sums up normalised scores
    )


def _executed(data: StudyData) -> dict[int, list[str]]:
    """Cell ids per block in the order of their first tries."""
    found: dict[int, list[str]] = {}
    for block, cell_id in data.attempts.sort("started_at").select("block", "cell_id").iter_rows():
        cells = found.setdefault(block, [])
        if cell_id not in cells:
            cells.append(cell_id)
    return found


def _view(
    comparison: Comparison,
    cells: dict[tuple[str, str], CellAnalysis],
    footing: dict[tuple[str, str], Footing],
) -> ComparisonView:
    nothing = Footing("", "", ())
    keys = [(label, comparison.workload_id) for label in (comparison.a, comparison.b)]
    mine, theirs = (footing.get(key, nothing) for key in keys)
    ratio, result = comparison.ratio, comparison.result
    known = not math.isnan(ratio.estimate)
    return ComparisonView(
        a=comparison.a,
        b=comparison.b,
        point_id=comparison.workload_id,
        n=result.n,
        ratio=ratio.estimate if known else None,
        low=ratio.low if known else None,
        high=ratio.high if known else None,
        p_value=result.p_value,
        p_adjusted=result.p_adjusted,
        decision=comparison.decision.value,
        a_absolute=_absolute(cells[keys[0]]),
        b_absolute=_absolute(cells[keys[1]]),
        a_tier=mine.tier,
        b_tier=theirs.tier,
        a_dataset=mine.dataset,
        b_dataset=theirs.dataset,
        a_hosts=mine.hosts,
        b_hosts=theirs.hosts,
        said=mine.differences(theirs),  # what a report is to say; campaign.rendered judges what it has said
    )


def _absolute(cell: CellAnalysis) -> float | None:
    return cell.interval.estimate if cell.n else None
