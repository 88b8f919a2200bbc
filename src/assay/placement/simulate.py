"""Accesses over targets, second by second (section V of the methodology's paper), for many streams of one workload.

The counting is Rust (``rust/assay-core/src/place/pattern.rs``): tens of millions of pieces per second, and a trace of any
length passes through in chunks.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from assay._core import PatternCounter
from assay.placement.errors import PlacementError
from assay.placement.measures import THRESHOLD, Evenness, evenness, imbalance
from assay.placement.spread import Plan, Spread, spread
from assay.placement.workload import CLASSES, Accesses

START_WITHIN_SECONDS = 300.0  # the paper's interval of random starts


@dataclass(frozen=True)
class Patterns:
    """Counts per class (seconds x targets), and the bytes of the pieces that touched each target."""

    rows: dict[str, NDArray[np.uint32]]
    bytes: dict[str, NDArray[np.uint64]]
    touches: int
    random: bool  # whether lots were drawn for the placement

    def evenness(self, op: str, threshold: int = THRESHOLD, *, idle_seconds: bool = True) -> Evenness:
        """Measures of one class."""
        return evenness(self.rows[op], threshold=threshold, idle_seconds=idle_seconds)

    @property
    def capacity_imbalance(self) -> float:
        """Bytes written to the fullest target over the mean."""
        return imbalance(self.bytes["write"])


def stream_starts(streams: int, seed: int, within_seconds: float = START_WITHIN_SECONDS) -> NDArray[np.uint64]:
    """Starts in nanoseconds, uniform over an interval. RANDOM from ``seed``; the first ``k`` of more streams are those of
    ``k`` streams, so that one draw serves all configurations, as in the paper."""
    return (np.random.default_rng(seed).random(streams) * within_seconds * 1e9).astype(np.uint64)


def count(
    chunks: Iterable[Accesses], laid: Spread, starts: NDArray[np.uint64], *, once: bool = False, threads: int = 1
) -> Patterns:
    """Patterns of a workload that comes in chunks (with the same files in each).

    ``once`` counts a target once per access however many pieces of it are touched. Raises PlacementError.
    """
    counter = PatternCounter(
        laid.targets, laid.units, laid.table_starts, laid.tables, laid.reads, laid.writes, once, threads
    )  # fmt: skip
    try:
        for chunk in chunks:
            counter.feed(chunk.at, chunk.op, chunk.file, chunk.offset, chunk.length, starts)
    except ValueError as error:
        raise PlacementError(str(error)) from None
    rows, moved, touches = counter.counts()
    arrays = [np.frombuffer(r, np.uint32).reshape(-1, laid.targets) for r in rows]
    return Patterns(
        dict(zip(CLASSES, arrays, strict=True)),
        {c: np.asarray(b, np.uint64) for c, b in zip(CLASSES, moved, strict=True)},
        touches,
        laid.random,
    )


def simulate(
    accesses: Accesses,
    plan: Plan,
    *,
    streams: int = 1,
    seed: int = 0,
    within_seconds: float = START_WITHIN_SECONDS,
    once: bool = False,
    threads: int = 1,
) -> Patterns:
    """Patterns of ``streams`` copies of a workload, each with files of its own and a start drawn from ``seed``."""
    laid = spread(plan, accesses.names, accesses.sizes, streams, seed)
    starts = stream_starts(streams, seed, within_seconds) if streams > 1 else np.zeros(1, np.uint64)
    return count([accesses], laid, starts, once=once, threads=threads)
