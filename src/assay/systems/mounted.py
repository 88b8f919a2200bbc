"""What every file system shares that is mounted on clients: cold, settled, counted, durable, healthy.

Everything that touches the file system goes through the hosts that mount it, with a deadline: a mount that hangs gives an
error in seconds and never hangs Assay. Block devices are this machine's and are read directly.
"""

from __future__ import annotations

import time
from pathlib import Path

from assay.lab import remote
from assay.lab.caches import Step, drop, flush
from assay.lab.disks import device_counters, device_of
from assay.lab.errors import LabError
from assay.lab.host import Host, HostError
from assay.lab.mounts import ANSWER_SECONDS, unmount
from assay.model import units
from assay.model.evidence import ColdEvidence, DeviceCounters, DurabilityEvidence, SettleEvidence
from assay.systems.base import AdapterError, Deployment

IN_MEMORY = ("tmpfs", "ramfs")
SETTLE_WINDOW_SECONDS = 0.1
SETTLED_BYTES = 128 << 10  # per window: 1.3 MB/s, little against any load that is worth measuring
_PROBE_BYTES = 1 << 20


class MountedSystem:
    """Base of adapters whose ``directory``, as its clients see it, is on a mounted file system.

    Raises HostError from every method whose client does not answer in time. Distributed systems override
    :meth:`_servers_cold`, :meth:`counters`, :meth:`settle` and extend :meth:`health`.
    """

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.directory: Path | None = None
        self._mounted: dict[str, tuple[str, str]] = {}  # by client: mount point and device number, as found at mount

    @property
    def client(self) -> Host:
        """The first of the hosts that mount it."""
        return self.deployment.clients[0]

    def _where(self) -> Path:
        if self.directory is None:
            raise AdapterError(f"{self.deployment.name} is not mounted")
        return self.directory

    def _use(self, directory: Path) -> None:
        """From now on it is mounted at ``directory`` on every client. Raises AdapterError when it is not on a mount."""
        self.directory = directory
        self._mounted = {}
        for client in self.deployment.clients:
            self._entry(client)

    def _unmount(self, point: Path) -> None:
        """Unmount ``point`` on every client, by force where it hangs; no error where it is not mounted. Raises
        AdapterError."""
        self.directory = None
        for client in self.deployment.clients:
            try:
                if client.is_up:
                    unmount(client, point)
            except (LabError, HostError) as error:
                raise AdapterError(f"{self.deployment.name}: {error}") from None

    def _entry(self, client: Host | None = None) -> dict[str, str]:
        """The mount below ``directory`` on a client (default: the first); raises AdapterError unless it is the one that was
        there at mount.

        When a mount goes, its directory stays, on the file system above: measuring that would be a wrong number.
        """
        client = client or self.client
        entry = client.call(remote.mount_entry, self._where(), timeout_seconds=ANSWER_SECONDS)
        if entry is None:
            raise AdapterError(f"{self.directory} is not on any mount")
        found = (entry["point"], entry["device"])
        if self._mounted.setdefault(client.name, found) != found:
            raise AdapterError(
                f"{self.directory} is not mounted any more, it lies on {entry['source']} ({entry['point']})"
            )
        return entry

    def mount_facts(self) -> dict[str, str]:
        """Type and options of the mount, as the client's kernel tells; raises AdapterError when it is gone."""
        entry = self._entry()
        return {"fstype": entry["fstype"], "options": entry["options"]}

    def space(self) -> dict[str, int]:
        """free_bytes, total_bytes and free_inodes, as the first client sees them. Raises OSError."""
        return self.client.call(remote.statvfs, self._where(), timeout_seconds=ANSWER_SECONDS)

    # --- capabilities ----------------------------------------------------------------------------------------

    def go_cold(self) -> ColdEvidence:
        """Flush on every client, make the servers cold if there are any, drop the caches of every client."""
        clients, where = self.deployment.clients, self._where()
        for client in clients:  # a mount that hangs is told now, not when the deadline of a flush has passed
            client.call(remote.statvfs, where, timeout_seconds=ANSWER_SECONDS)
        started = time.monotonic()
        before = remote.meminfo()["Cached"]
        steps = [*flush(clients, where), *self._servers_cold(), *drop(clients, where)]
        return ColdEvidence(
            requested=True,
            steps=[name for name, _ in steps],
            exit_codes=[code for _, code in steps],
            cached_before_bytes=before,
            cached_after_bytes=remote.meminfo()["Cached"],
            seconds=time.monotonic() - started,
        )

    def _servers_cold(self) -> list[Step]:
        """What else must be done between flushing the clients and dropping their caches: (step, exit code) each."""
        return []

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
        """Write 1 MiB, fsync, and see whether the devices have received it by then."""
        where, entry = self._where(), self._entry()
        if entry["fstype"] in IN_MEMORY:
            return DurabilityEvidence(declared="volatile", probed=True, detail=f"{entry['fstype']} lies in memory")
        before = self.counters()
        if before is None:
            return DurabilityEvidence(declared="unknown", probed=None, detail="no device counters to prove it by")
        probe = where / ".assay-durability-probe"
        try:
            handle = self.client.call(remote.open_synced, probe, _PROBE_BYTES)
            after = self.counters() or before
            self.client.call(remote.close_and_remove, handle, probe)
        except OSError as error:
            return DurabilityEvidence(declared="unknown", probed=None, detail=f"probe failed: {error.strerror}")
        arrived = sum(c.written_bytes for c in after) - sum(c.written_bytes for c in before)
        return DurabilityEvidence(
            declared="device" if arrived >= _PROBE_BYTES else "page-cache",
            probed=arrived >= _PROBE_BYTES,
            detail=f"{arrived} bytes reached {', '.join(c.device for c in before)} by the end of fsync of {_PROBE_BYTES} bytes",
        )

    def health(self) -> tuple[bool | None, str]:
        """Whether the mount is there on every client, the same as before, answers and is writable."""
        facts: dict[str, str] = {}
        for client in self.deployment.clients:
            try:
                facts = self._entry(client)
            except AdapterError as error:
                return False, str(error)
            if "ro" in facts["options"].split(","):
                return False, f"{self.directory} is mounted read-only"
            if not client.call(remote.is_writable, self._where(), timeout_seconds=ANSWER_SECONDS):
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


def room_for(host: Host, directory: Path, dataset_bytes: int) -> None:
    """Raises AdapterError unless the data set fits below 95 % of the file system that holds ``directory``; OSError,
    HostError when it cannot be asked."""
    stat = host.call(remote.statvfs, directory, timeout_seconds=ANSWER_SECONDS)
    free, total = stat["free_bytes"], stat["total_bytes"]
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
