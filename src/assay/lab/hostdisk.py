"""Disks of storage hosts: backing file, or device handed over -> loop device with direct I/O -> file system, mounted inside
the host."""

from __future__ import annotations

import shutil
import time
from pathlib import Path

from assay.lab.devices import attach_device, device_label
from assay.lab.disks import attach_loop, device_counters, make_backing_file
from assay.lab.errors import LabError
from assay.lab.fabric import SMALLEST_BYTES, Fabric
from assay.lab.host import LocalHost, search_path
from assay.lab.kernel import loops_below, loops_over
from assay.lab.namespace import NamespaceHost
from assay.model.evidence import DeviceCounters

MKFS = {
    "xfs": ["mkfs.xfs", "-q", "-f", "-K", "-i", "size=512"],  # room for the extended attributes of distributed systems
    "ext4": ["mkfs.ext4", "-q", "-F", "-I", "512", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
    "btrfs": ["mkfs.btrfs", "-q", "-f", "-K"],
}
MKFS_PACKAGES = {"xfs": "xfsprogs", "ext4": "e2fsprogs", "btrfs": "btrfs-progs"}
MOUNT_OPTIONS = {"xfs": "noatime", "ext4": "noatime", "btrfs": "noatime,nodiscard"}


class HostDisk:
    """One disk of one host, the ``number``-th of its own. Its data outlive the host's end, but not the fabric's."""

    def __init__(self, fabric: Fabric, host: NamespaceHost, number: int) -> None:
        self._fabric, self._host = fabric, host
        self._here = LocalHost(environment=fabric.lab.environment)
        self._given: str | None = None  # the device that was handed over for it
        if fabric.devices:
            per_host = fabric.shape.disk.per_host
            self._given = fabric.devices[fabric.storage.index(host) * per_host + number % per_host]
        self._backing = fabric.disk_base() / f"{fabric.name}-{host.name}-{number}.img"
        self.device: str | None = None  # /dev/loopN while attached

    def create(self) -> None:
        """Make the backing file; a device that was handed over is there already. Raises LabError."""
        disk = self._fabric.shape.disk
        if self._given is not None:
            return
        make_backing_file(self._backing, disk.size or SMALLEST_BYTES, disk.fill or "sparse")

    def attach(self) -> str:
        """Attach a loop device; the caller mounts or opens it and then calls :meth:`let_go`. Raises LabError."""
        end = time.monotonic() + 10  # the kernel detaches the disk of a killed host a moment after it
        while left := self._loops():
            if time.monotonic() > end:
                raise LabError(f"{left[0]} still uses {self._given or self._backing}")
            time.sleep(0.01)
        if self._given is not None:
            self.device = attach_device(self._given, self._fabric.shape.disk.size)
        else:
            self.device = attach_loop(self._here, self._backing)
        return self.device

    def let_go(self) -> None:
        """From now on the kernel detaches the loop device when its last user goes."""
        if self.device is not None:
            self._here.run(["losetup", "--detach", self.device])

    def make_filesystem(self, kind: str) -> None:
        """Make a file system on the attached device, labelled as the lab's. Raises LabError or HostError."""
        assert self.device is not None
        if shutil.which(MKFS[kind][0], path=search_path()) is None:
            raise LabError(f"{MKFS[kind][0]} is missing; install it with: apt-get install -y {MKFS_PACKAGES[kind]}")
        command = [*MKFS[kind], "-L", device_label(self._fabric.lab.id), self.device]
        self._here.run(command, timeout_seconds=300).must(f"making {kind}")

    def mount(self, kind: str, point: str) -> None:
        """Mount it inside the host and prove it: a service that finds no mount fills the directory below, in silence.
        Raises LabError or HostError."""
        assert self.device is not None
        self._host.run(["mkdir", "-p", point]).must("mount point")
        self._host.run(["mount", "-t", kind, "-o", MOUNT_OPTIONS[kind], self.device, point]).must("mounting")
        self.let_go()
        found = self._host.run(["findmnt", "-n", "-o", "SOURCE,FSTYPE", "--mountpoint", point]).stdout.decode().split()
        if found != [self.device, kind]:
            raise LabError(
                f"{self._host.name}: {point} is not {kind} on {self.device} but {' '.join(found) or 'no mount'}"
            )

    def counters(self) -> DeviceCounters:
        """Bytes that the device has moved. Raises LabError when it is not attached."""
        if self.device is None:
            raise LabError(f"{self._backing.name} is not attached")
        counted = device_counters(Path(self.device).name)
        return counted.model_copy(update={"device": f"{self._host.name}:{Path(self.device).name}"})

    def remove(self) -> None:
        """Detach it and remove its file; no error when it was never made."""
        for device in self._loops():
            self._here.run(["losetup", "--detach", device])
        self._backing.unlink(missing_ok=True)

    def _loops(self) -> list[str]:
        if self._given is not None:
            return loops_over(self._given)
        return loops_below(self._backing.parent, self._backing.name)
