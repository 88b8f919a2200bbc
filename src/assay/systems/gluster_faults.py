"""Losing hosts and bricks of a GlusterFS volume on purpose, and getting them back."""

from __future__ import annotations

import time
from collections.abc import Callable

from assay.lab.errors import LabError
from assay.lab.host import HostError
from assay.systems.base import AdapterError, NoAnswerError
from assay.systems.gluster_cli import tell
from assay.systems.gluster_cluster import VOLUME, GlusterCluster
from assay.systems.gluster_volume import Graph, spread
from assay.systems.hosts import wait_until

HEAL_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 6.0  # clients try again every 3 s; a brick that is away longer needs a push


def kill_hosts(cluster: GlusterCluster, graph: Graph, count: int) -> list[str]:
    """Kill ``count`` hosts at once; returns their names. Raises AdapterError when there are not as many."""
    sets = [[brick.partition(":")[0] for brick in members] for members in graph.sets]
    there = {host.name for host in cluster.up}
    order = [name for name in spread(sets, kept=cluster.first.name) if name in there]
    if count > len(order):
        raise AdapterError(
            f"{count} hosts cannot be killed: {len(there)} run, and {cluster.first.name} stays, from which clients mount"
        )
    cluster.kill(order[:count])
    return order[:count]


def restart_hosts(cluster: GlusterCluster, missing: Callable[[], list[str]], timeout_seconds: float) -> float:
    """Start the killed hosts; seconds until every client is connected to every brick. ``missing`` names the bricks that are
    not. Raises AdapterError."""
    started = time.monotonic()
    try:
        names = cluster.restart()
    except (LabError, HostError) as error:
        raise AdapterError(f"restarting {', '.join(cluster.killed)}: {error}") from None
    _await(cluster, missing, timeout_seconds, f"after {', '.join(names)} came back")
    return time.monotonic() - started


def restart_bricks(cluster: GlusterCluster, missing: Callable[[], list[str]], timeout_seconds: float) -> float:
    """Start the brick processes that are gone; seconds until every client is connected to every brick. Raises
    AdapterError."""
    started = time.monotonic()
    cluster.start_bricks()
    _await(cluster, missing, timeout_seconds, "after the bricks were started")
    return time.monotonic() - started


def _await(cluster: GlusterCluster, missing: Callable[[], list[str]], timeout_seconds: float, when: str) -> None:
    patience = min(timeout_seconds, _PATIENCE_SECONDS)
    if wait_until(lambda: not missing(), patience):
        return
    cluster.start_bricks()
    if not wait_until(lambda: not missing(), max(0.0, timeout_seconds - patience)):
        left = missing()
        said = cluster.why_offline(left[0]) if left else ""
        raise AdapterError(
            f"{when}, {', '.join(left)} is not connected within {timeout_seconds:g} s"
            + (f"; its log says: {said}" if said else "")
        )


def heal(cluster: GlusterCluster, timeout_seconds: float) -> float | None:
    """Have every copy and fragment made whole again; the seconds that it took, None past the timeout. Raises
    AdapterError."""
    started = time.monotonic()
    end = started + timeout_seconds
    tell(cluster.first, "volume", "heal", VOLUME)  # now, and not at the daemon's next round in up to 10 minutes
    while True:
        try:
            state = cluster.heal(max(1.0, end - time.monotonic()))
        except NoAnswerError:  # it waits for bricks that are gone
            return None
        if state.healed:
            return time.monotonic() - started
        if state.split_brain:
            raise AdapterError(f"{state.split_brain} entries are in split-brain and will not heal by themselves")
        if time.monotonic() >= end:
            return None
        time.sleep(HEAL_POLL_SECONDS)
