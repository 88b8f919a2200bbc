"""XtreemFS from an existing installation: its services on the hosts of a lab, mounted through FUSE on every client."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, ClassVar

from assay.lab import remote
from assay.lab.errors import LabError
from assay.lab.host import Host, HostError
from assay.lab.mounts import ANSWER_SECONDS
from assay.model import units
from assay.model.evidence import DeviceCounters
from assay.model.lab import Lab as LabDeclaration
from assay.systems import xtreemfs_config as config
from assay.systems.base import AdapterError, Deployment
from assay.systems.hosted import HostedMount, check_machine
from assay.systems.hosts import wait_until
from assay.systems.requirements import Requirement, program, programs_directory
from assay.systems.xtreemfs_cluster import XtreemCluster

MOUNT_SECONDS = 60.0
USABLE_SECONDS = 60.0
DRAIN_SECONDS = 24 * 3600.0
HEAP = "256MiB"


def roots() -> list[Path]:
    """Where an installation is looked for: what the remedy links, then where packages put it."""
    return [programs_directory() / "xtreemfs", Path("/opt/xtreemfs"), Path("/usr/local"), Path("/usr")]


def _remedy() -> str:
    place = programs_directory() / "xtreemfs"
    return f"make -C XTREEMFS_SOURCE server client && mkdir -p {place.parent} && ln -sfn XTREEMFS_SOURCE {place}"


def _program(name: str) -> Requirement:
    return Requirement(f"XtreemFS' {name}", lambda: config.find_program(name, roots()), _remedy())


class XtreemSystem(HostedMount):
    """``xtreemfs/distributed``, ``xtreemfs/striped-N``, ``xtreemfs/replicated-N``. Not yet run here."""

    system: ClassVar[str] = "xtreemfs"
    layouts: ClassVar[dict[str, str]] = {
        "distributed": "each file on one OSD",
        "striped-N": "each file in stripes over N OSDs (RAID0), without redundancy",
        "replicated-N": "each file on N OSDs; a majority is written and read (WqRq)",
    }
    requirements: ClassVar[tuple[Requirement, ...]] = (
        program("java", "openjdk-17-jre-headless", "-version"),
        Requirement("XtreemFS' server JAR", lambda: next(iter(config.find_jars(roots())), None), _remedy()),
        _program("mkfs.xtreemfs"),
        _program("mount.xtreemfs"),
        _program("xtfsutil"),
    )
    tunables: ClassVar[dict[str, str]] = {
        "brick": "file system of the OSDs' disks: xfs (default), ext4 or btrfs",
        "stripe": f"size of a stripe, whole KiB, {config.STRIPE} by default",
        "heap": f"largest heap of each Java service; {HEAP} by default",
        "mount": "arguments of mount.xtreemfs, e.g. --enable-async-writes",
        "dir.*": "any property of the directory service",
        "mrc.*": "any property of the metadata service, e.g. mrc.no_atime: false",
        "osd.*": "any property of the object stores, e.g. osd.checksums.enabled: true",
    }

    @staticmethod
    def preflight(layout: str, lab: LabDeclaration, dataset_bytes: int) -> None:
        """See SystemAdapter: root, FUSE, an installation, hosts and disks that suffice."""
        wanted = config.spread_of(layout)
        config.check_hosts(wanted, lab.hosts)
        config.check_room(wanted, lab.hosts, lab.disk, "xfs", dataset_bytes)
        check_machine(f"xtreemfs/{layout}", lab, XtreemSystem.requirements, fuse=True)

    @staticmethod
    def check_tuning(tuning: dict[str, Any]) -> None:
        """See catalogue: values that cannot be right."""
        if (brick := tuning.get("brick", "xfs")) not in config.FILESYSTEM_BYTES:
            raise AdapterError(
                f"xtreemfs has no brick file system {brick!r}; known: {', '.join(config.FILESYSTEM_BYTES)}"
            )
        config.stripe_bytes(tuning.get("stripe", config.STRIPE))
        config.tuned_properties(tuning)
        _heap(tuning)

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        self._spread = config.spread_of(deployment.layout)
        self._cluster: XtreemCluster | None = None

    @property
    def cluster(self) -> XtreemCluster:
        """The services. Raises AdapterError before deploy."""
        if self._cluster is None:
            raise AdapterError(f"{self.deployment.name} is not deployed")
        return self._cluster

    # --- core -----------------------------------------------------------------------------------------------------------

    def deploy(self) -> None:
        """Start DIR, MRC and OSDs and make the volume."""
        fabric, tuning = self.fabric(), self.deployment.tuning
        self._cluster = cluster = XtreemCluster(
            fabric,
            str(tuning.get("brick", "xfs")),
            config.find_jars(roots()),
            _heap(tuning),
            config.tuned_properties(tuning),
        )
        stripe = config.stripe_bytes(tuning.get("stripe", config.STRIPE))
        try:
            cluster.start()
            self._tool(cluster.first, "mkfs.xtreemfs", *config.mkfs_arguments(self._spread, stripe))
        except (AdapterError, LabError, HostError) as error:
            self.destroy()
            raise AdapterError(f"{self.deployment.name}: {error}") from None

    def mount(self) -> None:
        """Mount it on every client, wait until every OSD is usable, and give new files their copies."""
        super().mount()
        try:
            self._await_usable(self.cluster.osds(self.cluster.up))
            if self._spread.copies > 1:
                self._tool(self.client, "xtfsutil", *config.replication_arguments(self._spread, self.point))
            said = [self._attribute(f"xtreemfs.default_{kind}") for kind in ("sp", "rp")]
            if (found := config.volume_spread(*said)) != self._spread:
                raise AdapterError(f"{self.point} is {found} and not {self._spread}")
        except (AdapterError, HostError) as error:
            raise AdapterError(f"{self.deployment.name}: {error}") from None

    def _tool(self, host: Host, name: str, *arguments: str, timeout_seconds: float = MOUNT_SECONDS) -> str:
        found = config.find_program(name, roots())
        done = host.run([str(found or name), *arguments], timeout_seconds=timeout_seconds)
        return done.must(f"{host.name}: {name}").stdout.decode(errors="replace")

    def _mount_on(self, client: Host) -> None:
        """See HostedMount."""
        client.run(["mkdir", "-p", str(self.point)]).must("mount point")
        options = shlex.split(str(self.deployment.tuning.get("mount", "")))
        self._tool(client, "mount.xtreemfs", *options, f"s1/{config.VOLUME}", str(self.point))
        entry = client.call(remote.mount_entry, self.point, timeout_seconds=ANSWER_SECONDS) or {}
        source = entry.get("source", "")
        if (
            entry.get("point") != str(self.point)
            or not source.startswith("xtreemfs@")
            or not source.endswith(config.VOLUME)
        ):
            raise AdapterError(
                f"{client.name}: {self.point} is {source or 'not mounted'} and not xtreemfs@s1/{config.VOLUME}"
            )

    def _process_on(self, client: Host) -> str:
        """See HostedMount."""
        return client.call(mount_process, str(self.point), timeout_seconds=ANSWER_SECONDS)

    def _copies(self) -> tuple[int, int]:
        """See HostedMount. The probe of 1 MiB fills eight stripes of the default size."""
        return self._spread.width, self._spread.copies - 1

    def destroy(self) -> None:
        """Kill the services and remove their disks."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.remove(cluster.fabric.storage)

    def facts(self) -> dict[str, Any]:
        """See SystemAdapter."""
        tuning = self.deployment.tuning
        return {
            "system": f"xtreemfs/{self._spread}",
            "version": f"{self._tool(self.client, 'mount.xtreemfs', '--version').strip()}, Linux {os.uname().release}",
            "layout": {"width": self._spread.width, "copies": self._spread.copies},
            "stripe_bytes": config.stripe_bytes(tuning.get("stripe", config.STRIPE)),
            "properties": config.tuned_properties(tuning),
            "brick": self.cluster.filesystem,
            "heap_bytes": _heap(tuning),
            "mount": self.mount_facts(),
            "disk": self.deployment.disk.model_dump(mode="json", exclude={"directory", "devices"}),
        }

    # --- state ----------------------------------------------------------------------------------------------------------

    def device_counters(self) -> list[DeviceCounters]:
        """See HostedSystem."""
        return self.cluster.counters()

    def _attribute(self, name: str) -> str:
        """An extended attribute of the volume's root; empty when it has none."""
        try:
            value = self.client.call(os.getxattr, str(self.point), name, timeout_seconds=ANSWER_SECONDS)
        except OSError as error:
            if error.errno is not None and name.endswith("_rp"):
                return ""
            raise AdapterError(f"{name}: {error.strerror}") from None
        return value.decode(errors="replace")

    def _unusable(self, wanted: list[str]) -> list[str]:
        usable = config.usable_osds(self._attribute("xtreemfs.usable_osds"))
        return [name for name in wanted if name not in usable]

    def _await_usable(self, wanted: list[str], timeout_seconds: float = USABLE_SECONDS) -> None:
        """The MRC looks for OSDs every 10 s (osd_check_interval). Raises AdapterError."""
        if not wait_until(lambda: not self._unusable(wanted), timeout_seconds, 0.2):
            raise AdapterError(f"{', '.join(self._unusable(wanted))} not usable after {timeout_seconds:g} s")

    def health(self) -> tuple[bool | None, str]:
        """As for any mount, no host is known to be gone, and the MRC calls every OSD usable."""
        healthy, detail = super().health()
        if not healthy:
            return healthy, detail
        wanted = self.cluster.osds(self.cluster.fabric.storage)
        if gone := self._unusable(wanted) or self.cluster.killed:
            return False, f"{detail}, missing: {', '.join(gone)}"
        return True, f"{detail}, {len(wanted)} OSDs usable"

    # --- failures -------------------------------------------------------------------------------------------------------

    def kill_hosts(self, count: int) -> list[str]:
        """See KillsHosts. The last hosts go first."""
        order = [host.name for host in reversed(self.cluster.up[1:])]
        if count > len(order):
            raise AdapterError(
                f"{count} hosts cannot be killed: {len(order) + 1} run, and {self.cluster.first.name} stays, with DIR and MRC"
            )
        self.cluster.kill(order[:count])
        return order[:count]

    def restart_hosts(self, timeout_seconds: float) -> float:
        """See KillsHosts."""
        seconds = self.cluster.restart()
        started = time.monotonic()
        self._await_usable(self.cluster.osds(self.cluster.up), max(1.0, timeout_seconds - seconds))
        return seconds + time.monotonic() - started

    def heal(self, timeout_seconds: float) -> float | None:
        """See KillsHosts. XtreemFS brings a copy up to date when its file is opened next and has no queue that could be
        waited for: whole means that every OSD is usable."""
        started = time.monotonic()
        wanted = self.cluster.osds(self.cluster.fabric.storage)
        if wait_until(lambda: not self._unusable(wanted), timeout_seconds, 0.2):
            return time.monotonic() - started
        return None

    # --- growing and shrinking --------------------------------------------------------------------------------------------

    def grow(self, hosts: int, progress: Callable[[str], None]) -> None:
        """See Resizes. XtreemFS moves no file that is there: only new ones use the new OSDs."""
        try:
            added = self.cluster.fabric.add_storage(hosts)
            self.cluster.add(added)
        except (LabError, HostError) as error:
            raise AdapterError(f"adding {hosts} hosts: {error}") from None
        self._await_usable(self.cluster.osds(self.cluster.up))
        progress(f"{', '.join(host.name for host in added)} added, {len(self.cluster.osds(self.cluster.up))} OSDs")

    def shrink(self, hosts: int, progress: Callable[[str], None]) -> None:
        """See Resizes: xtfs_remove_osd drains each OSD of the last hosts."""
        storage = self.cluster.fabric.storage
        config.check_hosts(self._spread, len(storage) - hosts)
        for host in storage[len(storage) - hosts :]:
            for osd in self.cluster.osds([host]):
                arguments = ["-dir", f"pbrpc://s1:{config.DIR_PORT}", f"uuid:{osd}"]
                try:
                    self._tool(self.cluster.first, "xtfs_remove_osd", *arguments, timeout_seconds=DRAIN_SECONDS)
                except HostError as error:
                    raise AdapterError(str(error)) from None
                progress(f"{osd} drained")
            self.cluster.remove([host])
            self.cluster.fabric.remove_storage(host)


def _heap(tuning: dict[str, Any]) -> int:
    try:
        return units.parse_bytes(tuning.get("heap", HEAP))
    except ValueError as error:
        raise AdapterError(f"heap: {error}") from None


def mount_process(point: str) -> str:
    """Process id and start of the client that serves a mount; empty when there is none. Carried out on a host."""
    for entry in Path("/proc").iterdir():
        try:
            argv = (entry / "cmdline").read_bytes().split(b"\0") if entry.name.isdigit() else []
            if argv and argv[0].endswith(b"mount.xtreemfs") and point.encode() in argv:
                return f"{entry.name} {(entry / 'stat').read_text().rpartition(')')[2].split()[19]}"
        except OSError:  # it has ended meanwhile
            continue
    return ""
