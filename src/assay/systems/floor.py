"""Harness floors: what the load generator reaches when storage costs nothing."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from assay.lab import remote
from assay.lab.host import HostError
from assay.model import units
from assay.model.evidence import DurabilityEvidence
from assay.model.lab import Lab as LabDeclaration
from assay.systems.base import AdapterError, Deployment
from assay.systems.mounted import MountedSystem


class NullSystem:
    """``null``: no file system at all, fio's null engine completes every operation at once."""

    system: ClassVar[str] = "null"
    layouts: ClassVar[dict[str, str]] = {"": "fio's null engine"}
    needs_hosts: ClassVar[bool] = False
    tunables: ClassVar[dict[str, str]] = {}

    @staticmethod
    def preflight(layout: str, lab: LabDeclaration, dataset_bytes: int) -> None:
        """Always possible."""

    def __init__(self, deployment: Deployment) -> None:
        self.deployment = deployment
        self.directory: Path | None = None

    def deploy(self) -> None:
        """Nothing to do."""

    def mount(self) -> None:
        """Nothing to do."""

    def unmount(self) -> None:
        """Nothing to do."""

    def destroy(self) -> None:
        """Nothing to do."""

    def facts(self) -> dict[str, Any]:
        """See SystemAdapter."""
        return {"system": "null", "version": "fio null engine"}

    def probe_durability(self) -> DurabilityEvidence:
        """Nothing is kept."""
        return DurabilityEvidence(declared="volatile", probed=True, detail="the null engine keeps nothing")


class TmpfsSystem(MountedSystem):
    """``tmpfs``: a file system in memory, mounted by Assay."""

    system: ClassVar[str] = "tmpfs"
    layouts: ClassVar[dict[str, str]] = {"": "a file system in memory"}
    needs_hosts: ClassVar[bool] = False
    tunables: ClassVar[dict[str, str]] = {"mount": "further mount options, for example huge=always"}

    @staticmethod
    def preflight(layout: str, lab: LabDeclaration, dataset_bytes: int) -> None:  # noqa: ARG004 (a tmpfs has one layout)
        """See SystemAdapter: root, and memory for the data set."""
        if os.geteuid() != 0:
            raise AdapterError("tmpfs needs root (mount); run as root or use path:/dev/shm")
        fields = Path("/proc/meminfo").read_text().split("MemAvailable:")[1].split()
        available = int(fields[0]) * 1024
        if dataset_bytes * 1.1 > min(lab.disk.size or available, available * 0.8):
            raise AdapterError(
                f"tmpfs: the data set of {units.format_bytes(dataset_bytes)} does not fit into {available / 1e9:.1f} GB "
                f"of available memory (80 % at most), or not into lab.disk.size"
            )

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        self._point = deployment.lab.directory / "mnt" / deployment.slug

    def deploy(self) -> None:
        """Nothing to do before mount."""

    def mount(self) -> None:
        """Mount it and prove that it is a tmpfs of its own."""
        self._point.mkdir(parents=True, exist_ok=True)
        options = f"size={self.deployment.disk.size}"
        if extra := str(self.deployment.tuning.get("mount", "")):
            options += f",{extra}"
        try:
            self.deployment.host.run(["mount", "-t", "tmpfs", "-o", options, "assay", str(self._point)]).must(
                "mounting"
            )
        except HostError as error:
            raise AdapterError(f"{self.deployment.name}: {error}") from None
        entry = self.client.call(remote.mount_entry, self._point)
        if entry is None or entry["point"] != str(self._point) or entry["fstype"] != "tmpfs":
            raise AdapterError(f"{self.deployment.name}: {self._point} is not the mount that was made: {entry}")
        self._use(self._point)

    def unmount(self) -> None:
        """See SystemAdapter."""
        self._unmount(self._point)

    def destroy(self) -> None:
        """See SystemAdapter."""
        self.unmount()

    def facts(self) -> dict[str, Any]:
        """See SystemAdapter."""
        return {"system": "tmpfs", "version": f"Linux {os.uname().release}", "mount": self.mount_facts()}
