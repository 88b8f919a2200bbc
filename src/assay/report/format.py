"""Numbers and labels as people read them, the same in every table, chart and terminal.

Units in all reports: bandwidth in MB/s (1 MB = 10^6 bytes), operations per second in 1/s, latency in ms.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from assay.stats.compare import Decision
from assay.stats.intervals import Interval


@dataclass(frozen=True)
class Unit:
    """Name, unit and factor (shown = stored * factor) of a metric; ``title`` is for axes and table heads."""

    words: str
    symbol: str
    factor: float

    @property
    def title(self) -> str:
        """For example ``Bandwidth (MB/s)``."""
        return f"{self.words} ({self.symbol})"


UNITS: dict[str, Unit] = {
    "bandwidth": Unit("Bandwidth", "MB/s", 1e-6),
    "iops": Unit("IOPS", "1/s", 1.0),
    "latency-mean": Unit("Mean latency", "ms", 1e3),
    "latency-p50": Unit("Latency p50", "ms", 1e3),
    "latency-p95": Unit("Latency p95", "ms", 1e3),
    "latency-p99": Unit("Latency p99", "ms", 1e3),
}

#: Words and signs of decisions; the sign carries the meaning where colour does not.
DECISION_SIGNS = {
    Decision.FASTER: "▲",
    Decision.SLOWER: "▼",
    Decision.EQUIVALENT: "=",
    Decision.UNDECIDED: "?",
}


def better_words(metric: str, decision: Decision) -> str:
    """The decision in the words of the metric: a latency is "better", not "faster"."""
    if metric.startswith("latency"):
        return {Decision.FASTER: "better", Decision.SLOWER: "worse"}.get(decision, decision.value)
    return decision.value


def number(value: float | None, digits: int = 3) -> str:
    """``digits`` significant digits without an exponent, thousands separated; ``–`` when there is no number."""
    if value is None or math.isnan(value):
        return "–"
    if math.isinf(value):
        return "∞" if value > 0 else "−∞"
    if value == 0:
        return "0"
    if abs(value) < 1e-6:
        return f"{value:.{digits - 1}e}".replace("-", "−")
    places = digits - 1 - math.floor(math.log10(abs(value)))
    text = f"{round(value, places):,.{max(0, min(places, 9))}f}"
    return text.replace("-", "−")


def span(interval: Interval, factor: float = 1.0) -> str:
    """``low to high`` in shown units; an interval of too few values says so."""
    if not interval.is_finite:
        return "too few values"
    return f"{number(interval.low * factor)} to {number(interval.high * factor)}"


def share(value: float) -> str:
    """A share in percent, ``12 %`` or ``0.4 %``."""
    return f"{number(100 * value, 2)} %"


def significant(value: float | None, digits: int = 5) -> float | None:
    """Rounded to significant digits, to keep embedded data small; None for what is not finite."""
    if value is None or not math.isfinite(value):
        return None
    return float(f"{value:.{digits}g}")
