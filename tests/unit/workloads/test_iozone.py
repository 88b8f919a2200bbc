"""IOzone's report in throughput mode, as iozone.c prints it (multi_throughput_test)."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.model.point import IozonePoint
from assay.workloads.base import Target
from assay.workloads.iozone import IozoneWorkload, latencies
from assay.workloads.iozone_output import IozoneOutputError, Throughput, parse

REPORT = """\
	Iozone: Performance Test of File I/O
	Version $Revision: 3.489 $
	File size set to 1048576 kB
	Record Size 1024 kB
	Throughput test with 4 processes
	Each process writes a 1048576 kByte file in 1024 kByte records

	Children see throughput for  4 initial writers 	=  812345.62 kB/sec
	Parent sees throughput for  4 initial writers 	=  790123.50 kB/sec
	Min throughput per process 			=  200123.41 kB/sec
	Max throughput per process 			=  205432.10 kB/sec
	Avg throughput per process 			=  203086.41 kB/sec
	Min xfer 					= 1021952.00 kB

	Children see throughput for 4 random readers 	=  412345.62 kB/sec
	Parent sees throughput for 4 random readers 	=  400000.00 kB/sec
	Min throughput per process 			=  100000.00 kB/sec
	Max throughput per process 			=  110000.00 kB/sec
	Avg throughput per process 			=  103086.41 kB/sec
	Min xfer 					= 1021952.00 kB

	Children see throughput for 4 random writers 	=  312345.62 kB/sec
	Parent sees throughput for 4 random writers 	=  300000.00 kB/sec
	Min throughput per process 			=   70000.00 kB/sec
	Max throughput per process 			=   80000.00 kB/sec

iozone test complete.
"""


@pytest.mark.parametrize(("test", "parent", "slowest", "fastest"), [
    ("write", 790123.5, 200123.41, 205432.10), ("randread", 400000, 100000, 110000), ("randwrite", 300000, 70000, 80000),
])  # fmt: skip
def test_each_test_has_its_own_figures(test: str, parent: float, slowest: float, fastest: float) -> None:
    assert parse(REPORT, test) == Throughput(4, parent * 1024, slowest * 1024, fastest * 1024)


@pytest.mark.parametrize("text", ["", "iozone: interrupted\n\nexiting iozone\n", REPORT.split("Parent")[0]])
def test_a_report_without_figures_is_said(text: str) -> None:
    with pytest.raises(IozoneOutputError, match="has no figure for initial writers"):
        parse(text, "write")


def test_times_of_the_files_give_the_rates_again() -> None:
    found = parse(REPORT, "randread")
    size = 1 << 30
    times = latencies(found, size)
    assert len(times) == 4
    assert size * 4 / max(times) == pytest.approx(found.parent)
    assert size / min(times) == pytest.approx(found.fastest)


def test_the_command() -> None:
    point = IozonePoint.model_validate(
        {"test": "randread", "record": 1 << 20, "size": 1 << 30, "threads": 2, "direct": True}
    )
    line = IozoneWorkload(point).command(Target(Path("/mnt/x")), 3).splitlines()[1]
    assert line == (
        "iozone -t 2 -s 1048576k -r 1024k -i 2 -w -e -c -+n -I -F /mnt/x/assay-iozone/c3-t0 /mnt/x/assay-iozone/c3-t1"
    )
