"""The protocol's arithmetic: rates, intervals, and the paper's tables compared again."""

from __future__ import annotations

import math

import numpy as np
import pytest

from assay.archive import ArchiveError, protocol


def test_the_papers_tables_compared_again() -> None:
    """The figures of erratum E10: mean absolute differences in per cent."""
    found = {k: v["mean_absolute_percent"] for k, v in protocol.paper_comparison().items()}
    want = {
        "generalized gamma median": 3.7, "spline median": 5.6, "spline lower": 3.2, "spline upper": 2.7,
        "generalized gamma upper": 10.7, "generalized gamma lower": 72.4, "32MB": 13.5, "64MB": 17.9, "2/4MB": 21,
        "1MB": 38, "2/4GB": 55, "128/256KB": 81,
    }  # fmt: skip
    for name, value in want.items():
        assert found[name] == pytest.approx(value, abs=0.55), name
    outside = {
        (name, u)
        for name, row in protocol.paper_comparison().items()
        for u, d in row["difference"].items()
        if d.inside is False
    }
    assert {name for name, _ in outside} == {"generalized gamma lower", "128/256KB", "2/4GB", "1MB"}
    assert {u for name, u in outside if name == "generalized gamma lower"} == {0.05, 0.20, 0.40}
    assert {u for name, u in outside if name == "1MB"} == {0.01, 0.05}


def test_the_archives_scatter_by_ten_to_twelve_percent() -> None:
    for u, want in ((0.01, 10.5), (0.05, 10.2), (0.20, 12.5), (0.40, 11.8)):
        y = np.array([protocol.TABLE_1[a][u] for a in protocol.ARCHIVES_2008])
        assert 100 * y.std(ddof=1) / y.mean() == pytest.approx(want, abs=0.1)


def test_the_interval_of_a_rate_covers() -> None:
    """Batch means of a correlated series (AR(1), 0.5 per bin): 95 % within what 1,000 series can tell."""
    rng = np.random.default_rng(1)
    hits = 0
    for _ in range(1000):
        noise = rng.normal(0, 1, 1200)
        for i in range(1, noise.size):
            noise[i] = 0.5 * noise[i - 1] + noise[i]
        bins = np.maximum(0, 1e7 + 2e6 * noise)
        r = protocol.rate(bins, 0.1, 120.0, seconds=120.0)
        hits += abs(r.mean - 1e8) <= r.half_width
    assert 0.92 <= hits / 1000 <= 0.97


def test_ramp_and_drain_are_left_out() -> None:
    bins = [0] * 10 + [100] * 90 + [1] * 50
    assert protocol.rate(bins, 1.0, 100.0, seconds=100.0).mean == 100
    few = protocol.rate([100] * 5, 1.0, 5.0, seconds=5.0)
    assert math.isinf(few.half_width)
    assert few.as_dict()["half_width"] is None
    # two readings of the same bytes within one bin differ by their times
    assert [protocol.rate([600], 1.0, t, seconds=t).mean for t in (0.3, 0.6)] == pytest.approx([2000, 1000])
    with pytest.raises(ArchiveError, match="nothing was read"):
        protocol.rate([0, 0], 1.0, 2.0, seconds=2.0)


def test_scaled_reading_stops_when_the_interval_is_narrow_and_not_before_its_time() -> None:
    def stops_at(noise: float) -> float:
        rng = np.random.default_rng(2)
        stop = protocol.StopWhenNarrow(minimum_seconds=60.0)
        done = 0
        for k in range(1, 40_000):
            done += int(max(0.0, 25e6 * (1 + noise * rng.normal())))
            if not stop(k, done, k * 0.25):
                return k * 0.25
        return math.inf

    assert stops_at(0.01) == 60.0
    assert 60.0 < stops_at(2.0) < 10_000


def test_buckets() -> None:
    sizes = np.array([0, 1000, 1500, 1500], dtype=np.uint64)
    service = np.array([1, 2, 3, 5], dtype=np.uint64) * 1_000_000
    rows = protocol.by_bucket(sizes, service, service)
    assert [(r["bucket_min_bytes"], r["bucket_max_bytes"], r["files"]) for r in rows] == [
        (0, 1, 1),
        (512, 1024, 1),
        (1024, 2048, 2),
    ]
    assert rows[2]["service_median"] == pytest.approx(0.004)
    assert sum(r["bytes_share"] for r in rows) == pytest.approx(1)
