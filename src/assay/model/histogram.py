"""Latency histograms: merging, percentiles, mean. The loops are in Rust (:mod:`assay._core`).

Percentiles are given in percent, 0 < q <= 100, as fio and people write them (99.9), never as a fraction.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence

from assay import _core
from assay.model.evidence import Histogram

_NS_PER_SECOND = 1e9


def merge(histograms: Iterable[Histogram]) -> Histogram:
    """All histograms as one: latencies ascend, equal ones are added up, empty bins are dropped.

    Associative and commutative. Raises OverflowError when the counts exceed 64 bits together, ValueError when a
    histogram has not as many counts as latencies.
    """
    latency_ns, counts = _core.merge([(h.latency_ns, h.counts) for h in histograms])
    return Histogram.model_construct(latency_ns=latency_ns, counts=counts)


def percentile(h: Histogram, q: float) -> float:
    """Seconds below which ``q`` percent of the samples lie; NaN without samples. See :func:`percentiles`."""
    return percentiles(h, [q])[0]


def percentiles(h: Histogram, qs: Sequence[float]) -> list[float]:
    """Seconds at each percentile of ``qs`` (percent, any order), NaN without samples.

    fio's rule (stat.c, calc_clat_percentiles): the latency of the first bin at which the running count reaches
    ``q / 100`` of all samples; no interpolation. Raises ValueError when a percentile is outside (0, 100] or the
    latencies do not ascend.
    """
    if not any(h.counts):
        if any(not 0 < q <= 100 for q in qs):
            raise ValueError(f"a percentile lies above 0 and up to 100, not at {list(qs)}")
        return [math.nan] * len(qs)
    return [ns / _NS_PER_SECOND for ns in _core.percentiles(h.latency_ns, h.counts, qs)]


def mean_seconds(h: Histogram) -> float:
    """Mean latency in seconds from the bins' values, NaN without samples.

    It carries the bins' rounding (fio's are up to 1.6 % wide); prefer a load generator's exact mean where there is one.
    """
    return _core.mean(h.latency_ns, h.counts) / _NS_PER_SECOND if any(h.counts) else math.nan


def count(h: Histogram) -> int:
    """Number of samples. Raises OverflowError above 64 bits."""
    return _core.total(h.counts)
