"""Rules about the run: clean, broken and incomplete subjects."""

from __future__ import annotations

import builders as b
from builders import MIB, broken, subject
from cases_common import BEFORE_READ, BEFORE_WRITTEN, READ, VERIFYING, WRITING, WRITTEN, Case

CASES: dict[str, Case] = {
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
}
