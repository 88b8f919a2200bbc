"""Growing and shrinking a GlusterFS volume while it is used."""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

from assay.lab.errors import LabError
from assay.lab.host import Host, HostError
from assay.model.layout import Layout
from assay.systems import gluster_probe
from assay.systems.base import AdapterError
from assay.systems.gluster_cli import RebalanceState, ask, rebalance_state
from assay.systems.gluster_cluster import VOLUME, GlusterCluster
from assay.systems.gluster_volume import check_hosts
from assay.systems.hosts import wait_until

POLL_SECONDS = 0.5
REBALANCE_SECONDS = 24 * 3600.0  # progress is shown; whoever does not want to wait interrupts
CONNECT_SECONDS = 30.0
NAMES_SECONDS = 600.0  # a million names
_SHOWN = 3


def rebalance(cluster: GlusterCluster) -> RebalanceState:
    """How far the rebalance is. Raises AdapterError when none was ever started."""
    return rebalance_state(ask(cluster.first, "volume", "rebalance", VOLUME, "status"))


def grow(
    cluster: GlusterCluster,
    layout: Layout,
    hosts: int,
    missing: Callable[[], list[str]],
    progress: Callable[[str], None],
) -> None:
    """Add hosts to the fabric and their bricks to the volume, then rebalance. ``missing`` names the bricks to which clients
    are not connected. Raises AdapterError; what was added by then stays."""
    check_hosts(layout, hosts, cluster.fabric.shape.disk.per_host)
    try:
        added = cluster.fabric.add_storage(hosts)
        cluster.start_hosts(added)
    except (LabError, HostError) as error:
        raise AdapterError(f"adding {hosts} hosts: {error}") from None
    cluster.join(added)
    bricks = cluster.bricks_of(added)
    ask(cluster.first, "volume", "add-brick", VOLUME, *bricks)
    known = len(cluster.info().bricks)
    progress(f"{', '.join(host.name for host in added)} added, {known} bricks")
    if not wait_until(lambda: not missing(), CONNECT_SECONDS):
        raise AdapterError(f"clients are not connected to the new bricks {', '.join(missing())}")
    ask(cluster.first, "volume", "rebalance", VOLUME, "start")
    state = _await(lambda: rebalance(cluster), "rebalance", progress)
    if state.skipped:  # gluster leaves files where their target has less room than their source
        progress(f"{state.skipped} files skipped for lack of room on their target; moving them all the same")
        ask(cluster.first, "volume", "rebalance", VOLUME, "start", "force")
        _await(lambda: rebalance(cluster), "rebalance with force", progress)


def shrink(cluster: GlusterCluster, hosts: int, progress: Callable[[str], None]) -> None:
    """Move data off the last hosts, take their bricks out of the volume and the hosts out of the pool. Raises
    AdapterError; nothing is lost then, a removal that was begun is stopped."""
    leaving = cluster.fabric.storage[-hosts:]
    bricks = _bricks_on(cluster, [host.name for host in leaving])

    def state() -> RebalanceState:
        return rebalance_state(ask(cluster.first, "volume", "remove-brick", VOLUME, *bricks, "status"))

    ask(cluster.first, "volume", "remove-brick", VOLUME, *bricks, "start")
    try:
        _await(state, "remove-brick", progress)
    except AdapterError:
        ask(cluster.first, "volume", "remove-brick", VOLUME, *bricks, "stop")
        raise
    ask(cluster.first, "volume", "remove-brick", VOLUME, *bricks, "commit")
    for host in leaving:
        ask(cluster.first, "peer", "detach", host.name)
    cluster.remove(leaving)
    for host in leaving:
        cluster.fabric.remove_storage(host)
    progress(f"{', '.join(host.name for host in leaving)} taken out, {len(cluster.info().bricks)} bricks")


def must_find(client: Host, directory: Path, names: list[str]) -> None:
    """Raises AdapterError unless every name is found through this client, asked one by one."""
    missing = client.call(gluster_probe.missing_names, directory, names, timeout_seconds=NAMES_SECONDS)
    if missing:
        shown = ", ".join(missing[:_SHOWN]) + (", ..." if missing[_SHOWN:] else "")
        raise AdapterError(
            f"after remove-brick {len(missing)} of {len(names)} files cannot be opened (No such file or directory): {shown}; "
            "a known failure of GlusterFS with cluster.lookup-optimize on, its default; the candidate's tuning "
            "cluster.lookup-optimize: off avoids it"
        )


def _bricks_on(cluster: GlusterCluster, names: list[str]) -> list[str]:
    """Bricks of these hosts, which must be whole sets. Raises AdapterError."""
    info = cluster.info()
    width = info.shards or info.replicas
    bricks: list[str] = []
    for start in range(0, len(info.bricks), width):
        members = info.bricks[start : start + width]
        gone = [brick for brick in members if brick.partition(":")[0] in names]
        if gone and len(gone) < width:
            raise AdapterError(
                f"{', '.join(names)} cannot leave: the set {', '.join(members)} would lose {len(gone)} of its {width} bricks; "
                f"shrink by a multiple of {width} hosts"
            )
        bricks += gone
    if not names or len(bricks) in (0, len(info.bricks)):
        raise AdapterError(
            f"{len(names)} of {len(cluster.fabric.storage)} hosts cannot leave; at least one set must stay"
        )
    return bricks


def _await(state: Callable[[], RebalanceState], what: str, progress: Callable[[str], None]) -> RebalanceState:
    end = time.monotonic() + REBALANCE_SECONDS
    while True:
        now = state()
        progress(f"{what} {now}")
        if now.ended:
            break
        if time.monotonic() > end:
            raise AdapterError(f"{what} has not ended after {REBALANCE_SECONDS:g} s: {now}")
        time.sleep(POLL_SECONDS)
    if now.status != "completed" or now.failures:
        raise AdapterError(f"{what} {now}")
    return now
