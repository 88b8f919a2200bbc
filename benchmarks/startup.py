"""How long ``assay --help`` takes, as ratio to the bare interpreter.

.venv/bin/python benchmarks/startup.py
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from pathlib import Path

RUNS = 11


def main() -> int:
    assay = [str(Path(sys.executable).parent / "assay"), "--help"]
    python = [sys.executable, "-c", "pass"]
    seconds: dict[str, list[float]] = {"assay": [], "python": []}
    for _ in range(RUNS):  # in turn, so that a drift of the machine's speed hits both
        for name, argv in (("assay", assay), ("python", python)):
            started = time.perf_counter()
            subprocess.run(argv, check=True, capture_output=True)
            seconds[name].append(time.perf_counter() - started)
    median = {name: sorted(values)[RUNS // 2] for name, values in seconds.items()}
    result = {
        "help_seconds": round(median["assay"], 3),
        "over_bare_python": round(median["assay"] / median["python"], 1),
        "holds": median["assay"] < 0.3,
    }
    print(json.dumps(result))
    return 0 if result["holds"] else 1


if __name__ == "__main__":
    sys.exit(main())
