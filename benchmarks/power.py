"""Power: how often a true slowdown of 10 % is called slower.

Two directories of one file system are compared. A stand-in named ``fio`` (first on the PATH) adds ``rate=`` to the job file
and runs the real fio: one directory gets a rate below what the file system sustains at that point, the other 90 % of it.
The slowdown is therefore exact, and everything else is a real study.

    .venv/bin/python benchmarks/power.py --studies 3
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from assay.campaign.analysis import analyse
from assay.campaign.executor import Runner
from assay.cli.progress import ConsoleProgress
from assay.ledger.queries import load_study
from assay.ledger.store import Ledger
from assay.model.source import load_study as parse
from assay.stats.compare import Decision

STUDY = """
study: power-{number}
candidates: [{{system: "path:{fast}", label: fast}}, {{system: "path:{slow}", label: slow}}]
workloads:
  - fio: {{pattern: [read, write, randread, randwrite], block_size: [4KiB, 64KiB, 1MiB], threads: 1, iodepth: 8,
          size: 64MiB, runtime: 1s}}
measure: {{aa: none, null_target: false, blocks: {{pilot: 5, minimum: 5, maximum: 10}}, budget: {budget}s, seed: {number}}}
"""
SHIM = """#!{python}
import os, re, sys
jobs = [a for a in sys.argv[1:] if os.path.isfile(a) and not a.startswith("-")]
for path in jobs:
    text = open(path).read()
    block = re.search(r"^bs=(\\d+)", text, re.M)
    if block and "runtime=" in text:
        rate = {rates}[int(block[1])]
        if "/slow/" in text:
            rate = rate * 9 // 10
        open(path, "w").write(re.sub(r"^bs=", "rate=%d\\nbs=" % rate, text, count=1, flags=re.M))
os.execv({fio!r}, ["fio", *sys.argv[1:]])
"""
# bytes/s, far below what a loop disk on any machine sustains: the limit governs, as a slower device would
RATES = {4096: 4_000_000, 65536: 40_000_000, 1048576: 100_000_000}


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--studies", type=int, default=3)
    parser.add_argument("--budget", type=int, default=600, help="seconds per study at most")
    parser.add_argument("--directory", default=None, help="on the file system to use; default: a temporary one")
    options = parser.parse_args()
    fio = shutil.which("fio")
    if fio is None:
        raise SystemExit("fio is missing; install it with: apt-get install -y fio")
    decisions: dict[str, int] = {}
    ratios: list[float] = []
    with tempfile.TemporaryDirectory(prefix="assay-power-", dir=options.directory or "/var/tmp") as place:
        root = Path(place)
        shim = root / "bin" / "fio"
        shim.parent.mkdir()
        shim.write_text(SHIM.format(python=sys.executable, rates=RATES, fio=fio))
        shim.chmod(0o755)
        os.environ["PATH"] = f"{shim.parent}:{os.environ['PATH']}"
        subprocess.run(["fio", "--version"], check=True, capture_output=True)
        for name in ("fast", "slow"):
            (root / name).mkdir()
        with Ledger(f"{place}/ledger.db") as ledger:
            for number in range(options.studies):
                text = STUDY.format(number=number, fast=root / "fast", slow=root / "slow", budget=options.budget)
                with ConsoleProgress() as progress:
                    ended = Runner(ledger, parse(text, "power"), text, progress=progress).run()
                for c in analyse(load_study(ledger, ended.study_id)).baseline_comparisons:
                    slow_first = c.a == "slow"
                    decision = c.decision if slow_first else _mirrored(c.decision)
                    decisions[decision.value] = decisions.get(decision.value, 0) + 1
                    ratios.append(c.ratio.estimate if slow_first else 1 / c.ratio.estimate)
    cells = sum(decisions.values())
    share = decisions.get("slower", 0) / cells
    print(
        json.dumps(
            {"cells": cells, "decisions": decisions, "share_called_slower": share, "ratios_min": min(ratios),
             "ratios_max": max(ratios), "holds": share >= 0.95}
        )
    )  # fmt: skip
    return 0 if share >= 0.95 else 1


def _mirrored(decision: Decision) -> Decision:
    return {Decision.FASTER: Decision.SLOWER, Decision.SLOWER: Decision.FASTER}.get(decision, decision)


if __name__ == "__main__":
    sys.exit(main())
