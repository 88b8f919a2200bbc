"""Every rule: a clean subject that it applies to, planted violations, and missing data."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import dataclass, field, replace
from typing import Any

import builders as b
import pytest
from builders import MIB, attempt, broken, cell, changed, comparison, samples, study, subject
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import friedmanchisquare

from assay.checks import AggregateView, AttemptSubject, CellSubject, Finding, StudySubject, after, all_rules, run_rules
from assay.model.evidence import Samples
from assay.model.verdict import Verdict

Subject = AttemptSubject | CellSubject | StudySubject


@dataclass(frozen=True)
class Case:
    """What one rule must say. ``invalid`` also holds a part of the message that must name the fault."""

    valid: dict[str, Subject]
    invalid: dict[str, tuple[Subject, str]]
    unknown: dict[str, Subject]
    exempt: dict[str, Subject] = field(default_factory=dict)


def _raw(changes: dict[str, Any], direction: str = "read", **base: Any) -> AttemptSubject:
    return AttemptSubject(attempt(**base), changed(samples(direction), changes))


def _with(index: int, **changes: Any) -> StudySubject:
    clean = study()
    comparisons = [replace(c, **changes) if i == index else c for i, c in enumerate(clean.comparisons)]
    return replace(clean, comparisons=comparisons)


ALWAYS_FIRST = [b.CELLS if i % 5 else [*b.CELLS[:2], "xfs-p1", "xfs-p0"] for i in range(10)]
# after the pilot one point needs more blocks than the other
FEWER = [*study().blocks[:3], *([c for c in block if c.endswith("p0")] for block in study().blocks[3:])]
NO_COMPARISON = study(comparisons=[])
# a candidate that never came up: nothing is known, and nothing is claimed
DEAD: dict[str, Any] = {
    "n": 0,
    "ratio": None,
    "low": None,
    "high": None,
    "p_value": 1.0,
    "b_absolute": None,
    "b_tier": "",
}
DEVICE = "after/devices/0"
READ, WRITTEN = f"{DEVICE}/read_bytes", f"{DEVICE}/written_bytes"
BEFORE_READ, BEFORE_WRITTEN = 5 * b.GIB, 7 * b.GIB
DELIVERED = b.CLIENTS * b.OPERATIONS * b.BLOCK
SERIES = samples(drift=-0.3)
VERIFYING = {"pattern": "randwrite", "direct": True, "verify": "md5"}
WRITING = {"pattern": "randwrite", "direct": True}
BUFFERED: dict[str, Any] = {"pattern": "write", "cache": "any"}

CASES: dict[str, Case] = {
    "W1": Case(
        {"256 MiB of data, 100 MiB of memory": subject(attempt(**BUFFERED))},
        {
            "fits into memory": (broken({"before/hosts/h0/memory_bytes": 200 * MIB}, **BUFFERED), "1.28 times"),
            "own working set in a large shared data set": (
                broken({"point/size": 8 * MIB, "dataset_bytes": 9 * b.GIB}, **BUFFERED),
                "32.00 MiB",
            ),
            "claims cold, but read twice": (broken({"before/hosts/h0/memory_bytes": b.GIB, READ: BEFORE_READ}), "0.25"),
            "a larger factor is asked for": (broken({"expected/ram_factor": 5.0}, **BUFFERED), "factor of 5"),
        },
        {
            "memory not recorded": broken({"before/hosts/h0/memory_bytes": None}, **BUFFERED),
            "no host": broken({"before/hosts": {}}, **BUFFERED),
        },
        {
            "direct": broken({"before/hosts/h0/memory_bytes": b.GIB}, direct=True),
            "claims warm": broken({"before/hosts/h0/memory_bytes": b.GIB}, cache="warm"),
            "proven cold": broken({"before/hosts/h0/memory_bytes": b.GIB}),
        },
    ),
    "W3": Case(
        {
            "as planned": subject(),
            "host above tool": broken({"observed/tools": {"h0": {"fio": "3.33"}}}),
            "no result of clients yet": broken({"clients": [], "status": "failed"}),
        },
        {
            "a client differs": (broken({"clients/1/tool_version": "fio-3.28"}), "different versions: 3.28, 3.33"),
            "hosts differ": (
                broken({"observed/tools/fio": {"h0": "3.33", "h1": "3.28"}, "clients/1/host": "h1"}),
                "fio differs between hosts",
            ),
            "not the planned one": (
                broken({"expected/tools/fio/h0": "3.36", "clients/0/tool_version": ""}),
                "planned 3.36",
            ),
            "only clients tell": (
                broken({"observed/tools": {}, "expected/tools/fio/h0": "3.36"}),
                "3.33, which was not planned",
            ),
        },
        {
            "no plan": broken({"expected/tools": {}}),
            "not observed": broken({"observed/tools": {}, "clients": [], "status": "failed"}),
            "a client is silent": broken({"clients/0/tool_version": ""}),
        },
    ),
    "W5": Case(
        {
            "25 % full": subject(),
            "btrfs reports no inodes": broken({"before/mount/fstype": "btrfs", "before/free_inodes": 0}),
        },
        {
            "too full after": (broken({"after/free_bytes": 100 * MIB}), "97.6 % full"),
            "no inodes": (broken({"after/free_inodes": 0}), "0 free inodes"),
            "too few inodes": (broken({"before/free_inodes": 3}), "3 free inodes are left for 4 files"),
        },
        {"not recorded": broken({"before/free_bytes": None, "after/total_bytes": None})},
    ),
    "W6": Case(
        {"idle": subject()},
        {
            "busy host": (broken({"before/hosts/h0/cpu_busy_share": 0.21}), "h0 used 21 %"),
            "I/O in flight": (broken({"before/devices/0/in_flight": 3}), "loop7 had 3 operations"),
        },
        {
            "CPU not measured": broken({"before/hosts/h0/cpu_busy_share": None}),
            "CPU over no time": broken({"before/hosts/h0/over_seconds": 0.0}),
            "no counters": broken({"before/devices": None}),
            "no host": broken({"before/hosts": {}}),
        },
    ),
    "W7": Case(
        {"as planned": subject(), "1 equals 1.0": broken({"expected/x": 1, "observed/x": 1.0, "observed/y": 2})},
        {
            "mount option": (broken({"observed/mount/options": "rw,relatime"}), "mount.options is 'rw,relatime'"),
            "kernel": (broken({"observed/kernel": "6.12"}), "kernel is '6.12', planned '6.1.0-26-amd64'"),
            "deep configuration": (
                broken({"observed/system/configuration/mkfs": []}),
                "system.configuration.mkfs",
            ),
            "an option nobody planned": (broken({"observed/mount/extra": "x"}), "mount.extra"),
            "remounted read-only": (broken({"after/mount/options": "ro,noatime"}), "changed during the attempt"),
        },
        {"nothing observed": broken({"observed": {}}), "no plan": broken({"expected": {"ram_factor": 2.0}})},
    ),
    "W9": Case(
        {"unique": subject()},
        {"shared": (broken({"clients/1/file_names": ["c0.t0", "c1.t1"]}), "such as c0.t0")},
        {"not recorded": broken({"clients/1/file_names": []})},
        {"one client": broken({"clients": [b.client(0, "read", "none")], "point/clients": 1})},
    ),
    "K1": Case(
        {"dropped": subject()},
        {
            "no evidence": (broken({"cold": None}), "no cache drop"),
            "not requested": (broken({"cold/requested": False}), "no cache drop"),
            "refused": (broken({"cold/exit_codes": [0, 1, 0]}), "drop_caches=3 ended with exit code 1"),
        },
        {"exit code not kept": broken({"cold/exit_codes": [0, 0]})},
        {"claims nothing": broken({"cold": None}, cache="any")},
    ),
    "K2": Case(
        {
            "fell": broken({"cold/cached_after_bytes": 700 * MIB}, pattern="write"),
            "was small": broken({"cold/cached_before_bytes": 21 * MIB}, pattern="write"),
            "other data stayed": broken({"cold/cached_after_bytes": 890 * MIB}),
        },
        {
            "did not fall": (
                broken({"cold/cached_after_bytes": 890 * MIB, READ: BEFORE_READ}),
                "900.00 MiB to 890.00 MiB",
            ),
            "did not fall, writes": (broken({"cold/cached_after_bytes": 890 * MIB}, pattern="write"), "890.00 MiB"),
        },
        {
            "not measured after": broken({"cold/cached_after_bytes": None}),
            "not measured before": broken({"cold/cached_before_bytes": None}),
            "no evidence": broken({"cold": None}),
        },
        {"direct": broken({"cold": None}, direct=True)},
    ),
    "K3": Case(
        {
            "cold": subject(),
            "warm": broken({READ: BEFORE_READ + DELIVERED // 20}, cache="warm"),
            "cold with a ramp": broken({"point/ramp": 2.0, READ: BEFORE_READ + int(DELIVERED * 1.19)}),
        },
        {
            "half came from memory": (
                broken({READ: BEFORE_READ + DELIVERED // 2}),
                "not cold: devices read 120.00 MiB",
            ),
            "read from devices in the ramp, from memory later": (
                broken({"point/ramp": 2.0, READ: BEFORE_READ + int(DELIVERED * 1.05)}),
                "not cold",
            ),
            "claims warm, was read from devices": (subject(attempt(cache="warm")), "not warm"),
            "direct, but a sparse file": (broken({READ: BEFORE_READ}, direct=True), "not cold"),
        },
        {
            "no counters": broken({"before/devices": None, "after/devices": None}),
            "one side only": broken({"after/devices": None}),
            "one side only, before": broken({"before/devices": None}),
            "another device": broken({"after/devices/0/device": "loop8"}),
            "counter went backwards": broken({READ: 0}),
            "no snapshot after": broken({"after": None}),
            "nothing delivered": broken({"clients": []}),
        },
        {
            "writes": subject(attempt("write")),
            "no claim": broken({READ: BEFORE_READ}, cache="any"),
            "null": broken({"role": "null", "before/devices": None}),
            "floor": broken({"role": "floor", "before/devices": None}),
        },
    ),
    "K4": Case(
        {"random is slower": cell()},
        {"random from memory": (cell([60.0, 61.0, 59.0]), "ratio 2.00")},
        {
            "sequential has no usable attempt": replace(cell(), siblings={"sequential-read": []}),
            "no usable attempt": replace(cell(), values=[], value_ids=[]),
            "no attempt": replace(cell(), attempts=[]),
        },
        {"not random": cell(pattern="read"), "no counterpart": replace(cell(), siblings={})},
    ),
    "K5": Case(
        {"alike": cell(), "16 % is noise": cell([28.0, 24.0, 24.1, 23.9, 24.2])},
        {
            "later passes are faster": (cell([12.0, 24.0, 24.1, 23.9, 24.2]), "-50.1 %"),
            "later passes are slower": (cell([60.0, 24.0, 24.0, 24.0]), "inf MAD"),
        },
        {"too few": cell([24.0, 24.1, 24.2]), "not a number": cell([24.0, float("nan"), 24.0, 24.0])},
    ),
    "R3": Case(
        {
            "no errors": subject(),
            "within the limit": broken({"clients/0/errors": {"EIO": 2}, "expected/error_limit": 2}),
        },
        {
            "errors": (broken({"clients/0/errors": {"EIO": 2, "ENOSPC": 1}}), "3 errors (EIO 2 times, ENOSPC 1 times)"),
            "exit code": (broken({"clients/1/exit_code": 1}), "c1 ended with exit code 1"),
            "killed": (broken({"clients/1/exit_code": None}), "killed at its deadline"),
            "a client vanished": (broken({"clients": [b.client(0, "read", "none")]}), "only 1 of 2"),
            "failed": (broken({"status": "failed", "error": "mount: no such device"}), "no such device"),
            "lost": (broken({"status": "lost", "clients": []}), "lost"),
        },
        {"no results": broken({"clients": []})},
    ),
    "R4": Case(
        {"has room": subject(), "far from the floor": broken({"expected/floor": {"iops": 90_000}})},
        {
            "thread at the limit": (
                broken({"clients/0/user_cpu_share": 0.5, "clients/0/system_cpu_share": 0.4}),
                "used 90 % of a core, limit 90 %",
            ),
            "thread saturated": (broken({"clients/0/user_cpu_share": 0.75}), "c0 used 95 % of a core"),
            "host saturated": (broken({"after/hosts/h0/cpu_busy_share": 0.97}), "host h0 used 97 %"),
            "at the floor": (broken({"expected/floor": {"iops": 400}}), "of what the null target reaches"),
        },
        {
            "threads not measured": broken({"clients/0/user_cpu_share": 0.0, "clients/0/system_cpu_share": 0.0}),
            "host measured after the load": broken({"after/hosts/h0/over_seconds": 0.5}),
            "no snapshot after": broken({"after": None}),
            "no results": broken({"clients": []}),
        },
    ),
    "R5": Case(
        {
            "whole time": subject(),
            "not time-based": broken({"point/time_based": False, "point/runtime": 60.0}),
            "too few operations for a p99": broken(
                {"summary/directions/read/latency_percentiles_seconds": {"50": 0.001, "90": 0.5}}
            ),
            "a p99.9 is not looked at": broken({"summary/directions/read/latency_percentiles_seconds/99.9": 9.0}),
        },
        {
            "stopped early": (broken({"clients/1/totals/read/runtime_seconds": 8.9}), "8.9 s of 10 s"),
            "few operations": (
                broken({"summary/directions/read/latency_percentiles_seconds/99": 2.5}),
                "less than 5 times its p99",
            ),
            "few operations, no p99": (
                broken({"summary/directions/read/latency_percentiles_seconds": {"50": 0.001, "90": 2.1}}),
                "less than 5 times its p90",
            ),
        },
        {
            "no run length": broken({"clients/0/totals": {}}),
            "no percentile": broken({"summary/directions/read/latency_percentiles_seconds": {}}),
            "no summary": broken({"summary": None}),
            "no results": broken({"clients": []}),
        },
    ),
    "R6": Case(
        {
            "quiet": subject(),
            "mixed": broken({"point/pattern": "randrw", WRITTEN: BEFORE_WRITTEN + b.GIB}),
            "atime updates": broken({WRITTEN: BEFORE_WRITTEN + 7 * MIB}),
            "20 MiB of log for 240 MiB of reads": broken({WRITTEN: BEFORE_WRITTEN + 20 * MIB}),
            "read back to verify": broken({READ: BEFORE_READ + 256 * MIB}, **VERIFYING),
        },
        {
            "not settled": (broken({"settle/settled": False, "settle/detail": "heal"}), "heal"),
            "writes while reading": (broken({WRITTEN: BEFORE_WRITTEN + 30 * MIB}), "devices wrote 30.00 MiB"),
            "reads while writing": (broken({READ: BEFORE_READ + 30 * MIB}, **WRITING), "devices read 30.00 MiB"),
        },
        {
            "settling not known": broken({"settle/settled": None}),
            "no settling": broken({"settle": None}),
            "no counters": broken({"after/devices": None}),
        },
    ),
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
    "C1": Case(
        {
            "alike": study(),
            "one candidate is dead": _with(3, **DEAD),
            "differ and said so": _with(0, a_tier="page-cache", said=("tier",)),
        },
        {
            "tier": (_with(0, a_tier="page-cache"), "ext4 / xfs at p0 differ in tier (page-cache against device)"),
            "data set": (_with(1, b_dataset="1 GiB"), "differ in data set"),
            "hosts": (_with(2, b_hosts=("h0", "h1")), "differ in hosts"),
        },
        {"tier not known": _with(0, a_tier=""), "nothing compared": NO_COMPARISON},
    ),
    "C2": Case(
        {"five pairs": study()},
        {"one pair": (_with(3, n=1), "1 comparisons could never be decided: ext4 / btrfs at p1 (n = 1)")},
        {"nothing compared": NO_COMPARISON},
    ),
    "C3": Case(
        {
            "intervals": study(),
            "infinite and undecided": _with(3, low=0.0, high=float("inf"), p_value=1.0),
            "one candidate is dead": _with(3, **DEAD),
            "no variation": _with(1, ratio=1.3, low=1.3, high=1.3, p_value=0.0),
            "equivalent up to the margin": _with(0, low=1 / 1.05, high=1.05),
        },
        {
            "decided without a pair": (_with(1, **DEAD), "has no interval"),
            "only p": (_with(1, low=None, high=None), "has no interval"),
            "not a number": (_with(1, high=float("nan")), "has no interval"),
            "infinite and decided": (_with(1, low=0.0, high=float("inf")), "called faster with an infinite interval"),
            "ratio outside": (_with(1, ratio=1.5), "outside its interval"),
            "faster, interval includes 1": (_with(1, low=0.9), "is called faster"),
            "slower, interval includes 1": (_with(2, high=1.1), "is called slower"),
            "equivalent beyond the margin": (_with(0, high=1.2), "is called equivalent"),
            "small p, interval includes 1": (_with(3, p_value=0.01), "p = 0.01, which contradicts"),
            "large p, interval excludes 1": (_with(1, p_value=0.2), "p = 0.2, which contradicts"),
        },
        {"nothing compared": NO_COMPARISON, "unheard-of decision": _with(0, decision="better")},
    ),
    "C4": Case(
        {
            "Holm": study(),
            "Benjamini-Hochberg": study(
                correction="benjamini-hochberg",
                comparisons=b.adjusted(study().comparisons, "benjamini-hochberg"),
            ),
            "a family of one": study(comparisons=[comparison()]),
        },
        {
            "not adjusted": (_with(0, p_adjusted=None), "1 of 4 comparisons are not adjusted"),
            "smaller than p": (_with(1, p_adjusted=0.0005), "recomputed 0.004"),
            "of another family": (_with(1, p_adjusted=0.002), "recomputed 0.004"),
            "decided by the raw p": (
                study(
                    comparisons=b.adjusted(
                        [comparison(p_value=0.03, decision="faster", low=1.01), comparison(point_id="p1")]
                    )
                ),
                "is called faster with an adjusted p of 0.06",
            ),
        },
        {
            "no p value": _with(0, p_value=None),
            "unheard-of correction": study(correction="sidak"),
            "nothing compared": NO_COMPARISON,
        },
    ),
    "C5": Case(
        {
            "random": study(),
            "numbers of blocks not given": study(block_numbers=[]),
            "too few blocks to judge balance": study(blocks=[b.CELLS] * 4, executed=[b.CELLS] * 4, block_numbers=[]),
            "too few cells to judge balance": study(
                blocks=[["a", "b"]] * 5, executed=[["a", "b"]] * 5, block_numbers=[], n_cells=2
            ),
            "a point that needs fewer blocks": study(
                blocks=FEWER, executed=FEWER, block_numbers=[], points={c: c[-2:] for c in b.CELLS}
            ),
            "a cell that was given up": study(
                blocks=[*study().blocks[:3], *([c for c in block if c != "xfs-p1"] for block in study().blocks[3:])],
                executed=[*study().blocks[:3], *([c for c in block if c != "xfs-p1"] for block in study().blocks[3:])],
                block_numbers=[],
                points={c: c[-2:] for c in b.CELLS if c != "xfs-p1"},
            ),
            "last block cut short": study(executed=[*study().blocks[:-1], study().blocks[-1][:2]]),
        },
        {
            "system after system": (
                study(blocks=[b.CELLS] * 5, executed=[b.CELLS] * 5, block_numbers=[]),
                "same order",
            ),
            "one cell always first": (
                study(
                    blocks=ALWAYS_FIRST,
                    executed=ALWAYS_FIRST,
                    block_numbers=[],
                ),
                "systematically",
            ),
            "not of this seed": (study(seed=43), "is not the one that seed 43 gives"),
            "a cell is missing": (study(blocks=[study().blocks[0][:3], *study().blocks[1:]]), "block 1"),
            "a cell comes twice": (study(blocks=[b.CELLS[:3] + b.CELLS[:1], *study().blocks[1:]]), "block 1"),
            "half a point left out": (
                study(
                    blocks=[*study().blocks[:4], study().blocks[4][:3]],
                    executed=[*study().blocks[:4], study().blocks[4][:3]],
                    block_numbers=[],
                    points={c: c[-2:] for c in b.CELLS},
                ),
                "block 5 holds some but not all",
            ),
            "a cell comes back": (
                study(
                    blocks=[FEWER[0], FEWER[-1], *FEWER[1:3]],
                    executed=[FEWER[0], FEWER[-1], *FEWER[1:3]],
                    block_numbers=[],
                    points={c: c[-2:] for c in b.CELLS},
                ),
                "left out",
            ),
            "cells left out of all blocks": (study(n_cells=5), "4 cells, the study has 5"),
            "run in another order": (
                study(executed=[study().blocks[0][::-1], *study().blocks[1:]]),
                "block 1 was not run in the planned order",
            ),
            "middle block cut short": (study(executed=[study().blocks[0][:2], *study().blocks[1:]]), "block 1"),
            "a block was not run": (study(executed=study().blocks[:-1]), "5 blocks were planned, 4 were run"),
        },
        {
            "no blocks": study(blocks=[], executed=[]),
            "no seed": study(seed=None),
            "numbers do not fit": study(block_numbers=[1]),
        },
    ),
    "C6": Case(
        {"no alarm": study(), "one of twelve": study(aa_decisions=["faster"] + ["undecided"] * 11)},
        {"three of twelve": (study(aa_decisions=["faster", "slower", "slower"] + ["undecided"] * 9), "3 of 12")},
        {"no pair": study(aa_decisions=[]), "unheard-of decision": study(aa_decisions=["different"])},
    ),
    "C7": Case(
        {"shown": study(), "one candidate is dead": _with(3, **DEAD)},
        {
            "relative only": (_with(1, a_absolute=None), "1 comparisons have no absolute figures"),
            "zero": (_with(1, b_absolute=0.0), "no absolute figures"),
            "no null target": (study(has_null=False, floors={}), "no null target"),
        },
        {"no floor at a point": study(floors={"p0": 1e9}), "nothing compared": NO_COMPARISON},
    ),
    "C8": Case(
        {"geometric": study(), "none": study(aggregates=[]), "none, said": study(aggregates=[AggregateView("none")])},
        {
            "arithmetic": (study(aggregates=[AggregateView("arithmetic-mean", [1.0, 4.0], 2.5)]), "by arithmetic-mean"),
            "called geometric": (
                study(aggregates=[AggregateView("geometric-mean", [1.0, 4.0], 2.5)]),
                "shown as 2.5, recomputed 2",
            ),
        },
        {
            "not recorded": study(aggregates=None),
            "scores not given": study(aggregates=[AggregateView("geometric-mean", [], 2.0)]),
            "a score of zero": study(aggregates=[AggregateView("geometric-mean", [0.0, 1.0], 0.0)]),
        },
    ),
    "C9": Case(
        {"all shown": study()},
        {
            "losses left out": (study(tables={"verdict": {"faster": 1, "equivalent": 1, "undecided": 1}}), "0 slower"),
            "second table": (study(tables={**(study().tables or {}), "page one": {"faster": 1}}), "'page one'"),
        },
        {"not counted": study(tables=None), "nothing compared": NO_COMPARISON},
    ),
}


def judge(rule: str, of: Subject) -> Finding:
    """The finding of one rule, which must survive JSON."""
    (finding,) = run_rules(all_rules()[rule].scope, of, [rule])
    json.dumps(finding.evidence, allow_nan=False)
    assert finding.message and "\n" not in finding.message
    return finding


def _each(kind: str) -> list[Any]:
    pick: Callable[[Case], dict[str, Any]] = lambda case: getattr(case, kind)  # noqa: E731
    return [pytest.param(r, s, id=f"{r}: {name}") for r, case in CASES.items() for name, s in pick(case).items()]


@pytest.mark.parametrize(("rule", "clean"), _each("valid"))
def test_clean_case_is_valid_and_the_rule_was_applied(rule: str, clean: Subject) -> None:
    finding = judge(rule, clean)
    assert finding.verdict is Verdict.VALID, finding
    assert finding.evidence.get("applies") is not False, finding


@pytest.mark.parametrize(("rule", "planted"), _each("invalid"))
def test_planted_violation_is_found_and_named(rule: str, planted: tuple[Subject, str]) -> None:
    finding = judge(rule, planted[0])
    assert finding.verdict is Verdict.INVALID, finding
    assert planted[1] in finding.message


@pytest.mark.parametrize(("rule", "incomplete"), _each("unknown"))
def test_missing_data_is_unknown(rule: str, incomplete: Subject) -> None:
    finding = judge(rule, incomplete)
    assert finding.verdict is Verdict.UNKNOWN, finding


@pytest.mark.parametrize(("rule", "exempt"), _each("exempt"))
def test_rule_with_nothing_to_say_is_valid_and_says_so(rule: str, exempt: Subject) -> None:
    finding = judge(rule, exempt)
    assert finding.verdict is Verdict.VALID, finding
    assert finding.evidence == {"applies": False}


def test_what_is_missing_of_the_counters_is_said() -> None:
    none = broken({"before/devices": None, "after/devices": None})
    assert "has no byte counters" in judge("K3", none).message
    for side in ("before", "after"):
        assert "on one side of the attempt only" in judge("K3", broken({f"{side}/devices": None})).message
    assert (
        "has no byte counters, so they were not cross-checked"
        in judge("A1", replace(none, evidence=changed(none.evidence, {"point/direct": True}))).message
    )


def test_why_a_rule_does_not_apply_is_said() -> None:
    assert "does not read" in judge("K3", subject(attempt("write"))).message
    assert "claims nothing" in judge("K3", subject(attempt(cache="any"))).message


def test_balance_is_friedmans_test() -> None:
    orders = study().blocks
    positions = [[order.index(cell) for order in orders] for cell in b.CELLS]
    assert judge("C5", study()).evidence["balance_p"] == pytest.approx(friedmanchisquare(*positions).pvalue)


@given(
    st.lists(st.tuples(st.integers(1, 10**9), st.integers(1, 50)), min_size=1, max_size=30, unique_by=lambda b: b[0]),
    st.sampled_from([0.5, 0.9, 0.95, 0.99]),
)
def test_recomputed_percentiles_enclose_the_nearest_rank(bins: list[tuple[int, int]], q: float) -> None:
    """Against sorting every single operation, with the histogram split over two clients."""
    clients = [
        {
            "client": str(i),
            "histograms": {"read": {"latency_ns": [ns for ns, _ in part], "counts": [n for _, n in part]}},
        }
        for i, part in enumerate((sorted(bins), sorted(bins)[::2]))
    ]
    every = sorted(ns for part in (bins, sorted(bins)[::2]) for ns, n in part for _ in range(n))
    nearest = every[max(math.ceil(round(q * len(every), 9)), 1) - 1] / 1e9
    latency, counts = after._merged(Samples.model_validate({"clients": clients}), "read")
    low, high = after._percentile(latency, counts, q)
    assert low <= nearest <= high
