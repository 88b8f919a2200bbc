"""The replay's own process: ``python -m assay.trace.replayer`` reads options as JSON on stdin, writes the outcome as JSON.

A process of its own because a replay forks one process per recorded process, which only one without threads may do.
"""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay import _core
from assay.trace.calls import Timing, TraceError


def options(
    trace: Path,
    target: Path,
    *,
    timing: Timing = "think",
    scale: float = 1.0,
    copies: int = 1,
    first_copy: int = 0,
    seed: int = 0,
    spread_seconds: float = 0.0,
    o_sync: bool = False,
    o_direct: bool = False,
    shared_tree: bool = False,
    rt_priority: int | None = None,
    only: Sequence[str] = (),
    prepare_only: bool = False,
    prepared: bool = False,
    deadline_seconds: float | None = None,
    out: Path | None = None,
) -> dict[str, Any]:
    """A replay's options as the core takes them. Times in seconds; ``scale`` multiplies think times."""
    return {
        "trace": str(trace),
        "target": str(target),
        "timing": timing,
        "scale": scale,
        "copies": copies,
        "first_copy": first_copy,
        "seed": seed,
        "spread_seconds": spread_seconds,
        "o_sync": o_sync,
        "o_direct": o_direct,
        "shared_tree": shared_tree,
        "rt_priority": rt_priority,
        "only": list(only),
        "prepare_only": prepare_only,
        "prepared": prepared,
        "deadline_seconds": deadline_seconds,
        "out": None if out is None else str(out),
    }


def command() -> list[str]:
    """How to start it; options go to its stdin."""
    return [sys.executable, "-m", "assay.trace.replayer"]


def run(chosen: dict[str, Any]) -> dict[str, Any]:
    """Replay in a child process and return its outcome. Raises TraceError with the child's last words."""
    done = subprocess.run(command(), input=json.dumps(chosen).encode(), capture_output=True, check=False)
    if done.returncode:
        words = done.stderr.decode(errors="replace").strip().splitlines()
        raise TraceError(words[-1] if words else f"the replay ended with exit code {done.returncode}")
    return json.loads(done.stdout)


if __name__ == "__main__":
    given = Path(sys.argv[1]).read_text() if len(sys.argv) > 1 else sys.stdin.read()
    try:
        answer = _core.trace_replay(given)
    except ValueError as error:
        print(error, file=sys.stderr)
        sys.exit(1)
    print(answer)
