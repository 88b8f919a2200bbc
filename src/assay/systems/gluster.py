"""GlusterFS: real daemons on the hosts of a lab, mounted through FUSE on every client."""

from __future__ import annotations

import os
import re
import shutil
import time
from collections.abc import Callable
from typing import Any, ClassVar

from assay.lab import remote
from assay.lab.errors import LabError
from assay.lab.host import Host, HostError, search_path
from assay.lab.hostdisk import MKFS, MKFS_PACKAGES, MOUNT_OPTIONS
from assay.lab.mounts import ANSWER_SECONDS
from assay.model import units
from assay.model.evidence import DeviceCounters
from assay.model.lab import Lab as LabDeclaration
from assay.systems import gluster_faults, gluster_map, gluster_mount, gluster_probe, gluster_resize
from assay.systems.base import AdapterError, Deployment, NoAnswerError
from assay.systems.existing import MountKind
from assay.systems.gluster_cluster import VOLUME, GlusterCluster
from assay.systems.gluster_volume import Graph, check_hosts, check_room, layout_of
from assay.systems.hosted import HostedMount, check_machine
from assay.systems.hosts import bind, each, wait_until
from assay.systems.requirements import Requirement, program

MOUNT_SECONDS = 60.0
CONNECT_SECONDS = 30.0
# options post-op-delay-secs and other-eager-lock-timeout are 1 s; longer: something is to be healed
LAST_WORDS_SECONDS = 3.0
_OPTION = re.compile(r"[a-z][a-z0-9_-]*\.[A-Za-z0-9._-]+")
_SHARD_BYTES = (4 << 20, 4 << 40)  # what features.shard-block-size takes


class GlusterSystem(HostedMount):
    """``glusterfs/distributed``, ``glusterfs/replicated-N``, ``glusterfs/rain-K-M``."""

    system: ClassVar[str] = "glusterfs"
    layouts: ClassVar[dict[str, str]] = {
        "distributed": "each file on one brick",
        "replicated-N": "each file on N bricks; distributed over sets of N hosts",
        "rain-K-M": "each file in K data and M parity fragments (dispersed); distributed over sets of K+M hosts",
    }
    requirements: ClassVar[tuple[Requirement, ...]] = (
        program("glusterd", "glusterfs-server"),
        program("gluster", "glusterfs-cli"),
        program("mount.glusterfs", "glusterfs-client"),
        program("glusterfs", "glusterfs-client"),
    )
    tunables: ClassVar[dict[str, str]] = {
        "brick": "file system of the bricks: xfs (default), ext4 or btrfs",
        "shard": "split files into shards of this size, e.g. 64MiB",
        "mount": "mount options of the clients, e.g. direct-io-mode=enable",
        "*.*": "any volume option, e.g. performance.strict-o-direct: on",
    }

    @staticmethod
    def preflight(layout: str, lab: LabDeclaration, dataset_bytes: int) -> None:
        """See SystemAdapter: root, FUSE, GlusterFS installed, hosts and disks that suffice, namespaces possible."""
        wanted = layout_of(layout)
        check_hosts(wanted, lab.hosts, lab.disk.per_host)
        check_room(wanted, lab.hosts, lab.disk, "xfs", dataset_bytes)
        check_machine(f"glusterfs/{layout}", lab, GlusterSystem.requirements, fuse=True)

    @staticmethod
    def check_tuning(tuning: dict[str, Any]) -> None:
        """See catalogue: values that cannot be right."""
        brick = tuning.get("brick", "xfs")
        if brick not in MKFS:
            raise AdapterError(f"glusterfs has no brick file system {brick!r}; known: {', '.join(MKFS)}")
        if shutil.which(MKFS[brick][0], path=search_path()) is None:
            raise AdapterError(
                f"{MKFS[brick][0]} is missing; install it with: apt-get install -y {MKFS_PACKAGES[brick]}"
            )
        if "shard" in tuning:
            shard_bytes(tuning["shard"])
        for name in tuning:
            if "." in name and not _OPTION.fullmatch(name):
                raise AdapterError(f"{name!r} is no volume option of GlusterFS; write for example client.event-threads")

    @staticmethod
    def mount_kind() -> MountKind:
        """See KnowsMounts."""
        return gluster_mount.MOUNT_KIND

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        self._layout = layout_of(deployment.layout)
        self._brick = str(deployment.tuning.get("brick", "xfs"))
        self._cluster: GlusterCluster | None = None
        self._processes: dict[str, str] = {}  # by client: identity of its GlusterFS process
        self._version = ""
        self._moving = False  # whether a rebalance was left unfinished

    @property
    def cluster(self) -> GlusterCluster:
        """The servers. Raises AdapterError before deploy."""
        if self._cluster is None:
            raise AdapterError(f"{self.deployment.name} is not deployed")
        return self._cluster

    # --- core -----------------------------------------------------------------------------------------------------------

    def deploy(self) -> None:
        """Start servers on all storage hosts, join them, create and start the volume."""
        fabric = self.fabric()
        self._cluster = cluster = GlusterCluster(fabric, self._brick)
        try:
            cluster.write_stub()
            cluster.start_hosts(fabric.storage)
            cluster.join(fabric.storage[1:])
            cluster.create(self._layout, volume_options(self.deployment.tuning))
            each(fabric.clients, lambda c: bind(c, {fabric.host_directory(c) / "log": "/var/log/glusterfs"}))
        except (AdapterError, LabError, HostError) as error:
            self.destroy()
            raise AdapterError(f"{self.deployment.name}: {error}") from None

    def _mount_on(self, client: Host) -> None:
        """See HostedMount."""
        servers = [host.name for host in self.cluster.up]
        options = [f"backup-volfile-servers={':'.join(servers[1:4])}"] if servers[1:] else []
        options += filter(None, [str(self.deployment.tuning.get("mount", ""))])
        source = f"{servers[0]}:/{VOLUME}"
        client.run(["mkdir", "-p", str(self.point)]).must("mount point")
        argv = ["mount", "-t", "glusterfs", *(["-o", ",".join(options)] if options else []), source, str(self.point)]
        done = client.run(argv, timeout_seconds=MOUNT_SECONDS)
        entry = client.call(remote.mount_entry, self.point, timeout_seconds=ANSWER_SECONDS)
        found = (entry or {}).get("point"), (entry or {}).get("fstype"), (entry or {}).get("source")
        if found != (str(self.point), gluster_mount.FSTYPE, source):  # mount.glusterfs exits with 0 for some failures
            words = " ".join((done.stdout + done.stderr).decode(errors="replace").split())
            raise AdapterError(f"{client.name}: mounting {source}: {words[-300:] or f'found {found}'}")
        self._await_bricks(client)

    def _await_bricks(self, client: Host, timeout_seconds: float = CONNECT_SECONDS) -> None:
        """Wait until a client is connected to every brick of the hosts that are up. Raises AdapterError."""
        missing: list[str] = []

        def connected() -> bool:
            missing[:] = [b for b in self._state(client)[1] if b.partition(":")[0] not in self.cluster.killed]
            return not missing

        if not wait_until(connected, timeout_seconds):
            said = self.cluster.why_offline(missing[0])
            raise AdapterError(
                f"{client.name} is not connected to {', '.join(missing)} after {timeout_seconds:g} s"
                + (f"; its log says: {said}" if said else "")
            )

    def _state(self, client: Host) -> tuple[Graph, list[str]]:
        """What a client says of its volume, and the bricks to which it is not connected. Raises AdapterError unless it is
        the volume that was deployed."""
        graph, state, missing = gluster_mount.client_graph(client, self.point)
        if (graph.volume, graph.layout) != (VOLUME, self._layout):
            raise AdapterError(f"{self.point} is {graph.volume}, {graph.layout}, and not {VOLUME}, {self._layout}")
        self._processes[client.name] = state.process
        self._version = state.version
        return graph, missing

    def destroy(self) -> None:
        """Kill the servers and remove their disks. An orderly stop would take seconds and leave nothing more behind."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.remove(cluster.fabric.storage)

    def facts(self) -> dict[str, Any]:
        """See SystemAdapter."""
        info = self.cluster.info()
        graph, _ = self._state(self.client)
        return {
            "system": f"glusterfs/{self._layout}",
            "version": f"glusterfs {self._version}, Linux {os.uname().release}",
            "volume": {"type": info.kind, "bricks": len(info.bricks), "sets": len(graph.sets)},
            "options": dict(sorted(info.options.items())),
            "brick": {"mkfs": " ".join(MKFS[self._brick]), "mount": MOUNT_OPTIONS[self._brick]},
            "mount": self.mount_facts(),
            "disk": self.deployment.disk.model_dump(mode="json", exclude={"directory", "devices"}),
        }

    # --- state ----------------------------------------------------------------------------------------------------------

    def _before_remount(self) -> None:
        """Wait until the clients have closed their transactions on the bricks, which they put off for a second after the
        last write: unmounted before, they leave sound files behind that count as damaged and are healed much later."""
        if not self._layout.parity:
            return
        end = time.monotonic() + LAST_WORDS_SECONDS
        while time.monotonic() < end and self.cluster.open_transactions():
            time.sleep(0.1)

    def _left_to_do(self, timeout_seconds: float) -> tuple[bool, str]:
        """See HostedSystem."""
        if self._moving:
            state = gluster_resize.rebalance(self.cluster)
            if not state.ended:
                return True, str(state)
        if self._layout.parity:
            if missing := self._all_connected():  # nothing heals before they are back, and asking takes 10 s
                return False, f"healing waits for {', '.join(missing)}"
            heal = self.cluster.heal(timeout_seconds)
            return bool(heal.pending), str(heal)
        return False, "nothing to move"

    def device_counters(self) -> list[DeviceCounters]:
        """See HostedSystem: of every brick."""
        return self.cluster.counters()

    def _process_on(self, client: Host) -> str:
        """See HostedMount."""
        self._state(client)
        return self._processes[client.name]

    def _copies(self) -> tuple[int, int]:
        """See HostedMount."""
        return self._layout.data, self._layout.parity

    def health(self) -> tuple[bool | None, str]:
        """As for any mount, and every client is connected to every brick."""
        healthy, detail = super().health()
        if not healthy:
            return healthy, detail
        for client in self.deployment.clients:
            healthy, connected = gluster_mount.health(client, self.point)
            if not healthy:
                return healthy, f"{client.name}: {connected}"
            detail += f", {connected}"
        return True, detail

    def cluster_map(self) -> dict[str, Any]:
        """Subvolumes in order, and the hash ranges that each has of every directory."""
        graph, _ = self._state(self.client)
        return gluster_map.export(self.cluster, self.client, self._where(), graph, self._version)

    # --- failures (see gluster_faults) ------------------------------------------------------------------------------------

    def kill_hosts(self, count: int) -> list[str]:
        """See KillsHosts. Sets lose one host each before one loses a second; the last hosts go first."""
        graph, _ = self._state(self.client)
        return gluster_faults.kill_hosts(self.cluster, graph, count)

    def restart_hosts(self, timeout_seconds: float) -> float:
        """See KillsHosts."""
        return gluster_faults.restart_hosts(self.cluster, self._all_connected, timeout_seconds)

    def heal(self, timeout_seconds: float) -> float | None:
        """See KillsHosts."""
        return gluster_faults.heal(self.cluster, timeout_seconds) if self._layout.parity else 0.0

    def kill_brick(self, brick: str) -> None:
        """Kill one brick process (``host:/directory``) with SIGKILL; its host lives on. Raises AdapterError."""
        self.cluster.kill_brick(brick)

    def restart_bricks(self, timeout_seconds: float) -> float:
        """Start every brick process that is gone; seconds until all clients are connected. Raises AdapterError."""
        return gluster_faults.restart_bricks(self.cluster, self._all_connected, timeout_seconds)

    def _all_connected(self) -> list[str]:
        """Bricks to which some client is not connected."""
        missing: set[str] = set()
        for client in self.deployment.clients:
            try:
                missing |= set(self._state(client)[1])
            except NoAnswerError:  # with too many bricks lost its mount answers nothing, until they are back
                missing |= set(self.cluster.bricks_of(self.cluster.up))
        return sorted(missing)

    # --- growing and shrinking (see gluster_resize) -----------------------------------------------------------------------

    def grow(self, hosts: int, progress: Callable[[str], None]) -> None:
        """See Resizes."""
        self._moving = True
        gluster_resize.grow(self.cluster, self._layout, hosts, self._all_connected, progress)
        self._moving = False

    def shrink(self, hosts: int, progress: Callable[[str], None]) -> None:
        """See Resizes. Afterwards every file is asked for by name through a fresh mount: GlusterFS is known to lose sight of
        files here, and a file that cannot be opened is the system's failure."""
        where = self._where()
        names = sorted(self.client.call(gluster_probe.names_below, where, timeout_seconds=gluster_resize.NAMES_SECONDS))
        gluster_resize.shrink(self.cluster, hosts, progress)
        self._servers_cold()
        gluster_resize.must_find(self.client, where, names)


def shard_bytes(value: object) -> int:
    """Size of a shard. Raises AdapterError."""
    least, most = _SHARD_BYTES
    try:
        size = units.parse_bytes(value)
    except ValueError as error:
        raise AdapterError(f"shard: {error}") from None
    if not least <= size <= most or size % 512:
        raise AdapterError(
            f"shard: {value!r} is no size of a shard; GlusterFS takes multiples of 512 bytes from 4MiB to 4TiB"
        )
    return size


def volume_options(tuning: dict[str, Any]) -> dict[str, str]:
    """What ``volume set`` is told, from a candidate's tuning. Raises AdapterError."""
    options = {}
    if "shard" in tuning:
        options |= {"features.shard": "on", "features.shard-block-size": str(shard_bytes(tuning["shard"]))}
    for name, value in tuning.items():
        if "." in name:
            options[name] = ("on" if value else "off") if isinstance(value, bool) else str(value)
    return options
