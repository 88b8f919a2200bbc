"""The servers of a GlusterFS volume: hosts with bricks and a management daemon each, in one trusted pool."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from assay.lab.fabric import Fabric
from assay.lab.namespace import NamespaceHost
from assay.model.evidence import DeviceCounters
from assay.model.layout import Layout
from assay.systems import gluster_probe
from assay.systems.base import AdapterError
from assay.systems.gluster_cli import (
    BrickState,
    HealState,
    VolumeInfo,
    ask,
    brick_states,
    connected_peers,
    heal_state,
    volume_info,
)
from assay.systems.gluster_volume import bricks_in_order, create_arguments
from assay.systems.hosts import HostDisks, bind, each, log_tail, wait_until

VOLUME = "assay"  # every deployment has hosts of its own, so all may have the same name
PEERS_SECONDS = 20.0
START_SECONDS = 60.0

# glusterd runs this Python program 25 times while it starts, for geo-replication, which no lab has: without it six hosts
# are up in 1.2 s instead of 10.9 s
_STUB = '#!/bin/sh\n[ "$1" != --version ] || echo "gsyncd.py 4.0.0"\n'
_GSYNCD = (
    "/usr/lib/x86_64-linux-gnu/glusterfs/gsyncd",
    "/usr/lib/aarch64-linux-gnu/glusterfs/gsyncd",
    "/usr/libexec/glusterfs/gsyncd",
)


class GlusterCluster:
    """Hosts, pool and volume; the first storage host is asked, and is never killed."""

    def __init__(self, fabric: Fabric, filesystem: str) -> None:
        self.fabric = fabric
        self.filesystem = filesystem
        self.disks: dict[str, HostDisks] = {}
        self.killed: list[str] = []

    @property
    def first(self) -> NamespaceHost:
        """The host that is asked, and that clients fetch the volume's description from."""
        return self.fabric.storage[0]

    @property
    def up(self) -> list[NamespaceHost]:
        """Storage hosts that were not killed."""
        return [host for host in self.fabric.storage if host.name not in self.killed]

    # --- hosts ----------------------------------------------------------------------------------------------------------

    def start_hosts(self, hosts: Sequence[NamespaceHost]) -> None:
        """Give hosts their directories and disks and start their daemons. Raises LabError or HostError."""
        for host in hosts:
            self.disks[host.name] = HostDisks(self.fabric, host, self.filesystem)
        each(hosts, lambda host: self._start_host(host, again=False))

    def _start_host(self, host: NamespaceHost, *, again: bool) -> None:
        own = self.fabric.host_directory(host)
        places = {own / "glusterd": "/var/lib/glusterd", own / "log": "/var/log/glusterfs"}
        stub = self.fabric.directory / "gsyncd"
        if program := next((p for p in _GSYNCD if Path(p).exists()), None):
            places[stub] = program
        bind(host, places)
        disks = self.disks[host.name]
        disks.mount_again() if again else disks.make()
        host.run(["glusterd", "-p", "/run/glusterd.pid"], timeout_seconds=START_SECONDS).must(
            f"{host.name}: starting glusterd"
        )

    def write_stub(self) -> None:
        """The stand-in for the program that slows glusterd down; before the first host starts."""
        stub = self.fabric.directory / "gsyncd"
        stub.write_text(_STUB)
        stub.chmod(0o755)

    def join(self, hosts: Sequence[NamespaceHost]) -> None:
        """Take hosts into the pool and wait until every host knows it. Raises AdapterError or HostError."""
        for host in hosts:
            ask(self.first, "peer", "probe", host.name)
        self.await_peers()

    def await_peers(self) -> None:
        """Wait until every host that is up sees all the others that are. Raises AdapterError."""
        members = self.up
        wanted = len(members) - 1
        missing = list(members)

        def all_there() -> bool:
            # a host that has seen all others once need not be asked again
            seen = each(missing, lambda host: connected_peers(ask(host, "peer", "status")) >= wanted)
            missing[:] = [host for host, there in zip(missing, seen, strict=True) if not there]
            return not missing

        if wanted and not wait_until(all_there, PEERS_SECONDS):
            names = ", ".join(host.name for host in missing)
            raise AdapterError(f"{names}: glusterd does not see all {wanted} peers after {PEERS_SECONDS:g} s")

    # --- the volume -----------------------------------------------------------------------------------------------------

    def bricks_of(self, hosts: Sequence[NamespaceHost]) -> list[str]:
        """Bricks of these hosts in the volume's order, as ``host:/directory``."""
        return bricks_in_order([host.name for host in hosts], self.fabric.shape.disk.per_host)

    def create(self, layout: Layout, options: dict[str, str]) -> None:
        """Create, configure and start the volume. Raises AdapterError, for an option with gluster's own words."""
        bricks = self.bricks_of(self.fabric.storage)
        ask(self.first, "volume", "create", VOLUME, *create_arguments(layout), "transport", "tcp", *bricks)
        self.configure(options)
        ask(self.first, "volume", "start", VOLUME, timeout_seconds=START_SECONDS)

    def configure(self, options: dict[str, str]) -> None:
        """Set options of the volume. Raises AdapterError."""
        for name, value in options.items():  # one by one: of several, gluster's words do not say which is wrong
            ask(self.first, "volume", "set", VOLUME, name, value)

    def info(self) -> VolumeInfo:
        """The volume as it is. Raises AdapterError."""
        return volume_info(ask(self.first, "volume", "info", VOLUME))

    def bricks(self) -> list[BrickState]:
        """Brick processes of the hosts that are up. Raises AdapterError."""
        return brick_states(ask(self.first, "volume", "status", VOLUME))

    def heal(self, timeout_seconds: float) -> HealState:
        """What is left to heal. Raises AdapterError; meaningless for a volume without redundancy."""
        return heal_state(ask(self.first, "volume", "heal", VOLUME, "info", "summary", timeout_seconds=timeout_seconds))

    def open_transactions(self) -> int:
        """Files on the bricks with a transaction that a client has not closed, or that are to be healed. Raises HostError."""
        mine = [(h, [Path(b.partition(":")[2]) for b in self.bricks_of([h])]) for h in self.up]
        return sum(host.call(gluster_probe.open_transactions, bricks) for host, bricks in mine)

    def counters(self) -> list[DeviceCounters]:
        """Bytes moved by the device of each brick of the hosts that are up. Raises LabError."""
        return [counter for host in self.up for counter in self.disks[host.name].counters()]

    def why_offline(self, brick: str) -> str:
        """The last error in a brick's log, for people; empty without one."""
        name, _, directory = brick.partition(":")
        log = self.fabric.directory / name / "log" / "bricks" / f"{directory.strip('/').replace('/', '-')}.log"
        return log_tail(log, "] E [")

    # --- losing hosts and getting them back -------------------------------------------------------------------------------

    def kill(self, names: Sequence[str]) -> None:
        """Kill hosts: every process on them at once."""
        self.killed += names
        each([h for h in self.fabric.storage if h.name in names], lambda host: host.kill())

    def restart(self) -> list[str]:
        """Start the killed hosts and their daemons again; returns their names. Raises LabError, HostError, AdapterError."""
        names = list(self.killed)
        back = [h for h in self.fabric.storage if h.name in names]
        for host in back:
            if not host.is_up:
                self.fabric.start(host)
        each(back, lambda host: self._start_host(host, again=True))
        self.killed.clear()
        self.await_peers()
        return names

    def kill_brick(self, brick: str) -> None:
        """Kill one brick process with SIGKILL. Raises AdapterError when it does not run."""
        state = next((b for b in self.bricks() if b.brick == brick), None)
        if state is None or state.pid is None or not state.online:
            raise AdapterError(f"{brick} does not run")
        name = brick.partition(":")[0]
        host = next(h for h in self.fabric.storage if h.name == name)
        host.run(["kill", "-KILL", str(state.pid)]).must(f"killing {brick}")

    def start_bricks(self) -> None:
        """Start every brick process that does not run. Raises AdapterError."""
        ask(self.first, "volume", "start", VOLUME, "force", timeout_seconds=START_SECONDS)

    def remove(self, hosts: Sequence[NamespaceHost]) -> None:
        """Take hosts down and remove their disks; no error when they are down."""
        each(hosts, lambda host: host.kill())
        for host in hosts:
            if (disks := self.disks.pop(host.name, None)) is not None:
                disks.remove()
