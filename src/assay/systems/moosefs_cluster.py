"""The servers of a MooseFS: a master on the first storage host, a chunk server on every one."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from assay.lab.caches import FLUSH_SECONDS, Step
from assay.lab.fabric import SUBNET, Fabric
from assay.lab.namespace import NamespaceHost
from assay.model.evidence import DeviceCounters
from assay.systems.base import AdapterError
from assay.systems.hosts import HostDisks, each, wait_until
from assay.systems.moosefs_cli import CHUNK_PORT, ChunkServer, ChunkState, ask, chunk_servers, chunk_state
from assay.systems.moosefs_config import accepted_difference, config_text, settings

START_SECONDS = 60.0
READY_SECONDS = 60.0
LATE_SECONDS = 5.0
QUIET_SECONDS = 0.7  # half a second lay between data and checksums
_POLL_SECONDS = 0.1  # each question costs 0.1 s of CPU
_EMPTY = b"MFSM NEW"  # metadata of an empty file system; without the file the master does not start
_ROOT = {"WORKING_USER": "root", "WORKING_GROUP": "root"}
LEAVING = "*"  # before a disk in mfshdd.cfg: marked for removal


class MooseCluster:
    """Hosts and daemons; the first storage host has the master, is asked, and is never killed."""

    def __init__(self, fabric: Fabric, filesystem: str, tuning: Mapping[str, Any]) -> None:
        self.fabric = fabric
        self.filesystem = filesystem
        self.disks: dict[str, HostDisks] = {}
        self.killed: list[str] = []
        self._tuning = tuning

    @property
    def first(self) -> NamespaceHost:
        """The master's host."""
        return self.fabric.storage[0]

    @property
    def up(self) -> list[NamespaceHost]:
        """Storage hosts that were not killed."""
        return [host for host in self.fabric.storage if host.name not in self.killed]

    @property
    def accepted_difference(self) -> float:
        """See moosefs_config."""
        return accepted_difference(self._tuning)

    # --- daemons ----------------------------------------------------------------------------------------------------------

    def start_master(self) -> None:
        """Start the master with an empty file system. Raises HostError."""
        own = self.fabric.host_directory(self.first)
        data = own / "master"
        data.mkdir()
        (data / "metadata.mfs").write_bytes(_EMPTY)
        (own / "mfsexports.cfg").write_text(f"{SUBNET}.0/24 / rw,alldirs,admin,maproot=0:0\n")
        (own / "mfstopology.cfg").write_text("")
        paths = {
            "DATA_PATH": data,
            "EXPORTS_FILENAME": own / "mfsexports.cfg",
            "TOPOLOGY_FILENAME": own / "mfstopology.cfg",
        }
        self._start(self.first, "mfsmaster", {**_ROOT, **paths, **settings("master", self._tuning)})

    def make_disks(self, hosts: Sequence[NamespaceHost]) -> None:
        """Give hosts their disks. Raises LabError or HostError."""
        for host in hosts:
            self.disks[host.name] = HostDisks(self.fabric, host, self.filesystem)
        each(hosts, lambda host: self.disks[host.name].make())

    def start_servers(self, hosts: Sequence[NamespaceHost]) -> None:
        """Start the chunk servers of hosts that have disks and wait until the master can use them all. Raises AdapterError
        or HostError."""
        each(hosts, self._start_server)
        self.await_ready()

    def _start_server(self, host: NamespaceHost) -> None:
        own = self.fabric.host_directory(host)
        data = own / "chunkserver"
        data.mkdir(exist_ok=True)
        directories = self._chunk_directories()
        host.run(["mkdir", "-p", *directories]).must(f"{host.name}: directories of chunks")
        (own / "mfshdd.cfg").write_text("".join(f"{directory}\n" for directory in directories))
        values = {"DATA_PATH": data, "HDD_CONF_FILENAME": own / "mfshdd.cfg", "MASTER_HOST": self.first.address}
        self._start(host, "mfschunkserver", {**_ROOT, **values, **settings("chunkserver", self._tuning)})

    def _start(self, host: NamespaceHost, program: str, values: Mapping[str, object]) -> None:
        file = self.fabric.host_directory(host) / f"{program}.cfg"
        file.write_text(config_text(values))
        host.run([program, "-c", str(file), "start"], timeout_seconds=START_SECONDS).must(
            f"{host.name}: starting {program}"
        )

    def _chunk_directories(self) -> list[str]:
        return [f"/run/b/{number}/chunks" for number in range(1, self.fabric.shape.disk.per_host + 1)]

    def mark_leaving(self, host: NamespaceHost, *, leaving: bool) -> None:
        """Mark all disks of a host for removal, or take the mark back. Raises HostError."""
        own = self.fabric.host_directory(host)
        mark = LEAVING if leaving else ""
        (own / "mfshdd.cfg").write_text("".join(f"{mark}{directory}\n" for directory in self._chunk_directories()))
        host.run(["mfschunkserver", "-c", str(own / "mfschunkserver.cfg"), "reload"]).must(f"{host.name}: reload")

    # --- what the master says ---------------------------------------------------------------------------------------------

    def servers(self) -> dict[str, ChunkServer]:
        """Connected chunk servers by address. Raises AdapterError."""
        return {server.address: server for server in chunk_servers(ask(self.first, self.first.address, "-SCS"))}

    def state(self) -> tuple[ChunkState, list[str]]:
        """Chunks, and the names of storage hosts whose chunk server the master does not see. Raises AdapterError."""
        answer = ask(self.first, self.first.address, "-SIC", "-SCS")
        seen = {server.address for server in chunk_servers(answer)}
        return chunk_state(answer), [host.name for host in self.fabric.storage if host.address not in seen]

    def state_without_leaving(self) -> ChunkState:
        """Chunks as they would be without the copies on disks that are marked for removal. Raises AdapterError."""
        return chunk_state(ask(self.first, self.first.address, "-SIC", "-m", "1"))

    def await_ready(self, timeout_seconds: float = READY_SECONDS) -> None:
        """Wait until the master sees the disks of every host that is up, searched through for chunks. Raises AdapterError."""
        waited_for: list[str] = []

        def ready() -> bool:
            answer = ask(self.first, self.first.address, "-SCS", "-SHD")
            there = {server.address for server in chunk_servers(answer) if server.total_bytes}
            fine = [fields[1].partition(":")[0] for fields in answer if fields[0] == "disks:" and fields[4] == "ok"]
            disks = self.fabric.shape.disk.per_host
            waited_for[:] = [h.name for h in self.up if h.address not in there or fine.count(h.address) < disks]
            return not waited_for

        if not wait_until(ready, timeout_seconds, _POLL_SECONDS):
            raise AdapterError(f"the master has no disks of {', '.join(waited_for)} after {timeout_seconds:g} s")

    def counters(self) -> list[DeviceCounters]:
        """Bytes moved by the device of each disk of the hosts that are up. Raises LabError."""
        return [counter for host in self.up for counter in self.disks[host.name].counters()]

    def sync(self) -> list[Step]:
        """Write back what chunk servers have left in the page cache: an fsync of a client does not make them do so. They write
        checksums up to a second after the last data, so it is done again until nothing comes any more."""
        before, steps = self._written(), self._sync_once()
        end = time.monotonic() + LATE_SECONDS
        since = time.monotonic() if self._written() > before else 0.0
        while time.monotonic() < min(end, since + QUIET_SECONDS):
            time.sleep(_POLL_SECONDS)
            before, steps = self._written(), self._sync_once()
            if self._written() > before:
                since = time.monotonic()
        return steps

    def _sync_once(self) -> list[Step]:
        def on(host: NamespaceHost) -> Step:
            roots = [str(Path(directory).parent) for directory in self._chunk_directories()]
            done = host.run(["sync", "--file-system", *roots], timeout_seconds=FLUSH_SECONDS)
            return f"{host.name}: sync", 1 if done.exit_code is None else done.exit_code

        return each(self.up, on)

    def _written(self) -> int:
        return sum(counter.written_bytes for counter in self.counters())

    # --- losing hosts and getting them back -------------------------------------------------------------------------------

    def kill(self, count: int) -> list[str]:
        """Kill the last ``count`` hosts that are up, every process on them at once; returns their names. Raises AdapterError
        when there are not as many."""
        there = self.up
        if count > len(there) - 1:
            raise AdapterError(
                f"{count} hosts cannot be killed: {len(there)} run, and {self.first.name} stays, which has the master"
            )
        chosen = there[::-1][:count]
        self.killed += [host.name for host in chosen]
        each(chosen, lambda host: host.kill())
        return [host.name for host in chosen]

    def restart(self, timeout_seconds: float) -> None:
        """Start the killed hosts and their chunk servers; returns when the master has searched their disks. Raises LabError,
        HostError, AdapterError."""
        back = [host for host in self.fabric.storage if host.name in self.killed]
        for host in back:
            if not host.is_up:
                self.fabric.start(host)
        each(back, lambda host: self.disks[host.name].mount_again())
        each(back, self._start_server)
        self.killed.clear()
        self.await_ready(timeout_seconds)

    def remove(self, hosts: Sequence[NamespaceHost]) -> None:
        """Take hosts down and remove their disks; no error when they are down."""
        each(hosts, lambda host: host.kill())
        for host in hosts:
            if (disks := self.disks.pop(host.name, None)) is not None:
                disks.remove()

    def forget(self, host: NamespaceHost) -> None:
        """Have the master forget the chunk server of a host that is down. Raises AdapterError when it still sees it."""
        command = f"-CRC/{host.address}/{CHUNK_PORT}"
        gone = wait_until(lambda: host.address not in self.servers(), READY_SECONDS, _POLL_SECONDS)
        if not gone:
            raise AdapterError(f"the master still sees the chunk server of {host.name}")
        ask(self.first, self.first.address, command)
