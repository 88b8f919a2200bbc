"""What every file system that is mounted on this machine shares: cold, settled, counted, durable, healthy."""

from __future__ import annotations

import os
import time
from pathlib import Path

from assay.lab.caches import drop_caches
from assay.lab.disks import device_counters, device_of, mount_entry
from assay.lab.registry import LabError
from assay.model import units
from assay.model.evidence import ColdEvidence, DeviceCounters, DurabilityEvidence, SettleEvidence
from assay.systems.base import AdapterError, Deployment

IN_MEMORY = ("tmpfs", "ramfs")
SETTLE_WINDOW_SECONDS = 0.1
SETTLED_BYTES = 128 << 10  # per window: 1.3 MB/s, little against any load that is worth measuring


class MountedSystem:
    """Base of adapters whose ``directory`` is on a file system mounted on this machine."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.directory: Path | None = None
        self._mounted: tuple[str, str] | None = None  # mount point and device number, as found at mount

    def _where(self) -> Path:
        if self.directory is None:
            raise AdapterError(f"{self.deployment.name} is not mounted")
        return self.directory

    def _entry(self) -> dict[str, str]:
        """The mount below ``directory``; raises AdapterError unless it is the one that was there at mount.

        When a mount goes, its directory stays, on the file system above: measuring that would be a wrong number.
        """
        entry = mount_entry(self._where())
        if entry is None:
            raise AdapterError(f"{self.directory} is not on any mount")
        found = (entry["point"], entry["device"])
        if self._mounted is None:
            self._mounted = found
        elif self._mounted != found:
            raise AdapterError(
                f"{self.directory} is not mounted any more, it lies on {entry['source']} ({entry['point']})"
            )
        return entry

    def mount_facts(self) -> dict[str, str]:
        """Type and options of the mount, as the kernel tells; raises AdapterError when it is gone."""
        entry = self._entry()
        return {"fstype": entry["fstype"], "options": entry["options"]}

    # --- capabilities ----------------------------------------------------------------------------------------

    def go_cold(self) -> ColdEvidence:
        """Flush, then drop the caches of this host."""
        return drop_caches(self._where())

    def settle(self, timeout_seconds: float) -> SettleEvidence:
        """Wait until the device has moved next to nothing for a tenth of a second (a disk shared with the operating
        system is never quite idle; waiting for that would take the full timeout at every attempt)."""
        started = time.monotonic()
        device = self._device()
        if device is None:
            return SettleEvidence(settled=None, detail="no block device to watch")
        last = device_counters(device)
        while True:
            time.sleep(SETTLE_WINDOW_SECONDS)
            now = device_counters(device)
            waited = time.monotonic() - started
            moved = now.read_bytes - last.read_bytes + now.written_bytes - last.written_bytes
            if moved <= SETTLED_BYTES and now.in_flight == 0:
                return SettleEvidence(settled=True, waited_seconds=waited, detail=f"{device}: {moved} bytes in 0.1 s")
            if waited >= timeout_seconds:
                return SettleEvidence(
                    settled=False, waited_seconds=waited, detail=f"{device} still moves {moved} bytes per 0.1 s"
                )
            last = now

    def counters(self) -> list[DeviceCounters] | None:
        """Bytes moved by the block device below, None when there is none (network, memory)."""
        device = self._device()
        return None if device is None else [device_counters(device)]

    def probe_durability(self) -> DurabilityEvidence:
        """Write 1 MiB, fsync, and see whether the device has received it by then."""
        where, entry = self._where(), self._entry()
        if entry["fstype"] in IN_MEMORY:
            return DurabilityEvidence(declared="volatile", probed=True, detail=f"{entry['fstype']} lies in memory")
        before = self.counters()
        if before is None:
            return DurabilityEvidence(declared="unknown", probed=None, detail="no device counters to prove it by")
        probe = where / ".assay-durability-probe"
        try:
            handle = os.open(probe, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
            try:
                os.write(handle, os.urandom(1 << 20))
                os.fsync(handle)
                after = self.counters() or before
            finally:
                os.close(handle)
        except OSError as error:
            return DurabilityEvidence(declared="unknown", probed=None, detail=f"probe failed: {error.strerror}")
        finally:
            probe.unlink(missing_ok=True)
        arrived = sum(c.written_bytes for c in after) - sum(c.written_bytes for c in before)
        return DurabilityEvidence(
            declared="device" if arrived >= 1 << 20 else "page-cache",
            probed=arrived >= 1 << 20,
            detail=f"{arrived} bytes reached {before[0].device} by the end of fsync of {1 << 20} bytes",
        )

    def health(self) -> tuple[bool | None, str]:
        """Whether the mount is there, of the same type and writable."""
        try:
            facts = self.mount_facts()
        except AdapterError as error:
            return False, str(error)
        if "ro" in facts["options"].split(","):
            return False, f"{self.directory} is mounted read-only"
        if not os.access(self._where(), os.W_OK):
            return False, f"{self.directory} is not writable"
        return True, f"{facts['fstype']}, writable"

    def _device(self) -> str | None:
        entry = self._entry()
        try:
            device = device_of(entry)
            if device is not None:
                device_counters(device)  # a device without counters is no device to ask
            return device
        except LabError:
            return None


def room_for(directory: Path, dataset_bytes: int) -> None:
    """Raises AdapterError unless the data set fits below 95 % of the file system that holds ``directory``."""
    stat = os.statvfs(directory)
    free, total = stat.f_bavail * stat.f_frsize, stat.f_blocks * stat.f_frsize
    if dataset_bytes > free or (total and total - free + dataset_bytes > 0.95 * total):
        raise AdapterError(
            f"{directory}: the data set of {units.format_bytes(dataset_bytes)} does not fit: "
            f"{free / 1e9:.2f} GB of {total / 1e9:.2f} GB are free and at most 95 % may be full; "
            "make size smaller or use --scale"
        )


def version_line(deployment: Deployment, argv: list[str]) -> str:
    """First line of a tool's version output; raises HostError when the tool is missing."""
    done = deployment.host.run(argv)
    text = (done.stdout or done.stderr).decode(errors="replace").strip()
    return text.splitlines()[0] if text else ""
