"""Losing hosts and OSDs of a Ceph cluster on purpose, getting them back, and knowing when all is whole again."""

from __future__ import annotations

import time

from assay.lab.errors import LabError
from assay.lab.host import HostError
from assay.systems.base import AdapterError
from assay.systems.ceph_cluster import CephCluster
from assay.systems.ceph_status import map_age_seconds

POLL_SECONDS = 0.2
#: States of placement groups come from the OSDs through the manager: what is said sooner than this after a change of the OSD
#: map may be from before it. Ceph's own period is 5 s, profile ``fast`` has 1 s.
_STABLE_SECONDS = {True: 5.0, False: 8.0}


def kill_hosts(cluster: CephCluster, count: int) -> list[str]:
    """Kill ``count`` hosts at once, the last first; returns their names. Raises AdapterError when there are not as many."""
    there = [host.name for host in cluster.up]
    if count > len(there) - 1:
        raise AdapterError(
            f"{count} hosts cannot be killed: {len(there)} run, and {there[0]} stays, which has the monitor and the metadata"
        )
    names = there[::-1][:count]
    cluster.kill(names)
    return names


def restart_hosts(cluster: CephCluster, timeout_seconds: float) -> float:
    """Start the killed hosts; seconds until all their OSDs serve again. Raises AdapterError."""
    started = time.monotonic()
    try:
        cluster.restart(timeout_seconds)
    except (LabError, HostError) as error:
        raise AdapterError(f"restarting {', '.join(cluster.killed)}: {error}") from None
    return time.monotonic() - started


def left_to_do(cluster: CephCluster) -> tuple[bool, str]:
    """Whether anything is to be made whole or moved, in words. Raises AdapterError."""
    status, dump = cluster.status(), cluster.dump()
    age = map_age_seconds(dump, time.time())
    if cluster.killed:
        waiting = f"recovery waits for {', '.join(sorted(cluster.killed))}; {status}"
        return status.working or age < _STABLE_SECONDS[cluster.fast], waiting
    wanted = len(cluster.placed)
    if not status.clean or not status.up == status.in_ == wanted:
        return True, str(status)
    if age < _STABLE_SECONDS[cluster.fast]:
        return True, f"the OSD map has changed {age:.1f} s ago; {status}"
    return False, str(status)


def heal(cluster: CephCluster, timeout_seconds: float) -> float | None:
    """Wait until every copy and shard is whole and in its place; the seconds that it took, None past the timeout. Raises
    AdapterError."""
    started = time.monotonic()
    whole_since: float | None = None  # so far: what is said too soon after a change is not believed yet
    while True:
        left, _ = left_to_do(cluster)
        now = time.monotonic()
        if not cluster.status().clean:
            whole_since = None
        elif whole_since is None:
            whole_since = now
        if not left and whole_since is not None and not cluster.killed:
            return whole_since - started
        if now - started >= timeout_seconds:
            return None
        time.sleep(POLL_SECONDS)
