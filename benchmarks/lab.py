"""How long N hosts take from nothing and back, as ratio to N named network namespaces with the same links made by hand.

.venv/bin/python benchmarks/lab.py [N ...]

By hand means what a tutorial says: ``ip netns add``, a veth pair into a bridge, addresses, a shaper on both ends, one
command each. That has neither mounts nor processes nor an end of its own; Assay's hosts have them.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable

ROUNDS = 7
BANDWIDTH = "1gbit"
SHAPER = f"tbf rate {BANDWIDTH} burst 128k latency 20ms"
LARGEST_RATIO = 1.5  # up, against by hand; down has to be below DOWN_SECONDS
DOWN_SECONDS = 0.5


def by_hand_up(names: list[str], bridge: str) -> None:
    run(f"ip link add {bridge} type bridge")
    run(f"ip link set {bridge} up")
    for number, name in enumerate(names, start=11):
        run(f"ip netns add {name}")
        run(f"ip link add v-{name} type veth peer name eth0 netns {name}")
        run(f"ip link set v-{name} master {bridge} up")
        run(f"tc qdisc replace dev v-{name} root {SHAPER}")
        run(f"ip -n {name} link set lo up")
        run(f"ip -n {name} address add 10.78.0.{number}/24 dev eth0")
        run(f"ip -n {name} link set eth0 up")
        run(f"tc -n {name} qdisc replace dev eth0 root {SHAPER}")


def by_hand_down(names: list[str], bridge: str) -> None:
    for name in names:
        subprocess.run(["ip", "netns", "delete", name], check=False)
    subprocess.run(["ip", "link", "delete", bridge], check=False)


def run(command: str) -> None:
    subprocess.run(command.split(), check=True)


def timed(action: Callable[[], None]) -> float:
    started = time.perf_counter()
    action()
    return time.perf_counter() - started


def measure(hosts: int) -> dict[str, float]:
    from assay.lab.fabric import Fabric
    from assay.lab.registry import Lab
    from assay.model.lab import Lab as LabDeclaration

    shape = LabDeclaration.model_validate({"hosts": hosts, "clients": 1, "network": {"bandwidth": "1Gbit"}})
    names = [f"bm{os.getpid()}-{i}" for i in range(hosts + 1)]
    bridge = f"bm{os.getpid()}"
    seconds: dict[str, list[float]] = {"up": [], "down": [], "by_hand_up": [], "by_hand_down": []}
    lab = Lab("benchmark", "benchmark")
    try:
        for number in range(ROUNDS):  # in turn, so that a drift of the machine's speed hits both
            fabric = Fabric(lab, f"f{number}", shape)
            seconds["up"].append(timed(fabric.up))
            seconds["down"].append(timed(fabric.down))
            try:
                seconds["by_hand_up"].append(timed(lambda: by_hand_up(names, bridge)))
            finally:
                seconds["by_hand_down"].append(timed(lambda: by_hand_down(names, bridge)))
    finally:
        lab.remove()
    return {name: sorted(values)[ROUNDS // 2] for name, values in seconds.items()}


def main() -> int:
    results, holds = [], True
    with tempfile.TemporaryDirectory() as data:
        os.environ["XDG_DATA_HOME"] = data
        for hosts in [int(a) for a in sys.argv[1:]] or [3, 6, 12]:
            found = measure(hosts)
            ratio = found["up"] / found["by_hand_up"]
            results.append(
                {
                    "hosts_and_client": hosts + 1,
                    **{f"{name}_seconds": round(value, 3) for name, value in found.items()},
                    "up_over_by_hand": round(ratio, 2),
                }
            )
            holds &= ratio <= LARGEST_RATIO and found["down"] <= DOWN_SECONDS
    print(json.dumps({"rounds": ROUNDS, "results": results, "holds": holds}))
    return 0 if holds else 1


if __name__ == "__main__":
    sys.exit(main())
