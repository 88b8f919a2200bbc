"""Tahoe-LAFS: a grid of real nodes on the hosts of a lab, used through the web interface of a gateway on every client or
through sshfs over the gateway's SFTP front end."""

from __future__ import annotations

import os
import shlex
import shutil
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from assay.lab import remote
from assay.lab.caches import Step, drop, flush
from assay.lab.errors import LabError
from assay.lab.host import Host, HostError, search_path
from assay.lab.hostdisk import MKFS, MKFS_PACKAGES, MOUNT_OPTIONS
from assay.lab.namespace import NamespaceHost
from assay.model.evidence import ColdEvidence, DeviceCounters, DurabilityEvidence
from assay.model.lab import Lab as LabDeclaration
from assay.systems import tahoe_config as config
from assay.systems import tahoe_faults, tahoe_sshfs
from assay.systems import tahoe_web as web
from assay.systems.base import AdapterError, Deployment, NoAnswerError
from assay.systems.hosted import FUSE, PROBE_BYTES, HostedMount, check_machine
from assay.systems.hosts import each, wait_until
from assay.systems.requirements import Requirement, first_missing, program, programs_directory
from assay.systems.tahoe_grid import TahoeGrid

VERSION = "1.20.0"
_STORAGE = Path(config.STORAGE_DIRECTORY)
_UPLOADS_SECONDS = 600.0  # for uploads that sshfs has left to the gateway
_MARGIN_SECONDS = 1.0  # the gateway's own words about a deadline come before the host's


def find_program() -> Path | None:
    """``tahoe`` in the virtual environment that the remedy makes, else where root finds programs."""
    own = programs_directory() / "tahoe-lafs" / "bin" / "tahoe"
    found = shutil.which(str(own)) or shutil.which("tahoe", path=search_path())
    return Path(found) if found else None


def _remedy() -> str:
    place = shlex.quote(str(programs_directory() / "tahoe-lafs"))
    return f"{shlex.quote(sys.executable)} -m venv {place} && {place}/bin/pip install tahoe-lafs=={VERSION}"


class TahoeSystem(HostedMount):
    """``tahoe/rain-K-M``: K of K+M shares give a file back."""

    system: ClassVar[str] = "tahoe"
    layouts: ClassVar[dict[str, str]] = {
        "rain-K-M": "each file encrypted and encoded into K+M shares on as many hosts, any K of which give it back",
    }
    requirements: ClassVar[tuple[Requirement, ...]] = (
        Requirement(f"Tahoe-LAFS {VERSION}", find_program, _remedy(), ("--version",)),
        program("sshfs", "sshfs", only="access=sshfs"),
        program("ssh", "openssh-client", "-V", only="access=sshfs"),
        program("ssh-keygen", "openssh-client", "-?", only="access=sshfs"),
    )
    tunables: ClassVar[dict[str, str]] = {
        "access": "web (default: put and get through the gateway's web interface) or sshfs (mount over its SFTP front end)",
        "brick": "file system of the storage nodes' disks: xfs (default), ext4 or btrfs",
        "shares.happy": "servers that must hold a share before an upload counts as done; default: all that the layout leaves alive",
        "node.*": "any option of [node] in tahoe.cfg, for every node but the introducer",
        "client.*": "any option of [client], for gateways, e.g. client.force_foolscap: true",
        "storage.*": "any option of [storage], for storage nodes",
    }

    @staticmethod
    def preflight(layout: str, lab: LabDeclaration, dataset_bytes: int) -> None:
        """See SystemAdapter."""
        wanted = config.layout_of(layout)
        config.check_hosts(wanted, lab.hosts, lab.disk.per_host)
        config.check_room(wanted, lab.hosts, lab.disk, dataset_bytes)
        check_machine(f"tahoe/{layout}", lab, TahoeSystem.requirements, fuse=False)

    @staticmethod
    def check_tuning(tuning: dict[str, Any]) -> None:
        """See catalogue: values that cannot be right."""
        brick, access = tuning.get("brick", "xfs"), tuning.get("access", "web")
        if brick not in MKFS:
            raise AdapterError(f"tahoe has no brick file system {brick!r}; known: {', '.join(MKFS)}")
        if shutil.which(MKFS[brick][0], path=search_path()) is None:
            raise AdapterError(
                f"{MKFS[brick][0]} is missing; install it with: apt-get install -y {MKFS_PACKAGES[brick]}"
            )
        if access not in ("web", "sshfs"):
            raise AdapterError(f"tahoe has no access {access!r}; known: web, sshfs")
        if access == "sshfs":
            if not FUSE.exists():
                raise AdapterError(
                    f"{FUSE} is missing; load it with: modprobe fuse (in a container: --device /dev/fuse)"
                )
            if (missing := first_missing(TahoeSystem.requirements, "access=sshfs")) is not None:
                raise AdapterError(missing)
        for name in options_of(tuning):
            config.option_of(name)

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        self._layout = config.layout_of(deployment.layout)
        self._sshfs = deployment.tuning.get("access", "web") == "sshfs"
        self._grid: TahoeGrid | None = None
        self._names: dict[str, str] = {}  # what was put -> its capability
        self._keys: tahoe_sshfs.Keys | None = None  # of the SFTP front end

    @property
    def grid(self) -> TahoeGrid:
        """The nodes. Raises AdapterError before deploy."""
        if self._grid is None:
            raise AdapterError(f"{self.deployment.name} is not deployed")
        return self._grid

    # --- core -----------------------------------------------------------------------------------------------------------

    def deploy(self) -> None:
        """Start the introducer, all storage nodes and gateways, and wait until they are connected."""
        fabric, tuning = self.fabric(), self.deployment.tuning
        happy = config.happy_of(tuning, self._layout, len(fabric.storage))
        if self._sshfs and len(fabric.clients) > 1:
            raise AdapterError(
                f"{self.deployment.name}: Tahoe-LAFS does not let two gateways write into one directory "
                "(its prime coordination directive); set lab.clients to 1, or access to web"
            )
        if (program_ := find_program()) is None:
            raise AdapterError(f"Tahoe-LAFS is missing; install it with: {_remedy()}")
        brick = str(tuning.get("brick", "xfs"))
        self._grid = grid = TahoeGrid(fabric, program_, self._layout, happy, brick, options_of(tuning))
        try:
            grid.start()
            grid.await_servers(fabric.clients)
        except (AdapterError, LabError, HostError) as error:
            self.destroy()
            raise AdapterError(f"{self.deployment.name}: {error}") from None

    def mount(self) -> None:
        """Through sshfs: mount it. Otherwise there is nothing to do."""
        if not self._sshfs:
            self.grid.await_servers(self.fabric().clients)
            return
        client = self.fabric().clients[0]
        try:
            root = client.call(web.make_directory, config.WEB_PORT, 60.0, timeout_seconds=61.0)
            self._keys = tahoe_sshfs.make_keys(client, self.fabric().host_directory(client), root)
        except (web.WebError, HostError) as error:
            raise AdapterError(f"{self.deployment.name}: {error}") from None
        super().mount()

    def _mount_on(self, client: Host) -> None:
        """See HostedMount: a fresh gateway each time."""
        assert isinstance(client, NamespaceHost) and self._keys is not None
        node = self.grid.nodes[client.name]
        node.stop()
        self.grid.serve_files(client, self._keys.private)
        self.grid.start_gateways([client])
        self.grid.await_servers([client])
        tahoe_sshfs.mount(client, self._keys, self.point)

    def _process_on(self, client: Host) -> str:
        """See HostedMount: when the gateway began to run."""
        return self.grid.process(client)

    def _copies(self) -> tuple[int, int]:
        """See HostedMount."""
        return self._layout.data, self._layout.parity

    def unmount(self) -> None:
        """See SystemAdapter."""
        if self._sshfs and self.directory is not None:
            super().unmount()

    def destroy(self) -> None:
        """Kill all nodes and remove their disks."""
        grid, self._grid = self._grid, None
        self._names.clear()
        if grid is not None:
            grid.remove(grid.fabric.storage)
            each([grid.nodes[c.name] for c in grid.fabric.clients if c.name in grid.nodes], lambda node: node.stop())

    def facts(self) -> dict[str, Any]:
        """See SystemAdapter."""
        grid = self.grid
        brick = grid.filesystem
        facts = {
            "system": f"tahoe/{self._layout}",
            "version": f"{grid.version(grid.fabric.clients[0])}, Linux {os.uname().release}",
            "access": "sshfs" if self._sshfs else "web",
            "shares": {"needed": self._layout.data, "happy": grid.happy, "total": self._layout.width},
            "options": {name: str(value) for name, value in sorted(grid.options.items())},
            "brick": {"mkfs": " ".join(MKFS[brick]), "mount": MOUNT_OPTIONS[brick]},
            "disk": self.deployment.disk.model_dump(mode="json", exclude={"directory", "devices"}),
        }
        if self._sshfs:
            facts |= {"mount": self.mount_facts(), "sshfs": tahoe_sshfs.version(self.client)}
        return facts

    # --- whole files ------------------------------------------------------------------------------------------------------

    def put(self, client: Host, source: Path, name: str, timeout_seconds: float) -> None:
        """See PutsAndGets: an upload, with the capability kept here under the name (see the documentation)."""
        old = self._names.get(name)
        self._names[name] = self._call(client, f"put {name}", timeout_seconds, web.put, source)
        if old is not None:
            self._forget(old, timeout_seconds)

    def get(self, client: Host, name: str, target: Path, timeout_seconds: float) -> None:
        """See PutsAndGets."""
        if (capability := self._names.get(name)) is None:
            raise AdapterError(f"there is no {name!r}; nothing was put under this name")
        self._call(client, f"get {name}", timeout_seconds, web.get, capability, target)

    def delete(self, client: Host, name: str, timeout_seconds: float) -> None:  # noqa: ARG002 (servers are asked)
        """See PutsAndGets. Tahoe-LAFS would keep the shares until their lease ends after a month; they are removed."""
        if (capability := self._names.pop(name, None)) is not None:
            self._forget(capability, timeout_seconds)

    def _call(
        self, client: Host, what: str, timeout_seconds: float, function: Callable[..., Any], *args: object
    ) -> Any:
        try:
            return client.call(
                function, config.WEB_PORT, *args, timeout_seconds, timeout_seconds=timeout_seconds + _MARGIN_SECONDS
            )
        except (web.WebError, OSError, HostError) as error:
            raise AdapterError(f"{client.name}: {what}: {error}") from None

    def _forget(self, capability: str, timeout_seconds: float) -> None:
        """Remove the shares of a file; no other name has them (see tahoe_web.SALT_BYTES)."""
        if (place := config.shares_directory(capability)) is not None:
            try:
                self.grid.remove_shares([place], timeout_seconds)
            except HostError as error:
                raise AdapterError(str(error)) from None

    # --- state ------------------------------------------------------------------------------------------------------------

    def go_cold(self) -> ColdEvidence:
        """Write back what the servers hold, start every gateway anew, drop the page cache."""
        started, before = time.monotonic(), remote.meminfo()["Cached"]
        if self._sshfs:
            self._entry()
        up = self.grid.up
        steps = [*flush(up, _STORAGE), *self._servers_cold(), *drop(up, _STORAGE)]
        return ColdEvidence(
            requested=True,
            steps=[name for name, _ in steps],
            exit_codes=[code for _, code in steps],
            cached_before_bytes=before,
            cached_after_bytes=remote.meminfo()["Cached"],
            seconds=time.monotonic() - started,
        )

    def _servers_cold(self) -> list[Step]:
        """New gateways have no caches; the servers' is this machine's page cache."""
        if self._sshfs:
            return super()._servers_cold()
        clients = self.grid.fabric.clients
        before = [self.grid.process(client) for client in clients]
        each(clients, lambda client: self.grid.nodes[client.name].stop())
        self.grid.start_gateways(clients)
        self.grid.await_servers(clients)
        replaced = [int(self.grid.process(client) == old) for client, old in zip(clients, before, strict=True)]
        names = [f"{client.name}: another gateway process answers" for client in clients]
        return list(zip(names, replaced, strict=True))

    def _before_remount(self) -> None:
        """sshfs returns from close before the gateway has uploaded the file, and an upload dies with its gateway."""
        time.sleep(tahoe_sshfs.CLOSE_SECONDS)
        if not wait_until(lambda: not self._left_to_do(1.0)[0], _UPLOADS_SECONDS, 0.1):
            raise AdapterError(f"{self.deployment.name}: {self._left_to_do(1.0)[1]} after {_UPLOADS_SECONDS:g} s")

    def _left_to_do(self, timeout_seconds: float) -> tuple[bool, str]:  # noqa: ARG002 (asking is bounded)
        """See HostedSystem: uploads and downloads under way. Garbage of a mount is collected when there are none."""
        for client in self.grid.fabric.clients:
            if jobs := config.busy(self.grid.ask(client, "/status?t=json")):
                return True, f"{client.name}: {', '.join(jobs)}"
        if self._sshfs and self._keys is not None and not self.grid.killed:
            tahoe_faults.collect_garbage(self.grid, self._keys.root, list(self._names.values()))
        return False, "no upload or download"

    def device_counters(self) -> list[DeviceCounters]:
        """See HostedSystem."""
        return self.grid.counters()

    def probe_durability(self) -> DurabilityEvidence:
        """Upload 1 MiB and see which disks have received their share by the time that it counts as done."""
        if self._sshfs:
            return super().probe_durability()
        data, total = self._layout.data, self._layout.width
        client = self.grid.fabric.clients[0]
        source = self.fabric().host_directory(client) / "durability-probe"
        source.write_bytes(os.urandom(PROBE_BYTES))
        before = {c.device: c.written_bytes for c in self.device_counters()}
        try:
            self.put(client, source, ".assay-durability-probe", 60.0)
            after = self.device_counters()
            self.delete(client, ".assay-durability-probe", 60.0)
        except AdapterError as error:
            return DurabilityEvidence(declared="unknown", probed=None, detail=f"probe failed: {error}")
        reached = [c for c in after if c.written_bytes - before.get(c.device, 0) >= PROBE_BYTES // data]
        durable = len(reached) >= total
        detail = f"a share of {PROBE_BYTES // data} bytes reached {len(reached)} of {total} devices when {PROBE_BYTES} bytes were put"
        return DurabilityEvidence(declared="replicated" if durable else "page-cache", probed=durable, detail=detail)

    def health(self) -> tuple[bool | None, str]:
        """Whether every gateway is connected to every storage node, and the mount is there if it is mounted."""
        if self._sshfs:
            healthy, detail = super().health()
            if not healthy:
                return healthy, detail
        try:
            for client in self.grid.fabric.clients:
                if missing := self.grid.missing(client):
                    return False, f"{client.name} is not connected to {', '.join(missing)}"
        except NoAnswerError as error:
            return None, str(error)
        return True, f"all {len(self.grid.fabric.storage)} storage nodes connected"

    # --- failures, growing, shrinking (see tahoe_faults) ------------------------------------------------------------------

    def kill_hosts(self, count: int) -> list[str]:
        """See KillsHosts: the last hosts; the first has the introducer."""
        return self.grid.kill(count)

    def restart_hosts(self, timeout_seconds: float) -> float:
        """See KillsHosts."""
        try:
            return self.grid.restart(timeout_seconds)
        except (LabError, HostError) as error:
            raise AdapterError(f"restarting {', '.join(self.grid.killed)}: {error}") from None

    def heal(self, timeout_seconds: float) -> float | None:
        """See KillsHosts: check and repair every file, and spread its shares again."""
        return tahoe_faults.heal(self.grid, self._capabilities(), timeout_seconds)

    def grow(self, hosts: int, progress: Callable[[str], None]) -> None:
        """See Resizes. New files use the new hosts; Tahoe-LAFS moves nothing of what is there."""
        try:
            names = self.grid.grow(hosts)
        except (LabError, HostError) as error:
            raise AdapterError(f"{self.deployment.name}: {error}") from None
        progress(f"{', '.join(names)} added; files that are there stay where they are")

    def shrink(self, hosts: int, progress: Callable[[str], None]) -> None:
        """See Resizes: one host after the other is stopped, and what it held is made anew on the others."""
        tahoe_faults.shrink(self.grid, self._capabilities(), hosts, progress)

    def _capabilities(self) -> list[str]:
        """Of everything that must not be lost."""
        found = list(dict.fromkeys(self._names.values()))
        if self._sshfs and self._keys is not None:
            found += [unit.capability for unit in tahoe_faults.reachable(self.grid, self._keys.root)]
        return found


def options_of(tuning: dict[str, Any]) -> dict[str, Any]:
    """What goes into tahoe.cfg as it is, of a candidate's tuning."""
    return {name: value for name, value in tuning.items() if name.partition(".")[0] in ("node", "client", "storage")}
