"""Scanning 200,000 files: how much faster than find, with warm and with cold caches; memory must not grow with the files.

Needs root for cold caches, and room for 200,000 small files in --place (an ext4 file system in a loop-backed file).

    .venv/bin/python benchmarks/archive_scan.py
"""

from __future__ import annotations

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from assay import _core

FILES, PER_DIRECTORY = 200_000, 1000
WANTED = 1.7


@contextmanager
def ext4(place: Path, size: str) -> Iterator[Path]:
    """A fresh ext4 in a file."""
    image, mount = place / "ext4.img", place / "mnt"
    mount.mkdir()
    subprocess.run(["truncate", "-s", size, image], check=True)
    subprocess.run(
        ["mkfs.ext4", "-q", "-F", "-E", "lazy_itable_init=0,lazy_journal_init=0", "-i", "8192", image], check=True
    )
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    try:
        yield mount
    finally:
        subprocess.run(["umount", mount], check=True)


def by_find(root: Path) -> tuple[int, int]:
    out = subprocess.run(["find", root, "-type", "f", "-printf", "%s\n"], capture_output=True, check=True).stdout
    return len(out.splitlines()), 0


def by_du(root: Path) -> tuple[int, int]:
    subprocess.run(["du", "-s", root], capture_output=True, check=True)
    return FILES, 0


def by_assay(root: Path, threads: int) -> tuple[int, int]:
    seen = _core.scan_tree(
        root, threads=threads, one_file_system=True, sample=1.0, seed=1, now=0, names_per_second=0,
        remembered_inodes=4_000_000,
    )  # fmt: skip
    return sum(seen["counts"]), sum(seen["bytes"])


def drop_caches() -> None:
    subprocess.run(["sync"], check=True)
    Path("/proc/sys/vm/drop_caches").write_text("3\n")


def timed(tools: dict[str, Callable[[], object]], rounds: int, cold: bool) -> dict[str, list[float]]:
    """Interleaved, so that other load hits all alike."""
    seconds: dict[str, list[float]] = {name: [] for name in tools}
    for k in range(rounds):
        names = list(tools)
        for name in names[k % len(names) :] + names[: k % len(names)]:
            if cold:
                drop_caches()
            else:
                tools[name]()
            began = time.perf_counter()
            tools[name]()
            seconds[name].append(time.perf_counter() - began)
    return seconds


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--place", default=None, help="directory for the loop-backed file; default: a temporary one")
    parser.add_argument("--rounds", type=int, default=5)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="assay-scan-", dir=options.place) as text, ext4(Path(text), "3G") as root:
        sizes = np.random.default_rng(1).integers(1, 4096, FILES).astype(np.uint64)
        directories = [f"d{i:04d}" for i in range(FILES // PER_DIRECTORY)]
        made = _core.Fileset(root, directories, np.arange(FILES) // PER_DIRECTORY, sizes, "tagged", 0.0, 1)
        made.write(np.arange(FILES), [], threads=8, direct_from=2**64 - 1, checksums=False, fsync=False, sync=True)
        counted, volume = by_assay(root, 16)
        tools: dict[str, Callable[[], object]] = {
            "find": lambda: by_find(root),
            "du": lambda: by_du(root),
            "assay": lambda: by_assay(root, 16),
        }
        warm = {k: statistics.median(v) for k, v in timed(tools, options.rounds, False).items()}
        cold = {k: statistics.median(v) for k, v in timed(tools, options.rounds, True).items()}
        result = {
            "files": counted, "bytes": volume, "files_of_find": by_find(root)[0],
            "warm_seconds": warm, "cold_seconds": cold,
            "warm_find_over_assay": warm["find"] / warm["assay"], "cold_find_over_assay": cold["find"] / cold["assay"],
            "warm_du_over_assay": warm["du"] / warm["assay"], "cold_du_over_assay": cold["du"] / cold["assay"],
            "warm_files_per_second": FILES / warm["assay"], "wanted": WANTED,
        }  # fmt: skip
        result["holds"] = (
            counted == FILES
            and volume == int(sizes.sum())
            and min(result["warm_find_over_assay"], result["cold_find_over_assay"]) >= WANTED
        )
    print(json.dumps(result))
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
