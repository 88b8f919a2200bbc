"""Ceph: a real cluster on the hosts of a lab with one CephFS, reached through ceph-fuse or through librados."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from typing import Any, ClassVar

from assay.lab import remote
from assay.lab.caches import Step, drop
from assay.lab.errors import LabError
from assay.lab.host import Host, HostError
from assay.model import units
from assay.model.evidence import ColdEvidence, DeviceCounters, DurabilityEvidence
from assay.model.lab import Disk
from assay.model.lab import Lab as LabDeclaration
from assay.model.layout import Layout, parse_layout
from assay.systems import ceph_faults, ceph_mount, ceph_probe, ceph_resize
from assay.systems.base import AdapterError, Deployment
from assay.systems.ceph_cluster import DATA, DIRECTORY, FILESYSTEM, METADATA, CephCluster
from assay.systems.ceph_command import BINDINGS, PYTHON
from assay.systems.ceph_conf import check_options
from assay.systems.ceph_status import health, pool_of
from assay.systems.existing import MountKind
from assay.systems.hosted import PROBE_BYTES, HostedMount, check_machine
from assay.systems.hosts import wait_until
from assay.systems.requirements import Requirement, program

ACCESS = ("fuse", "librados")
CLEAN_SECONDS = 120.0
OSD_BYTES = 200 << 20  # of an empty one: BlueFS, its logs, and what the metadata need
FULL = 0.85  # Ceph calls an OSD nearly full from here on
_UNEVEN = 1.3  # CRUSH fills the fullest of a few OSDs by so much more than the mean


def _bindings(name: str) -> Callable[[], Any]:
    def find() -> Any:
        return next((f for place in BINDINGS for f in place.glob(f"{name}*.so")), None) if PYTHON.exists() else None

    return find


class CephSystem(HostedMount):
    """``ceph/distributed``, ``ceph/replicated-N``, ``ceph/rain-K-M``."""

    system: ClassVar[str] = "ceph"
    layouts: ClassVar[dict[str, str]] = {
        "distributed": "each object on one OSD (pool of size 1)",
        "replicated-N": "each object on N OSDs of different hosts",
        "rain-K-M": "each object in K data and M parity shards on different hosts (erasure coded, jerasure)",
    }
    requirements: ClassVar[tuple[Requirement, ...]] = (
        program("ceph-mon", "ceph-mon"),
        program("ceph-mgr", "ceph-mgr"),
        program("ceph-osd", "ceph-osd"),
        program("ceph-mds", "ceph-mds"),
        program("monmaptool", "ceph-base"),
        program("ceph-fuse", "ceph-fuse"),
        Requirement("python3-rados", _bindings("rados"), "apt-get install -y python3-rados"),
        Requirement("python3-cephfs", _bindings("cephfs"), "apt-get install -y python3-cephfs"),
    )
    tunables: ClassVar[dict[str, str]] = {
        "access": "fuse (default: ceph-fuse mounts) or librados (fio's rados engine on the data pool, no file system)",
        "profile": "fast (default: small, quick to notice and to recover) or stock (Ceph's own defaults)",
        "pg_num": "placement groups of the data pool; default: the power of two nearest to 32 parts per OSD",
        "min_size": "parts that must be there for I/O; default: as few as the layout can do with",
        "balancer": "true: let the balancer move placement groups; default: CRUSH alone",
        "mount": "further mount options of ceph-fuse, e.g. max_write=131072",
        "*.*": "any option of ceph.conf by section, e.g. osd.osd_op_num_shards: 4 or client.client_oc: false",
    }

    @staticmethod
    def preflight(layout: str, lab: LabDeclaration, dataset_bytes: int) -> None:
        """See SystemAdapter: root, FUSE, Ceph installed, hosts and disks that suffice, namespaces possible."""
        wanted = layout_of(layout)
        if lab.hosts < wanted.width:
            raise AdapterError(
                f"ceph/{layout} needs {wanted.width} hosts, one for each part of an object, and the lab has {lab.hosts}; "
                f"set lab.hosts to {wanted.width}"
            )
        check_room(wanted, lab.hosts, lab.disk, dataset_bytes)
        check_machine(f"ceph/{layout}", lab, CephSystem.requirements, fuse=True)

    @staticmethod
    def check_tuning(tuning: dict[str, Any]) -> None:
        """See catalogue: values that cannot be right."""
        if (access := tuning.get("access", "fuse")) not in ACCESS:
            raise AdapterError(f"ceph has no access path {access!r}; known: {', '.join(ACCESS)}")
        for name in ("pg_num", "min_size"):
            value = tuning.get(name, 1)
            if not isinstance(value, int) or isinstance(value, bool) or value < 1:
                raise AdapterError(f"{name}: {value!r} is no number of at least 1")
        if not isinstance(tuning.get("balancer", False), bool):
            raise AdapterError(f"balancer: {tuning['balancer']!r} is neither true nor false")
        check_options(tuning)

    @staticmethod
    def mount_kind() -> MountKind:
        """See KnowsMounts."""
        return ceph_mount.MOUNT_KIND

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        self._layout = layout_of(deployment.layout)
        self._librados = deployment.tuning.get("access", "fuse") == "librados"
        self._cluster: CephCluster | None = None
        self._sessions: dict[str, int] = {}  # by client: its number at the metadata server

    @property
    def cluster(self) -> CephCluster:
        """The daemons. Raises AdapterError before deploy."""
        if self._cluster is None:
            raise AdapterError(f"{self.deployment.name} is not deployed")
        return self._cluster

    # --- core -----------------------------------------------------------------------------------------------------------

    def deploy(self) -> None:
        """Start monitor, manager, metadata server and OSDs; make the pools and the file system."""
        self._cluster = CephCluster(self.fabric(), self._layout, self.deployment.tuning)
        try:
            self._cluster.start()
        except (AdapterError, LabError, HostError) as error:
            self.destroy()
            raise AdapterError(f"{self.deployment.name}: {error}") from None

    def mount(self) -> None:
        """Mount it on every client unless librados is the way, and wait until every placement group is whole."""
        if not self._librados:
            super().mount()
        if not wait_until(lambda: self.cluster.status().clean, CLEAN_SECONDS, ceph_faults.POLL_SECONDS):
            raise AdapterError(f"{self.deployment.name}: not whole after {CLEAN_SECONDS:g} s: {self.cluster.status()}")

    def _mount_on(self, client: Host) -> None:
        """See HostedMount."""
        try:
            ceph_mount.mount(client, self.point, FILESYSTEM, DIRECTORY, str(self.deployment.tuning.get("mount", "")))
        except AdapterError as error:
            status = self.cluster.status()
            raise (AdapterError(f"{error}; {status}") if status.inactive else error) from None
        pool = ceph_mount.pool_at(client, self.point)["pool"]
        if pool != DATA:
            raise AdapterError(f"{client.name}: files of {self.point} go to pool {pool}, not to {DATA}")
        self._sessions[client.name] = ceph_mount.session(client)

    def _process_on(self, client: Host) -> str:
        """See HostedMount."""
        return ceph_mount.process(client)

    def _unmounted(self, client: Host) -> None:
        """Wait for the client process. One that had to be killed has left a session behind, whose rights on files others
        would wait for: it is ended, too."""
        session = self._sessions.pop(client.name, None)
        if not ceph_mount.end(client) and session is not None and self._cluster is not None:
            self._cluster.evict(session)

    def destroy(self) -> None:
        """Kill the daemons and remove their disks. An orderly stop would take seconds and leave nothing more behind."""
        cluster, self._cluster = self._cluster, None
        if cluster is not None:
            cluster.remove(cluster.fabric.storage)

    def facts(self) -> dict[str, Any]:
        """See SystemAdapter."""
        dump = self.cluster.dump()
        pool, metadata = pool_of(dump, DATA), pool_of(dump, METADATA)
        profile = dump["erasure_code_profiles"].get(pool["erasure_code_profile"], {})
        return {
            "system": f"ceph/{self._layout}",
            "version": f"{self.cluster.ask.mon('version')['version']}, Linux {os.uname().release}",
            "access": "librados" if self._librados else "fuse",
            "pool": {key: pool[key] for key in ("size", "min_size", "pg_num", "stripe_width", "flags_names")}
            | {"profile": {key: profile[key] for key in sorted(profile)}},
            "metadata": {"size": metadata["size"], "min_size": metadata["min_size"]},
            "osds": len(dump["osds"]),
            "balancer": bool(self.deployment.tuning.get("balancer", False)),
            "configuration": {name: dict(sorted(o.items())) for name, o in sorted(self.cluster.sections.items())},
            "mount": self.mount_facts(),
            "disk": self.deployment.disk.model_dump(mode="json", exclude={"directory", "devices"}),
        }

    def mount_facts(self) -> dict[str, str]:
        """As for any mount; empty without one."""
        return {} if self._librados else super().mount_facts()

    def space(self) -> dict[str, int]:
        """As the first client sees it; without a mount what the pool has."""
        if not self._librados:
            return super().space()
        pool = next(p["stats"] for p in self.cluster.ask.mon("df")["pools"] if p["name"] == DATA)
        return {"free_bytes": int(pool["max_avail"]), "total_bytes": int(pool["max_avail"] + pool["stored"])}

    def fio_engine(self) -> dict[str, str] | None:
        """See DrivesFio."""
        if not self._librados:
            return None
        # fio takes reads of objects that are not there for done, at any speed: they must be written first, by the same names
        return {"ioengine": "rados", "clientname": "admin", "pool": DATA, "touch_objects": "0"}

    # --- state ----------------------------------------------------------------------------------------------------------

    def device_counters(self) -> list[DeviceCounters]:
        """See HostedSystem: the device of every OSD."""
        return self.cluster.counters()

    def _copies(self) -> tuple[int, int]:
        """See HostedMount."""
        return self._layout.data, self._layout.parity

    def _left_to_do(self, timeout_seconds: float) -> tuple[bool, str]:  # noqa: ARG002 (commands have deadlines of their own)
        """See HostedSystem."""
        return ceph_faults.left_to_do(self.cluster)

    def _servers_cold(self) -> list[Step]:
        """Drop the caches of OSDs and metadata server, and mount again: the OSDs cache in their own memory, not in pages."""
        steps = [] if self._librados else super()._servers_cold()
        left = self.cluster.drop_caches()
        return [
            *steps,
            (f"cache drop of {len(self.cluster.running())} OSDs", 0),
            (f"{left} writes left in their logs", 1 if left else 0),
        ]

    def go_cold(self) -> ColdEvidence:
        """As for any mount; without one there are only the caches of the servers and this machine's."""
        if not self._librados:
            return super().go_cold()
        started, before = time.monotonic(), remote.meminfo()["Cached"]
        steps = [*self._servers_cold(), *drop(self.deployment.clients, self.point.parent)]
        return ColdEvidence(
            requested=True,
            steps=[name for name, _ in steps],
            exit_codes=[code for _, code in steps],
            cached_before_bytes=before,
            cached_after_bytes=remote.meminfo()["Cached"],
            seconds=time.monotonic() - started,
        )

    def probe_durability(self) -> DurabilityEvidence:
        """Through the mount as for any; by librados an object of 4 MiB, whose write returns when it is durable."""
        if not self._librados:
            return super().probe_durability()
        before = {c.device: c.written_bytes for c in self.device_counters()}
        size, name, width = 4 * PROBE_BYTES, ".assay-durability-probe", self._layout.width
        self.cluster.ask.call(ceph_probe.write_object, DATA, name, size)
        part = size // self._layout.data
        reached = [c for c in self.device_counters() if c.written_bytes - before.get(c.device, 0) >= part]
        self.cluster.ask.call(ceph_probe.remove_object, DATA, name)
        tier = "replicated" if self._layout.parity else "device"
        return DurabilityEvidence(
            declared=tier if len(reached) >= width else "page-cache",
            probed=len(reached) >= width,
            detail=f"{part} bytes or more reached {len(reached)} of {width} devices by the end of a write of {size} bytes",
        )

    def health(self) -> tuple[bool | None, str]:
        """As for any mount, and what the cluster says of itself."""
        try:
            healthy, told = health(self.cluster.status())
        except (AdapterError, HostError) as error:
            return False, str(error)
        if not healthy or self._librados:
            return healthy, told
        mounted, detail = super().health()
        return mounted, f"{detail}, {told}" if mounted else detail

    def cluster_map(self) -> dict[str, Any]:
        """Crush map and OSD map as ``assay place map --crushmap FILE --osdmap FILE`` reads them (``ceph osd crush dump`` and
        ``ceph osd dump``; weights are exact), the data pool's number, and how files are cut."""
        dump = self.cluster.dump()
        return {
            "system": "ceph",
            "version": self.cluster.ask.mon("version")["version"],
            "layout": str(self._layout),
            "crush": self.cluster.ask.mon("osd crush dump"),
            "osdmap": dump,
            "pool": pool_of(dump, DATA)["pool"],
            "hosts": {f"osd.{number}": host.name for number, host in sorted(self.cluster.placed.items())},
            "files": {} if self._librados else ceph_mount.pool_at(self.client, self._where()),
        }

    # --- failures (see ceph_faults), growing and shrinking (see ceph_resize) ----------------------------------------------

    def kill_hosts(self, count: int) -> list[str]:
        """See KillsHosts. The last hosts go first."""
        return ceph_faults.kill_hosts(self.cluster, count)

    def restart_hosts(self, timeout_seconds: float) -> float:
        """See KillsHosts."""
        return ceph_faults.restart_hosts(self.cluster, timeout_seconds)

    def heal(self, timeout_seconds: float) -> float | None:
        """See KillsHosts."""
        return ceph_faults.heal(self.cluster, timeout_seconds)

    def kill_osd(self, number: int) -> None:
        """Kill one OSD with SIGKILL; its host lives on. Raises AdapterError."""
        self.cluster.kill_osd(number)

    def restart_osd(self, number: int, timeout_seconds: float) -> float:
        """Start an OSD that was killed; seconds until it serves. Raises AdapterError."""
        started = time.monotonic()
        try:
            self.cluster.start_osds([number], timeout_seconds)
        except (LabError, HostError) as error:
            raise AdapterError(f"osd.{number}: {error}") from None
        return time.monotonic() - started

    def grow(self, hosts: int, progress: Callable[[str], None]) -> None:
        """See Resizes."""
        ceph_resize.grow(self.cluster, hosts, progress)

    def shrink(self, hosts: int, progress: Callable[[str], None]) -> None:
        """See Resizes."""
        ceph_resize.shrink(self.cluster, hosts, progress)


def layout_of(text: str) -> Layout:
    """The layout, refused when Ceph cannot do it. Raises AdapterError."""
    try:
        layout = parse_layout(text)
    except ValueError as error:
        raise AdapterError(f"ceph/{text}: {error}") from None
    if layout.kind == "replicated" and layout.width < 2:
        raise AdapterError(f"ceph/{text}: one copy is no replication; write ceph/distributed")
    if layout.kind == "rain" and layout.data < 2:
        raise AdapterError(
            f"ceph/{text}: Ceph wants two data shards or more; ceph/replicated-{layout.width} has as many copies"
        )
    return layout


def check_room(layout: Layout, hosts: int, disk: Disk, dataset_bytes: int) -> None:
    """Raises AdapterError, with the size that would do, unless the data set fits on the OSDs. ``disk.size`` is resolved."""
    if disk.size is None:
        return
    osds = hosts * disk.per_host
    needed = (dataset_bytes * layout.overhead / osds * _UNEVEN + OSD_BYTES) / FULL
    if needed > disk.size:
        raise AdapterError(
            f"ceph/{layout}: the data set of {units.format_bytes(dataset_bytes)} takes {layout.overhead:g} times its size on "
            f"{osds} disks; lab.disk.size must be at least {-(-int(needed) // (1 << 20))}MiB, it is {units.format_bytes(disk.size)}"
        )
