"""Growing and shrinking a Ceph cluster while it is used."""

from __future__ import annotations

import time
from collections.abc import Callable

from assay.lab.errors import LabError
from assay.lab.host import HostError
from assay.systems.base import AdapterError
from assay.systems.ceph_cluster import DATA, METADATA, CephCluster
from assay.systems.ceph_faults import left_to_do
from assay.systems.ceph_status import pool_of
from assay.systems.hosts import wait_until

POLL_SECONDS = 1.0
MOVE_SECONDS = 24 * 3600.0  # progress is shown; whoever does not want to wait interrupts
SAFE_SECONDS = 60.0


def grow(cluster: CephCluster, hosts: int, progress: Callable[[str], None]) -> None:
    """Add hosts to the fabric and their OSDs to the cluster, and wait until data have moved to them. Raises AdapterError;
    what was added by then stays."""
    try:
        added = cluster.fabric.add_storage(hosts)
        cluster.add(added)
    except (LabError, HostError) as error:
        raise AdapterError(f"adding {hosts} hosts: {error}") from None
    progress(f"{', '.join(host.name for host in added)} added, {len(cluster.placed)} OSDs")
    _await_moved(cluster, "rebalance", progress)


def shrink(cluster: CephCluster, hosts: int, progress: Callable[[str], None]) -> None:
    """Move data off the last hosts and take them and their OSDs out. Raises AdapterError; nothing is lost then.

    The CRUSH weight goes to 0 first: with ``osd out`` alone, data would move a second time when the host leaves the map.
    """
    leaving = cluster.fabric.storage[-hosts:] if hosts > 0 else []
    _check_rest(cluster, len(leaving))
    numbers = cluster.osds_of(leaving)
    for number in numbers:
        cluster.ask.mon("osd crush reweight", name=f"osd.{number}", weight=0.0)
    _await_moved(cluster, "emptying", progress)
    cluster.ask.mon("osd out", ids=[str(number) for number in numbers])
    if not wait_until(lambda: _safe(cluster, numbers), SAFE_SECONDS, POLL_SECONDS):
        names = ", ".join(f"osd.{number}" for number in numbers)
        raise AdapterError(f"Ceph does not call {names} safe to destroy after {SAFE_SECONDS:g} s: {cluster.status()}")
    cluster.remove(leaving)
    cluster.ask.mon("osd down", ids=[str(number) for number in numbers])
    for number in numbers:
        cluster.ask.mgr("osd purge", id=number, yes_i_really_mean_it=True)
    for host in leaving:
        cluster.ask.mon("osd crush rm", name=host.name)
        cluster.fabric.remove_storage(host)
    progress(f"{', '.join(host.name for host in leaving)} taken out, {len(cluster.placed)} OSDs")


def _check_rest(cluster: CephCluster, leaving: int) -> None:
    dump = cluster.dump()
    least = max(int(pool_of(dump, name)["size"]) for name in (DATA, METADATA))
    rest = len(cluster.fabric.storage) - leaving
    if not leaving or rest < least:
        raise AdapterError(
            f"{leaving} of {len(cluster.fabric.storage)} hosts cannot leave; {least} must stay, one for each part of an object"
        )


def _safe(cluster: CephCluster, numbers: list[int]) -> bool:
    try:
        found = cluster.ask.mgr("osd safe-to-destroy", ids=[str(number) for number in numbers])
    except AdapterError:  # EBUSY or EAGAIN: not yet
        return False
    return set(found["safe_to_destroy"]) >= set(numbers)


def _await_moved(cluster: CephCluster, what: str, progress: Callable[[str], None]) -> None:
    end = time.monotonic() + MOVE_SECONDS
    while True:
        left, said = left_to_do(cluster)
        progress(f"{what}: {said}")
        if not left:
            return
        if "toofull" in said:
            raise AdapterError(f"{what}: the disks are too small for what must move: {said}")
        if time.monotonic() > end:
            raise AdapterError(f"{what} has not ended after {MOVE_SECONDS:g} s: {said}")
        time.sleep(POLL_SECONDS)
