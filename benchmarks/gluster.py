"""From nothing to a mounted GlusterFS volume and back, as ratio to the same steps done by a plain shell script.

.venv/bin/python benchmarks/gluster.py [--hosts 6] [--rounds 3]

The script (``gluster.sh``) is the recipe by hand: namespaces, links, disks, daemons, pool, volume, mount. Assay does the
same and proves more of it: peers on all hosts, mounts of disks, type and layout of the volume, all bricks connected.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from contextlib import suppress
from pathlib import Path

from assay.lab.fabric import Fabric
from assay.lab.host import LocalHost
from assay.lab.kernel import processes_of
from assay.lab.registry import Lab
from assay.model.lab import Lab as LabDeclaration
from assay.systems.base import Deployment
from assay.systems.gluster import GlusterSystem

LAYOUTS = {
    "distributed": [],
    "replicated-3": ["replica", "3"],
    "rain-4-2": ["disperse-data", "4", "redundancy", "2"],
}
LARGEST_RATIO = 1.25
MOUNTED_SECONDS, DESTROYED_SECONDS = 6.0, 1.0
IDLE_BYTES = 260 << 20


def by_assay(layout: str, hosts: int) -> dict[str, float]:
    """Seconds to mounted and to nothing, and the memory of the idle cluster, helper processes of Assay included."""
    lab = Lab("benchmark-gluster", "benchmark")
    shape = LabDeclaration.model_validate({"hosts": hosts, "disk": {"size": "600MiB"}})
    started = time.perf_counter()
    fabric = Fabric(lab, "f", shape)
    here = LocalHost(environment=lab.environment)
    system = GlusterSystem(Deployment("g", layout, lab, here, shape.disk, {}, fabric))
    try:
        fabric.up()
        system.deploy()
        system.mount()
        mounted = time.perf_counter() - started
        memory = sum(proportional_set_size(pid) for pid in processes_of(lab.id))
        cold = min(system.go_cold().seconds for _ in range(3))
        settled = min(system.settle(10).waited_seconds for _ in range(3))
    finally:
        started = time.perf_counter()
        system.unmount()
        system.destroy()
        fabric.down()
        destroyed = time.perf_counter() - started
        lab.remove()
    return {"mounted": mounted, "destroyed": destroyed, "bytes": memory, "cold": cold, "settled": settled}


def by_hand(layout: str, hosts: int) -> dict[str, float]:
    """The same by the shell script; it goes by SIGKILL, at whose end the kernel is still busy: no time to compare."""
    with tempfile.TemporaryDirectory() as state:
        started = time.perf_counter()
        script = str(Path(__file__).with_name("gluster.sh"))
        process = subprocess.Popen(
            [script, state, str(hosts), *LAYOUTS[layout]], stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        assert process.stdout is not None
        line = process.stdout.readline()
        mounted = time.perf_counter() - started
        process.kill()
        process.wait()
        if line != b"mounted\n":
            raise SystemExit(f"gluster.sh: {line!r}")
    return {"mounted": mounted}


def proportional_set_size(pid: int) -> int:
    """Bytes; 0 for a process that is gone."""
    with suppress(OSError):
        text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return sum(int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("Pss:"))
    return 0


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hosts", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    results, holds = [], True
    with tempfile.TemporaryDirectory() as data:
        os.environ["XDG_DATA_HOME"] = data
        for layout in LAYOUTS:
            rounds = [(by_assay(layout, options.hosts), by_hand(layout, options.hosts)) for _ in range(options.rounds)]
            ours = {name: statistics.median(a[name] for a, _ in rounds) for name in rounds[0][0]}
            ratio = statistics.median(a["mounted"] / b["mounted"] for a, b in rounds)
            results.append(
                {
                    "layout": layout,
                    "mounted_seconds": round(ours["mounted"], 2),
                    "by_hand_mounted_seconds": round(statistics.median(b["mounted"] for _, b in rounds), 2),
                    "mounted_over_by_hand": round(ratio, 2),
                    "destroyed_seconds": round(ours["destroyed"], 2),
                    "idle_mib": round(ours["bytes"] / (1 << 20)),
                    "cold_seconds": round(ours["cold"], 2),
                    "settled_seconds": round(ours["settled"], 2),
                }
            )
            holds &= ratio <= LARGEST_RATIO and ours["mounted"] <= MOUNTED_SECONDS
            holds &= ours["destroyed"] <= DESTROYED_SECONDS and ours["bytes"] <= IDLE_BYTES
    print(json.dumps({"hosts": options.hosts, "rounds": options.rounds, "results": results, "holds": holds}))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
