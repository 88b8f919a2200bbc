"""Figures out of IOzone's report in throughput mode (``iozone -t``), whose lines have looked like this since 3.4xx::

        Children see throughput for  4 initial writers 	=  812345.62 kB/sec
        Parent sees throughput for  4 initial writers 	=  790123.45 kB/sec
        Min throughput per process 			=  200123.41 kB/sec
        Max throughput per process 			=  205432.10 kB/sec
        Avg throughput per process 			=  203086.41 kB/sec
        Min xfer 					= 1021952.00 kB

Source: iozone.c, ``multi_throughput_test`` and the functions after it (print of "Parent sees throughput").
"""

from __future__ import annotations

import re
from dataclasses import dataclass

KB = 1024  # IOzone's kB
#: What it calls the tests.
NAMES = {"write": "initial writers", "read": "readers", "randread": "random readers", "randwrite": "random writers"}


class IozoneOutputError(Exception):
    """The report holds no figure for the test."""


@dataclass(frozen=True)
class Throughput:
    """One test. Rates in bytes per second."""

    processes: int
    parent: float  # all bytes over the time from the first start to the last end
    slowest: float  # of one process
    fastest: float


def parse(text: str, test: str) -> Throughput:
    """The figures of a test (``write``, ``read``, ``randread`` or ``randwrite``). Raises IozoneOutputError."""
    name = re.escape(NAMES[test])
    number = r"=\s*([0-9]+(?:\.[0-9]+)?)\s*[kK][bB](?:ytes)?/sec"
    head = re.search(rf"Parent sees throughput for\s+([0-9]+)\s+{name}\s*{number}", text)
    if head is None:
        last = next((line.strip() for line in reversed(text.splitlines()) if line.strip()), "no output")
        raise IozoneOutputError(f"iozone's report has no figure for {NAMES[test]}; it ends with: {last[:200]}")
    rest = text[head.end() :]
    least = re.search(rf"Min throughput per (?:process|thread)\s*{number}", rest)
    most = re.search(rf"Max throughput per (?:process|thread)\s*{number}", rest)
    parent = float(head[2]) * KB
    if parent <= 0:
        raise IozoneOutputError(f"iozone reports no throughput for {NAMES[test]}")
    return Throughput(
        processes=int(head[1]),
        parent=parent,
        slowest=float(least[1]) * KB if least else parent / int(head[1]),
        fastest=float(most[1]) * KB if most else parent / int(head[1]),
    )
