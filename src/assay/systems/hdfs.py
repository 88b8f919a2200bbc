"""HDFS: NameNode and DataNodes on the hosts of a lab; whole files through its native client, no mount."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from assay.lab import remote
from assay.lab.caches import DROP_SECONDS
from assay.lab.errors import LabError
from assay.lab.host import Host, HostError
from assay.model import units
from assay.model.evidence import ColdEvidence, DeviceCounters, DurabilityEvidence
from assay.model.lab import Lab as LabDeclaration
from assay.systems import hdfs_client, hdfs_install, hdfs_resize
from assay.systems.base import AdapterError, Deployment
from assay.systems.hdfs_client import Access
from assay.systems.hdfs_cluster import HdfsCluster
from assay.systems.hdfs_config import (
    CELL_BYTES,
    CLIENT_OPTIONS,
    FILESYSTEM_BYTES,
    HOME,
    LAB_OPTIONS,
    check_hosts,
    check_room,
    client_options,
    core_options,
    hdfs_options,
    layout_of,
    options_of,
    policy_of,
)
from assay.systems.hosted import HostedSystem, check_machine
from assay.systems.hosts import each, wait_until
from assay.systems.requirements import Requirement

CLIENT_SECONDS = 60.0
PROBE_BYTES = 1 << 20
HEAL_POLL_SECONDS = 0.3
HEAP = "256MiB"
_LEAST_HEAP = 96 << 20


class HdfsSystem(HostedSystem):
    """``hdfs/distributed``, ``hdfs/replicated-N``, ``hdfs/rain-K-M``."""

    system: ClassVar[str] = "hdfs"
    layouts: ClassVar[dict[str, str]] = {
        "distributed": "each block on one DataNode",
        "replicated-N": "each block on N DataNodes",
        "rain-K-M": "each file in stripes of K data and M parity cells on K+M DataNodes (erasure-coding policy RS-K-M-1024k)",
    }
    requirements: ClassVar[tuple[Requirement, ...]] = hdfs_install.requirements()
    tunables: ClassVar[dict[str, str]] = {
        "brick": "file system of the DataNodes' disks: xfs (default) or ext4",
        "heap": f"largest heap of each Java service, e.g. 1GiB; {HEAP} by default",
        "dfs.*": "any option of hdfs-site.xml, e.g. dfs.datanode.synconclose: true",
    }

    @staticmethod
    def preflight(layout: str, lab: LabDeclaration, dataset_bytes: int) -> None:
        """See SystemAdapter: root, Java, Hadoop and its client installed, hosts and disks that suffice."""
        wanted = layout_of(layout)
        check_hosts(wanted, lab.hosts)
        check_room(wanted, lab.hosts, lab.disk, "xfs", dataset_bytes, lab.clients)
        check_machine(f"hdfs/{layout}", lab, HdfsSystem.requirements, fuse=False)

    @staticmethod
    def check_tuning(tuning: dict[str, Any]) -> None:
        """See catalogue: values that cannot be right."""
        if (filesystem := tuning.get("brick", "xfs")) not in FILESYSTEM_BYTES:
            raise AdapterError(f"hdfs has no brick file system {filesystem!r}; known: {', '.join(FILESYSTEM_BYTES)}")
        heap_bytes(tuning.get("heap", HEAP))
        options_of(tuning, hdfs_install.option_names())

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.directory: Path | None = None  # there is never a mount
        self._layout = layout_of(deployment.layout)
        self._options = options_of(deployment.tuning)
        self._cluster: HdfsCluster | None = None
        self._access: Access | None = None

    @property
    def cluster(self) -> HdfsCluster:
        """The services. Raises AdapterError before deploy."""
        if self._cluster is None:
            raise AdapterError(f"{self.deployment.name} is not deployed")
        return self._cluster

    # --- core -----------------------------------------------------------------------------------------------------------

    def deploy(self) -> None:
        """Start the NameNode and a DataNode on every storage host; ready when every one of them is known to serve."""
        fabric = self.fabric()
        filesystem = str(self.deployment.tuning.get("brick", "xfs"))
        heap = heap_bytes(self.deployment.tuning.get("heap", HEAP))
        self._cluster = cluster = HdfsCluster(fabric, filesystem, heap)
        try:
            site = hdfs_options(self._layout, fabric.shape.disk.per_host, cluster.exclude, self._options)
            cluster.start(site)
            cluster.set_policy(policy_of(self._layout))
        except (AdapterError, LabError, HostError) as error:
            self.destroy()
            raise AdapterError(f"{self.deployment.name}: {error}") from None
        packages = hdfs_install.client_packages()
        self._access = Access(str(packages), core_options()["fs.defaultFS"], client_options(self._options))

    def mount(self) -> None:
        """There is nothing to mount: every client's own process reaches the NameNode and finds the layout's directory."""
        try:
            each(self.deployment.clients, self._join)
        except (OSError, HostError, AdapterError) as error:
            raise AdapterError(f"{self.deployment.name}: {error}") from None

    def _join(self, client: Host) -> None:
        if not client.call(hdfs_client.is_directory, self._reached(), HOME, timeout_seconds=CLIENT_SECONDS):
            raise AdapterError(f"{client.name}: {HOME} is no directory")

    def unmount(self) -> None:
        """See SystemAdapter."""
        if self.deployment.fabric is not None:
            for client in self.deployment.clients:
                if client.is_up:
                    client.call(hdfs_client.forget)

    def destroy(self) -> None:
        """Kill the services and remove their disks."""
        cluster, self._cluster = self._cluster, None
        self._access = None
        if cluster is not None:
            cluster.remove(cluster.fabric.storage)

    def facts(self) -> dict[str, Any]:
        """See SystemAdapter."""
        return {
            "system": f"hdfs/{self._layout}",
            "version": f"Hadoop {self.cluster.state().version}, {self._java_version()}, "
            f"hdfs-native {hdfs_install.CLIENT_VERSION}, Linux {os.uname().release}",
            "layout": {"replication": self._layout.copies, "policy": policy_of(self._layout)},
            "options": dict(sorted({**LAB_OPTIONS, **CLIENT_OPTIONS, **self._options}.items())),
            "brick": self.cluster.filesystem,
            "heap": str(self.deployment.tuning.get("heap", HEAP)),
            "disk": self.deployment.disk.model_dump(mode="json", exclude={"directory", "devices"}),
        }

    def _java_version(self) -> str:
        words = self.cluster.first.run(["java", "-version"]).stderr.decode(errors="replace").splitlines()
        return words[0] if words else "Java of unknown version"

    def _reached(self) -> Access:
        if self._access is None:
            raise AdapterError(f"{self.deployment.name} is not deployed")
        return self._access

    # --- files ----------------------------------------------------------------------------------------------------------

    def put(self, client: Host, source: Path, name: str, timeout_seconds: float) -> None:
        """See PutsAndGets."""
        self._call(client, hdfs_client.put, source, path_of(name), timeout_seconds=timeout_seconds)

    def get(self, client: Host, name: str, target: Path, timeout_seconds: float) -> None:
        """See PutsAndGets."""
        self._call(client, hdfs_client.get, path_of(name), target, timeout_seconds=timeout_seconds)

    def delete(self, client: Host, name: str, timeout_seconds: float) -> None:
        """See PutsAndGets."""
        self._call(client, hdfs_client.delete, path_of(name), timeout_seconds=timeout_seconds)

    def _call(self, client: Host, function: Callable[..., Any], *arguments: object, timeout_seconds: float) -> None:
        try:
            client.call(function, self._reached(), *arguments, timeout_seconds=timeout_seconds)
        except (OSError, HostError) as error:
            words = error.strerror if isinstance(error, OSError) and error.strerror else str(error)
            raise AdapterError(f"{self.deployment.name}: {client.name}: {words}") from None

    # --- state ----------------------------------------------------------------------------------------------------------

    def device_counters(self) -> list[DeviceCounters]:
        """See HostedSystem."""
        return self.cluster.counters()

    def go_cold(self) -> ColdEvidence:
        """Write back what the DataNodes hold, drop this machine's page cache (they have no cache of their own), and give every
        client new connections (it keeps no data). The NameNode holds its names in memory by design."""
        started = time.monotonic()
        before = remote.meminfo()["Cached"]
        steps = self.cluster.flush()
        for client in self.deployment.clients:
            steps.append((f"{client.name}: a new client", client.call(hdfs_client.forget)))
            steps.append(
                (f"{client.name}: drop_caches=3", client.call(remote.drop_caches, timeout_seconds=DROP_SECONDS))
            )
            self._join(client)
        return ColdEvidence(
            requested=True,
            steps=[name for name, _ in steps],
            exit_codes=[code for _, code in steps],
            cached_before_bytes=before,
            cached_after_bytes=remote.meminfo()["Cached"],
            seconds=time.monotonic() - started,
        )

    def _left_to_do(self, timeout_seconds: float) -> tuple[bool, str]:
        """Whether blocks are to be rebuilt or deleted. With fewer hosts than a block has parts nothing can be rebuilt."""
        state = self.cluster.state(timeout_seconds)
        killed = self.cluster.killed
        if noticing := self.cluster.unnoticed(state):
            return True, f"the NameNode may still count on {', '.join(noticing)}"
        if killed and len(self.cluster.up) < self._layout.width:
            return bool(state.deleting), f"rebuilding waits for {', '.join(killed)}, {state}"
        return state.busy, str(state)

    def probe_durability(self) -> DurabilityEvidence:
        """Put a file and see which devices have received their part when the client says that it is stored."""
        size = max(PROBE_BYTES, self._layout.data * CELL_BYTES if policy_of(self._layout) else 0)
        part = size // self._layout.data
        client = self.deployment.clients[0]
        before = {c.device: c.written_bytes for c in self.cluster.counters()}
        with tempfile.NamedTemporaryFile(dir=self.cluster.fabric.directory) as file:
            file.write(os.urandom(size))
            file.flush()
            try:
                self.put(client, Path(file.name), ".assay-durability-probe", CLIENT_SECONDS)
                after = self.cluster.counters()
                self.delete(client, ".assay-durability-probe", CLIENT_SECONDS)
            except AdapterError as error:
                return DurabilityEvidence(declared="unknown", probed=None, detail=f"probe failed: {error}")
        reached = [c.device for c in after if c.written_bytes - before.get(c.device, 0) >= part]
        durable = len(reached) >= self._layout.width
        tier = "replicated" if self._layout.parity else "device"
        return DurabilityEvidence(
            declared=tier if durable else "page-cache",
            probed=durable,
            detail=f"{part} bytes or more reached {len(reached)} of {self._layout.width} devices by the end of a put of "
            f"{size} bytes",
        )

    def health(self) -> tuple[bool | None, str]:
        """The NameNode serves, hears every DataNode, and misses no block."""
        names = [host.name for host in self.cluster.fabric.storage]
        try:
            state = self.cluster.state()
        except AdapterError as error:
            return False, str(error)
        if state.safe_mode:
            return False, "the NameNode is in safe mode"
        if gone := state.gone(names):
            return False, f"{len(names) - len(gone)} of {len(names)} DataNodes answer; missing: {', '.join(gone)}"
        if state.missing:
            return False, str(state)
        return True, f"{len(names)} of {len(names)} DataNodes answer, {state}"

    # --- failures -------------------------------------------------------------------------------------------------------

    def kill_hosts(self, count: int) -> list[str]:
        """See KillsHosts. The last hosts go first."""
        order = [host.name for host in reversed(self.cluster.up[1:])]
        if count > len(order):
            raise AdapterError(
                f"{count} hosts cannot be killed: {len(order) + 1} run, and {self.cluster.first.name} stays, the NameNode's"
            )
        self.cluster.kill(order[:count])
        return order[:count]

    def restart_hosts(self, timeout_seconds: float) -> float:
        """See KillsHosts."""
        started = time.monotonic()
        self.cluster.restart(timeout_seconds)
        return time.monotonic() - started

    def heal(self, timeout_seconds: float) -> float | None:
        """See KillsHosts. HDFS rebuilds by itself, on other hosts too, once it counts a host as dead (14 s)."""
        started = time.monotonic()
        before = False

        def healed() -> bool:
            nonlocal before
            try:
                state = self.cluster.state()
            except AdapterError:
                return False
            whole = (
                state.whole and not self.cluster.unnoticed(state) and state.ready(host.name for host in self.cluster.up)
            )
            twice, before = whole and before, whole  # between two rounds of its monitor nothing is queued
            return twice

        return time.monotonic() - started if wait_until(healed, timeout_seconds, HEAL_POLL_SECONDS) else None

    # --- growing and shrinking (see hdfs_resize) --------------------------------------------------------------------------

    def grow(self, hosts: int, progress: Callable[[str], None]) -> None:
        """See Resizes."""
        hdfs_resize.grow(self.cluster, hosts, progress)

    def shrink(self, hosts: int, progress: Callable[[str], None]) -> None:
        """See Resizes."""
        hdfs_resize.shrink(self.cluster, self._layout, hosts, progress)


def path_of(name: str) -> str:
    """Where a name lies in HDFS. Raises AdapterError for one that would lead elsewhere."""
    path = PurePosixPath(name)
    if not name or path.is_absolute() or ".." in path.parts:
        raise AdapterError(f"{name!r} is no relative name")
    return f"{HOME}/{path}"


def heap_bytes(value: object) -> int:
    """Size of a heap. Raises AdapterError."""
    try:
        size = units.parse_bytes(value)
    except ValueError as error:
        raise AdapterError(f"heap: {error}") from None
    if size < _LEAST_HEAP:
        raise AdapterError(f"heap: {value!r} is too little for a NameNode; at least {_LEAST_HEAP >> 20}MiB")
    return size
