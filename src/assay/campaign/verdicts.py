"""The analysis in plain words: sentences that a person who reads nothing else may rely on."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

from assay.campaign.bounds import NEAR
from assay.model.verdict import Verdict
from assay.stats.compare import Decision

if TYPE_CHECKING:
    from assay.campaign.analysis import Analysis, Comparison

METRIC_WORDS: Mapping[str, str] = {
    "bandwidth": "bandwidth",
    "iops": "operations per second",
    "latency-mean": "mean latency",
    "latency-p50": "median latency",
    "latency-p95": "95th percentile of latency",
    "latency-p99": "99th percentile of latency",
}


def percent(ratio: float) -> str:
    """A ratio as a change: 1.234 -> ``+23 %``, 0.977 -> ``−2.3 %``."""
    change = 100 * (ratio - 1)
    text = f"{change:+.0f} %" if abs(change) >= 9.95 else f"{change:+.1f} %"
    return text.replace("-", "−")


def _are(count: int, what: str) -> str:
    return f"{count} is {what}" if count == 1 else f"{count} are {what}"


def sentences(analysis: Analysis, names: Mapping[str, str]) -> tuple[str, ...]:
    """The overall verdict; ``names``: workload id -> name. Losses are told before wins are summed up."""
    return (
        *_race(analysis),
        *_against_baseline(analysis, names),
        *_network_bound(analysis),
        *_false_alarms(analysis),
        *_caveats(analysis),
    )


def _race(analysis: Analysis) -> list[str]:
    points = len(analysis.winners)
    if len(analysis.subjects) < 2 or not points:
        return []
    clear = Counter(w.best for w in analysis.winners if w.kind == "winner")
    shared = Counter(
        tuple(sorted(w.contenders, key=analysis.subjects.index)) for w in analysis.winners if w.kind == "tie"
    )
    open_points = sum(w.kind in ("undecided", "none") for w in analysis.winners)
    metric = METRIC_WORDS[analysis.metric]
    if len(clear) == 1 and next(iter(clear.values())) == points:
        return [f"By {metric}, {next(iter(clear))} is best on every one of {points} workload points."]
    parts = [f"{label} is best on {clear[label]}" for label in analysis.subjects if clear[label]]
    parts += [f"{_all(labels)} are equivalent and best on {count}" for labels, count in shared.most_common()]
    if not parts:
        return [f"By {metric}, no candidate could be shown to be best on any of {points} workload points."]
    if open_points:
        parts.append(f"{open_points} undecided")
    return [f"By {metric}, of {points} workload points: {'; '.join(parts)}."]


def _all(labels: Sequence[str]) -> str:
    return f"{', '.join(labels[:-1])} and {labels[-1]}" if len(labels) > 1 else labels[0]


def _named(comparison: Comparison, names: Mapping[str, str]) -> str:
    ratio = comparison.ratio
    return (
        f"{percent(ratio.estimate)} ({percent(ratio.low)} to {percent(ratio.high)}) "
        f"on {names.get(comparison.workload_id, comparison.workload_id)}"
    )


def _against_baseline(analysis: Analysis, names: Mapping[str, str]) -> list[str]:
    found = []
    for label in analysis.subjects[1:]:
        mine = [c for c in analysis.baseline_comparisons if c.a == label]
        if not mine:
            continue
        count = Counter(c.decision for c in mine)
        text = (
            f"{label} against {analysis.baseline}: slower on {count[Decision.SLOWER]}, faster on "
            f"{count[Decision.FASTER]}, equivalent on {count[Decision.EQUIVALENT]}, undecided on "
            f"{count[Decision.UNDECIDED]} of {len(mine)} points"
        )
        found.append(text + _extremes(mine, names) + ".")
    return found


def _extremes(comparisons: Sequence[Comparison], names: Mapping[str, str]) -> str:
    losses = [c for c in comparisons if c.decision is Decision.SLOWER]
    wins = [c for c in comparisons if c.decision is Decision.FASTER]
    text = ""
    if losses:
        text += "; largest loss " + _named(min(losses, key=lambda c: c.ratio.estimate), names)
    if wins:
        text += "; largest gain " + _named(max(wins, key=lambda c: c.ratio.estimate), names)
    return text


def _network_bound(analysis: Analysis) -> list[str]:
    """Where the link was measured rather than the system."""
    near, bounded = Counter[str](), Counter[str]()
    for cell in analysis.cells:
        bound = analysis.bounds.get(cell.cell_id)
        if bound is None or cell.role != "subject" or not cell.n:
            continue
        bounded[cell.candidate] += 1
        near[cell.candidate] += (bound.share(cell.intervals["bandwidth"].estimate) or 0.0) >= NEAR
    if not near.total():
        return []
    parts = [f"{label} on {near[label]} of {bounded[label]} points" for label in analysis.subjects if near[label]]
    return [
        f"Limited by the network (at least {100 * NEAR:g} % of what it lets through for the layout): {', '.join(parts)}; "
        "there the links were measured, not the file system."
    ]


def _false_alarms(analysis: Analysis) -> list[str]:
    if not analysis.false_alarms:
        return ["No A/A pair was run: how often this procedure cries wolf on this lab is unknown."]
    found = []
    for alarms in analysis.false_alarms:
        if not alarms.tested:
            found.append(f"A/A pair of {alarms.subject}: too few blocks to raise any alarm, so it proves nothing yet.")
            continue
        found.append(
            f"False alarms: {alarms.subject} against itself was called different on {alarms.different} of "
            f"{alarms.tested} points; the honest answer is 0."
        )
    return found


def _caveats(analysis: Analysis) -> list[str]:
    running = [c for c in analysis.cells if not c.not_applicable]
    found = []
    invalid = sum(c.verdict is Verdict.INVALID for c in running)
    unknown = sum(c.verdict is Verdict.UNKNOWN for c in running)
    if invalid or unknown:
        found.append(
            f"Of {len(running)} cells {_are(invalid, 'invalid')} (nothing is claimed about such a cell) and "
            f"{_are(unknown, 'not fully verified')}."
        )
    judged = [c for c in running if c.role == "subject"]
    missed = sum(not c.target_met for c in judged)
    if missed:
        found.append(
            f"Of {len(judged)} cells of candidates, {missed} did not reach the wanted precision of "
            f"±{100 * analysis.measure.half_width:g} %."
        )
    near = {label for floor in analysis.floors for label, share in floor.shares.items() if share > 0.5}
    if near:
        found.append(
            f"On some points {', '.join(sorted(near))} ran at more than half of what the harness itself can "
            "do; there the load generator may be part of what was measured."
        )
    return found
