"""How near GlusterFS comes to what a shaped network lets through, layout by layout.

Each layout is deployed on six hosts with 1 Gbit/s links and written and read with large blocks; the best of several runs is
set against the bound that Assay computes from the layout's messages. Peaks of writes must be within 5 % of the bound, and
nothing may be above it.

    .venv/bin/python benchmarks/shaping.py --runs 5
"""

from __future__ import annotations

import argparse
import json
import sys

from assay.campaign.attempt import Order, execute
from assay.campaign.deploy import Fleet
from assay.cli.progress import ConsoleProgress
from assay.lab.host import LocalHost
from assay.lab.registry import Lab
from assay.model.bounds import bound_for
from assay.model.layout import parse_layout
from assay.model.plan import make_plan
from assay.model.source import load_study

STUDY = """
study: shaping
lab: {hosts: 6, baselines: false, network: {bandwidth: 1Gbit}, disk: {size: 2GiB}}
candidates: [glusterfs/distributed, glusterfs/replicated-3, glusterfs/replicated-6, glusterfs/rain-4-2]
workloads:
  - fio: {pattern: [write, read], block_size: 1MiB, threads: 4, iodepth: 32, size: 64MiB, runtime: 4s}
measure: {aa: none, null_target: false}
"""
WITHIN = 0.05


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--runs", type=int, default=5)
    options = parser.parse_args()
    study = load_study(STUDY, "shaping")
    plan = make_plan(study, study_id="shaping", seed=1, scale=1.0, memory_bytes=1 << 34)
    result: dict[str, dict[str, float]] = {}
    with ConsoleProgress() as progress:
        for candidate in plan.candidates:
            lab = Lab("shaping-benchmark", study.study)
            fleet = Fleet(study, plan, lab, LocalHost(environment=lab.environment))
            try:
                progress.note(f"preparing {candidate.label}")
                running = fleet.deploy(candidate)
                if running.failure:
                    raise SystemExit(running.failure)
                for planned in plan.points:
                    bound = bound_for(
                        "glusterfs", parse_layout(candidate.system.partition("/")[2]), study.lab, planned.point, None
                    )
                    limit = bound and (bound.read_bytes_per_second or bound.write_bytes_per_second)
                    assert limit is not None
                    got = []
                    for run in range(options.runs):
                        order = Order("x", "x", "x", candidate, planned, run + 1, 1, run, {}, 60.0)
                        evidence, _, _ = execute(order, running, dict)
                        if evidence.summary is None:
                            raise SystemExit(evidence.error)
                        got.append(evidence.summary.bandwidth)
                    result[f"{candidate.label} {planned.name}"] = {
                        "bound_MB_per_s": round(limit / 1e6, 1),
                        "best_MB_per_s": round(max(got) / 1e6, 1),
                        "worst_MB_per_s": round(min(got) / 1e6, 1),
                        "best_share_of_bound": round(max(got) / limit, 4),
                    }
            finally:
                fleet.destroy()
                lab.remove()
    holds = all(
        1 - WITHIN <= figures["best_share_of_bound"] <= 1.02
        for name, figures in result.items()
        if name.endswith("write")
    ) and all(figures["best_share_of_bound"] <= 1.02 for figures in result.values())
    print(json.dumps({"cells": result, "holds": holds}))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
