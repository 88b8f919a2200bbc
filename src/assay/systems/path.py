"""Anything that is mounted already: ``path:DIR``. Works in a subdirectory of its own and touches nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from assay.lab.disks import mount_entry
from assay.lab.registry import LabError
from assay.model.lab import Lab as LabDeclaration
from assay.systems.base import AdapterError, Deployment
from assay.systems.mounted import MountedSystem, room_for


class PathSystem(MountedSystem):
    """``path:/mnt/nas``."""

    system: ClassVar[str] = "path"
    layouts: ClassVar[dict[str, str]] = {"DIR": "an existing directory, on whatever is mounted there"}
    needs_hosts: ClassVar[bool] = False
    tunables: ClassVar[dict[str, str]] = {}

    @staticmethod
    def preflight(layout: str, lab: LabDeclaration, dataset_bytes: int) -> None:  # noqa: ARG004 (the disk is the user's own)
        """See SystemAdapter: the directory exists, may be written and has room."""
        path = Path(layout)
        if not path.is_absolute():
            raise AdapterError(f"path:{layout} is relative; write the absolute directory, path:{path.absolute()}")
        try:
            if not path.exists():
                raise AdapterError(f"{path} does not exist; mount it first or correct the path")
            if not path.is_dir():
                raise AdapterError(f"{path} is not a directory")
            if os.statvfs(path).f_flag & os.ST_RDONLY:
                raise AdapterError(f"{path} is mounted read-only; remount it writable: mount -o remount,rw {path}")
            if not os.access(path, os.W_OK | os.X_OK):
                raise AdapterError(f"{path} is not writable for this user (uid {os.geteuid()})")
            room_for(path, dataset_bytes)
        except (OSError, ValueError) as error:  # a parent that may not be searched, a stale mount, a name too long
            reason = error.strerror if isinstance(error, OSError) else error
            raise AdapterError(f"{path} cannot be used: {reason}") from None

    def __init__(self, deployment: Deployment) -> None:
        super().__init__(deployment)
        self._parent = Path(deployment.layout)
        self._own = self._parent / f"assay-{deployment.lab.id}-{deployment.slug}"

    def deploy(self) -> None:
        """Make the subdirectory."""
        try:
            self.deployment.lab.make_directory(self._own)
        except LabError as error:
            raise AdapterError(str(error)) from None

    def mount(self) -> None:
        """Nothing to mount; remember which mount it is."""
        if mount_entry(self._own) is None:
            raise AdapterError(f"{self._own} is not on any mount")
        self.directory = self._own
        self._mounted = None
        self._entry()

    def unmount(self) -> None:
        """See SystemAdapter."""
        self.directory = None

    def destroy(self) -> None:
        """The lab removes the subdirectory: it wrote down that it made it."""

    def facts(self) -> dict[str, Any]:
        """See SystemAdapter."""
        entry = mount_entry(self._where()) or {}
        return {
            "system": f"path:{self.deployment.layout}",
            "version": f"{entry.get('fstype', '')}, Linux {os.uname().release}",
            "source": entry.get("source", ""),
            "mount": self.mount_facts(),
        }
