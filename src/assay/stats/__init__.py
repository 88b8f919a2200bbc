"""Statistics: pure functions over arrays, no I/O. docs/methodology.md explains each choice to a sceptic."""

from assay.stats.compare import (
    Decision,
    PairedComparison,
    adjust,
    can_reject,
    compare_family,
    decide,
    log_ratios,
    paired_ratio,
    unpaired_ratio,
)
from assay.stats.histogram import percentile_supported
from assay.stats.intervals import Interval, log_t_interval, median_interval, stein_interval
from assay.stats.outliers import OUTLIER_THRESHOLD, modified_z, outliers, slow_first
from assay.stats.steady import (
    Shift,
    SteadyState,
    Trend,
    mann_kendall,
    mser_cut,
    pettitt,
    snia_steady,
    steady_window,
)
from assay.stats.stein import blocks_needed, blocks_needed_paired

__all__ = [
    "OUTLIER_THRESHOLD",
    "Decision",
    "Interval",
    "PairedComparison",
    "Shift",
    "SteadyState",
    "Trend",
    "adjust",
    "blocks_needed",
    "blocks_needed_paired",
    "can_reject",
    "compare_family",
    "decide",
    "log_ratios",
    "log_t_interval",
    "mann_kendall",
    "median_interval",
    "modified_z",
    "mser_cut",
    "outliers",
    "paired_ratio",
    "percentile_supported",
    "pettitt",
    "slow_first",
    "snia_steady",
    "steady_window",
    "stein_interval",
    "unpaired_ratio",
]
