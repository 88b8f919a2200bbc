"""MooseFS: a master and chunk servers on the hosts of a lab, mounted through FUSE on every client."""

from __future__ import annotations

import os
import shutil
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from assay.lab.caches import Step
from assay.lab.errors import LabError
from assay.lab.host import Host, HostError, search_path
from assay.lab.hostdisk import MKFS, MKFS_PACKAGES, MOUNT_OPTIONS
from assay.model.evidence import DeviceCounters
from assay.model.lab import Lab as LabDeclaration
from assay.systems import moosefs_mount, moosefs_resize
from assay.systems.base import AdapterError, Deployment
from assay.systems.existing import MountKind
from assay.systems.hosted import HostedMount, check_machine
from assay.systems.hosts import each, wait_until
from assay.systems.moosefs_cli import Chunk, files_of_chunks
from assay.systems.moosefs_cluster import MooseCluster
from assay.systems.moosefs_config import (
    CHUNK_BYTES,
    DAEMONS,
    accepted_difference,
    check_hosts,
    check_room,
    check_setting,
    layout_of,
    settings,
)
from assay.systems.requirements import Requirement, program

HEAL_POLL_SECONDS = 0.2
MAP_SECONDS = 600.0  # a hundred thousand files


class MooseSystem(HostedMount):
    """``moosefs/distributed``, ``moosefs/replicated-N``."""

    system: ClassVar[str] = "moosefs"
    layouts: ClassVar[dict[str, str]] = {
        "distributed": "each chunk of 64 MiB on one server (goal 1)",
        "replicated-N": "each chunk of 64 MiB on N servers (goal N)",
    }
    requirements: ClassVar[tuple[Requirement, ...]] = (
        program("mfsmaster", "moosefs-master", "-v"),
        program("mfschunkserver", "moosefs-chunkserver", "-v"),
        program("mfsmount", "moosefs-client", "-V"),
        program("mfssetgoal", "moosefs-client"),
        program("mfscli", "moosefs-cli", "-v"),
    )
    tunables: ClassVar[dict[str, str]] = {
        "filesystem": "file system of the chunk servers' disks: xfs (default), ext4 or btrfs",
        "mount": "mount options of the clients, e.g. mfscachemode=NEVER",
        "master.*": "any setting of mfsmaster.cfg, e.g. master.ATIME_MODE: 4",
        "chunkserver.*": "any setting of mfschunkserver.cfg, e.g. chunkserver.HDD_FSYNC_BEFORE_CLOSE: 1",
    }

    @staticmethod
    def preflight(layout: str, lab: LabDeclaration, dataset_bytes: int) -> None:
        """See SystemAdapter: root, FUSE, MooseFS installed, hosts and disks that suffice, namespaces possible."""
        wanted = layout_of(layout)
        check_hosts(wanted, lab.hosts)
        check_room(wanted, lab.hosts, lab.disk, "xfs", dataset_bytes)
        check_machine(f"moosefs/{layout}", lab, MooseSystem.requirements, fuse=True)

    @staticmethod
    def check_tuning(tuning: dict[str, Any]) -> None:
        """See catalogue: values that cannot be right."""
        filesystem = tuning.get("filesystem", "xfs")
        if filesystem not in MKFS:
            raise AdapterError(f"moosefs has no file system {filesystem!r} for chunks; known: {', '.join(MKFS)}")
        if shutil.which(MKFS[filesystem][0], path=search_path()) is None:
            raise AdapterError(
                f"{MKFS[filesystem][0]} is missing; install it with: apt-get install -y {MKFS_PACKAGES[filesystem]}"
            )
        accepted_difference(tuning)
        for key in tuning:
            daemon = DAEMONS.get(key.partition(".")[0])
            if daemon is not None and (found := shutil.which(daemon, path=search_path())) is not None:
                check_setting(key, Path(found))

    @staticmethod
    def mount_kind() -> MountKind:
        """See KnowsMounts."""
        return moosefs_mount.MOUNT_KIND

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        self._layout = layout_of(deployment.layout)
        self._filesystem = str(deployment.tuning.get("filesystem", "xfs"))
        self._options = moosefs_mount.options_of(deployment.tuning)
        self._cluster: MooseCluster | None = None

    @property
    def cluster(self) -> MooseCluster:
        """The servers. Raises AdapterError before deploy."""
        if self._cluster is None:
            raise AdapterError(f"{self.deployment.name} is not deployed")
        return self._cluster

    # --- core -----------------------------------------------------------------------------------------------------------

    def deploy(self) -> None:
        """Start the master and a chunk server on every storage host, and set the goal."""
        fabric = self.fabric()
        self._cluster = cluster = MooseCluster(fabric, self._filesystem, self.deployment.tuning)
        try:
            each((cluster.start_master, lambda: cluster.make_disks(fabric.storage)), lambda begin: begin())
            cluster.start_servers(fabric.storage)
            self._set_goal(cluster.first)
        except (AdapterError, LabError, HostError) as error:
            self.destroy()
            raise AdapterError(f"{self.deployment.name}: {error}") from None

    def _set_goal(self, host: Host) -> None:
        """Through a mount of its own, so that clients only have to prove it."""
        moosefs_mount.mount(host, self.cluster.first.address, self.point, moosefs_mount.TIMEOUT)
        moosefs_mount.set_goal(host, self.point, self._layout.width)
        host.run(["umount", str(self.point)]).must("unmounting")

    def _mount_on(self, client: Host) -> None:
        """See HostedMount."""
        moosefs_mount.mount(client, self.cluster.first.address, self.point, self._options)
        found = moosefs_mount.goal_of(client, self.point)
        if found != self._layout.width:
            raise AdapterError(f"{client.name}: {self.point} has goal {found}, not {self._layout.width}")

    def destroy(self) -> None:
        """Kill the servers and remove their disks. An orderly stop would leave nothing more behind."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.remove(cluster.fabric.storage)

    def facts(self) -> dict[str, Any]:
        """See SystemAdapter."""
        return {
            "system": f"moosefs/{self._layout}",
            "version": f"moosefs {moosefs_mount.info(self.client, self.point).version}, Linux {os.uname().release}",
            "goal": moosefs_mount.goal_of(self.client, self.point),
            "servers": len(self.fabric().storage),
            **{daemon: settings(daemon, self.deployment.tuning) for daemon in DAEMONS},
            "chunks": {"mkfs": " ".join(MKFS[self._filesystem]), "mount": MOUNT_OPTIONS[self._filesystem]},
            "mount": {**self.mount_facts(), "mfsmount": self._options},
            "disk": self.deployment.disk.model_dump(mode="json", exclude={"directory", "devices"}),
        }

    # --- state ----------------------------------------------------------------------------------------------------------

    def _servers_cold(self) -> list[Step]:
        """Write back the servers' dirty pages, which could not be dropped, and mount again."""
        return [*self.cluster.sync(), *super()._servers_cold()]

    def _left_to_do(self, timeout_seconds: float) -> tuple[bool, str]:  # noqa: ARG002 (mfscli has its own deadline)
        """See HostedSystem."""
        state, gone = self.cluster.state()
        if gone and len(self.cluster.up) < self._layout.width:  # not as many servers as copies
            return False, f"healing waits for {', '.join(gone)}; {state}"
        return bool(state.endangered or state.undergoal or (state.missing and not gone)), str(state)

    def device_counters(self) -> list[DeviceCounters]:
        """See HostedSystem: of every disk of a chunk server."""
        return self.cluster.counters()

    def _process_on(self, client: Host) -> str:
        """See HostedMount: the master gives every process that mounts a session of its own."""
        return str(moosefs_mount.info(client, self.point).session)

    def _copies(self) -> tuple[int, int]:
        """See HostedMount."""
        return self._layout.data, self._layout.parity

    def health(self) -> tuple[bool | None, str]:
        """As for any mount, and the master sees every chunk server and every copy."""
        healthy, detail = super().health()
        if not healthy:
            return healthy, detail
        state, gone = self.cluster.state()
        if gone:
            return False, f"no chunk server on {', '.join(gone)}; {state}"
        return state.whole, f"{detail}, {len(self.cluster.up)} chunk servers, {state}"

    def cluster_map(self) -> dict[str, Any]:
        """Servers with their sizes, and of each file its chunks with the servers that have a copy."""
        where = self._where()
        argv = ["find", str(where), "-type", "f", "-exec", "mfsfileinfo", "{}", "+"]
        listed = self.client.run(argv, timeout_seconds=MAP_SECONDS).must("mfsfileinfo").stdout
        names = {host.address: host.name for host in self.fabric().storage}
        files = files_of_chunks(os.fsdecode(listed))
        servers = self.cluster.servers()
        return {
            "system": "moosefs",
            "version": moosefs_mount.info(self.client, self.point).version,
            "layout": str(self._layout),
            "chunk_bytes": CHUNK_BYTES,
            "servers": [
                {"name": name, "address": address, "total_bytes": servers[address].total_bytes}
                for address, name in names.items()
                if address in servers
            ],
            "files": [
                {"path": path.removeprefix(str(where)), "chunks": [_named(chunk, names) for chunk in chunks]}
                for path, chunks in sorted(files.items())
            ],
        }

    # --- failures -------------------------------------------------------------------------------------------------------

    def kill_hosts(self, count: int) -> list[str]:
        """See KillsHosts."""
        return self.cluster.kill(count)

    def restart_hosts(self, timeout_seconds: float) -> float:
        """See KillsHosts."""
        started, names = time.monotonic(), ", ".join(self.cluster.killed)
        try:
            self.cluster.restart(timeout_seconds)
        except (LabError, HostError) as error:
            raise AdapterError(f"restarting {names}: {error}") from None
        return time.monotonic() - started

    def heal(self, timeout_seconds: float) -> float | None:
        """See KillsHosts: the master does so by itself."""
        started = time.monotonic()
        if wait_until(lambda: self.cluster.state()[0].whole, timeout_seconds, HEAL_POLL_SECONDS):
            return time.monotonic() - started
        return None

    # --- growing and shrinking (see moosefs_resize) -----------------------------------------------------------------------

    def grow(self, hosts: int, progress: Callable[[str], None]) -> None:
        """See Resizes."""
        moosefs_resize.grow(self.cluster, hosts, progress)

    def shrink(self, hosts: int, progress: Callable[[str], None]) -> None:
        """See Resizes."""
        moosefs_resize.shrink(self.cluster, self._layout, hosts, progress)


def _named(chunk: Chunk, names: dict[str, str]) -> dict[str, Any]:
    """A chunk as plain values, with the names of its servers instead of their addresses."""
    servers = sorted(names.get(address, address) for address in chunk.servers)
    return {"index": chunk.index, "id": chunk.identifier, "servers": servers}
