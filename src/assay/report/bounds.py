"""Shares of the network's bound in words, the same in tables, charts and terminal."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from assay.report.format import number

if TYPE_CHECKING:
    from assay.campaign.analysis import Analysis, CellAnalysis

#: Beyond this share a result is above its bound by more than rounding and the measuring of the link explain.
ABOVE = 1.02


@dataclass(frozen=True)
class BoundWords:
    """One cell's bound for people. ``share`` is None when the cell has no usable value."""

    megabytes: float  # the bound, MB/s
    share: float | None  # of the bandwidth, 1 = at the bound
    reason: str
    enforced: bool

    @property
    def value(self) -> str:
        """The bound in MB/s."""
        return number(self.megabytes)

    @property
    def share_text(self) -> str:
        """For example ``95 %``."""
        return share_words(self.share)

    @property
    def text(self) -> str:
        """For example ``95 % of the network's bound``."""
        return f"{self.share_text} of the network's bound" if self.share is not None else ""

    @property
    def title(self) -> str:
        """What the bound is and why; for tooltips."""
        shaped = "" if self.enforced else " (links as measured, not shaped)"
        return f"bound {self.value} MB/s: {self.reason}{shaped}" if self.reason else f"bound {self.value} MB/s{shaped}"

    @property
    def above(self) -> bool:
        """Faster than the links allow: something else answered, a cache for instance."""
        return self.share is not None and self.share > ABOVE


def share_words(share: float | None) -> str:
    """A share in percent; above 100 % with a digit more, or 104 % would be rounded to 100 %."""
    return "–" if share is None else f"{number(100 * share, 3 if share >= 0.995 else 2)} %"


def bound_words(analysis: Analysis, cell: CellAnalysis | None) -> BoundWords | None:
    """The bound of a cell and the share of it that its bandwidth reached; None when no bound is known."""
    bound = analysis.bounds.get(cell.cell_id) if cell is not None else None
    if bound is None or cell is None:
        return None
    share = bound.share(cell.intervals["bandwidth"].estimate) if cell.n else None
    return BoundWords(bound.bytes_per_second * 1e-6, share, bound.reason, bound.enforced)
