"""What is remembered of a lab that stands between commands: its hosts, by process and start time.

The note is written once, when everything is up, and lies in the lab's directory. A lab without it is one that was never
finished or has been taken down: whatever is left of it is for clean-up.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from assay.lab.kernel import boot_id, start_time
from assay.ledger.files import write_atomically

FILE = "standing.json"


@dataclass(frozen=True)
class FirstProcess:
    """A process as this machine counts; ``started`` in clock ticks since boot."""

    pid: int
    started: int

    @property
    def alive(self) -> bool:
        """Whether it is there, and is still the same one."""
        return self.started != 0 and start_time(self.pid) == self.started


@dataclass(frozen=True)
class StandingHost:
    """One host of the lab; ``groups`` are the directories of its control groups."""

    name: str
    address: str
    first: FirstProcess
    groups: list[str] = field(default_factory=list)


@dataclass(frozen=True)
class Standing:
    """A lab that stands. ``shape`` is what was asked for, as in a study's ``lab``; ``mounts`` are ``host:directory``."""

    boot: str
    supervisor: FirstProcess
    hosts: list[StandingHost]
    shape: dict[str, Any]
    candidate: str | None = None
    mounts: list[str] = field(default_factory=list)

    @property
    def alive(self) -> bool:
        """Whether its supervisor lives."""
        return self.boot == boot_id() and self.supervisor.alive


def write_standing(directory: Path, standing: Standing) -> None:
    """Note that the lab in ``directory`` stands."""
    write_atomically(directory / FILE, json.dumps(asdict(standing)).encode())


def read_standing(directory: Path) -> Standing | None:
    """The note of the lab in ``directory``; None when there is none that can be read."""
    try:
        found = json.loads((directory / FILE).read_text())
        hosts = [StandingHost(**{**h, "first": FirstProcess(**h["first"])}) for h in found["hosts"]]
        return Standing(**{**found, "supervisor": FirstProcess(**found["supervisor"]), "hosts": hosts})
    except (OSError, ValueError, TypeError, KeyError):
        return None
