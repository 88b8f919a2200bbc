"""Anything that is mounted already: ``path:DIR``. Works in a subdirectory of its own and touches nothing else."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any, ClassVar

from assay.lab import remote
from assay.lab.errors import LabError
from assay.lab.host import HostError, LocalHost
from assay.lab.mounts import ANSWER_SECONDS
from assay.model.lab import Lab as LabDeclaration
from assay.systems.base import AdapterError, Deployment
from assay.systems.mounted import MountedSystem, room_for


class PathSystem(MountedSystem):
    """``path:/mnt/nas``."""

    system: ClassVar[str] = "path"
    layouts: ClassVar[dict[str, str]] = {"DIR": "an existing directory, on whatever is mounted there"}
    needs_hosts: ClassVar[bool] = False
    tunables: ClassVar[dict[str, str]] = {}
    directory: Path | None

    @staticmethod
    def preflight(layout: str, lab: LabDeclaration, dataset_bytes: int) -> None:  # noqa: ARG004 (the disk is the user's own)
        """See SystemAdapter: the directory exists, answers, may be written and has room."""
        check_directory(Path(layout), dataset_bytes)

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
        self._use(self._own)

    def unmount(self) -> None:
        """See SystemAdapter."""
        self.directory = None

    def destroy(self) -> None:
        """The lab removes the subdirectory: it wrote down that it made it."""

    def facts(self) -> dict[str, Any]:
        """See SystemAdapter."""
        entry = self._entry()
        return {
            "system": f"path:{self.deployment.layout}",
            "version": f"{entry['fstype']}, Linux {os.uname().release}",
            "source": entry["source"],
            "mount": self.mount_facts(),
        }


def check_directory(path: Path, dataset_bytes: int) -> None:
    """Whether an existing directory of this machine can be worked in, with room for the data set; touches nothing.
    Raises AdapterError with one clear line."""
    if not path.is_absolute():
        raise AdapterError(f"path:{path} is relative; write the absolute directory, path:{path.absolute()}")
    host = LocalHost()
    try:
        problem = host.call(remote.unusable, path, timeout_seconds=ANSWER_SECONDS)
        if problem is not None:
            raise AdapterError(problem)
        room_for(host, path, dataset_bytes)
    except (OSError, ValueError) as error:  # a parent that may not be searched, a stale mount, a name too long
        reason = error.strerror if isinstance(error, OSError) else error
        raise AdapterError(f"{path} cannot be used: {reason}") from None
    except HostError as error:
        raise AdapterError(f"{path} cannot be used: {error}") from None
    finally:
        host.close()
