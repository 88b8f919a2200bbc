"""The same cell by hand and by Assay, paired in one run, and what Assay adds to an attempt.

Each block runs every point three times in a random order on one mount: by Assay, by Assay again, and by hand, that is the
very shell command that Assay prints, with caches dropped before. The ratio by hand / by Assay must be within the noise
that the two runs by Assay show against each other: equivalent or undecided, never different.

    .venv/bin/python benchmarks/by_hand.py --blocks 8 --candidate local/xfs
    .venv/bin/python benchmarks/by_hand.py --blocks 8 --candidate glusterfs/rain-4-2 --bandwidth 1Gbit --block-size 128KiB

A candidate on hosts of a lab is loaded by hand on the same mount, inside its client (what ``assay lab exec`` does), after
the same remount that Assay's attempts begin with.
"""

from __future__ import annotations

import argparse
import json
import random
import statistics
import sys
import tempfile

from assay.campaign.attempt import Order, execute
from assay.campaign.deploy import Fleet, Running
from assay.cli.progress import ConsoleProgress
from assay.lab.host import LocalHost
from assay.lab.registry import Lab
from assay.model.plan import make_plan
from assay.model.source import load_study
from assay.stats.compare import Decision, compare_family
from assay.systems.base import GoesCold
from assay.workloads.catalogue import make_workload

STUDY = """
study: by-hand
lab: {{baselines: false, network: {{bandwidth: {bandwidth}}}}}
candidates: [{candidate}]
workloads:
  - fio: {{pattern: [read, write, randread, randwrite], block_size: [{block_size}], threads: 1, iodepth: 8, size: 64MiB,
          runtime: 1s}}
measure: {{aa: none, null_target: false}}
"""


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--blocks", type=int, default=8)
    parser.add_argument("--candidate", default="local/xfs")
    parser.add_argument("--bandwidth", default="unlimited")
    parser.add_argument("--block-size", default="4KiB, 1MiB")
    options = parser.parse_args()
    study = load_study(
        STUDY.format(candidate=options.candidate, bandwidth=options.bandwidth, block_size=options.block_size), "by-hand"
    )
    plan = make_plan(study, study_id="by-hand", seed=1, scale=1.0, memory_bytes=1 << 34)
    lab = Lab("by-hand-benchmark", study.study)
    values: dict[str, dict[str, list[float]]] = {
        p.id: {"assay": [], "assay again": [], "by hand": []} for p in plan.points
    }
    outside: list[float] = []
    host = LocalHost(environment=lab.environment)
    fleet = Fleet(study, plan, lab, host)
    try:
        running = fleet.deploy(plan.candidates[0])
        if running.failure:
            raise SystemExit(running.failure)
        with ConsoleProgress() as progress:
            for block in range(options.blocks):
                progress.note(f"block {block + 1} of {options.blocks}")
                order = [(p, way) for p in plan.points for way in ("assay", "assay again", "by hand")]
                random.shuffle(order)
                for planned, way in order:
                    if way == "by hand":
                        line = make_workload(planned.point).command(running.target, 0)
                        values[planned.id][way].append(_by_hand(line, running))
                        continue
                    evidence, _, _ = execute(
                        Order("x", "x", "x", plan.candidates[0], planned, block + 1, 1, block, {}, 60.0),
                        running, dict,
                    )  # fmt: skip
                    if evidence.summary is None:
                        raise SystemExit(evidence.error)
                    # going cold and settling take what the system needs: remounts, flushing, healing
                    system = (evidence.cold.seconds if evidence.cold else 0.0) + (
                        evidence.settle.waited_seconds if evidence.settle else 0.0
                    )
                    outside.append(evidence.outside_seconds - system)
                    values[planned.id][way].append(evidence.summary.bandwidth)
    finally:
        fleet.destroy()
        lab.remove()
    by_hand = compare_family([(v["by hand"], v["assay"]) for v in values.values()], 0.05, 0.95, "holm")
    again = compare_family([(v["assay again"], v["assay"]) for v in values.values()], 0.05, 0.95, "holm")
    different = sum(c.decision in (Decision.FASTER, Decision.SLOWER) for c in by_hand)
    result = {
        "cells": len(by_hand),
        "by_hand_called_different": different,
        "again_called_different": sum(c.decision in (Decision.FASTER, Decision.SLOWER) for c in again),
        "by_hand_over_assay": [round(c.ratio.estimate, 4) for c in by_hand],
        "again_over_assay": [round(c.ratio.estimate, 4) for c in again],
        "outside_seconds_median": statistics.median(outside),
        "outside_seconds_max": max(outside),
        "holds": different == 0 and statistics.median(outside) <= 0.3,
    }
    print(json.dumps(result))
    return 0 if result["holds"] else 1


def _by_hand(line: str, running: Running) -> float:
    """Run the command as a person would on the client, caches dropped before; bytes per second from fio's own JSON."""
    if isinstance(running.adapter, GoesCold):
        running.adapter.go_cold()
    with tempfile.TemporaryDirectory(dir=running.adapter.deployment.lab.directory) as place:
        shell = f"cd {place} && {line} --output-format=json"
        text = running.clients[0].run(["sh", "-c", shell], timeout_seconds=120).must("by hand").stdout.decode()
    jobs = json.loads(text[text.index("{") :])["jobs"]
    # bytes over runtime: fio's bw_bytes differs between versions in whether ramp and fsync are inside
    return sum(j[d]["io_bytes"] / (j[d]["runtime"] / 1000) for j in jobs for d in ("read", "write") if j[d]["io_bytes"])


if __name__ == "__main__":
    sys.exit(main())
