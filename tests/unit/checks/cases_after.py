"""Rules about the results: clean, broken and incomplete subjects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import builders as b
from builders import MIB, attempt, broken, cell, changed, samples, subject
from cases_common import BEFORE_READ, BEFORE_WRITTEN, DELIVERED, READ, VERIFYING, WRITING, WRITTEN, Case

from assay.checks import AttemptSubject


def _raw(changes: dict[str, Any], direction: str = "read", **base: Any) -> AttemptSubject:
    return AttemptSubject(attempt(**base), changed(samples(direction), changes))


def _bound(changes: dict[str, Any] | None = None, pattern: str = "randread", **base: Any) -> AttemptSubject:
    """An attempt on six hosts whose links let 26.0 MB/s through."""
    evidence = changed(attempt(pattern, **base), {"bound": b.bound(pattern)})
    return subject(changed(evidence, changes or {}))


SPEED = "summary/directions/read/bandwidth_bytes_per_second"
SPEED_OF_WRITES = "summary/directions/write/bandwidth_bytes_per_second"
MIXED: dict[str, Any] = {
    "point/pattern": "randrw",
    SPEED: 20e6,
    "summary/directions/write": {
        "bandwidth_bytes_per_second": 10e6, "iops": 1.0, "bytes": 100_000_000, "operations": 10, "latency_mean_seconds": 1.0,
    },
}  # fmt: skip
SERIES = samples(drift=-0.3)

CASES: dict[str, Case] = {
    "A1": Case(
        {
            "direct reads": subject(attempt(direct=True)),
            "direct writes": subject(attempt(**WRITING)),
            "buffered reads from memory": broken({READ: BEFORE_READ}),
            "an operation in flight is counted late": broken({"clients/0/totals/read/operations": b.OPERATIONS - 1}),
            "no counters at all": broken({"before/devices": None, "after/devices": None}, direct=True),
            "sizes vary": broken({"clients/0/totals/read/operations": 9, "point/options": {"bssplit": "4k/50:8k/50"}}),
        },
        {
            "operations do not fit": (broken({"clients/0/totals/read/operations": 960}), "c0: 960 reads of 64.00 KiB"),
            "direct writes reached no device": (broken({WRITTEN: BEFORE_WRITTEN}, **WRITING), "devices wrote 0 B"),
            "direct reads from nowhere": (broken({READ: BEFORE_READ + MIB}, direct=True), "devices read 1.00 MiB"),
        },
        {
            "no totals": broken({"clients/0/totals": {}, "clients/1/totals": {}}),
            "a client without totals": broken({"clients/1/totals": {}}),
            "counters on one side": broken({"after/devices": None}, direct=True),
        },
    ),
    "A2": Case(
        {
            "recomputed equal": subject(),
            "writes": subject(attempt(**WRITING)),
            "one client ended a second later": broken(
                {"clients/1/ended_at": 1011.1, "summary/directions/read/bandwidth_bytes_per_second": DELIVERED / 11}
            ),
        },
        {
            "bytes": (broken({"summary/directions/read/bytes": 1}), "read bytes are 1 in the summary"),
            "operations": (broken({"summary/directions/read/operations": 3000}), "read operations"),
            "bandwidth": (broken({"summary/directions/read/bandwidth_bytes_per_second": 1e6}), "read bandwidth"),
            "IOPS of one client": (broken({"summary/directions/read/iops": 192.0}), "read IOPS"),
            "latency": (broken({"summary/directions/read/latency_mean_seconds": 0.1}), "mean read latency"),
            "mean of percentiles": (
                broken({"summary/directions/read/latency_percentiles_seconds/99": 0.0125}),
                "p99 of the reads is 0.0125 s in the summary, 0.02 s in the raw data",
            ),
            "histograms hold too many": (
                _raw({"clients/0/histograms/read/counts": [1100, 700, 190, 30]}),
                "histograms hold 3940 reads",
            ),
            "a client is missing in the histograms": (
                AttemptSubject(attempt(), samples().model_copy(update={"clients": samples().clients[:1]})),
                "histograms hold 1920 reads, the summary 3840",
            ),
            "a direction is missing": (broken({"summary/directions": {}}), "lacks the reads"),
            "a direction nobody did": (
                broken({"clients/0/totals": {}, "clients/1/totals": {}}),
                "no load generator reported",
            ),
        },
        {
            "no samples": AttemptSubject(attempt(), None),
            "no summary": broken({"summary": None}),
            "no percentiles": broken({"summary/directions/read/latency_percentiles_seconds": {}}),
            "histogram is torn": _raw({"clients/0/histograms/read/counts": [1]}),
        },
    ),
    "A3": Case(
        {"found": subject()},
        {
            "none": (
                broken({"summary/steady/found": False, "summary/steady/reason": "the rate falls"}),
                "the rate falls",
            )
        },
        {"not analysed": broken({"summary/steady": None}), "no summary": broken({"summary": None})},
    ),
    "A4": Case(
        {
            "no trend": subject(),
            "significant and small": broken({"summary/steady/trend_p": 0.01}),
        },
        {
            "drifts": (
                AttemptSubject(changed(attempt(), {"summary/steady/trend_p": 0.01}), SERIES),
                "bandwidth changes by -2",
            )
        },
        {
            "not tested": broken({"summary/steady/trend_p": None}),
            "too short to test": broken(
                {"summary/steady/trend_p": 1.0, "summary/steady/coefficient_of_variation": None}
            ),
            "no series": AttemptSubject(changed(attempt(), {"summary/steady/trend_p": 0.01}), None),
            "no summary": broken({"summary": None}),
        },
    ),
    "A5": Case(
        {"alike": cell()},
        {"one is far": (cell([24.0, 24.3, 23.9, 2.0, 24.2, 23.8]), "a4 (2.097e+06")},
        {"too few": cell([24.0, 1.0]), "ids missing": replace(cell(), value_ids=[])},
    ),
    "A6": Case(
        {
            "alike": cell(),
            "fast first": cell([48.0, 24.3, 23.9, 24.1, 24.2]),
            "small latency": cell([2.0, 24.3, 23.9, 24.1, 24.2], metric="latency-p99"),
        },
        {
            "slow first": (cell([2.0, 24.3, 23.9, 24.1, 24.2]), "the first attempt was slow"),
            "large latency": (cell([48.0, 24.3, 23.9, 24.1, 24.2], metric="latency-p99"), "slow"),
        },
        {"too few": cell([24.0, 1.0])},
    ),
    "A7": Case(
        {"enough": subject()},
        {
            "p99.9 of 3840": (
                broken({"summary/directions/read/latency_percentiles_seconds/99.9": 0.02}),
                "3840 reads are too few for p99.9",
            ),
            "p99 of 64": (broken({"summary/directions/read/operations": 64}), "64 reads are too few for p95, p99"),
        },
        {
            "no percentiles": broken({"summary/directions/read/latency_percentiles_seconds": {}}),
            "no summary": broken({"summary": None}),
        },
    ),
    "A8": Case(
        {"together": subject(), "9 % apart": broken({"clients/0/job_runtimes_seconds": [10.0, 9.1]})},
        {
            "thread": (broken({"clients/0/job_runtimes_seconds": [10.0, 8.5]}), "last of the threads was done 1.5 s"),
            "client": (broken({"clients/1/ended_at": 1013.0}), "last of the clients"),
        },
        {"not recorded": broken({"clients/1/job_runtimes_seconds": []}), "no results": broken({"clients": []})},
        {
            "one thread": broken(
                {"clients": [b.client(0, "read", "none") | {"job_runtimes_seconds": [10.0]}], "point/clients": 1}
            )
        },
    ),
    "A9": Case(
        {"verified": subject(attempt(**VERIFYING))},
        {
            "wrong bytes": (broken({"clients/1/verify_errors": 3}, **VERIFYING), "3 blocks failed verification by md5"),
            "wrong bytes ended it": (
                broken({"clients/1/verify_errors": 1, "status": "failed"}, **VERIFYING),
                "1 blocks",
            ),
        },
        {
            "never ran": broken({"clients/1/verify_errors": None}, **VERIFYING),
            "no results": broken({"clients": []}, **VERIFYING),
        },
        {"not asked for": subject(), "failed before": broken({"status": "failed", "clients": []}, **VERIFYING)},
    ),
    "A10": Case(
        {
            "nearly full link": _bound(),
            "writes": _bound({SPEED_OF_WRITES: 17.2e6, "summary/directions/write/bytes": 172_000_000}, pattern="write"),
            "2 % above, as measured of shapers": _bound({SPEED: 26.5e6}),
            "a burst in a short run": _bound({SPEED: 27.2e6, "summary/directions/read/bytes": 2_720_000}),
            "in flight at the end of the ramp": _bound({"point/ramp": 1.0, SPEED: 26.6e6}),
            "mixed, each direction of the link has room": _bound(MIXED),
        },
        {
            "reads from memory": (
                _bound({SPEED: 28e6}),
                "read 28 MB/s is above what the network lets through, 26 MB/s (client in): something answered from memory",
            ),
            "a burst does not explain ten seconds": (_bound({SPEED: 26.6e6}), "26.6 MB/s is above"),
            "writes that were only acknowledged": (_bound(pattern="write"), "17.3 MB/s (client out)"),
            "warm, but direct": (_bound({SPEED: 28e6, "point/cache": "warm"}, direct=True), "28 MB/s"),
            "mixed on one direction of the link": (
                _bound(
                    {**MIXED, "bound/limits": [{"nic": "x", "links": 1, "per_byte_read": 1, "per_byte_written": 1}]}
                ),
                "read 20 MB/s and write 10 MB/s is above what the network lets through, 17.3 MB/s and 8.67 MB/s (x)",
            ),
        },
        {
            "shaped, but no bound": _bound({"bound/limits": []}),
            "no link speed": _bound({"bound/link_bytes_per_second": None}),
            "no summary": _bound({"summary": None}),
            "a direction is missing": _bound({"point/pattern": "randrw"}),
        },
        {
            "no network": subject(),
            "links not shaped": _bound({SPEED: 28e9, "bound/enforced": False}),
            "warm reads come from memory": _bound({SPEED: 28e6, "point/cache": "warm"}),
            "local floor": _bound({SPEED: 28e6, "role": "floor"}),
            "failed": _bound({"status": "failed", SPEED: 28e6}),
        },
    ),
}
