"""CRUSH mappings per second beside crushtool's in the same run, and pieces per second of a simulated trace, on one core.

All times are CPU seconds, best of three, ours and the peer's in turn. crushtool's own start-up is measured and taken off.
Needs crushtool on the PATH or in $ASSAY_CRUSHTOOL (Debian: ceph-base).

    .venv/bin/python benchmarks/placement.py
"""

from __future__ import annotations

import json
import os
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from assay.placement import crush
from assay.placement.simulate import count, stream_starts
from assay.placement.spread import Plan, spread
from assay.placement.workload import Accesses, fio_pattern

ROUNDS = 3
# name: (inputs for us, for crushtool, ratio and mappings per second that must hold)
CASES = {
    "6 hosts x 1, chooseleaf firstn": (2_000_000, 100_000, 5.0, 3e6),
    "10 x 10 x 10, chooseleaf firstn": (500_000, 30_000, 2.5, 5e5),
    "flat 1000, choose firstn": (30_000, 2_000, 7.0, 5e4),
}
MODERN = {"choose_local_tries": 0, "choose_local_fallback_tries": 0, "choose_total_tries": 50,
          "chooseleaf_descend_once": 1, "chooseleaf_vary_r": 1, "chooseleaf_stable": 1, "straw_calc_version": 1}  # fmt: skip


def _text(racks: int, hosts: int, osds: int) -> str:
    """A map of equal weights; ``racks`` 0 puts all devices into the root."""
    count = max(racks * hosts, 1) * osds
    lines = [f"tunable {k} {v}" for k, v in MODERN.items()] + ["tunable allowed_bucket_algs 54"]
    lines += [f"device {i} osd.{i}" for i in range(count)] + [
        "type 0 osd",
        "type 1 host",
        "type 3 rack",
        "type 11 root",
    ]
    items, ids = [], iter(range(-2, -100_000, -1))
    for r in range(racks):
        inside = []
        for h in range(hosts):
            first = (r * hosts + h) * osds
            devices = "\n".join(f" item osd.{first + i} weight 1.0" for i in range(osds))
            lines.append(f"host h{r}_{h} {{\n id {next(ids)}\n alg straw2\n hash 0\n{devices}\n}}")
            inside.append(f" item h{r}_{h} weight {osds}.0")
        lines.append(f"rack r{r} {{\n id {next(ids)}\n alg straw2\n hash 0\n" + "\n".join(inside) + "\n}")
        items.append(f" item r{r} weight {hosts * osds}.0")
    items = items or [f" item osd.{i} weight 1.0" for i in range(count)]
    lines.append("root default {\n id -1\n alg straw2\n hash 0\n" + "\n".join(items) + "\n}")
    choice = "chooseleaf firstn 0 type host" if racks else "choose firstn 0 type osd"
    lines.append(
        f"rule data {{\n id 0\n type replicated\n min_size 1\n max_size 10\n step take default\n step {choice}\n step emit\n}}"
    )
    return "\n".join(lines) + "\n"


def _best(work: Callable[[], float]) -> float:
    return min(work() for _ in range(ROUNDS))


def _child_seconds(argv: list[str]) -> float:
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    subprocess.run(argv, check=True, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def _crush_case(tool: str, text: str, ours: int, theirs: int, place: Path) -> dict[str, float]:
    (place / "map.txt").write_text(text)
    subprocess.run([tool, "-c", place / "map.txt", "-o", place / "map.bin"], check=True, stdout=subprocess.DEVNULL)
    read = crush.read_map((place / "map.bin").read_bytes())
    weights = crush.reweights(read)
    xs = np.arange(ours, dtype=np.uint32)

    def we() -> float:
        started = time.process_time()
        crush.map_inputs(read, 0, xs, 3, weights)
        return time.process_time() - started

    def they(last: int) -> float:
        test = [tool, "-i", str(place / "map.bin"), "--test", "--rule", "0", "--num-rep", "3", "--show-statistics"]
        return _child_seconds([*test, "--min-x", "0", "--max-x", str(last)])

    rates = []
    for _ in range(ROUNDS):
        rates.append((ours / we(), theirs / max(they(theirs - 1) - they(0), 1e-9)))
    mine, peer = (max(r) for r in zip(*rates, strict=True))
    return {"mappings_per_second": mine, "crushtool_per_second": peer, "ratio": mine / peer}


def _simulated() -> dict[str, float]:
    """Pieces per second of a trace on one core and on two, and the memory that passes through."""
    trace = fio_pattern("randrw", block_size=1 << 20, size=1 << 33, threads=8, operations_per_second=500, seconds=60)
    plan = Plan("xtreemfs", 16, width=16, unit=128 << 10)
    streams = 16
    laid = spread(plan, trace.names, trace.sizes, streams, 1)
    starts = stream_starts(streams, 1)
    touches = count([trace], laid, starts).touches

    def run(threads: int, clock: Callable[[], float]) -> float:
        started = clock()
        count([trace], laid, starts, threads=threads)
        return clock() - started

    one = _best(lambda: run(1, time.process_time))
    walls = [(run(1, time.perf_counter), run(2, time.perf_counter)) for _ in range(ROUNDS)]
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    repeats = 40

    def chunks() -> list[Accesses]:
        return [trace] * repeats

    count(chunks(), laid, starts)
    grown = (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * 1024
    return {
        "pieces_per_second": touches / one,
        "two_cores_over_one": max(a / b for a, b in walls),
        "bytes_grown_per_piece_streamed": grown / (touches * repeats),
    }


def main() -> int:
    tool = os.environ.get("ASSAY_CRUSHTOOL") or shutil.which("crushtool")
    if tool is None:
        print("crushtool is missing: apt-get install -y ceph-base", file=sys.stderr)
        return 3
    texts = {"6 hosts x 1, chooseleaf firstn": _text(1, 6, 1), "10 x 10 x 10, chooseleaf firstn": _text(10, 10, 10),
             "flat 1000, choose firstn": _text(0, 0, 1000)}  # fmt: skip
    results: dict[str, dict[str, float]] = {}
    holds = True
    with tempfile.TemporaryDirectory(prefix="assay-place-") as place:
        for name, (ours, theirs, ratio, rate) in CASES.items():
            found = _crush_case(tool, texts[name], ours, theirs, Path(place))
            results[name] = {k: round(v, 2) for k, v in found.items()}
            holds &= found["ratio"] >= ratio and found["mappings_per_second"] >= rate
    simulated = _simulated()
    results["trace over 16 targets"] = {k: round(v, 4) for k, v in simulated.items()}
    holds &= simulated["pieces_per_second"] >= 20e6
    print(json.dumps({"load": os.getloadavg()[0], **results, "holds": bool(holds)}))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
