"""Local file systems on loop-backed disks that Assay makes: the ceiling of anything distributed on this machine."""

from __future__ import annotations

import os
import shlex
from pathlib import Path
from typing import Any, ClassVar

from assay.lab import remote
from assay.lab.disks import attach_loop, make_backing_file
from assay.lab.host import HostError
from assay.lab.registry import LabError, loops_below
from assay.model import units
from assay.model.lab import Lab as LabDeclaration
from assay.systems.base import AdapterError, Deployment
from assay.systems.mounted import MountedSystem, version_line
from assay.systems.requirements import Requirement, first_missing, program

_MKFS = {
    # -E / -K: discarding the loop file would punch holes into it and charge the next writes for allocation
    "ext4": ["mkfs.ext4", "-q", "-F", "-E", "nodiscard,lazy_itable_init=0,lazy_journal_init=0"],
    "xfs": ["mkfs.xfs", "-q", "-f", "-K"],
    "btrfs": ["mkfs.btrfs", "-q", "-f", "-K"],
}
# for the same reason; btrfs discards unasked. A user's own mount options come after and win.
_MOUNT = {"btrfs": "nodiscard"}
_VERSION = {"ext4": ["mkfs.ext4", "-V"], "xfs": ["mkfs.xfs", "-V"], "btrfs": ["mkfs.btrfs", "--version"]}
_LEAST_BYTES = 300 << 20  # mkfs.xfs refuses less


class LocalSystem(MountedSystem):
    """``local/ext4``, ``local/xfs``, ``local/btrfs``."""

    system: ClassVar[str] = "local"
    layouts: ClassVar[dict[str, str]] = {
        "ext4": "ext4 on a loop-backed disk of its own",
        "xfs": "XFS on a loop-backed disk of its own",
        "btrfs": "btrfs on a loop-backed disk of its own",
    }
    needs_hosts: ClassVar[bool] = False
    tunables: ClassVar[dict[str, str]] = {
        "mkfs": "further arguments of mkfs, for example '-m reflink=0'",
        "mount": "mount options, for example 'noatime,compress=zstd'",
    }
    requirements: ClassVar[tuple[Requirement, ...]] = (
        program("losetup", "mount"),
        program("mount", "mount"),
        program("mkfs.ext4", "e2fsprogs", "-V", only="ext4"),
        program("mkfs.xfs", "xfsprogs", "-V", only="xfs"),
        program("mkfs.btrfs", "btrfs-progs", only="btrfs"),
    )

    @staticmethod
    def preflight(layout: str, lab: LabDeclaration, dataset_bytes: int) -> None:
        """See SystemAdapter: root, mkfs there, disk large enough for the data set."""
        if os.geteuid() != 0:
            raise AdapterError(f"local/{layout} needs root (loop devices, mount); run as root or use path:DIR")
        if problem := first_missing(LocalSystem.requirements, layout):
            raise AdapterError(problem)
        size = lab.disk.size or _LEAST_BYTES
        if size < _LEAST_BYTES:
            raise AdapterError(
                f"a disk of {units.format_bytes(size)} is too small for {layout}; at least 300MiB are needed"
            )
        # metadata, journal and copy-on-write need room; check W5 wants at most 90 % full
        if dataset_bytes * 1.15 + (128 << 20) > size:
            raise AdapterError(
                f"local/{layout}: the data set of {units.format_bytes(dataset_bytes)} needs a disk of at least "
                f"{dataset_bytes * 1.15 / (1 << 30) + 0.13:.2f}GiB, lab.disk.size is {units.format_bytes(size)}"
            )

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        base = deployment.lab.directory
        if deployment.disk.directory is not None:
            base = Path(os.path.realpath(deployment.disk.directory)) / f"assay-{deployment.lab.id}"
        self._base = base
        self._backing = base / f"{deployment.slug}.img"
        self._point = deployment.lab.directory / "mnt" / deployment.slug
        self._device_path: str | None = None

    def deploy(self) -> None:
        """Make the disk, attach it, make the file system."""
        layout, host = self.deployment.layout, self.deployment.host
        try:
            if self._base != self.deployment.lab.directory:
                self.deployment.lab.make_directory(self._base)
            make_backing_file(
                self._backing, self.deployment.disk.size or _LEAST_BYTES, self.deployment.disk.fill or "written"
            )
            self._device_path = attach_loop(host, self._backing)
            extra = shlex.split(str(self.deployment.tuning.get("mkfs", "")))
            host.run([*_MKFS[layout], *extra, self._device_path], timeout_seconds=300).must(f"making {layout}")
        except (LabError, HostError, ValueError) as error:
            self.destroy()
            raise AdapterError(f"{self.deployment.name}: {error}") from None

    def mount(self) -> None:
        """Mount it and prove that the mount is this loop device with this file system."""
        assert self._device_path is not None
        wanted = (_MOUNT.get(self.deployment.layout, ""), str(self.deployment.tuning.get("mount", "")))
        options = ",".join(filter(None, wanted))
        self._point.mkdir(parents=True, exist_ok=True)
        argv = ["mount", "-t", self.deployment.layout]
        argv += ["-o", options] if options else []
        try:
            self.deployment.host.run([*argv, self._device_path, str(self._point)]).must("mounting")
        except HostError as error:
            raise AdapterError(f"{self.deployment.name}: {error}") from None
        # from here on the kernel detaches the loop device by itself when the mount goes
        self.deployment.host.run(["losetup", "--detach", self._device_path])
        entry = self.client.call(remote.mount_entry, self._point)
        if entry is None or entry["point"] != str(self._point) or entry["source"] != self._device_path:
            raise AdapterError(f"{self.deployment.name}: {self._point} is not the mount that was made: {entry}")
        self._use(self._point)

    def unmount(self) -> None:
        """See SystemAdapter."""
        self._unmount(self._point)

    def destroy(self) -> None:
        """Detach the disk and remove its file."""
        self.unmount()
        # by file, not by remembered name: the kernel may have given the device to somebody else meanwhile
        for device in loops_below(self._backing.parent, self._backing.name):
            self.deployment.host.run(["losetup", "--detach", device])
        self._backing.unlink(missing_ok=True)

    def facts(self) -> dict[str, Any]:
        """See SystemAdapter. The file system's code is the kernel's, its shape is mkfs's."""
        layout = self.deployment.layout
        return {
            "system": f"local/{layout}",
            "version": f"Linux {os.uname().release}",
            "mkfs": version_line(self.deployment, _VERSION[layout]),
            "mkfs_arguments": " ".join([*_MKFS[layout][1:], str(self.deployment.tuning.get("mkfs", ""))]).strip(),
            "mount": self.mount_facts(),
            "disk": self.deployment.disk.model_dump(mode="json", exclude={"directory"}),
        }

    def health(self) -> tuple[bool | None, str]:
        """As for any mount, and no error counted by the file system itself."""
        healthy, detail = super().health()
        if healthy and self._device_path is not None:
            errors = Path(f"/sys/fs/ext4/{Path(self._device_path).name}/errors_count")
            if errors.exists() and (count := int(errors.read_text())):
                return False, f"ext4 has counted {count} errors"
        return healthy, detail
