"""Dropping caches on hosts, and keeping an exit code for every step (checks K1, K2)."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.lab import remote
from assay.lab.host import Host

FLUSH_SECONDS = 300.0  # a fifth of a large memory may be dirty
DROP_SECONDS = 60.0

Step = tuple[str, int]  # what was done, and its exit code or errno (0: done)


def flush(hosts: Sequence[Host], directory: Path) -> list[Step]:
    """Write back what each host holds of the files below ``directory``. Raises HostError past the deadline."""
    return [
        (_named(hosts, host, f"fsync {directory}"), host.call(remote.flush_below, directory, timeout_seconds=FLUSH_SECONDS))
        for host in hosts
    ]  # fmt: skip


def drop(hosts: Sequence[Host], directory: Path) -> list[Step]:
    """Drop page cache, dentries and inodes of each host.

    Without the privilege for a whole host, only the pages of the files below ``directory`` are dropped (posix_fadvise),
    which needs none. Raises HostError past the deadline.
    """
    steps: list[Step] = []
    for host in hosts:
        if host.call(remote.can_drop_caches):
            name, code = "drop_caches=3", host.call(remote.drop_caches, timeout_seconds=DROP_SECONDS)
        else:
            name = f"fadvise DONTNEED {directory}"
            code = host.call(remote.forget_below, directory, timeout_seconds=FLUSH_SECONDS)
        steps.append((_named(hosts, host, name), code))
    return steps


def _named(hosts: Sequence[Host], host: Host, step: str) -> str:
    return step if len(hosts) == 1 else f"{host.name}: {step}"
