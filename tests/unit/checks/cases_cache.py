"""Rules about the state of caches: clean, broken and incomplete subjects."""

from __future__ import annotations

from dataclasses import replace

from builders import MIB, attempt, broken, cell, subject
from cases_common import BEFORE_READ, DELIVERED, READ, Case

CASES: dict[str, Case] = {
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
}
