"""Clients on one host work at the same time, though each call waits for its answer."""

from __future__ import annotations

import os
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from assay.lab.host import LocalHost


def meet(own: Path, other: Path) -> int:
    """Say that it is here and wait for the other."""
    own.touch()
    end = time.monotonic() + 60
    while not other.exists():
        if time.monotonic() > end:
            raise TimeoutError(f"{other} never came")
        time.sleep(0.01)
    return os.getpid()


def test_two_calls_meet_and_then_one_helper_goes_on(tmp_path: Path) -> None:
    here = f"{Path(__file__).parent}:{os.environ.get('PYTHONPATH', '')}"  # where helpers find this module
    host, (a, b) = LocalHost(environment={"PYTHONPATH": here}), (tmp_path / "a", tmp_path / "b")
    try:
        first = host.call(os.getpid)
        with ThreadPoolExecutor(2) as pool:
            calls = [pool.submit(host.call, meet, *pair, timeout_seconds=90.0) for pair in ((a, b), (b, a))]
            found = {call.result() for call in calls}
        assert len(found) == 2
        assert first in found
        assert len({host.call(os.getpid) for _ in range(3)}) == 1, "what one call opens the next may close"
    finally:
        host.close()
    assert not [pid for pid in found if Path(f"/proc/{pid}").exists()]
