"""The services of an XtreemFS installation on the hosts of a lab: directory (DIR) and metadata (MRC) on the first, an object
store (OSD) for each disk of each."""

from __future__ import annotations

import socket
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from assay.lab.errors import LabError
from assay.lab.fabric import Fabric
from assay.lab.host import HostError
from assay.lab.namespace import NamespaceHost
from assay.model.evidence import DeviceCounters
from assay.systems.base import AdapterError
from assay.systems.hosts import HostDisks, each, log_tail, wait_until
from assay.systems.xtreemfs_config import DIR_PORT, MRC_PORT, OSD_PORT, java_command, properties, property_file, uuid_of

START_SECONDS = 60.0
_POLL_SECONDS = 0.1


class XtreemCluster:
    """Hosts, disks and services; the first storage host has DIR and MRC, and is never killed."""

    def __init__(
        self,
        fabric: Fabric,
        filesystem: str,
        jars: Sequence[Path],
        heap_bytes: int,
        tuned: Mapping[str, dict[str, str]],
    ) -> None:
        self.fabric = fabric
        self.filesystem = filesystem
        self.disks: dict[str, HostDisks] = {}
        self.killed: list[str] = []
        self._jars, self._heap, self._tuned = list(jars), heap_bytes, tuned

    @property
    def first(self) -> NamespaceHost:
        """The host of DIR and MRC."""
        return self.fabric.storage[0]

    @property
    def up(self) -> list[NamespaceHost]:
        """Storage hosts that were not killed."""
        return [host for host in self.fabric.storage if host.name not in self.killed]

    def osds(self, hosts: Sequence[NamespaceHost]) -> list[str]:
        """Names of the OSDs of these hosts."""
        return [uuid_of(host.name, n) for host in hosts for n in range(1, self.fabric.shape.disk.per_host + 1)]

    def start(self) -> None:
        """Start everything; the others wait for DIR. Raises AdapterError, LabError, HostError."""
        self._make_disks(self.fabric.storage)
        for service, port in (("dir", DIR_PORT), ("mrc", MRC_PORT)):
            self._spawn(self.first, service, f"/run/b/1/{service}")
            self._await_port(self.first, service, port)
        self.start_osds(self.fabric.storage)

    def _make_disks(self, hosts: Sequence[NamespaceHost]) -> None:
        for host in hosts:
            self.disks[host.name] = HostDisks(self.fabric, host, self.filesystem)
        each(hosts, lambda host: self.disks[host.name].make())

    def start_osds(self, hosts: Sequence[NamespaceHost]) -> None:
        """Start the object stores of hosts whose disks are mounted. Raises AdapterError or HostError."""

        def begin(host: NamespaceHost) -> None:
            for disk in range(1, self.fabric.shape.disk.per_host + 1):
                self._spawn(host, "osd", f"/run/b/{disk}/objects", disk)
            for disk in range(1, self.fabric.shape.disk.per_host + 1):
                self._await_port(host, "osd", OSD_PORT + disk - 1)

        each(hosts, begin)

    def add(self, hosts: Sequence[NamespaceHost]) -> None:
        """Disks and object stores for new hosts. Raises AdapterError, LabError, HostError."""
        self._make_disks(hosts)
        self.start_osds(hosts)

    def _spawn(self, host: NamespaceHost, service: str, directory: str, disk: int = 1) -> None:
        own = self.fabric.host_directory(host)
        file = own / f"{service}-{disk}.properties"
        file.write_text(
            property_file(
                properties(
                    service,
                    host=host.name,
                    address=host.address,
                    directory=directory,
                    disk=disk,
                    tuned=self._tuned[service],
                )
            )
        )
        host.run(["mkdir", "-p", directory]).must(f"{host.name}: directory of the {service}")
        # not a child of nsenter: it lives until the host ends
        script = '"$@" </dev/null >>"$0" 2>&1 &'
        command = java_command(self._jars, self._heap, service, file)
        host.run(["sh", "-c", script, str(own / f"{service}.log"), *command]).must(f"{host.name}: starting {service}")

    def _await_port(self, host: NamespaceHost, service: str, port: int) -> None:
        """Until it listens: a step on the way; ready is what the MRC calls usable (see xtreemfs)."""

        def listens() -> bool:
            try:
                return host.call(connects, host.address, port)
            except HostError:
                return False

        if not wait_until(listens, START_SECONDS, _POLL_SECONDS):
            words = log_tail(self.fabric.directory / host.name / f"{service}.log", "rror") or "nothing"
            raise AdapterError(
                f"{host.name}: the {service} does not answer after {START_SECONDS:g} s; its log says: {words}"
            )

    # --- disks, losing hosts and getting them back ------------------------------------------------------------------------

    def counters(self) -> list[DeviceCounters]:
        """Bytes moved by the devices of the hosts that are up. Raises LabError."""
        return [counter for host in self.up for counter in self.disks[host.name].counters()]

    def kill(self, names: Sequence[str]) -> None:
        """Kill hosts: every process on them at once."""
        self.killed += names
        each([h for h in self.fabric.storage if h.name in names], lambda host: host.kill())

    def restart(self) -> float:
        """Start the killed hosts and their object stores again; seconds. Raises AdapterError."""
        started = time.monotonic()
        back = [h for h in self.fabric.storage if h.name in self.killed]
        try:
            for host in back:
                if not host.is_up:
                    self.fabric.start(host)
            for host in back:
                self.disks[host.name].mount_again()
            self.start_osds(back)
        except (LabError, HostError) as error:
            raise AdapterError(f"restarting {', '.join(self.killed)}: {error}") from None
        self.killed.clear()
        return time.monotonic() - started

    def remove(self, hosts: Sequence[NamespaceHost]) -> None:
        """Take hosts down and remove their disks; no error when they are down."""
        each(hosts, lambda host: host.kill())
        for host in hosts:
            if (disks := self.disks.pop(host.name, None)) is not None:
                disks.remove()


def connects(address: str, port: int) -> bool:
    """Whether something listens there; carried out on a host."""
    try:
        socket.create_connection((address, port), 1).close()
    except OSError:
        return False
    return True
