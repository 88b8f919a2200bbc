"""Writing filesets on ext4: against fio and against the raw disk, in one run.

Set C: 20,000 files of the archival shape, sizes / 32, about 5 GB, tagged content, sync included: at least 1.5 times fio (one
section per bucket), and within 10 % of sequential O_DIRECT writes to one large file of the same file system. Set S: 200,000
files of 1 to 4 KB, at least 25,000 files/s, fio beside it. Every writing starts on a fresh ext4: files created after
`rm -rf` of as many others are slower. Needs root and 13 GB in --place.

    .venv/bin/python benchmarks/archive_write.py
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
from archive_scan import drop_caches, ext4

from assay import _core
from assay.archive import allocation, export, fileset, presets
from assay.workloads import fileset as on_disk

SMALL_FILES = 200_000


def set_c(files: int) -> fileset.Plan:
    """The archival shape, all sizes divided by 32: 5 GB."""
    profile = presets.load("reconstruction-2008")
    p = allocation.cap(profile.curve("median"), 16)  # up to 64 MiB, which becomes 2 MiB
    made = allocation.allocate(p, files=files)
    made = allocation.Allocation(made.counts, made.sizes // np.uint64(32), made.expected, 0)
    return fileset.make_plan(made, content=fileset.Content("tagged"), seed=1)


def set_s(files: int) -> fileset.Plan:
    """Files of 1 to 4 KB."""
    sizes = np.random.default_rng(1).integers(1000, 4000, files).astype(np.uint64)
    made = allocation.Allocation(np.zeros(1, dtype=np.int64), sizes, np.zeros(1), 0)
    return fileset.make_plan(made, content=fileset.Content("tagged"), seed=1)


def by_assay(plan: fileset.Plan, root: Path) -> float:
    return on_disk.write(plan, root, checksums=True).seconds


def by_fio(plan: fileset.Plan, root: Path) -> float:
    """fio has no fileset: one section per bucket, 16 at a time; its own layout counts, since it is what creates the files."""
    job = root.parent / "fileset.fio"
    job.write_text("".join(export.fio(plan, str(root))))
    began = time.perf_counter()
    subprocess.run(["fio", "--output=/dev/null", job], check=True, capture_output=True)
    subprocess.run(["sync", "-f", root], check=True)
    return time.perf_counter() - began


def raw_bandwidth(root: Path, volume: int) -> float:
    """Bytes per second of one large O_DIRECT file, 4 jobs deep, sync included."""
    began = time.perf_counter()
    subprocess.run(
        ["fio", "--output=/dev/null", "--name=raw", f"--directory={root}", "--rw=write", "--bs=1M", "--direct=1",
         "--ioengine=libaio", "--iodepth=16", f"--size={volume}", "--end_fsync=1"],
        check=True, capture_output=True,
    )  # fmt: skip
    return volume / (time.perf_counter() - began)


def rounds(place: Path, count: int, size: str, tools: dict[str, Callable[[Path], float]]) -> dict[str, list[float]]:
    """Every tool once per round, each on a fresh file system."""
    out: dict[str, list[float]] = {name: [] for name in tools}
    for k in range(count):
        names = list(tools)
        for name in names[k % len(names) :] + names[: k % len(names)]:
            with tempfile.TemporaryDirectory(dir=place) as text, ext4(Path(text), size) as root:
                drop_caches()
                out[name].append(tools[name](root))
    return out


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--place", default=None, help="directory for the loop-backed file; default: a temporary one")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--files", type=int, default=20_000)
    options = parser.parse_args()
    c, s = set_c(options.files), set_s(SMALL_FILES)
    with tempfile.TemporaryDirectory(prefix="assay-write-", dir=options.place) as text:
        place = Path(text)
        large = rounds(
            place, options.rounds, "12G",
            {"assay": lambda r: c.volume / by_assay(c, r), "fio": lambda r: c.volume / by_fio(c, r),
             "raw": lambda r: raw_bandwidth(r, c.volume - c.volume % 2**20)},
        )  # fmt: skip
        small = rounds(
            place,
            options.rounds,
            "3G",
            {"assay": lambda r: s.files / by_assay(s, r), "fio": lambda r: s.files / by_fio(s, r)},
        )
    middle = {k: statistics.median(v) for k, v in large.items()}
    # neighbours in time see the same disk: ratios are taken per round
    over_fio = statistics.median(a / b for a, b in zip(large["assay"], large["fio"], strict=True))
    over_raw = statistics.median(a / b for a, b in zip(large["assay"], large["raw"], strict=True))
    files_per_second = {k: statistics.median(v) for k, v in small.items()}
    result = {
        "set_c": {"files": c.files, "bytes": c.volume, "MB_per_s": {k: v / 1e6 for k, v in middle.items()},
                  "files_per_s": middle["assay"] / c.volume * c.files, "all_MB_per_s": {k: [round(x / 1e6) for x in v]
                                                                                       for k, v in large.items()}},
        "assay_over_fio": over_fio, "assay_over_raw": over_raw,
        "set_s": {"files_per_s": files_per_second, "all": {k: [round(x) for x in v] for k, v in small.items()}},
        "extension": _core.__version__,
        "holds": over_fio >= 1.5 and over_raw >= 0.9 and files_per_second["assay"] >= 25_000,
    }  # fmt: skip
    print(json.dumps(result))
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
