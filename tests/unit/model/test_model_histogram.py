"""Merging and percentiles against brute force: numpy, and fio's own loop in C's long double."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay import _core
from assay.model import histogram
from assay.model.evidence import Histogram

bins = st.dictionaries(st.integers(0, 1 << 40), st.integers(0, 1000), max_size=40)
histograms = bins.map(lambda b: Histogram(latency_ns=sorted(b), counts=[b[ns] for ns in sorted(b)]))


def _key(h: Histogram) -> tuple[list[int], list[int]]:
    return h.latency_ns, h.counts


@given(st.lists(histograms, max_size=6))
def test_merge_equals_brute_force(parts: list[Histogram]) -> None:
    merged = histogram.merge(parts)
    raw = np.sort(
        np.concatenate([np.repeat(np.array(h.latency_ns, dtype=np.int64), h.counts) for h in parts] or [np.empty(0)])
    )
    values, counts = np.unique(raw, return_counts=True)
    assert merged.latency_ns == values.tolist()
    assert merged.counts == counts.tolist()
    assert histogram.count(merged) == len(raw)
    if len(raw):
        assert histogram.mean_seconds(merged) == pytest.approx(float(raw.mean()) / 1e9)


@given(histograms, histograms, histograms)
def test_merge_is_associative_and_commutative(a: Histogram, b: Histogram, c: Histogram) -> None:
    left = histogram.merge([histogram.merge([a, b]), c])
    assert _key(left) == _key(histogram.merge([a, histogram.merge([b, c])])) == _key(histogram.merge([c, b, a]))


def _fio_rule(h: Histogram, q: float) -> int:
    """stat.c, calc_clat_percentiles, line by line; numpy's longdouble is C's."""
    running = 0
    total = sum(h.counts)
    for value, count in zip(h.latency_ns, h.counts, strict=True):
        running += count
        if running >= np.longdouble(q) / np.longdouble(100.0) * np.longdouble(total):
            return value
    raise AssertionError("fio: error calculating latency percentiles")


@given(histograms.filter(lambda h: any(h.counts)), st.sampled_from([1.0, 5.0, 50.0, 90.0, 95.0, 99.0, 99.9, 99.99]))
def test_percentile_is_fios_rule(h: Histogram, q: float) -> None:
    assert histogram.percentile(h, q) == _fio_rule(h, q) / 1e9


def test_percentiles_keep_the_order_asked_for() -> None:
    h = Histogram(latency_ns=[10, 20, 30], counts=[50, 40, 10])
    assert histogram.percentiles(h, [100, 50, 90, 90.1]) == [30e-9, 10e-9, 20e-9, 30e-9]


def test_nothing_to_compute_on_is_nan() -> None:
    assert math.isnan(histogram.percentile(Histogram(), 50))
    assert math.isnan(histogram.mean_seconds(Histogram(latency_ns=[5], counts=[0])))
    assert histogram.count(Histogram()) == 0


@pytest.mark.parametrize("q", [0, -1, 100.5, math.nan])
def test_percentile_outside_its_range_is_refused(q: float) -> None:
    for h in (Histogram(), Histogram(latency_ns=[1], counts=[1])):
        with pytest.raises(ValueError, match="percentile lies above 0"):
            histogram.percentile(h, q)


def test_overflow_and_negative_counts_are_errors() -> None:
    big = Histogram(latency_ns=[1], counts=[(1 << 64) - 1])
    with pytest.raises(OverflowError):
        histogram.merge([big, Histogram(latency_ns=[2], counts=[1])])
    with pytest.raises(OverflowError):
        histogram.count(Histogram(latency_ns=[1], counts=[-1]))
    with pytest.raises(OverflowError):
        _core.total(np.array([-1]))


def test_core_takes_lists_and_numpy_alike() -> None:
    expected = ([1, 2, 5], [3, 5, 1])
    for kind in (np.int64, np.uint64):
        pairs = [(np.array([1, 2], dtype=kind), np.array([3, 4], dtype=kind)), ([2, 5], [1, 1])]
        assert _core.merge(pairs) == expected
    with pytest.raises(ValueError, match="1 values but 2 counts"):
        _core.merge([([1], [1, 2])])
    with pytest.raises(ValueError, match="not above"):
        _core.percentiles([2, 1], [1, 1], [50.0])
