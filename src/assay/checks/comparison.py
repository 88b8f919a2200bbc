"""Rules about the statements a study makes. Each recomputes from the comparisons what the report claims."""

from __future__ import annotations

import math
from collections import Counter

from assay.checks.common import Outcome, judge, percent, unknown, valid
from assay.checks.registry import Scope, Weight, rule
from assay.checks.subjects import AggregateView, ComparisonView, StudySubject

DECISIONS = ("faster", "slower", "equivalent", "undecided")
BALANCE_P = 0.001
FALSE_ALARM_P = 0.05
SLACK = 1e-6

_NOTHING = "the study has no comparison"


def _name(c: ComparisonView) -> str:
    return f"{c.a} / {c.b} at {c.point_id}"


def _some(names: list[str], limit: int = 3) -> str:
    more = f" and {len(names) - limit} more" if len(names) > limit else ""
    return ", ".join(names[:limit]) + more


def _number(value: float | None) -> bool:
    return value is not None and not math.isnan(value)


def _stated(subject: StudySubject) -> list[ComparisonView]:
    """Comparisons that state something: without a pair of blocks and undecided, nothing is claimed (C2 flags those)."""
    return [c for c in subject.comparisons if c.n > 0 or c.decision != "undecided"]


@rule("C1", scope=Scope.STUDY, weight=Weight.VOID)
def like_with_like(subject: StudySubject) -> Outcome:
    """Both sides of every comparison have the same durability tier, data set and hosts, or the report says they differ.

    What the report says is read back from the finished file.

    Prevents: unfair competition. dittofs #1763 ("speed is meaningless without stating the guarantee"), #672 (one side
    over a public address), riofs #6 ("that's cheating": flush unimplemented); Heiser's "unfair competitor set-up".
    """
    broken, missing = [], []
    stated = _stated(subject)
    for c in stated:
        for what, a, b in (
            ("tier", c.a_tier, c.b_tier),
            ("data set", c.a_dataset, c.b_dataset),
            ("hosts", sorted(c.a_hosts), sorted(c.b_hosts)),
        ):
            if not a or not b:
                missing.append(f"the {what} of {_name(c)} is not known")
            elif a != b and what not in c.said:
                broken.append(f"{_name(c)} differ in {what} ({a} against {b}) and the report does not say so")
    if not stated:
        missing.append(_NOTHING)
    fine = f"{len(stated)} comparisons of like with like, or the difference is stated"
    return judge(_cut(broken), _cut(missing), fine, not_alike=broken, not_known=missing)


def _cut(sentences: list[str], limit: int = 3) -> list[str]:
    rest = len(sentences) - limit
    return [*sentences[:limit], f"and {rest} more"] if rest > 0 else sentences


@rule("C2", scope=Scope.STUDY, weight=Weight.FLAG)
def test_can_reject(subject: StudySubject) -> Outcome:
    """Every comparison has enough pairs of blocks for its test to be able to reject within its family.

    Prevents: "no significant difference" from a test that could not have found one. asv refuses such a test; min to max
    of 3 values covers the median with 75 % only.
    """
    from assay.stats import can_reject

    if not subject.comparisons:
        return unknown(_NOTHING)
    families = Counter(c.family for c in subject.comparisons)
    weak = [
        f"{_name(c)} (n = {c.n})" for c in subject.comparisons if not can_reject(c.n, subject.alpha, families[c.family])
    ]
    least = min(c.n for c in subject.comparisons)
    broken = [f"{len(weak)} comparisons could never be decided: {_some(weak)}"] if weak else []
    fine = f"every comparison has at least {least} pairs of blocks, enough to reject"
    return judge(broken, [], fine, cannot_reject=weak, least_n=least)


@rule("C3", scope=Scope.STUDY, weight=Weight.FLAG)
def effect_with_interval(subject: StudySubject) -> Outcome:
    """Every comparison carries a ratio within its interval, and the decision follows from interval and margin.

    "Faster" needs an interval above 1, "slower" one below 1, "equivalent" one within the margin. The p value must tell
    the same story as the interval: below alpha exactly if the interval excludes 1 (5 % leeway at the border).

    Prevents: significance without size, and a verdict that does not follow from the figures beside it (Hoefler &
    Belli, SC'15; Heiser's "no significance").
    """
    stated = _stated(subject)
    if not stated:
        return unknown(_NOTHING)
    broken = [f"{_name(c)} {why}" for c in stated if (why := _without_interval(c, subject))]
    fine = f"all {len(stated)} comparisons carry a ratio with an interval that supports the decision"
    return judge(_cut(broken), [], fine, details=broken)


def _without_interval(c: ComparisonView, subject: StudySubject) -> str | None:
    if c.ratio is None or c.low is None or c.high is None or not _number(c.low) or not _number(c.high):
        return "has no interval"
    if not math.isfinite(c.high) or c.low <= 0:
        return None if c.decision == "undecided" else f"is called {c.decision} with an infinite interval"
    if not c.low * (1 - SLACK) <= c.ratio <= c.high * (1 + SLACK):
        return f"has a ratio of {c.ratio:.4g} outside its interval of {c.low:.4g} to {c.high:.4g}"
    edge = (1 + subject.margin) * (1 + SLACK)
    follows = {
        "faster": c.low > 1,
        "slower": c.high < 1,
        "equivalent": 1 / edge <= c.low and c.high <= edge,
        "undecided": True,
    }[c.decision]
    if not follows:
        return f"is called {c.decision}, but its interval is {c.low:.4g} to {c.high:.4g}"
    if c.p_value is not None:
        excludes = c.low > 1 or c.high < 1
        if (excludes and c.p_value > 1.05 * subject.alpha) or (not excludes and c.p_value < subject.alpha / 1.05):
            return f"has p = {c.p_value:.2g}, which contradicts its interval of {c.low:.4g} to {c.high:.4g}"
    return None


@rule("C4", scope=Scope.STUDY, weight=Weight.FLAG)
def family_adjusted(subject: StudySubject) -> Outcome:
    """In a family of several comparisons every p value is adjusted, and the adjustment is right when recomputed.

    "Faster" and "slower" must rest on the adjusted value.

    Prevents: a false alarm in one of many cells read as a finding. Of studies with 40 independent cells and no difference
    anywhere, 87 % show at least one at a level of 5 % (1 - 0.95^40).
    """
    from assay.stats import adjust

    if not subject.comparisons:
        return unknown(_NOTHING)
    if subject.correction not in ("holm", "benjamini-hochberg"):
        return unknown(f"the correction {subject.correction!r} is not known")
    families: dict[str, list[ComparisonView]] = {}
    for c in subject.comparisons:
        families.setdefault(c.family, []).append(c)
    broken, missing = [], []
    for members in families.values():
        if len(members) == 1:
            continue
        without = [_name(c) for c in members if not _number(c.p_adjusted)]
        if without:
            broken.append(f"{len(without)} of {len(members)} comparisons are not adjusted: {_some(without)}")
        p_values = [c.p_value for c in members if c.p_value is not None and _number(c.p_value)]
        if len(p_values) < len(members):
            missing.append("a comparison has no p value")
            continue
        for c, right in zip(members, adjust(p_values, subject.correction), strict=True):
            if c.p_adjusted is None or math.isnan(c.p_adjusted):
                continue
            if abs(c.p_adjusted - right) > SLACK + 1e-3 * right:
                broken.append(f"{_name(c)} has an adjusted p of {c.p_adjusted:.3g}, recomputed {right:.3g}")
            elif c.decision in ("faster", "slower") and c.p_adjusted >= subject.alpha:
                broken.append(f"{_name(c)} is called {c.decision} with an adjusted p of {c.p_adjusted:.3g}")
    sizes = {name: len(members) for name, members in families.items()}
    fine = f"families of {', '.join(map(str, sizes.values()))}: adjusted by {subject.correction}, recomputed equal"
    return judge(_cut(broken), missing, fine, families=sizes, details=broken)


@rule("C5", scope=Scope.STUDY, weight=Weight.VOID)
def order_randomised(subject: StudySubject) -> Outcome:
    """Blocks are complete, ran in the planned order, and the orders differ and favour no cell.

    Complete: no cell twice, no cell that was left out comes back, and all candidates compared on a point are in the same
    blocks. The last block may be cut short. With the numbers of the blocks the orders are drawn again from the seed and must be
    the same. With at least 5 blocks of 3 cells, not all orders may be equal, and no cell may be early or late
    systematically (Friedman's test on positions, p < 0.001).

    Prevents: time drift read as a difference between systems. turso #8890 (repeat rounds over all queries, not each
    query in place); the methodology asks for randomised complete blocks across systems for that reason.
    """
    blocks, executed = subject.blocks, subject.executed
    if not blocks or subject.seed is None:
        return unknown("the planned orders or their seed were not recorded")
    cells = sorted({cell for block in blocks for cell in block})
    broken = []
    if len(cells) != subject.n_cells:
        broken.append(f"the blocks hold {len(cells)} cells, the study has {subject.n_cells}")
    broken += _incomplete(blocks, subject.points or dict.fromkeys(cells, ""))
    broken += _not_as_planned(blocks, executed)
    if subject.block_numbers:
        from assay.model.plan import Plan, block_order

        plan = Plan([], [], {}, subject.seed, 1.0)
        for number, block in zip(subject.block_numbers, blocks, strict=True):
            if block_order(plan, number, block) != block:
                broken.append(f"the order of block {number} is not the one that seed {subject.seed} gives")
    p = None
    always = [cell for cell in cells if all(cell in block for block in blocks)]
    if not broken and len(blocks) >= 5 and len(always) >= 3:
        kept = [[cell for cell in block if cell in always] for block in blocks]
        p = _balance(kept, always)
        if all(block == kept[0] for block in kept):
            broken.append(f"all {len(blocks)} blocks have the same order")
        elif p < BALANCE_P:
            broken.append(f"some cells come systematically early or late (p = {p:.2g})")
    fine = f"{len(blocks)} blocks of {len(cells)} cells in orders drawn from seed {subject.seed}, run as planned"
    return judge(_cut(broken), [], fine, details=broken, balance_p=p, recomputed=bool(subject.block_numbers))


def _incomplete(blocks: list[list[str]], points: dict[str, str]) -> list[str]:
    broken = []
    left_out: set[str] = set()
    seen: set[str] = set()
    for number, block in enumerate(blocks, start=1):
        here = set(block)
        if len(here) != len(block):
            broken.append(f"block {number} holds a cell twice")
        if here & left_out:
            broken.append(f"block {number} holds a cell that block {number - 1} left out")
        running = {points[cell] for cell in here if cell in points}
        if missing := [cell for cell, point in points.items() if point in running and cell not in here]:
            broken.append(f"block {number} holds some but not all candidates of a point: {len(missing)} missing")
        seen |= here
        left_out = seen - here
    return broken


def _not_as_planned(blocks: list[list[str]], executed: list[list[str]]) -> list[str]:
    if len(executed) != len(blocks):
        return [f"{len(blocks)} blocks were planned, {len(executed)} were run"]
    broken = []
    for i, (planned, done) in enumerate(zip(blocks, executed, strict=True)):
        cut_short = i == len(blocks) - 1 and done == planned[: len(done)]
        if done != planned and not cut_short:
            broken.append(f"block {i + 1} was not run in the planned order")
    return broken


def _balance(blocks: list[list[str]], cells: list[str]) -> float:
    """p of Friedman's test on the positions of cells within blocks."""
    from scipy.stats import chi2

    k, n = len(cells), len(blocks)
    sums = dict.fromkeys(cells, 0)
    for block in blocks:
        for position, cell in enumerate(block, start=1):
            sums[cell] += position
    statistic = 12 / (n * k * (k + 1)) * sum(s * s for s in sums.values()) - 3 * n * (k + 1)
    return float(chi2.sf(statistic, k - 1))


@rule("C6", scope=Scope.STUDY, weight=Weight.FLAG)
def false_alarms_shown(subject: StudySubject) -> Outcome:
    """There is an A/A pair, and it is not called different more often than alpha allows (binomial tail, p < 0.05).

    Prevents: a method that finds differences where there are none. No storage tool measures its own false alarms as
    routine; conbench #530 calls uncertainty "table stakes".
    """
    from scipy.stats import binom

    decisions = subject.aa_decisions
    if not decisions:
        return unknown("the study has no A/A pair")
    strange = sorted(set(decisions) - set(DECISIONS))
    if strange:
        return unknown(f"the A/A pair has decisions that are not known: {', '.join(strange)}")
    n, different = len(decisions), sum(d in ("faster", "slower") for d in decisions)
    p = float(binom.sf(different - 1, n, subject.alpha))
    words = f"{different} of {n} A/A cells are called different, {percent(subject.alpha)} are allowed (p = {p:.2g})"
    return judge([words] if p < FALSE_ALARM_P else [], [], words, cells=n, different=different, p=p)


@rule("C7", scope=Scope.STUDY, weight=Weight.FLAG)
def baseline_and_absolutes(subject: StudySubject) -> Outcome:
    """Absolute figures stand beside every ratio, and the null target's figure at every point that is compared.

    Prevents: Heiser's "relative numbers only" and "no proper baseline": twice of nothing is nothing, and two candidates
    that both reach the limit of the harness are equal for no reason of their own.
    """
    stated = _stated(subject)
    if not stated:
        return unknown(_NOTHING)
    bare = [
        _name(c)
        for c in stated
        if any(v is None or not math.isfinite(v) or v <= 0 for v in (c.a_absolute, c.b_absolute))
    ]
    points = sorted({c.point_id for c in stated})
    without = [p for p in points if p not in subject.floorless and not math.isfinite(subject.floors.get(p, math.nan))]
    broken, missing = [], []
    if bare:
        broken.append(f"{len(bare)} comparisons have no absolute figures: {_some(bare)}")
    if not subject.has_null:
        broken.append("the study has no null target, so the harness floor is not known")
    elif without:
        missing.append(f"the null target has no figure at {_some(without)}")
    fine = f"{len(stated)} comparisons with absolute figures, and the harness floor at {len(points)} points"
    return judge(broken, missing, fine, without_absolute=bare, without_floor=without)


@rule("C8", scope=Scope.STUDY, weight=Weight.FLAG)
def no_mean_of_normalised(subject: StudySubject) -> Outcome:
    """A figure that sums up normalised scores is their geometric mean, recomputed here, or there is none.

    Prevents: Heiser's "arithmetic mean of normalised scores", whose winner depends on which system one divides by.
    """
    aggregates = subject.aggregates
    if aggregates is None:
        return unknown("which aggregates the report shows was not recorded")
    used = [a for a in aggregates if a.kind != "none"]
    if not used:
        return valid("no figure sums up several cells", kinds=[])
    broken, missing = [], []
    for a in used:
        if a.kind != "geometric-mean":
            broken.append(f"normalised scores are summed up by {a.kind}")
        elif a.shown is None or not a.values:
            missing.append("a geometric mean comes without the scores it was made from")
        elif not math.isclose(a.shown, _geometric_mean(a), rel_tol=0.005):
            broken.append(f"a geometric mean is shown as {a.shown:.4g}, recomputed {_geometric_mean(a):.4g}")
    fine = f"{len(used)} geometric means, recomputed equal"
    return judge(broken, missing, fine, kinds=[a.kind for a in used])


def _geometric_mean(a: AggregateView) -> float:
    return math.exp(math.fsum(math.log(v) for v in a.values) / len(a.values))


@rule("C9", scope=Scope.STUDY, weight=Weight.FLAG)
def regressions_shown(subject: StudySubject) -> Outcome:
    """Every table of decisions shows as many faster, slower, equivalent and undecided rows as there are.

    Judged twice: on what the ledger holds, and on the report when it is written, whose tables are read back from the
    finished files. Tables of the comparisons with one candidate must show all of those.

    Prevents: selective reporting, the first of Heiser's crimes: wins in the table, losses in a footnote, undecided cells
    nowhere.
    """
    if not subject.comparisons:
        return unknown(_NOTHING)
    if not subject.tables:
        return unknown("the rows of the report's tables were not counted")
    broken = []
    for table in subject.tables:
        there = _decisions(subject.comparisons, table.against)
        for decision in (*DECISIONS, *sorted(table.rows.keys() - set(DECISIONS))):
            if table.rows.get(decision, 0) != there.get(decision, 0):
                broken.append(
                    f"table {table.name!r} shows {table.rows.get(decision, 0)} {decision}, there are {there.get(decision, 0)}"
                )
    all_of_them = _decisions(subject.comparisons, None)
    counts = ", ".join(f"{all_of_them.get(d, 0)} {d}" for d in DECISIONS)
    shown = {table.name: table.rows for table in subject.tables}
    return judge(_cut(broken), [], f"every table shows what there is: {counts}", decisions=all_of_them, tables=shown)


_TURNED = {"faster": "slower", "slower": "faster"}


def _decisions(comparisons: list[ComparisonView], against: str | None) -> dict[str, int]:
    """Decisions of all comparisons, or of those of the others with one candidate, each seen from the other's side."""
    if against is None:
        return dict(Counter(c.decision for c in comparisons))
    mine = [c.decision for c in comparisons if c.b == against]
    theirs = [_TURNED.get(c.decision, c.decision) for c in comparisons if c.a == against]
    return dict(Counter(mine + theirs))
