"""Growing and shrinking a MooseFS while it is used."""

from __future__ import annotations

import time
from collections.abc import Callable

from assay.lab.errors import LabError
from assay.lab.host import HostError
from assay.model.layout import Layout
from assay.systems.base import AdapterError
from assay.systems.moosefs_cli import ChunkServer
from assay.systems.moosefs_cluster import MooseCluster
from assay.systems.moosefs_config import CHUNK_BYTES, check_hosts

POLL_SECONDS = 1.0
MOVE_SECONDS = 24 * 3600.0  # progress is shown; whoever does not want to wait interrupts
QUIET_SECONDS = 150.0  # two rounds of the master over all chunks, at 60 s each, in which it has moved none


def grow(cluster: MooseCluster, hosts: int, progress: Callable[[str], None]) -> None:
    """Add hosts and wait until the master has moved chunks to them. Raises AdapterError; what was added by then stays."""
    try:
        added = cluster.fabric.add_storage(hosts)
        cluster.make_disks(added)
        cluster.start_servers(added)
    except (LabError, HostError) as error:
        raise AdapterError(f"adding {hosts} hosts: {error}") from None
    progress(f"{', '.join(host.name for host in added)} added, {len(cluster.up)} chunk servers")
    end = time.monotonic() + MOVE_SECONDS
    said, since = "", time.monotonic()
    while not balanced(servers := list(cluster.servers().values()), cluster.accepted_difference):
        now = f"rebalance: chunks {', '.join(str(s.chunks) for s in sorted(servers, key=_number))}"
        if now != said:
            said, since = now, time.monotonic()
            progress(said)
        elif time.monotonic() - since > QUIET_SECONDS:
            break  # the master leaves it at that
        if time.monotonic() > end:
            raise AdapterError(f"not balanced after {MOVE_SECONDS:g} s; {now}")
        time.sleep(POLL_SECONDS)
    full = ", ".join(f"{s.share:.0%}" for s in sorted(servers, key=_number))
    progress(f"rebalance ended, servers are full to {full}")


def balanced(servers: list[ChunkServer], accepted: float) -> bool:
    """Whether the master has nothing to move: servers are equally full, to what it accepts (0 to 1) or to one chunk."""
    if len(servers) < 2:
        return True
    shares = [server.share for server in servers]
    one_chunk = CHUNK_BYTES / max(1, min(server.total_bytes for server in servers))
    return max(shares) - min(shares) <= max(accepted, one_chunk)


def shrink(cluster: MooseCluster, layout: Layout, hosts: int, progress: Callable[[str], None]) -> None:
    """Have the master copy all chunks of the last hosts elsewhere and take the hosts out. Raises AdapterError; nothing is
    lost then, the marks for removal are taken back."""
    staying = len(cluster.up) - hosts
    if hosts < 1 or staying < 1:
        raise AdapterError(f"{hosts} of {len(cluster.up)} hosts cannot leave; at least one must stay")
    check_hosts(layout, staying)
    leaving = cluster.fabric.storage[-hosts:]
    names = ", ".join(host.name for host in leaving)
    try:
        for host in leaving:
            cluster.mark_leaving(host, leaving=True)
        _await_leave(cluster, [host.address for host in leaving], names, progress)
    except (AdapterError, HostError) as error:
        for host in leaving:
            cluster.mark_leaving(host, leaving=False)
        raise AdapterError(f"{names} cannot leave: {error}") from None
    cluster.remove(leaving)
    for host in leaving:
        cluster.forget(host)
        cluster.fabric.remove_storage(host)
    state, _ = cluster.state()
    if state.missing:
        raise AdapterError(f"after {names} left, {state}")
    progress(f"{names} taken out, {len(cluster.up)} chunk servers")


def _await_leave(cluster: MooseCluster, addresses: list[str], names: str, progress: Callable[[str], None]) -> None:
    """Wait until every chunk has its copies elsewhere and the master says so twice in a row: it decides after a round over all
    chunks, of 60 s. Raises AdapterError."""
    end = time.monotonic() + MOVE_SECONDS
    said, agreed = "", 0
    while agreed < 2:
        seen = cluster.servers()
        servers = [seen[address] for address in addresses if address in seen]
        state = cluster.state_without_leaving()
        ready = len(servers) == len(addresses) and all(server.may_leave for server in servers) and state.whole
        agreed = agreed + 1 if ready else 0
        now = f"removal of {names}: {sum(s.may_leave for s in servers)} of {len(addresses)} servers ready; without them {state}"
        if now != said:
            said = now
            progress(said)
        if time.monotonic() > end:
            raise AdapterError(f"not ready after {MOVE_SECONDS:g} s; {now}")
        time.sleep(POLL_SECONDS)


def _number(server: ChunkServer) -> int:
    return int(server.address.rpartition(".")[2])
