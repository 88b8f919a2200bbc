"""Rules about what holds before a cell: clean, broken and incomplete subjects."""

from __future__ import annotations

import builders as b
from builders import MIB, attempt, broken, subject
from cases_common import BEFORE_READ, BUFFERED, READ, Case

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
            "CephFS knows no limit": broken({"before/free_inodes": -1, "after/free_inodes": -1}),
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
}
