"""What systems share whose daemons run on hosts of a lab: the machine's preconditions, quiet devices, FUSE mounts on every
client that go cold by a new client process."""

from __future__ import annotations

import os
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable
from pathlib import Path
from typing import ClassVar

from assay.lab import remote
from assay.lab.caches import Step
from assay.lab.errors import LabError
from assay.lab.fabric import Fabric, check_possible
from assay.lab.host import Host, HostError
from assay.lab.mounts import unmount
from assay.model.evidence import DeviceCounters, DurabilityEvidence, SettleEvidence
from assay.model.lab import Lab as LabDeclaration
from assay.systems.base import AdapterError, Deployment, NoAnswerError
from assay.systems.hosts import each
from assay.systems.mounted import SETTLE_WINDOW_SECONDS, SETTLED_BYTES, MountedSystem
from assay.systems.requirements import Requirement, first_missing

FUSE = Path("/dev/fuse")
PROBE_BYTES = 1 << 20
UNMOUNT_SECONDS = 2.0  # without an answer by then it goes by force


def check_machine(candidate: str, lab: LabDeclaration, requirements: Iterable[Requirement], *, fuse: bool) -> None:
    """Whether this machine can carry such a lab and has what the system needs; touches nothing. Raises AdapterError."""
    if os.geteuid() != 0:
        raise AdapterError(f"{candidate} needs root (namespaces, mounts); run as root, or name an existing mount")
    if fuse and not FUSE.exists():
        raise AdapterError(f"{FUSE} is missing; load it with: modprobe fuse (in a container: --device /dev/fuse)")
    if (missing := first_missing(requirements)) is not None:
        raise AdapterError(missing)
    try:
        check_possible(lab)
    except LabError as error:
        raise AdapterError(str(error)) from None


class HostedSystem(ABC):
    """Base of adapters that run daemons on the hosts of a fabric. Adapters give :meth:`device_counters` and, when the system
    does work of its own accord, :meth:`_left_to_do`."""

    needs_hosts: ClassVar[bool] = True
    deployment: Deployment

    def fabric(self) -> Fabric:
        """The hosts. Raises AdapterError when the candidate was given none."""
        if self.deployment.fabric is None:
            raise AdapterError(f"{self.deployment.name} needs hosts of a lab")
        return self.deployment.fabric

    @abstractmethod
    def device_counters(self) -> list[DeviceCounters]:
        """Bytes moved by the device of every disk of the hosts that are up. Raises LabError."""

    def _left_to_do(self, timeout_seconds: float) -> tuple[bool, str]:  # noqa: ARG002 (others have to ask)
        """Whether there is background work, in words. Raises NoAnswerError."""
        return False, "nothing to move"

    def settle(self, timeout_seconds: float) -> SettleEvidence:
        """Wait until nothing is left to heal or to move and the devices have moved next to nothing for a tenth of a
        second."""
        started = time.monotonic()
        while True:
            last, since = self.device_counters(), time.monotonic()
            try:
                left, said = self._left_to_do(max(1.0, timeout_seconds - (since - started)))
            except NoAnswerError as error:
                return SettleEvidence(settled=None, waited_seconds=time.monotonic() - started, detail=str(error))
            time.sleep(max(0.0, SETTLE_WINDOW_SECONDS - (time.monotonic() - since)))
            now = self.device_counters()
            moved = sum(c.read_bytes + c.written_bytes for c in now) - sum(c.read_bytes + c.written_bytes for c in last)
            quiet = moved <= SETTLED_BYTES and not any(c.in_flight for c in now)
            waited = time.monotonic() - started
            settled = quiet and not left
            if settled or waited >= timeout_seconds:
                detail = f"{said}; devices moved {moved} bytes in 0.1 s"
                return SettleEvidence(settled=settled, waited_seconds=waited, detail=detail)

    def counters(self) -> list[DeviceCounters] | None:
        """See CountsBytes."""
        return self.device_counters()


class HostedMount(HostedSystem, MountedSystem):
    """Base of adapters that are mounted on every client through a FUSE process of the system. Adapters give
    :meth:`_mount_on`, :meth:`_process_on` and :meth:`_copies`."""

    point: ClassVar[Path] = Path("/run/mnt/assay")  # in the mount namespace of every client
    directory: Path | None

    @abstractmethod
    def _mount_on(self, client: Host) -> None:
        """Mount at ``point`` on one client and prove that it is what was deployed. Raises AdapterError, HostError."""

    @abstractmethod
    def _process_on(self, client: Host) -> str:
        """Identity of the process that answers for the mount now: another one has other caches. Raises AdapterError."""

    @abstractmethod
    def _copies(self) -> tuple[int, int]:
        """Data and parity parts of what is written: (1, 2) for three copies, (4, 2) for six fragments."""

    def _before_remount(self) -> None:
        """What must have ended before clients may be unmounted; nothing for most systems."""

    def _unmounted(self, client: Host) -> None:
        """What else ends a client's mount, for example waiting for its process; nothing for most systems."""

    def mount(self) -> None:
        """Mount it on every client, and prove on each that it is what was deployed."""
        try:
            each(self.fabric().clients, self._mount_on)
            self._use(self.point)
        except (HostError, AdapterError) as error:
            raise AdapterError(f"{self.deployment.name}: {error}") from None

    def unmount(self) -> None:
        """See SystemAdapter."""
        self.directory = None
        if self.deployment.fabric is not None:
            each([client for client in self.deployment.fabric.clients if client.is_up], self._let_go)

    def _let_go(self, client: Host) -> None:
        try:
            client.call(remote.statvfs, self.point, timeout_seconds=UNMOUNT_SECONDS)
            hangs = False
        except OSError:
            hangs = False  # "Transport endpoint is not connected" is an answer
        except HostError:
            hangs = True
        # an orderly unmount of a mount that hangs would wait for it; force aborts what waits, lazy asks it nothing
        options = ["--force", "--lazy"] if hangs else []
        if not client.run(["umount", *options, str(self.point)]).ok and not hangs:
            client.run(["umount", "--force", "--lazy", str(self.point)])
        self._unmounted(client)

    def _servers_cold(self) -> list[Step]:
        """Mount again: a new client process has no cache of its own. The servers' page cache is this machine's."""
        self._before_remount()
        return [step for steps in each(self.deployment.clients, self._remount) for step in steps]

    def _remount(self, client: Host) -> list[Step]:
        before = self._process_on(client)
        try:
            unmount(client, self.point)
            self._unmounted(client)
            self._mount_on(client)
        except LabError as error:
            raise AdapterError(f"{self.deployment.name}: {error}") from None
        self._mounted.pop(client.name, None)
        self._entry(client)
        # the proof: what answers now is another process, so nothing that the old one held can be served
        replaced = 0 if self._process_on(client) != before else 1
        return [(f"{client.name}: unmount and mount", 0), (f"{client.name}: another client process answers", replaced)]

    def probe_durability(self) -> DurabilityEvidence:
        """Write 1 MiB, fsync, and see which devices have received their part by then."""
        data, parity = self._copies()
        probe = self._where() / ".assay-durability-probe"
        before = {c.device: c.written_bytes for c in self.device_counters()}
        try:
            handle = self.client.call(remote.open_synced, probe, PROBE_BYTES)
            after = self.device_counters()
            self.client.call(remote.close_and_remove, handle, probe)
        except OSError as error:
            return DurabilityEvidence(declared="unknown", probed=None, detail=f"probe failed: {error.strerror}")
        part = PROBE_BYTES // data
        reached = [c.device for c in after if c.written_bytes - before.get(c.device, 0) >= part]
        durable = len(reached) >= data + parity
        tier = "replicated" if parity else "device"
        return DurabilityEvidence(
            declared=tier if durable else "page-cache",
            probed=durable,
            detail=f"{part} bytes or more reached {len(reached)} of {data + parity} devices by the end of fsync of "
            f"{PROBE_BYTES} bytes",
        )
