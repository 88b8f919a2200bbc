"""Time series on a regular grid: means over intervals, kept so that the integral is kept."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float64]


def rebin(starts: Floats, ends: Floats, rates: Floats, edges: Floats) -> Floats:
    """Mean rate in each bin ``edges[i] .. edges[i + 1]``, given ``rates[k]`` over ``starts[k] .. ends[k]``.

    Times are seconds, ascending; where no interval lies the rate is 0. An interval that straddles an edge is shared by
    length, so the integral over the grid equals the integral over the intervals that it covers. Overlaps are cut from
    the later interval. ``edges`` has one element more than the result.
    """
    if not len(rates):
        return np.zeros(len(edges) - 1)
    starts = np.maximum(starts, np.concatenate(([-np.inf], ends[:-1])))
    amounts = rates * np.maximum(ends - starts, 0.0)
    after = np.cumsum(amounts)
    times = np.column_stack((starts, ends)).ravel()
    # not "after - amounts": rounding would let the sum fall here and there, and rates come out negative
    before = np.concatenate(([0.0], after[:-1]))
    cumulative = np.column_stack((before, after)).ravel()
    return np.diff(np.interp(edges, times, cumulative)) / np.diff(edges)
