"""Aggregates over clients: windows, merged percentiles, summed series."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.model.evidence import ClientResult, ClientSamples, Direction, DirectionTotal, Histogram, Series
from assay.model.series import rebin
from assay.model.summary import summarise, total_series


def _client(name: str, ended: float, runtime: float, moved: int, ops: int, mean: float = 1e-3) -> ClientResult:
    total = DirectionTotal(bytes=moved, operations=ops, runtime_seconds=runtime, latency_mean_seconds=mean)
    return ClientResult(
        client=name, host="h", started_at=ended - runtime - 1, ended_at=ended, exit_code=0, totals={"read": total}
    )


def test_one_client_is_bytes_over_runtime_exactly() -> None:
    summary = summarise([_client("c0", 1.7e9 + 0.123, 1.001, 376635392, 5747)], []).directions["read"]
    assert summary.bandwidth_bytes_per_second == 376635392 / 1.001
    assert summary.iops == 5747 / 1.001


def test_clients_that_ran_one_after_the_other_do_not_add_up_speeds() -> None:
    one = _client("c0", 100.0, 10.0, 1000, 10, 1e-3)
    two = _client("c1", 110.0, 10.0, 3000, 30, 2e-3)
    summary = summarise([one, two], []).directions["read"]
    assert summary.bandwidth_bytes_per_second == 4000 / 20
    assert summary.latency_mean_seconds == pytest.approx(1.75e-3)
    together = summarise([one, two.model_copy(update={"ended_at": 100.0})], []).directions["read"]
    assert together.bandwidth_bytes_per_second == 4000 / 10


def test_a_client_without_totals_contributes_nothing() -> None:
    dead = ClientResult(client="c1", host="h", started_at=0, ended_at=500, exit_code=None)
    alone = summarise([_client("c0", 100.0, 10.0, 1000, 10)], [])
    assert summarise([_client("c0", 100.0, 10.0, 1000, 10), dead], []) == alone
    assert summarise([dead], []).directions == {}


def test_percentiles_are_of_the_merged_histogram_and_need_a_tail() -> None:
    fast = Histogram(latency_ns=[1000], counts=[990])
    slow = Histogram(latency_ns=[9000], counts=[10])
    samples = [ClientSamples(client=f"c{i}", histograms={"read": h}) for i, h in enumerate((fast, slow))]
    summary = summarise([_client("c0", 10, 1, 1, 1000)], samples).directions["read"]
    # 1000 samples: 10 lie beyond p99, 1 beyond p99.9.
    assert summary.latency_percentiles_seconds == {"50": 1e-6, "90": 1e-6, "95": 1e-6, "99": 1e-6}
    few = [ClientSamples(client="c0", histograms={"read": Histogram(latency_ns=[5], counts=[19])})]
    assert summarise([_client("c0", 10, 1, 1, 19)], few).directions["read"].latency_percentiles_seconds == {}


def test_no_operations_is_zero_not_a_crash() -> None:
    summary = summarise([_client("c0", 10, 0.0, 0, 0, 0.0)], []).directions["read"]
    assert (summary.bandwidth_bytes_per_second, summary.iops, summary.latency_mean_seconds) == (0, 0, 0)


def _series(quantity: str, direction: Direction, values: list[float], interval: float = 1.0) -> Series:
    seconds = [(i + 1) * interval for i in range(len(values))]
    return Series.model_validate(
        {
            "quantity": quantity,
            "direction": direction,
            "interval_seconds": interval,
            "seconds": seconds,
            "values": values,
        }
    )


def test_total_series_sums_clients_and_directions() -> None:
    samples = [
        ClientSamples(
            client="c0", series=[_series("bandwidth", "read", [1, 2, 3]), _series("bandwidth", "write", [10, 10])]
        ),
        ClientSamples(client="c1", series=[_series("bandwidth", "read", [100])]),
    ]
    assert total_series(samples, "bandwidth") == ([1, 2, 3], [111, 12, 3])
    assert total_series(samples, "bandwidth", "read") == ([1, 2, 3], [101, 2, 3])
    assert total_series(samples, "iops") == ([], [])


def test_total_series_of_unequal_intervals_keeps_the_integral() -> None:
    fine = _series("bandwidth", "read", [1, 3, 5, 7], 0.5)
    samples = [ClientSamples(client="c0", series=[fine, _series("bandwidth", "write", [10, 10])])]
    assert total_series(samples, "bandwidth") == ([1, 2], [12, 16])


def test_latency_is_weighted_by_operations() -> None:
    samples = [
        ClientSamples(client="c0", series=[_series("latency", "read", [1.0, 1.0]), _series("iops", "read", [30, 10])]),
        ClientSamples(client="c1", series=[_series("latency", "read", [5.0]), _series("iops", "read", [10, 0])]),
    ]
    assert total_series(samples, "latency") == ([1, 2], [2.0, 1.0])


@given(
    st.lists(st.tuples(st.floats(0.01, 2), st.floats(0, 2), st.floats(0, 1e9)), min_size=1, max_size=20),
    st.floats(0.05, 3),
)
def test_rebin_keeps_the_integral(parts: list[tuple[float, float, float]], width: float) -> None:
    lengths, gaps, rates = (np.array(column) for column in zip(*parts, strict=True))
    ends = np.cumsum(lengths + gaps)
    edges = np.arange(0, ends[-1] + 2 * width, width)
    binned = rebin(ends - lengths, ends, rates, edges)
    assert (binned * width).sum() == pytest.approx((rates * lengths).sum(), rel=1e-9, abs=1e-3)
    assert binned.max() <= rates.max() * (1 + 1e-6) + 1e-3


def test_rebin_never_goes_below_zero() -> None:
    """Rounding of running sums must not make a rate negative where a client was idle (it once ended a campaign)."""
    random = np.random.default_rng(1)
    for _ in range(200):
        rates = random.uniform(0, 1e9, 60)
        starts = np.arange(0.0, 6.0, 0.1, dtype=np.float64)
        ends = np.add(starts, 0.01, dtype=np.float64)  # idle for the rest of each interval
        assert rebin(starts, ends, rates, np.arange(0, ends[-1] + 0.02, 0.02)).min() >= 0
