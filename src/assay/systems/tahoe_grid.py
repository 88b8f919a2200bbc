"""The nodes of a Tahoe-LAFS grid: an introducer, a storage node on every storage host, a gateway on every client."""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assay.lab.fabric import Fabric
from assay.lab.host import Host, HostError
from assay.lab.namespace import NamespaceHost
from assay.model.evidence import DeviceCounters
from assay.model.layout import Layout
from assay.systems import tahoe_config as config
from assay.systems import tahoe_web as web
from assay.systems.base import AdapterError, NoAnswerError
from assay.systems.hosts import HostDisks, each, log_tail, wait_until

START_SECONDS = 120.0  # a node takes 2 s of CPU to start, and all start at once
ANSWER_SECONDS = 10.0  # a gateway that needs longer for a question about itself hangs
_PROCESS = "running.process"  # number and start of its process, written by itself
_ENDED = "Main loop terminated"
_DAEMON = 'exec "$@" >"$0" 2>&1 </dev/null'


@dataclass
class Node:
    """One node: a directory that outlives its host's end, and a process in the host while it runs."""

    host: NamespaceHost
    directory: Path

    @property
    def log(self) -> Path:
        """What it prints, and Twisted's log."""
        return self.directory / "log"

    def write(self, files: Mapping[str, str]) -> None:
        """Make it, or change its configuration."""
        (self.directory / "private").mkdir(mode=0o700, parents=True, exist_ok=True)
        for name, text in files.items():
            (self.directory / name).write_text(text)
            (self.directory / name).chmod(0o600)

    def start(self, program: Path) -> None:
        """Start its process; returns before it answers. Raises HostError."""
        # of another life: the numbers of processes begin anew with every host, and it would think that it runs
        (self.directory / _PROCESS).unlink(missing_ok=True)
        run = [str(program), "run", "--allow-stdin-close", str(self.directory)]  # else it ends when stdin does
        self.host.run(["setsid", "--fork", "sh", "-c", _DAEMON, str(self.log), *run]).must(
            f"{self.host.name}: starting"
        )

    def why_ended(self) -> str:
        """What it said before it gave up; empty while it runs."""
        before, ended, _ = (self.log.read_text(errors="replace") if self.log.exists() else "").partition(_ENDED)
        words = [line.strip() for line in before.splitlines() if line.strip() and not line[:4].isdigit()]
        return (words[-1] if words else "it ends without a word") if ended else ""

    def stop(self) -> None:
        """Kill its process; returns when it is gone. No error when there is none."""
        file = self.directory / _PROCESS
        if not file.exists() or not self.host.is_up:
            return
        pid = file.read_text().split()[0]
        self.host.run(["kill", "-KILL", pid])
        if not wait_until(lambda: not self.host.run(["kill", "-0", pid]).ok, ANSWER_SECONDS):
            raise AdapterError(f"{self.host.name}: process {pid} does not end")


class TahoeGrid:
    """All nodes. The first storage host has the introducer too and is never killed."""

    def __init__(
        self, fabric: Fabric, program: Path, layout: Layout, happy: int, filesystem: str, options: Mapping[str, Any]
    ) -> None:
        self.fabric, self.program, self.layout, self.happy = fabric, program, layout, happy
        self.filesystem, self.options = filesystem, dict(options)
        self.convergence = os.urandom(32)
        self.disks: dict[str, HostDisks] = {}
        self.nodes: dict[str, Node] = {}  # storage nodes and gateways by the name of their host
        self.killed: list[str] = []
        self._furl = ""

    @property
    def up(self) -> list[NamespaceHost]:
        """Storage hosts that were not killed."""
        return [host for host in self.fabric.storage if host.name not in self.killed]

    # --- nodes ----------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """Start everything; :meth:`await_servers` tells when it can be used. Raises LabError, HostError or AdapterError."""
        first = self.fabric.storage[0]
        introducer = Node(first, self.fabric.host_directory(first) / "introducer")
        introducer.write(config.introducer(first.address).files())
        introducer.start(self.program)
        self._make_disks(self.fabric.storage)  # meanwhile
        self._furl = self._introduced(introducer)
        self._start_storage(self.fabric.storage)
        for client in self.fabric.clients:
            node = self.nodes[client.name] = Node(client, self.fabric.host_directory(client) / "gateway")
            node.write(self._gateway(client, sftp=False))
        self.start_gateways(self.fabric.clients)

    def _introduced(self, introducer: Node) -> str:
        furl = introducer.directory / "private" / "introducer.furl"
        there = lambda: furl.exists() and bool(furl.read_text().strip())  # noqa: E731
        if not wait_until(lambda: there() or bool(introducer.why_ended()), START_SECONDS) or not there():
            raise AdapterError(f"the introducer does not start: {introducer.why_ended() or log_tail(introducer.log)}")
        return furl.read_text().strip()

    def _make_disks(self, hosts: Sequence[NamespaceHost]) -> None:
        for host in hosts:
            self.disks[host.name] = HostDisks(self.fabric, host, self.filesystem)
        each(hosts, lambda host: self.disks[host.name].make())

    def _start_storage(self, hosts: Sequence[NamespaceHost]) -> None:
        for host in hosts:
            node = self.nodes[host.name] = Node(host, self.fabric.host_directory(host) / "storage")
            node.write(config.storage_node(host.name, host.address, self._furl, self.options).files())
        each(hosts, lambda host: self.nodes[host.name].start(self.program))

    def _gateway(self, client: NamespaceHost, *, sftp: bool) -> dict[str, str]:
        made = config.gateway(
            client.name, self._furl, self.layout, self.happy, self.convergence, self.options, sftp=sftp
        )
        return made.files()

    def start_gateways(self, clients: Sequence[NamespaceHost]) -> None:
        """Start the gateways' processes; :meth:`await_servers` tells when they can be used. Raises HostError."""
        each(clients, lambda client: self.nodes[client.name].start(self.program))

    def serve_files(self, client: NamespaceHost, private: Mapping[str, str]) -> None:
        """Give a stopped gateway an SFTP front end: host key and accounts are among the private files."""
        files = self._gateway(client, sftp=True) | {f"private/{name}": text for name, text in private.items()}
        self.nodes[client.name].write(files)

    # --- what gateways say ----------------------------------------------------------------------------------------------

    def ask(self, client: Host, path: str, method: str = "GET", timeout_seconds: float = ANSWER_SECONDS) -> Any:
        """JSON from a client's gateway. Raises NoAnswerError."""
        try:
            return client.call(
                web.ask, config.WEB_PORT, method, path, timeout_seconds, timeout_seconds=timeout_seconds + 1
            )
        except (web.WebError, HostError) as error:
            raise NoAnswerError(f"{client.name}: {error}") from None

    def missing(self, client: Host) -> list[str]:
        """Storage hosts, killed ones too, that a client's gateway is not connected to. Raises NoAnswerError."""
        there = config.connected_servers(self.ask(client, "/?t=json"))
        return [host.name for host in self.fabric.storage if host.name not in there]

    def process(self, client: Host) -> str:
        """Identity of the process that is a client's gateway: its number and when it began. Raises AdapterError."""
        try:
            return (self.nodes[client.name].directory / _PROCESS).read_text().strip()
        except OSError:
            raise AdapterError(f"{client.name}: its gateway does not run") from None

    def version(self, client: Host) -> str:
        """Of Tahoe-LAFS, as the storage nodes say. Raises NoAnswerError."""
        versions = {str(server["version"]) for server in self.ask(client, "/?t=json")["servers"] if server["version"]}
        return ", ".join(sorted(versions)) or "unknown"

    def await_servers(self, clients: Sequence[NamespaceHost], timeout_seconds: float = START_SECONDS) -> None:
        """Wait until gateways are connected to the storage nodes of all hosts that are up, and know which are not. Raises
        AdapterError."""
        waiting = list(clients)
        said: dict[str, str] = {}

        def ready(client: NamespaceHost) -> bool:
            try:
                missing = self.missing(client)
            except NoAnswerError as error:
                said[client.name] = str(error)
                return False
            said[client.name] = f"{client.name} is not connected to {', '.join(missing) or 'those that are dead'}"
            return set(missing) == set(self.killed)

        def all_ready() -> bool:
            answers = each(waiting, ready)
            waiting[:] = [client for client, there in zip(waiting, answers, strict=True) if not there]
            return not waiting or bool(self._why_ended())

        if wait_until(all_ready, timeout_seconds, 0.1) and not waiting:
            return
        raise AdapterError(self._why_ended() or f"{said[waiting[0].name]} after {timeout_seconds:g} s")

    def _why_ended(self) -> str:
        """Of the first node that should run and does not; empty when all do."""
        running = {name: node for name, node in self.nodes.items() if name not in self.killed}
        return next((f"{name}: {why}" for name, node in running.items() if (why := node.why_ended())), "")

    # --- losing hosts and getting them back -----------------------------------------------------------------------------

    def kill(self, count: int) -> list[str]:
        """Kill the last hosts: every process on them at once. Returns their names when the gateways know. Raises
        AdapterError when there are not as many."""
        there = [host for host in self.up if host is not self.fabric.storage[0]]
        if count > len(there):
            raise AdapterError(
                f"{count} hosts cannot be killed: {len(there) + 1} run, and {self.fabric.storage[0].name} stays, "
                "which has the introducer"
            )
        lost = there[::-1][:count]
        self.killed += [host.name for host in lost]
        each(lost, lambda host: host.kill())
        return [host.name for host in lost]

    def restart(self, timeout_seconds: float) -> float:
        """Start the killed hosts and their nodes; seconds until every gateway is connected to every server. Raises
        LabError, HostError or AdapterError."""
        started = time.monotonic()
        back = [host for host in self.fabric.storage if host.name in self.killed]

        def start(host: NamespaceHost) -> None:
            self.disks[host.name].mount_again()
            self.nodes[host.name].start(self.program)

        for host in back:
            if not host.is_up:
                self.fabric.start(host)
        each(back, start)
        self.killed.clear()
        self.await_servers(self.fabric.clients, timeout_seconds)
        return time.monotonic() - started

    # --- growing and shrinking ------------------------------------------------------------------------------------------

    def grow(self, count: int) -> list[str]:
        """Add storage hosts; their names, once every gateway is connected to them. Raises LabError, HostError,
        AdapterError."""
        added = self.fabric.add_storage(count)
        self._make_disks(added)
        self._start_storage(added)
        self.await_servers(self.fabric.clients)
        return [host.name for host in added]

    # --- disks ----------------------------------------------------------------------------------------------------------

    def counters(self) -> list[DeviceCounters]:
        """Bytes moved by the disk of every host that is up. Raises LabError."""
        return [counter for host in self.up for counter in self.disks[host.name].counters()]

    def remove_shares(self, directories: Sequence[str], timeout_seconds: float) -> None:
        """Remove directories of shares from every server that is up. Raises HostError."""
        places = [Path(config.STORAGE_DIRECTORY) / directory for directory in directories]
        each(self.up, lambda host: host.call(web.remove_trees, places, timeout_seconds=timeout_seconds))

    def take_out(self, host: NamespaceHost) -> None:
        """Forget a killed host for ever. Raises LabError."""
        self.killed.remove(host.name)
        self.remove([host])
        self.fabric.remove_storage(host)

    def remove(self, hosts: Sequence[NamespaceHost]) -> None:
        """Take hosts down and remove their disks; no error when they are down."""
        each(hosts, lambda host: host.kill())
        for host in hosts:
            self.nodes.pop(host.name, None)
            if (disks := self.disks.pop(host.name, None)) is not None:
                disks.remove()
