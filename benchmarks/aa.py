"""A/A: how often Assay calls one file system different from itself.

Runs real studies of 12 cells on one file system under two labels, then simulates more of them from the recorded
attempts: within each block the two labels are exchanged at random, which is exactly what chance could have done.

    .venv/bin/python benchmarks/aa.py --real 10 --simulated 30
"""

from __future__ import annotations

import argparse
import json
import sys
import tempfile
from pathlib import Path

import numpy as np

from assay.campaign.analysis import analyse
from assay.campaign.executor import Runner
from assay.cli.progress import ConsoleProgress
from assay.ledger.queries import load_study
from assay.ledger.store import Ledger
from assay.model.source import load_study as parse
from assay.stats.compare import Decision, compare_family

STUDY = """
study: aa-{number}
candidates: [{candidate}]
workloads:
  - fio: {{pattern: [read, write, randread, randwrite], block_size: [4KiB, 64KiB, 1MiB], threads: 1, iodepth: 8,
          size: 64MiB, runtime: 0.5s}}
measure: {{aa: shared, null_target: false, blocks: {{pilot: 5, minimum: 5, maximum: {maximum}}}, budget: {budget}s, seed: {number}}}
"""
DIFFERENT = (Decision.FASTER, Decision.SLOWER)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--real", type=int, default=10, help="real studies")
    parser.add_argument("--simulated", type=int, default=30, help="studies simulated from the recorded attempts")
    parser.add_argument("--candidate", default="local/xfs")
    parser.add_argument("--maximum", type=int, default=5, help="blocks per study at most")
    parser.add_argument("--budget", type=int, default=400, help="seconds per study at most")
    parser.add_argument("--ledger", default=None, help="keep the ledger here; default: a temporary one")
    options = parser.parse_args()
    called: list[int] = []
    recorded: list[list[tuple[list[float], list[float]]]] = []
    with tempfile.TemporaryDirectory(prefix="assay-aa-") as place, Ledger(options.ledger or f"{place}/l.db") as ledger:
        for number in range(options.real):
            text = STUDY.format(
                number=number, candidate=options.candidate, maximum=options.maximum, budget=options.budget
            )
            with ConsoleProgress() as progress:
                ended = Runner(ledger, parse(text, "aa"), text, progress=progress).run()
            data = load_study(ledger, ended.study_id)
            (alarms,) = analyse(data).false_alarms  # one A/A pair
            called.append(alarms.different)
            recorded.append(_pairs(data))
            print(f"study {number}: {alarms.different} of {alarms.tested} cells called different", file=sys.stderr)
    cells = sum(len(pairs) for pairs in recorded)
    random = np.random.default_rng(20261121)
    simulated = [_simulate(recorded[int(random.integers(len(recorded)))], random) for _ in range(options.simulated)]
    total_cells = cells + sum(n for _, n in simulated)
    total_called = sum(called) + sum(c for c, _ in simulated)
    share = total_called / total_cells
    print(
        json.dumps(
            {
                "real": {"studies": options.real, "cells": cells, "called_different": sum(called)},
                "simulated": {
                    "studies": len(simulated),
                    "cells": sum(n for _, n in simulated),
                    "called_different": sum(c for c, _ in simulated),
                },
                "share": share,
                "holds": share <= 0.05,
            }
        )
    )
    return 0 if share <= 0.05 else 1


def _pairs(data) -> list[tuple[list[float], list[float]]]:
    """Bandwidths of both labels, block by block, for each point."""
    import polars as pl

    twin = next(c for c in data.candidates if c.role == "twin")
    usable = data.attempts.filter((pl.col("status") == "finished") & (pl.col("verdict") != "invalid"))
    pairs = []
    for point in data.workloads:
        of_point = usable.filter(pl.col("workload_id") == point.id)
        a = dict(of_point.filter(pl.col("candidate") == twin.twin_of).select("block", "bandwidth").iter_rows())
        b = dict(of_point.filter(pl.col("candidate") == twin.label).select("block", "bandwidth").iter_rows())
        blocks = sorted(a.keys() & b.keys())
        pairs.append(([a[k] for k in blocks], [b[k] for k in blocks]))
    return pairs


def _simulate(pairs: list[tuple[list[float], list[float]]], random: np.random.Generator) -> tuple[int, int]:
    relabelled = []
    for a, b in pairs:
        swap = random.integers(0, 2, len(a)).astype(bool)
        relabelled.append((np.where(swap, b, a), np.where(swap, a, b)))
    decided = compare_family(relabelled, margin=0.05, confidence=0.95, method="holm")
    return sum(c.decision in DIFFERENT for c in decided), len(decided)


if __name__ == "__main__":
    Path(tempfile.gettempdir()).mkdir(exist_ok=True)
    sys.exit(main())
