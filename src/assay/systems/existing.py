"""A running system that is mounted already: a candidate's ``mount: DIR``. It is used in a subdirectory of its own; nothing is
deployed, nothing is configured, and what only its owners can do (kill hosts, count bytes of its disks) is not offered."""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from assay.lab import remote
from assay.lab.host import Host, HostError, LocalHost
from assay.lab.mounts import ANSWER_SECONDS
from assay.systems.base import AdapterError, Deployment, SystemAdapter
from assay.systems.path import PathSystem, check_directory


@dataclass(frozen=True)
class MountKind:
    """What mounts of a system look like."""

    fstypes: tuple[str, ...]  # as in /proc/self/mountinfo, e.g. fuse.glusterfs
    magic: int | Mapping[str, int]  # f_type of statfs(2), of all or by fstype
    #: facts of what is mounted at a directory; AdapterError when it is not of the layout that was declared
    inspect: Callable[[Host, Path, str], dict[str, Any]]
    #: whether it is healthy as far as a client can tell, with a detail for people
    health: Callable[[Host, Path], tuple[bool | None, str]]


@runtime_checkable
class KnowsMounts(Protocol):
    """Adapters that can recognise a mount of their system; classes have it."""

    @staticmethod
    def mount_kind() -> MountKind: ...


def kind_of(adapter: type[SystemAdapter]) -> MountKind:
    """How to recognise mounts of a system. Raises AdapterError when it cannot be."""
    if not isinstance(adapter, KnowsMounts):
        raise AdapterError(f"mounts of {adapter.system} cannot be recognised; write path:DIR instead of mount: DIR")
    return adapter.mount_kind()


def check_existing(adapter: type[SystemAdapter], layout: str, mount: str, dataset_bytes: int) -> None:
    """Whether an existing mount is what the candidate declares, can be written and has room; touches nothing. Raises
    AdapterError with one clear line."""
    kind = kind_of(adapter)
    here = LocalHost()
    try:
        check_directory(Path(mount), dataset_bytes)
        _check_kind(here, Path(mount), kind)
        kind.inspect(here, Path(mount), layout)
    except (HostError, OSError) as error:
        raise AdapterError(f"{mount} cannot be used: {error}") from None
    finally:
        here.close()


def _check_kind(host: Host, directory: Path, kind: MountKind) -> dict[str, str]:
    """The mount's entry. Raises AdapterError unless both the mount table and the file system itself say that it is such."""
    entry = host.call(remote.mount_entry, directory, timeout_seconds=ANSWER_SECONDS)
    wanted = " or ".join(kind.fstypes)
    if entry is None:
        raise AdapterError(f"{directory} is on no mount, not {wanted}")
    if entry["fstype"] not in kind.fstypes:
        where = "" if entry["point"] == str(directory) else f" (mounted at {entry['point']})"
        raise AdapterError(f"{directory} is {entry['fstype']}{where}, not {wanted}")
    asked = host.run(["stat", "--file-system", "--format=%t", str(directory)], timeout_seconds=ANSWER_SECONDS)
    magic = kind.magic if isinstance(kind.magic, int) else kind.magic[entry["fstype"]]
    if not asked.ok or int(asked.stdout, 16) != magic:
        found = asked.stdout.decode().strip() or asked.stderr.decode(errors="replace").strip()
        raise AdapterError(f"{directory} calls itself {wanted} but its type is {found}, not {magic:x}")
    return entry


class ExistingSystem(PathSystem):
    """A candidate with ``mount: DIR``, of any system whose mounts can be recognised."""

    _kind: MountKind
    _of: str  # the system's name

    @classmethod
    def of(cls, adapter: type[SystemAdapter], deployment: Deployment) -> SystemAdapter:
        """The adapter of a deployment with a mount. Raises AdapterError when mounts of the system cannot be recognised."""
        made = adapter if issubclass(adapter, ExistingSystem) else cls
        existing = made(replace(deployment, layout=deployment.mount or ""))
        existing.deployment = deployment
        existing._kind, existing._of = kind_of(adapter), adapter.system
        return existing

    def deploy(self) -> None:
        """Check once more what is mounted there, then make the subdirectory."""
        self._check()
        super().deploy()

    def facts(self) -> dict[str, Any]:
        """See SystemAdapter."""
        entry, found = self._check()
        return {
            "system": f"{self._of}/{self.deployment.layout}",
            "source": entry["source"],
            **found,
            "mount": self.mount_facts(),
        }

    def health(self) -> tuple[bool | None, str]:
        """As for any mount, and what the system's client says."""
        healthy, detail = super().health()
        return self._kind.health(self.client, self._parent) if healthy else (healthy, detail)

    def _check(self) -> tuple[dict[str, str], dict[str, Any]]:
        entry = _check_kind(self.client, self._parent, self._kind)
        return entry, self._kind.inspect(self.client, self._parent, self.deployment.layout)


class ExternalSystem(ExistingSystem):
    """Base of systems that Assay uses where they are mounted and never deploys. The subdirectory of each candidate is given
    the candidate's own layout, so several layouts of one cluster can be compared."""

    needs_hosts: ClassVar[bool] = False
    programs: ClassVar[tuple[str, ...]]  # of the system's client, which came with the mount

    @classmethod
    def refuse_to_deploy(cls, layout: str) -> None:
        """What their preflight does: it is asked only without a mount. Raises AdapterError."""
        raise AdapterError(
            f"{cls.system} is not deployed by Assay: mount it and say where, "
            f"{{system: {cls.system}/{layout}, mount: /mnt/{cls.system}}}"
        )

    @abstractmethod
    def lay_out(self, directory: Path) -> None:
        """Give an empty directory the candidate's layout and read it back. Raises AdapterError or HostError."""

    @abstractmethod
    def layout_facts(self, directory: Path) -> dict[str, Any]:
        """The layout of new files in a directory, as the system tells. Raises AdapterError or HostError."""

    def deploy(self) -> None:
        """Make the subdirectory and give it the layout."""
        super().deploy()
        try:
            self.lay_out(self._own)
        except (AdapterError, HostError) as error:
            raise AdapterError(f"{self.deployment.name}: {error}") from None

    def facts(self) -> dict[str, Any]:
        """See SystemAdapter."""
        return {**super().facts(), "layout": self.layout_facts(self._own)}

    def ask(self, *argv: str) -> str:
        """What a command on the first client prints. Raises AdapterError with its words when it fails."""
        return ask(self.client, *argv)


def ask(host: Host, *argv: str) -> str:
    """What a command of an external system prints. Raises AdapterError with its words when it fails or is missing."""
    try:
        return host.run(argv, timeout_seconds=ANSWER_SECONDS).must(argv[0]).stdout.decode(errors="replace")
    except HostError as error:
        raise AdapterError(str(error)) from None
