"""NFS: one NFS-Ganesha server on a host of a lab. Clients mount it by the kernel; where that has no NFS client, what stands in
for it is named in every result (``access``)."""

from __future__ import annotations

import os
import shutil
import tempfile
import time
from dataclasses import replace
from pathlib import Path, PurePosixPath
from typing import Any, ClassVar

from assay.lab import probes, remote
from assay.lab.caches import DROP_SECONDS, FLUSH_SECONDS, Step
from assay.lab.errors import LabError
from assay.lab.host import Host, HostError, search_path
from assay.lab.hostdisk import MKFS, MKFS_PACKAGES, MOUNT_OPTIONS
from assay.model.evidence import ColdEvidence, DeviceCounters, DurabilityEvidence
from assay.model.lab import Lab as LabDeclaration
from assay.systems import nfs_client, nfs_probe
from assay.systems.base import AdapterError, Deployment
from assay.systems.existing import MountKind
from assay.systems.hosted import PROBE_BYTES, HostedMount, check_machine
from assay.systems.hosts import HostDisks, each, log_tail, wait_until
from assay.systems.nfs_config import (
    EXPORT,
    MOUNT_PORT,
    NFS_PORT,
    check_layout,
    check_parameter,
    check_room,
    complaints,
    ganesha_text,
    parameters,
    url,
    version_of,
)
from assay.systems.requirements import Requirement, first_missing, program

START_SECONDS = 30.0
ASK_SECONDS = 20.0
_DISK = "/run/b/1"
_DIRECTORY = f"{_DISK}/export"
_POLL_SECONDS = 0.01


def _vfs_module() -> Path | None:
    places = [*Path("/usr/lib").glob("*/ganesha"), Path("/usr/lib64/ganesha"), Path("/usr/lib/ganesha")]
    return next((place / "libfsalvfs.so" for place in places if (place / "libfsalvfs.so").exists()), None)


class NfsSystem(HostedMount):
    """``nfs/distributed``."""

    system: ClassVar[str] = "nfs"
    layouts: ClassVar[dict[str, str]] = {"distributed": "all files on one server"}
    requirements: ClassVar[tuple[Requirement, ...]] = (
        program("ganesha.nfsd", "nfs-ganesha", "-v"),
        Requirement("the VFS module of NFS-Ganesha", _vfs_module, "apt-get install -y nfs-ganesha-vfs"),
        replace(program("rpcbind", "rpcbind"), version=()),  # it would start
        program("mount.nfs", "nfs-common", "-V", only="access=kernel"),
        replace(program("nfs-cp", "libnfs-utils", only="access=libnfs"), version=()),
    )
    tunables: ClassVar[dict[str, str]] = {
        "access": "kernel, fuse-nfs or libnfs (put and get, no mount); default: the first that this machine has",
        "version": "of the protocol: 3, 4.0, 4.1 or 4.2 (default of the kernel's client)",
        "mount": "mount options of the clients, e.g. nconnect=8",
        "filesystem": "file system of the server's disk: xfs (default), ext4 or btrfs",
        "*.*": "any parameter of ganesha.conf as BLOCK.NAME, e.g. MDCACHE.Entries_HWMark: 500000",
    }

    @staticmethod
    def preflight(layout: str, lab: LabDeclaration, dataset_bytes: int) -> None:
        """See SystemAdapter: root, Ganesha and a client installed, a disk that suffices, namespaces possible."""
        check_layout(layout)
        check_room(lab.disk, "xfs", dataset_bytes)
        check_machine(f"nfs/{layout}", lab, NfsSystem.requirements, fuse=False)
        if (missing := first_missing(NfsSystem.requirements, f"access={nfs_client.access_of({})}")) is not None:
            raise AdapterError(missing)

    @staticmethod
    def check_tuning(tuning: dict[str, Any]) -> None:
        """See catalogue: values that cannot be right, and access that this machine does not have."""
        access = nfs_client.access_of(tuning)
        nfs_client.check_access(access)
        version_of(tuning, access)
        if (missing := first_missing(NfsSystem.requirements, f"access={access}")) is not None:
            raise AdapterError(missing)
        if "mount" in tuning and access == "libnfs":
            raise AdapterError("nfs with access libnfs has no mount, so there are no mount options")
        filesystem = tuning.get("filesystem", "xfs")
        if filesystem not in MKFS:
            raise AdapterError(f"nfs has no file system {filesystem!r} for its disk; known: {', '.join(MKFS)}")
        if shutil.which(MKFS[filesystem][0], path=search_path()) is None:
            raise AdapterError(
                f"{MKFS[filesystem][0]} is missing; install it with: apt-get install -y {MKFS_PACKAGES[filesystem]}"
            )
        for key in tuning:
            if "." in key:
                check_parameter(key)
        parameters(tuning)

    @staticmethod
    def mount_kind() -> MountKind:
        """See KnowsMounts."""
        return nfs_client.MOUNT_KIND

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        tuning = deployment.tuning
        self._access = nfs_client.access_of(tuning)
        self._version = version_of(tuning, self._access)
        self._options = str(tuning.get("mount", ""))
        self._filesystem = str(tuning.get("filesystem", "xfs"))
        self._parameters = parameters(tuning)
        self._disks: HostDisks | None = None
        self._mounts: dict[str, int] = {}  # by client: how often the kernel has mounted it

    @property
    def server(self) -> Any:
        """The host of the server, the first; others of the lab stay idle."""
        return self.fabric().storage[0]

    # --- core -----------------------------------------------------------------------------------------------------------

    def deploy(self) -> None:
        """Start the portmapper and Ganesha on the first storage host; ready when both its ports listen."""
        try:
            self._disks = HostDisks(self.fabric(), self.server, self._filesystem)
            self._disks.make()
            self._start_server()
        except (AdapterError, LabError, HostError) as error:
            self.destroy()
            raise AdapterError(f"{self.deployment.name}: {error}") from None

    def _start_server(self) -> None:
        server = self.server
        own = self.fabric().host_directory(server)
        (own / "recovery").mkdir(exist_ok=True)
        text = ganesha_text(server.address, _DIRECTORY, own / "recovery", self._parameters)
        (own / "ganesha.conf").write_text(text)
        server.run(["mkdir", "-p", _DIRECTORY, "/run/ganesha"]).must("directories of the server")
        server.run(["rpcbind", "-w"]).must(
            "starting rpcbind"
        )  # version 3 registers there; its socket is the host's own
        log = own / "ganesha.log"
        argv = ["ganesha.nfsd", "-f", str(own / "ganesha.conf"), "-L", str(log), "-p", "/run/ganesha.pid"]
        server.run([*argv, "-N", "NIV_EVENT"], timeout_seconds=START_SECONDS).must("starting ganesha.nfsd")

        def listens() -> bool:
            return all(server.call(probes.listens, port) for port in (NFS_PORT, MOUNT_PORT))

        ready = wait_until(listens, START_SECONDS, _POLL_SECONDS)
        if refused := complaints(log.read_text(errors="replace")):
            raise AdapterError(f"ganesha.nfsd: {refused}")
        if not ready:
            said = log_tail(log, ":CRIT :") or log_tail(log)
            raise AdapterError(f"ganesha.nfsd serves nothing after {START_SECONDS:g} s; its log says: {said}")

    def mount(self) -> None:
        """See HostedMount; without a mount: prove on every client that it reaches the export."""
        if self._access != "libnfs":
            super().mount()
            return
        try:
            each(self.deployment.clients, lambda client: nfs_client.reach(client, self.server.address))
        except (HostError, AdapterError) as error:
            raise AdapterError(f"{self.deployment.name}: {error}") from None

    def _mount_on(self, client: Host) -> None:
        """See HostedMount."""
        nfs_client.mount(client, self._access, self.server.address, self.point, self._version, self._options)
        self._mounts[client.name] = self._mounts.get(client.name, 0) + 1

    def unmount(self) -> None:
        """See SystemAdapter."""
        if self._access != "libnfs":
            super().unmount()

    def destroy(self) -> None:
        """Kill the server and remove its disk."""
        disks, self._disks = self._disks, None
        if disks is not None:
            self.server.kill()
            disks.remove()

    def facts(self) -> dict[str, Any]:
        """See SystemAdapter."""
        said = self.server.run(["ganesha.nfsd", "-v"]).must("ganesha.nfsd -v").stdout.decode(errors="replace")
        version = said.splitlines()[0].rpartition("=")[2].strip()
        client = {"access": self._access, "version": self._version}
        if self._access == "libnfs":
            client["library"] = nfs_probe.library() or ""
        else:
            client |= {**self.mount_facts(), "given": self._options}
        return {
            "system": "nfs/distributed",
            "version": f"NFS-Ganesha {version}, access by {self._access}, Linux {os.uname().release}",
            "access": self._access,
            "client": client,
            "parameters": self._parameters,
            "server": {"mkfs": " ".join(MKFS[self._filesystem]), "mount": MOUNT_OPTIONS[self._filesystem]},
            "disk": self.deployment.disk.model_dump(mode="json", exclude={"directory", "devices", "per_host"}),
        }

    # --- files (without a mount) --------------------------------------------------------------------------------------------

    def put(self, client: Host, source: Path, name: str, timeout_seconds: float) -> None:
        """See PutsAndGets: libnfs commits the file to the server's disk when it closes it."""
        target = self._url(name)
        above = [str(parent) for parent in PurePosixPath(name).parents if str(parent) != "."][::-1]
        # nfs-cp neither makes directories nor writes over a file
        self._call(client, timeout_seconds, nfs_probe.make_way, self._url(""), above, name)
        nfs_client.copy(client, str(source), target, timeout_seconds)

    def get(self, client: Host, name: str, target: Path, timeout_seconds: float) -> None:
        """See PutsAndGets."""
        source = self._url(name)
        self._call(client, timeout_seconds, Path.unlink, target, True)
        nfs_client.copy(client, source, str(target), timeout_seconds)

    def delete(self, client: Host, name: str, timeout_seconds: float) -> None:
        """See PutsAndGets."""
        self._url(name)
        self._call(client, timeout_seconds, nfs_probe.remove, self._url(""), name)

    def _url(self, name: str) -> str:
        if self._access != "libnfs":
            raise AdapterError(f"{self.deployment.name} is mounted: files are written there, not put")
        return url(self.server.address, name)

    def _call(self, client: Host, timeout_seconds: float, function: Any, *arguments: object) -> None:
        try:
            client.call(function, *arguments, timeout_seconds=timeout_seconds)
        except OSError as error:
            raise AdapterError(f"{self.deployment.name}: {client.name}: {error.strerror or error}") from None
        except HostError as error:
            raise AdapterError(f"{self.deployment.name}: {error}") from None

    # --- state ----------------------------------------------------------------------------------------------------------

    def device_counters(self) -> list[DeviceCounters]:
        """See HostedSystem: of the server's disk."""
        return [] if self._disks is None or not self.server.is_up else self._disks.counters()[:1]

    def _process_on(self, client: Host) -> str:
        """See HostedMount. The kernel's client has no process: it is another one when it was mounted again at a place where
        nothing was mounted."""
        if self._access == nfs_client.FUSE_CLIENT:
            return ", ".join(client.call(nfs_probe.processes, nfs_client.FUSE_CLIENT))
        return str(self._mounts.get(client.name, 0))

    def _copies(self) -> tuple[int, int]:
        """See HostedMount."""
        return 1, 0

    def _server_synced(self) -> Step:
        done = self.server.run(["sync", "--file-system", _DISK], timeout_seconds=FLUSH_SECONDS)
        return f"{self.server.name}: sync", 1 if done.exit_code is None else done.exit_code

    def _servers_cold(self) -> list[Step]:
        """Write back the server's dirty pages, which could not be dropped, and mount again."""
        return [self._server_synced(), *super()._servers_cold()]

    def go_cold(self) -> ColdEvidence:
        """See GoesCold. Without a mount every put and get is a process of its own, so that only the server has a cache."""
        if self._access != "libnfs":
            return super().go_cold()
        started, before = time.monotonic(), remote.meminfo()["Cached"]
        steps = [self._server_synced()]
        for client in self.deployment.clients:
            dropped = client.call(remote.drop_caches, timeout_seconds=DROP_SECONDS)
            steps.append((f"{client.name}: drop_caches=3", dropped))
        return ColdEvidence(
            requested=True,
            steps=[name for name, _ in steps],
            exit_codes=[code for _, code in steps],
            cached_before_bytes=before,
            cached_after_bytes=remote.meminfo()["Cached"],
            seconds=time.monotonic() - started,
        )

    def probe_durability(self) -> DurabilityEvidence:
        """See HasDurability; without a mount: put 1 MiB and see whether the server's disk has received it by then."""
        if self._access != "libnfs":
            return super().probe_durability()
        name = ".assay-durability-probe"
        before = self.device_counters()[0]
        with tempfile.NamedTemporaryFile(dir=self.fabric().directory) as file:
            file.write(os.urandom(PROBE_BYTES))
            file.flush()
            try:
                self.put(self.client, Path(file.name), name, ASK_SECONDS)
                arrived = self.device_counters()[0].written_bytes - before.written_bytes
                self.delete(self.client, name, ASK_SECONDS)
            except AdapterError as error:
                return DurabilityEvidence(declared="unknown", probed=None, detail=f"probe failed: {error}")
        durable = arrived >= PROBE_BYTES
        return DurabilityEvidence(
            declared="device" if durable else "page-cache",
            probed=durable,
            detail=f"{arrived} bytes reached {before.device} by the end of a put of {PROBE_BYTES} bytes",
        )

    def health(self) -> tuple[bool | None, str]:
        """As for any mount; without one: every client reaches the export."""
        if self._access != "libnfs":
            return super().health()
        if not self.server.is_up:
            return False, f"the server's host {self.server.name} is down"
        for client in self.deployment.clients:
            try:
                nfs_client.reach(client, self.server.address)
            except (AdapterError, HostError) as error:
                return False, str(error)
        return True, f"{self.server.name}:{EXPORT} answers every client by libnfs"
