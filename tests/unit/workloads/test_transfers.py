"""Totals and histograms of whole transfers, against the transfers themselves."""

from __future__ import annotations

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.lab.host import LocalHost
from assay.model.summary import summarise
from assay.workloads.transfers import Client, histogram_of, result_of, samples_of


@given(st.lists(st.integers(min_value=0, max_value=2**62), min_size=1, max_size=200))
def test_a_histogram_holds_every_latency_within_a_percent(latencies: list[int]) -> None:
    found = histogram_of(np.array(latencies, dtype=np.uint64))
    assert found.latency_ns == sorted(set(found.latency_ns))
    assert sum(found.counts) == len(latencies)
    spread = np.repeat(np.array(found.latency_ns, dtype=np.uint64), found.counts).tolist()
    for exact, binned in zip(sorted(latencies), spread, strict=True):
        assert binned <= exact
        assert exact - binned <= exact * 2**-7


def test_clients_add_up() -> None:
    host = LocalHost()
    first, second = Client(0, host, started_at=100.0, ended_at=103.0), Client(1, host, started_at=100.0, ended_at=102.0)
    first.bytes, first.latencies_seconds = 3000, [1.0, 2.0]
    second.bytes, second.latencies_seconds = 1000, [0.5]
    results = [
        result_of(c, "write", seconds=sum(c.latencies_seconds), files=[c.name], version="x") for c in (first, second)
    ]
    summary = summarise(results, [samples_of(c, "write") for c in (first, second)])
    written = summary.directions["write"]
    assert (written.bytes, written.operations) == (4000, 3)
    assert written.latency_mean_seconds == pytest.approx(3.5 / 3)
    # the window reaches from the first start to the last end: 3 s before 103
    assert written.bandwidth_bytes_per_second == pytest.approx(4000 / 3)


def test_a_failed_client_has_its_reason_and_no_totals() -> None:
    client = Client(0, LocalHost())
    client.fail("deadline", "killed at its deadline", None)
    result = result_of(client, "read", seconds=0.0, files=[], version="x")
    assert (result.exit_code, result.errors, result.totals) == (None, {"deadline": 1}, {})
    assert math.isclose(result.user_cpu_share, 0.0)
