"""Growing and shrinking an HDFS cluster while it is used."""

from __future__ import annotations

import time
from collections.abc import Callable

from assay.lab.errors import LabError
from assay.lab.host import HostError
from assay.model.layout import Layout
from assay.systems.base import AdapterError
from assay.systems.hdfs_cluster import HdfsCluster

ADMIN = "org.apache.hadoop.hdfs.tools.DFSAdmin"
BALANCER = "org.apache.hadoop.hdfs.server.balancer.Balancer"
MOVE_SECONDS = 24 * 3600.0  # progress is shown; whoever does not want to wait interrupts
THRESHOLD_PERCENT = 5  # how far a host's use may be from the mean
POLL_SECONDS = 0.5
#: ExitStatus.NO_MOVE_BLOCK (-2) and NO_MOVE_PROGRESS (-3): what is left cannot be moved, with few blocks for example.
NO_MORE_TO_MOVE = (254, 253)


def grow(cluster: HdfsCluster, hosts: int, progress: Callable[[str], None]) -> None:
    """Add hosts and their DataNodes, then move blocks to them (the balancer; blocks of any size, where by default it leaves
    those below 10 MiB). Raises AdapterError; what was added by then stays."""
    try:
        added = cluster.fabric.add_storage(hosts)
        cluster.start_hosts(added)
    except (LabError, HostError) as error:
        raise AdapterError(f"adding {hosts} hosts: {error}") from None
    cluster.await_ready()
    progress(f"{', '.join(host.name for host in added)} added, {len(cluster.up)} DataNodes")
    small = ["-D", "dfs.balancer.getBlocks.min-block-size=1", "-D", "dfs.balancer.block-move.timeout=60000"]
    try:
        done = cluster.run(BALANCER, *small, "-threshold", str(THRESHOLD_PERCENT), timeout_seconds=MOVE_SECONDS)
        if done.exit_code not in NO_MORE_TO_MOVE:
            done.must("balancing")
    except HostError as error:
        raise AdapterError(str(error)) from None
    lines = [line for line in done.stdout.decode(errors="replace").splitlines() if "Exiting" in line]
    progress(f"balancer: {lines[-1].strip() if lines else 'ended'}")


def shrink(cluster: HdfsCluster, layout: Layout, hosts: int, progress: Callable[[str], None]) -> None:
    """Decommission the last hosts (their blocks are copied to others) and take them out. Raises AdapterError."""
    left = len(cluster.fabric.storage) - hosts
    if left < layout.width:
        raise AdapterError(
            f"hdfs/{layout} needs {layout.width} hosts; without {hosts} of {len(cluster.fabric.storage)} there are {left}"
        )
    leaving = cluster.fabric.storage[left:]
    names = [host.name for host in leaving]
    _exclude(cluster, [f"{host.address}" for host in leaving])
    _await_decommissioned(cluster, names, progress)
    cluster.remove(leaving)
    for host in leaving:
        cluster.fabric.remove_storage(host)
    progress(f"{', '.join(names)} taken out, {len(cluster.up)} DataNodes")


def _exclude(cluster: HdfsCluster, addresses: list[str]) -> None:
    known = cluster.exclude.read_text().split()
    cluster.exclude.write_text("\n".join([*known, *addresses, ""]))
    try:
        cluster.tool(ADMIN, "-refreshNodes", purpose="taking hosts out of service")
    except HostError as error:
        raise AdapterError(str(error)) from None


def _await_decommissioned(cluster: HdfsCluster, names: list[str], progress: Callable[[str], None]) -> None:
    end = time.monotonic() + MOVE_SECONDS
    last = ""
    while time.monotonic() < end:
        try:
            state = cluster.state()
        except AdapterError:  # a busy NameNode
            time.sleep(POLL_SECONDS)
            continue
        waiting = [n for n in names if n in state.live and state.live[n].state != "Decommissioned"]
        if gone := [n for n in names if n not in state.live]:
            raise AdapterError(f"{', '.join(gone)} died before all blocks were copied")
        if not waiting:
            return
        if (said := f"decommissioning {', '.join(waiting)}: {state.low} blocks low") != last:
            progress(said)
            last = said
        time.sleep(POLL_SECONDS)
    raise AdapterError(f"{', '.join(names)} are not decommissioned after {MOVE_SECONDS:g} s")
