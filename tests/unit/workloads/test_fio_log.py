"""fio's logs to series: late samples, idle gaps, several threads, damaged files."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.model.evidence import Series
from assay.workloads.fio_log import ThreadLogs, client_series, parse_logs

NOTHING = np.empty((0, 3))
SECOND = 1_048_576  # bytes in a second at 1024 KiB/s


def _lines(*lines: tuple[float, float]) -> np.ndarray:
    return np.array([(ms, value, 0) for ms, value in lines], dtype=float).reshape(-1, 3)


def _thread(bandwidth: np.ndarray, latency: np.ndarray = NOTHING, total: int = 1 << 50) -> ThreadLogs:
    return ThreadLogs(bandwidth=bandwidth, latency=latency, iops=None, totals={"read": (total, total // 4096)})


def _one(series: list[Series], quantity: str) -> Series:
    return next(s for s in series if s.quantity == quantity)


def test_threads_are_summed_and_operations_follow_from_bytes() -> None:
    threads = [_thread(_lines((100, 1024), (200, 1024))), _thread(_lines((100, 3072), (200, 0)))]
    series = client_series(threads, 0.1, 4096, ["read"])
    assert _one(series, "bandwidth").values == pytest.approx([4 * SECOND, SECOND])
    assert _one(series, "iops").values == pytest.approx([1024, 256])
    assert _one(series, "bandwidth").seconds == pytest.approx([0.1, 0.2])


def test_a_stall_counts_as_zero() -> None:
    total = 2 * SECOND // 10
    series = client_series([_thread(_lines((100, 1024), (1000, 1024)), total=total)], 0.1, 4096, ["read"])
    values = _one(series, "bandwidth").values
    assert len(values) == 10
    assert [values[0], values[9]] == pytest.approx([SECOND, SECOND])
    assert max(values[1:9]) < 1


def test_a_late_sample_covers_its_gap() -> None:
    # 50 ms after the line before with an interval of 33 ms: an idle sample between them has no room.
    lines = _lines((33, 1024), (66, 1024), (116, 1024), (149, 1024))
    values = _one(client_series([_thread(lines, total=0)], 0.033, 4096, ["read"]), "bandwidth").values
    assert values == pytest.approx([SECOND] * len(values))


def test_a_late_start_is_proven_by_the_counter() -> None:
    lines = _lines((120, 1024), (140, 1024))
    enough = _one(client_series([_thread(lines, total=SECOND // 5)], 0.02, 4096, ["read"]), "bandwidth").values
    assert enough[0] == pytest.approx(SECOND)
    idle = _one(client_series([_thread(lines, total=SECOND // 25)], 0.02, 4096, ["read"]), "bandwidth").values
    assert idle[0] == 0


def test_latency_is_weighted_by_operations_and_absent_without() -> None:
    threads = [
        _thread(_lines((100, 3072), (200, 0), (300, 1024)), _lines((101, 1e6))),
        _thread(_lines((100, 1024), (200, 0), (300, 1024)), _lines((100, 5e6), (300, 7e6))),
    ]
    latency = _one(client_series(threads, 0.1, 4096, ["read"]), "latency")
    assert latency.seconds == pytest.approx([0.1, 0.3])
    assert latency.values == pytest.approx([2e-3, 7e-3])


def test_parse_logs_of_fio_and_damaged_ones() -> None:
    good = b"125, 324096, 0, 0, 0\n125, 794624, 1, 0, 0\n"
    first, empty, second = parse_logs([good, b"", good])
    assert first.tolist() == second.tolist() == [[125, 324096, 0], [125, 794624, 1]]
    assert empty.shape == (0, 3)
    cut, damaged = parse_logs([good + b"175, 3507", b"x, y, 0, 0, 0\n" + good])
    assert cut.tolist() == damaged.tolist() == first.tolist()
    assert parse_logs([]) == []


@given(st.lists(st.binary(max_size=60) | st.just(b"125, 324096, 0, 0, 0\n"), max_size=5))
def test_parse_logs_never_raises(contents: list[bytes]) -> None:
    arrays = parse_logs(contents)
    assert len(arrays) == len(contents)
    assert all(a.shape[1] == 3 and np.isfinite(a).all() for a in arrays)
