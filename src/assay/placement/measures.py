"""How even a distribution is: the measures of OSD patterns (section V of the methodology's paper) and what they can show.

A pattern is the row of counts of one second, one entry per target. The deviation of *counts* grows like the square root of
the number of streams and never falls again; only the deviation of the *binary* pattern (active or not) rises until half of
the targets are active and then falls, which is what the paper's figures show. Both are reported, with names that say so.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay.placement.errors import PlacementError

THRESHOLD = 30  # accesses per second above which a target is active; the paper's choice


@dataclass(frozen=True)
class Evenness:
    """Measures of one class of operations, means over seconds."""

    seconds: int  # that were averaged over
    sd_counts: float  # population standard deviation of the counts
    cv_counts: float  # the same divided by the mean count, over seconds with any access
    sd_binary: float  # of the active/inactive pattern, in units of an active target's count
    mean_active: float
    active_shares: tuple[float, ...]  # share of seconds with 0, 1, 2, ... active targets ("Table III")
    load_imbalance: float  # most loaded target over the mean, of the totals
    accesses: int


def evenness(rows: NDArray[np.uint32], *, threshold: int = THRESHOLD, idle_seconds: bool = True) -> Evenness:
    """Measures of patterns (seconds x targets). ``idle_seconds``: whether seconds without any access are averaged in.

    Raises PlacementError when there is nothing to measure.
    """
    if rows.ndim != 2 or not rows.size:
        raise PlacementError("no seconds to measure")
    busy = rows.sum(axis=1) > 0
    used = rows if idle_seconds else rows[busy]
    targets = rows.shape[1]
    if not len(used):
        return Evenness(0, 0.0, 0.0, 0.0, 0.0, (1.0,), 1.0, 0)
    deviation = used.std(axis=1)
    means = used.mean(axis=1)
    active = (used > threshold).sum(axis=1)
    binary = np.sqrt(active * (targets - active)) / targets
    some = means > 0
    totals = rows.sum(axis=0, dtype=np.uint64)
    shares = np.bincount(active, minlength=3) / len(used)
    return Evenness(
        seconds=len(used),
        sd_counts=float(deviation.mean()),
        cv_counts=float((deviation[some] / means[some]).mean()) if some.any() else 0.0,
        sd_binary=float(binary.mean()),
        mean_active=float(active.mean()),
        active_shares=tuple(float(s) for s in shares),
        load_imbalance=imbalance(totals),
        accesses=int(totals.sum()),
    )


def imbalance(amounts: Sequence[float] | NDArray[np.generic]) -> float:
    """The largest of some amounts over their mean; 1 is even, and what nothing at all counts as."""
    values = np.asarray(amounts, float)
    return float(values.max() / values.mean()) if values.size and values.sum() > 0 else 1.0


def half_full_streams(active_per_stream: float, targets: int) -> float:
    """The number of streams at which half of the targets are active when each stream makes ``active_per_stream`` of them
    active, independently and uniformly: ``ln(1/2) / ln(1 - a / N)``, where the binary deviation peaks."""
    if not 0 < active_per_stream < targets:
        raise PlacementError("between none and all targets must be active for each stream")
    return float(np.log(0.5) / np.log1p(-active_per_stream / targets))


def crossing(streams: Sequence[float], active: Sequence[float], level: float) -> float | None:
    """Where mean active targets, given for ascending numbers of streams, pass ``level``: by straight lines between the
    points (and zero for no stream); None when they never do."""
    xs, ys = [0.0, *streams], [0.0, *active]
    for i in range(1, len(xs)):
        if ys[i - 1] < level <= ys[i]:
            return float(xs[i - 1] + (xs[i] - xs[i - 1]) * (level - ys[i - 1]) / (ys[i] - ys[i - 1]))
    return None


@dataclass(frozen=True)
class Movement:
    """What a change of targets moves: shares of all pieces, and the least that any function would have to move."""

    moved: float
    least: float


def movement(
    before: NDArray[np.int32],
    after: NDArray[np.int32],
    capacity_before: Sequence[float],
    capacity_after: Sequence[float],
) -> Movement:
    """Share of pieces (rows of targets, in any order) that are elsewhere after a change, and the least possible share: what
    the targets that gained capacity share have gained. Capacities per target, 0 where one is absent."""
    rows = zip(before.tolist(), after.tolist(), strict=True)
    moved = sum(len(set(b) - set(a)) for b, a in rows)
    old, new = (np.asarray(c, float) / sum(c) for c in (capacity_before, capacity_after))
    return Movement(moved / max(before.size, 1), float(np.clip(new - old, 0, None).sum()))
