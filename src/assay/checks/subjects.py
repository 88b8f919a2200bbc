"""What the rules look at. The campaign fills these from the ledger; no rule reads anything else."""

from __future__ import annotations

from dataclasses import dataclass, field

from assay.model.evidence import AttemptEvidence, Samples


@dataclass(frozen=True)
class AttemptSubject:
    """One attempt. Keys of ``evidence.expected`` with a meaning for rules, all optional:

    * ``tools``: versions of the tools on every host, nested in any order of host and tool (W3);
    * ``ram_factor``: least ratio of working set to memory (W1; default 2.0);
    * ``error_limit``: errors that are accepted (R3; default 0);
    * ``floor``: ``{"iops": x}`` of the null target at the same point, operations/s (R4).

    Every other key is part of the closure and is compared with ``evidence.observed`` (W7).
    """

    evidence: AttemptEvidence
    samples: Samples | None  # None: the attempt has none


@dataclass(frozen=True)
class CellSubject:
    """All attempts of one cell."""

    cell_id: str
    metric: str  # of ``values``: bandwidth (bytes/s), iops (1/s), latency-* (seconds)
    attempts: list[AttemptEvidence]  # in block order, unusable ones too
    values: list[float]  # of the usable attempts, in block order
    value_ids: list[str]  # attempt ids of ``values``, same order
    # Values of related cells by what they are to this one, in block order. Known: "sequential-read", the bandwidth
    # (bytes/s) of the cell that differs from this random-read cell in the pattern alone. No key: no such cell in the
    # study; an empty list: the cell exists and has no usable attempt.
    siblings: dict[str, list[float]] = field(default_factory=dict)


@dataclass(frozen=True)
class ComparisonView:
    """One comparison as the report shows it: candidate ``a`` against ``b`` on one workload point."""

    a: str  # label
    b: str  # label
    point_id: str
    n: int  # pairs of blocks
    ratio: float | None  # speed of a / speed of b; above 1: a is faster; no unit
    low: float | None  # interval of the ratio at confidence 1 - alpha; 0 when n is too small
    high: float | None  # inf when n is too small
    p_value: float | None
    p_adjusted: float | None  # within its family
    decision: str  # faster | slower | equivalent | undecided
    a_absolute: float | None  # in the unit of the metric: bytes/s, 1/s or seconds
    b_absolute: float | None
    a_tier: str  # durability tier: volatile | page-cache | device | replicated; "": not known
    b_tier: str
    a_dataset: str  # what identifies the data set (its hash, or its bytes as text); "": not known
    b_dataset: str
    a_hosts: tuple[str, ...]  # hosts the candidate ran on; (): not known
    b_hosts: tuple[str, ...]
    said: tuple[str, ...] = ()  # which of "tier", "data set", "hosts" the report says to differ, next to the comparison
    family: str = "study"  # comparisons of one name were adjusted together


@dataclass(frozen=True)
class AggregateView:
    """A figure that sums up several cells, as shown."""

    kind: str  # geometric-mean | arithmetic-mean | none
    values: list[float] = field(default_factory=list)  # the normalised figures it sums up; no unit
    shown: float | None = None  # the figure in the report; no unit


@dataclass(frozen=True)
class TableView:
    """A table of decisions, as shown."""

    name: str
    rows: dict[str, int]  # decision -> rows (or the number that the table gives)
    against: str | None = None  # label, when it holds only the comparisons of the others with this one; None: all


@dataclass(frozen=True)
class StudySubject:
    """One study as the report is about to show it."""

    metric: str
    n_cells: int  # cells that were to run (those not applicable left out)
    blocks: list[list[str]]  # planned order of cell ids, by block
    executed: list[list[str]]  # cell ids in the order of their first tries, by block; the last block may be cut short
    comparisons: list[ComparisonView]  # without the A/A pair
    aa_decisions: list[str]  # decisions of the A/A pair, one per point; empty: there was no pair
    has_null: bool  # whether the null target ran
    floors: dict[str, float]  # point id -> figure of the null target, in the unit of the metric
    alpha: float  # 1 - confidence
    correction: str  # holm | benjamini-hochberg
    margin: float  # of equivalence: 0.05 means 1/1.05 to 1.05
    seed: int | None  # of the block orders
    block_numbers: list[int] = field(default_factory=list)  # of ``blocks``, as given to model.plan.block_order
    # cell id -> point id of the compared cells that were never given up: harness floors are run in the pilot only, and
    # each point has as many blocks as it needs. Empty: every block is to hold every cell.
    points: dict[str, str] = field(default_factory=dict)
    floorless: frozenset[str] = frozenset()  # point ids that the null target cannot carry out
    tables: list[TableView] | None = None  # every table of decisions that is shown; None: not known
    aggregates: list[AggregateView] | None = None  # []: none is shown; None: not known
