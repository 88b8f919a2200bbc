"""What the lab's network lets through for each cell, so that every result can be told as a share of it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from assay.model.layout import Layout, parse_layout

if TYPE_CHECKING:
    from assay.ledger.queries import StudyData
    from assay.model.baseline import Bound

#: From this share on the link was measured rather than the system.
NEAR = 0.9


@dataclass(frozen=True)
class CellBound:
    """The most user data per second that the network lets through for one cell, and what limits it."""

    bytes_per_second: float
    reason: str  # e.g. "client out: 1.5 bytes per byte written"
    enforced: bool  # the links are shaped, so that no right result lies above it

    def share(self, bandwidth: float) -> float | None:
        """``bandwidth`` (bytes/s) as a share of the bound; None when there is no figure."""
        return bandwidth / self.bytes_per_second if math.isfinite(bandwidth) else None


def layout_of(system: str) -> Layout | None:
    """The layout that a candidate's system names, ``glusterfs/rain-4-2``; None when it names none (``local/xfs``)."""
    parts = system.split("/")
    try:
        return parse_layout(parts[1]) if len(parts) > 1 and not system.startswith("path:") else None
    except ValueError:
        return None


def cell_bound(bound: Bound | None, point: Mapping[str, Any]) -> CellBound | None:
    """The bound of one point, both directions together; None when none is known."""
    if bound is None or not bound.total_bytes_per_second:
        return None
    pattern = str(point.get("pattern", ""))
    words = {"read": bound.read_limit, "randread": bound.read_limit, "write": bound.write_limit}
    words |= {"randwrite": bound.write_limit}
    reason = words.get(pattern, f"{bound.read_limit}; {bound.write_limit}")
    return CellBound(bound.total_bytes_per_second, reason, bound.enforced)


def bounds_of(data: StudyData) -> dict[str, CellBound]:
    """Cell id -> bound, of the cells that have one: read from the evidence of any attempt of the cell."""
    points = {w.id: w.point for w in data.workloads}
    placed = {c.label for c in data.candidates if layout_of(c.system) is not None}
    first: dict[str, tuple[str, str]] = {}
    for attempt, cell, candidate, workload in data.attempts.select(
        "id", "cell_id", "candidate", "workload_id"
    ).iter_rows():
        if candidate in placed:
            first.setdefault(cell, (attempt, workload))
    found = {cell: cell_bound(data.evidence(attempt).bound, points[w]) for cell, (attempt, w) in first.items()}
    return {cell: bound for cell, bound in found.items() if bound is not None}
