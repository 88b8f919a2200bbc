"""Aggregates over clients, from counts and merged histograms; never from a tool's printed summary.

The measured window of a client in one direction ends when the client ends and starts its runtime earlier, the runtime
being the load generator's own count of the measured time (ramp excluded; fio: the longest of its threads). The window
of all clients reaches from the earliest start to the latest end. For one client that is its runtime, so bandwidth is
bytes / runtime, fio's own figure for a group. For several it is never shorter than any client's runtime: clients that
did not overlap cannot add up their speeds.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Literal, get_args

import numpy as np

from assay.model import histogram
from assay.model.evidence import ClientResult, ClientSamples, Direction, DirectionSummary, Series, Summary
from assay.model.series import rebin

PERCENTILES = ("50", "90", "95", "99", "99.9", "99.99")
TAIL_SAMPLES = 10


def summarise(clients: Sequence[ClientResult], samples: Sequence[ClientSamples]) -> Summary:
    """The aggregate of one attempt; directions that no client reports are absent.

    Percentiles are in seconds, of the merged histograms, and only those beyond which at least ``TAIL_SAMPLES`` samples
    lie, n * (1 - q / 100) >= 10: a p99 of 64 samples would be their maximum. The latency mean is the clients' means
    weighted by operations (0.0 without operations). Clients without totals (killed, unparsable) contribute nothing;
    that they failed is in their results. Raises OverflowError when counts exceed 64 bits.
    """
    directions: dict[Direction, DirectionSummary] = {}
    for direction in get_args(Direction):
        if any(direction in client.totals for client in clients):
            directions[direction] = _direction(direction, clients, samples)
    return Summary(directions=directions)


def _direction(
    direction: Direction, clients: Sequence[ClientResult], samples: Sequence[ClientSamples]
) -> DirectionSummary:
    parts = [(client.ended_at, client.totals[direction]) for client in clients if direction in client.totals]
    latest_end = max(ended_at for ended_at, _ in parts)
    window = max(total.runtime_seconds + (latest_end - ended_at) for ended_at, total in parts)
    total_bytes = sum(total.bytes for _, total in parts)
    operations = sum(total.operations for _, total in parts)
    weighted = math.fsum(total.latency_mean_seconds * total.operations for _, total in parts)
    return DirectionSummary(
        bandwidth_bytes_per_second=total_bytes / window if window > 0 else 0.0,
        iops=operations / window if window > 0 else 0.0,
        bytes=total_bytes,
        operations=operations,
        latency_mean_seconds=weighted / operations if operations else 0.0,
        latency_percentiles_seconds=_percentiles(direction, samples),
    )


def _percentiles(direction: Direction, samples: Sequence[ClientSamples]) -> dict[str, float]:
    merged = histogram.merge(client.histograms[direction] for client in samples if direction in client.histograms)
    n = histogram.count(merged)
    # 1000 * (100 - 99) / 100 must count as 10: the product is rounded before it is compared.
    supported = [q for q in PERCENTILES if round(n * (100 - float(q)) / 100, 6) >= TAIL_SAMPLES]
    if not supported:
        return {}
    values = histogram.percentiles(merged, [float(q) for q in supported])
    return dict(zip(supported, values, strict=True))


def total_series(
    samples: Sequence[ClientSamples],
    quantity: Literal["bandwidth", "iops", "latency"],
    direction: Direction | None = None,
) -> tuple[list[float], list[float]]:
    """(seconds, values) over all clients, and over both directions when ``direction`` is None.

    ``seconds[i]`` is the end of an interval, counted from the start of each client's measured time; all intervals are
    as long as the longest of the inputs'. Bandwidth (bytes/s) and iops (1/s) are summed: a client that has ended counts
    as 0. Latency (seconds) is the mean weighted by operations, and an interval without operations is left out.
    """
    chosen = [
        (client, series)
        for client in samples
        for series in client.series
        if series.quantity == quantity and series.seconds and direction in (None, series.direction)
    ]
    if not chosen:
        return [], []
    interval = max(series.interval_seconds for _, series in chosen)
    bins = round(max(series.seconds[-1] for _, series in chosen) / interval)
    edges = np.arange(bins + 1) * interval
    ends = edges[1:].tolist()
    if quantity != "latency":
        total = np.zeros(bins)
        for _, series in chosen:
            total += _on_grid(series, edges)
        return ends, total.tolist()

    weight = np.zeros(bins)
    weighted = np.zeros(bins)
    for client, series in chosen:
        rate = np.zeros(bins)
        for other in client.series:
            if other.quantity == "iops" and other.direction == series.direction:
                rate = _on_grid(other, edges)
        seconds = np.asarray(series.seconds)
        at = np.clip(np.ceil(seconds / interval - 0.5).astype(int) - 1, 0, bins - 1)
        # A latency is there, so at least one operation was: a rate of 0 is the series' rounding.
        share = np.maximum(rate[at], 1.0 / interval)
        np.add.at(weight, at, share)
        np.add.at(weighted, at, share * np.asarray(series.values))
    used = np.flatnonzero(weight)
    return [ends[i] for i in used], (weighted[used] / weight[used]).tolist()


def _on_grid(series: Series, edges: np.ndarray) -> np.ndarray:
    ends = np.asarray(series.seconds)
    return rebin(ends - series.interval_seconds, ends, np.asarray(series.values), edges)
