"""fio's averaged logs of all threads of a client as series of the client on one regular grid.

How fio 3.x logs with ``log_avg_msec`` (stat.c): bandwidth and IOPS lines are written by a helper thread; a line at time
t is the mean rate since that thread's previous sample, one interval before or, when the helper is late, more. A sample
in which nothing was completed leaves no line, so a long gap is idle time and must count as zero: stalls are what a file
system test is after. A gap below two intervals can only be a late sample. A longer one is taken for a late sample if the
thread's own byte counter leaves room for so many bytes, else for idle time before one interval. Latency lines are written by the first operation that completes after a multiple of the interval and hold
the mean of the operations before. Times count from the end of the ramp. What a thread moves after its last line, less
than one interval, is in the totals but in no series.
"""

from __future__ import annotations

import warnings
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from assay.model.evidence import Direction, Series
from assay.model.series import Floats, rebin

_DDIR: dict[Direction, int] = {"read": 0, "write": 1}
_SLACK_SECONDS = 0.001  # fio takes a sample this much early (LOG_MSEC_SLACK)
_LATEST_SECONDS = 0.25  # fio's helper thread wakes up at least this often (DISK_UTIL_MSEC)


@dataclass(frozen=True)
class ThreadLogs:
    """Lines of one thread: columns time (ms), value, direction; ``iops`` is None when it follows from bandwidth.

    ``totals`` are bytes and operations that the thread has done in each direction by its own counters.
    """

    bandwidth: Floats
    latency: Floats
    iops: Floats | None
    totals: Mapping[Direction, tuple[int, int]]


def parse_logs(contents: Sequence[bytes]) -> list[Floats]:
    """One array (lines x 3: time in ms, value, direction) per log file; damaged lines are left out."""
    blocks = [content[: content.rfind(b"\n") + 1] for content in contents]
    joined = b"".join(blocks)
    if not joined:
        return [np.empty((0, 3)) for _ in blocks]
    columns = joined[: joined.find(b"\n")].count(b",") + 1
    lines = [block.count(b"\n") for block in blocks]
    # One call for the logs of all threads: the cost per file would exceed the cost per line.
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("error", DeprecationWarning)
            numbers = np.fromstring(joined.replace(b"\n", b",").rstrip(b",").decode("ascii"), sep=",")
        if columns < 3 or numbers.size != columns * sum(lines):
            raise ValueError("damaged lines")
        table = numbers.reshape(-1, columns)[:, :3]
        if not np.isfinite(table).all():
            raise ValueError("not a number")
        return np.split(table, np.cumsum(lines)[:-1])
    except (ValueError, DeprecationWarning, UnicodeDecodeError):
        return [_parse_slowly(block) for block in blocks]


def _parse_slowly(block: bytes) -> Floats:
    rows = []
    for line in block.splitlines():
        try:
            row = [float(part) for part in line.split(b",")[:3]]
        except ValueError:
            continue
        if len(row) == 3 and np.isfinite(row).all():
            rows.append(row)
    return np.array(rows).reshape(-1, 3)


def client_series(
    threads: Sequence[ThreadLogs], interval_seconds: float, block_size: int, directions: Sequence[Direction]
) -> list[Series]:
    """Bandwidth, iops and latency of a client in each direction: rates summed over threads, latency weighted by ops.

    All series share the grid of ``interval_seconds``; the last interval is there if at least half of it was logged.
    Latency has no entry for an interval without operations. With a fixed block size operations are bytes /
    ``block_size``: fio cuts its IOPS to whole numbers, which would lose up to 1/s of each thread.
    """
    last = max((float(t.bandwidth[:, 0].max()) for t in threads if len(t.bandwidth)), default=0.0) / 1000
    bins = int(last / interval_seconds + 0.5)
    if bins == 0:
        return []
    edges: Floats = np.arange(bins + 1, dtype=np.float64) * np.float64(interval_seconds)
    out: list[Series] = []
    for direction in directions:
        out += _direction_series(threads, interval_seconds, block_size, direction, edges, last)
    return out


def _direction_series(
    threads: Sequence[ThreadLogs],
    interval: float,
    block_size: int,
    direction: Direction,
    edges: Floats,
    last: float,
) -> list[Series]:
    bins = len(edges) - 1
    bandwidth = np.zeros(bins)
    operations = np.zeros(bins)
    weight = np.zeros(bins)
    weighted = np.zeros(bins)
    for thread in threads:
        total_bytes, total_operations = thread.totals.get(direction, (0, 0))
        rate = _rates(thread.bandwidth, direction, 1024.0, interval, edges, total_bytes)
        iops = rate / block_size
        if thread.iops is not None:
            iops = _rates(thread.iops, direction, 1.0, interval, edges, total_operations)
        bandwidth += rate
        operations += iops
        lines = thread.latency[thread.latency[:, 2] == _DDIR[direction]]
        if len(lines):
            at = np.clip((lines[:, 0] / 1000 / interval - 0.5).astype(int), 0, bins - 1)
            share = np.maximum(iops[at] * interval, 1.0)  # a line stands for at least one operation
            np.add.at(weight, at, share)
            np.add.at(weighted, at, share * lines[:, 1] * 1e-9)
    # The last interval may have been logged in part: its mean is that of the part.
    covered = min(1.0, (last - edges[-2]) / interval)
    bandwidth[-1] /= covered
    operations[-1] /= covered
    seconds = edges[1:].tolist()
    used = np.flatnonzero(weight)

    def series(quantity: str, at: list[float], values: list[float]) -> Series:
        return Series.model_construct(
            quantity=quantity, direction=direction, interval_seconds=interval, seconds=at, values=values
        )

    return [
        series("bandwidth", seconds, bandwidth.tolist()),
        series("iops", seconds, operations.tolist()),
        series("latency", [seconds[i] for i in used], (weighted[used] / weight[used]).tolist()),
    ]


def _rates(
    lines: Floats,
    direction: Direction,
    unit: float,
    interval: float,
    edges: Floats,
    total: int,
) -> Floats:
    """Mean rate of one thread in each bin; ``total`` is what it has moved altogether, in the unit of the rate."""
    mine = lines[lines[:, 2] == _DDIR[direction]]
    if not len(mine):
        return np.zeros(len(edges) - 1)
    ends = mine[:, 0] / 1000
    values = mine[:, 1] * unit
    gaps = np.diff(ends, prepend=0.0)
    lengths = np.where(gaps < 2 * (interval - _SLACK_SECONDS), gaps, interval)
    room = total - float(values @ lengths)
    for i in np.flatnonzero((lengths < gaps) & (gaps <= interval + _LATEST_SECONDS)):
        more = float(values[i] * (gaps[i] - lengths[i]))
        if more <= room:
            lengths[i] = gaps[i]
            room -= more
    return rebin(ends - lengths, ends, values, edges)
