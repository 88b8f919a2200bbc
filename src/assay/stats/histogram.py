"""Whether a percentile of a histogram means anything. (Histograms are merged in assay._core.)"""

from __future__ import annotations


def percentile_supported(n_samples: int, q: float, tail: int = 10) -> bool:
    """Whether at least `tail` samples lie beyond the q quantile (q = 0.99 for p99), on the shorter side.

    A p99 of 64 samples is simply the maximum of 64 samples. With `tail` samples beyond it the number of
    samples past the true percentile is known to about 1 / sqrt(tail): 32 % at the default of 10, so p99
    needs 1000 samples and p99.9 needs 10000. The extremes q = 0 and q = 1 are never supported.

    Raises ValueError when q is outside [0, 1], n_samples is negative or tail is below 1.
    Source: Hoefler & Belli, SC'15, section 3.1.3 (quantiles need samples on both sides).
    """
    if not 0.0 <= q <= 1.0:
        raise ValueError(f"q must lie within 0 and 1, not {q}")
    if n_samples < 0:
        raise ValueError(f"n_samples must not be negative, not {n_samples}")
    if tail < 1:
        raise ValueError(f"tail must be at least 1, not {tail}")
    # 10000 * (1 - 0.999) is 10.000000000000009 and 1000 * (1 - 0.99) 10.000000000000009: compare rounded.
    return round(n_samples * min(q, 1.0 - q), 6) >= tail
