"""The system seam (model: Jepsen's ``db.clj``): a tiny core and optional capabilities, each its own protocol.

A cell that needs a capability which the adapter lacks is *not applicable*: never failed, never silently weaker.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from assay.lab.fabric import Fabric
from assay.lab.host import Host
from assay.lab.registry import Lab
from assay.model.evidence import ColdEvidence, DeviceCounters, DurabilityEvidence, SettleEvidence
from assay.model.lab import Disk
from assay.model.lab import Lab as LabDeclaration
from assay.systems.requirements import Requirement


class AdapterError(Exception):
    """A system could not be deployed, mounted or asked; the message is one clear line with what would help."""


class NoAnswerError(AdapterError):
    """A system gave no answer in time: no fault that is known, and nothing that is known to be well."""


@dataclass(frozen=True)
class Deployment:
    """What an adapter is given: where to work and what to make. ``name`` is unique within the lab."""

    name: str
    layout: str  # what follows the system's name in system/layout, e.g. "ext4" or a directory
    lab: Lab
    host: Host  # the first client
    disk: Disk
    tuning: dict[str, Any] = field(default_factory=dict)
    fabric: Fabric | None = None  # hosts of its own, for adapters that need them
    mount: str | None = None  # an existing mount to be used instead of deploying

    @property
    def clients(self) -> list[Host]:
        """Hosts that mount and load it, at least one; those of a fabric are there once it is up."""
        return list(self.fabric.clients) if self.fabric is not None and self.fabric.clients else [self.host]

    @property
    def slug(self) -> str:
        """The name as a file name: plain characters, short, and different for different names."""
        plain = "".join(c if (c.isascii() and c.isalnum()) or c in "-." else "-" for c in self.name).strip("-.")
        return f"{plain[:40].strip('-.')}-{hashlib.sha256(self.name.encode()).hexdigest()[:8]}".lstrip("-")


class SystemAdapter(Protocol):
    """The core: what every system can do."""

    system: ClassVar[str]  # the first part of system/layout, e.g. "local"
    layouts: ClassVar[dict[str, str]]  # layout -> one line of description; N, K, M in it stand for numbers
    needs_hosts: ClassVar[bool]  # whether it is deployed on hosts of a lab rather than on this machine
    tunables: ClassVar[dict[str, str]]  # tuning key -> one line of description; * in a key stands for any characters
    deployment: Deployment
    directory: Path | None  # where it is mounted; None before mount and for targets without a file system

    def __init__(self, deployment: Deployment) -> None: ...

    @staticmethod
    def preflight(layout: str, lab: LabDeclaration, dataset_bytes: int) -> None:
        """Whether it could be deployed on such a lab (its disk's size resolved) with room for the data set; touches
        nothing. Raises AdapterError."""
        ...

    def deploy(self) -> None:
        """Bring the system up. Raises AdapterError."""
        ...

    def mount(self) -> None:
        """Mount it on every client and check that the mount is what it claims to be. Raises AdapterError."""
        ...

    def unmount(self) -> None:
        """Undo mount; no error when not mounted."""
        ...

    def destroy(self) -> None:
        """Undo deploy, leaving nothing; no error when not deployed."""
        ...

    def facts(self) -> dict[str, Any]:
        """Version, layout, configuration and mount options as found: part of the closure, so nothing that differs
        between two deployments of the same thing (device numbers, times, identifiers)."""
        ...


@runtime_checkable
class ChecksTuning(Protocol):
    """Can refuse a value of a tuning key before anything is touched; classes have it, not only instances."""

    @staticmethod
    def check_tuning(tuning: dict[str, Any]) -> None:
        """Raises AdapterError."""
        ...


@runtime_checkable
class GoesCold(Protocol):
    """Can drop every cache there is."""

    def go_cold(self) -> ColdEvidence: ...


@runtime_checkable
class Settles(Protocol):
    """Can wait until background work has ended."""

    def settle(self, timeout_seconds: float) -> SettleEvidence: ...


@runtime_checkable
class CountsBytes(Protocol):
    """Knows the bytes its devices have moved; None when there is no device to ask."""

    def counters(self) -> list[DeviceCounters] | None: ...


@runtime_checkable
class HasDurability(Protocol):
    """Declares its durability tier and can probe it."""

    def probe_durability(self) -> DurabilityEvidence: ...


@runtime_checkable
class HasHealth(Protocol):
    """Can tell whether it is healthy (None: cannot tell right now), with a detail for people."""

    def health(self) -> tuple[bool | None, str]: ...


@runtime_checkable
class KillsHosts(Protocol):
    """Can lose hosts and daemons on purpose and get them back."""

    def kill_hosts(self, count: int) -> list[str]:
        """Kill ``count`` storage hosts at once, never the one that clients mount from; returns their names."""
        ...

    def restart_hosts(self, timeout_seconds: float) -> float:
        """Start the killed hosts and their daemons again; returns the seconds until all were there. Raises AdapterError."""
        ...

    def heal(self, timeout_seconds: float) -> float | None:
        """Wait until every copy and shard is whole again; returns the seconds, None past the timeout."""
        ...


@runtime_checkable
class Resizes(Protocol):
    """Can grow and shrink while it is used."""

    def grow(self, hosts: int, progress: Callable[[str], None]) -> None:
        """Add the storage of further hosts and move data to it. Raises AdapterError."""
        ...

    def shrink(self, hosts: int, progress: Callable[[str], None]) -> None:
        """Move data away from the last hosts and take their storage out. Raises AdapterError."""
        ...


@runtime_checkable
class ExportsMap(Protocol):
    """Can export where it puts data, for the placement simulator."""

    def cluster_map(self) -> dict[str, Any]: ...


@runtime_checkable
class PutsAndGets(Protocol):
    """Keeps whole files under names, through the system's own client: what there is instead of a mount when ``directory``
    is None after mount. Names are relative paths; every call is bounded in time."""

    def put(self, client: Host, source: Path, name: str, timeout_seconds: float) -> None:
        """Store a file of the client; durable as the system promises when it returns. Raises AdapterError."""
        ...

    def get(self, client: Host, name: str, target: Path, timeout_seconds: float) -> None:
        """Fetch what was stored into a file of the client. Raises AdapterError."""
        ...

    def delete(self, client: Host, name: str, timeout_seconds: float) -> None:
        """Remove it; no error when there is no such name. Raises AdapterError."""
        ...


@runtime_checkable
class DrivesFio(Protocol):
    """Can be reached by one of fio's own engines instead of a mount (CephFS's pools: librados)."""

    def fio_engine(self) -> dict[str, str] | None:
        """fio's options that reach it, ``ioengine`` first; None when it is used through its mount."""
        ...


@runtime_checkable
class HasRequirements(Protocol):
    """Names the programs and files that it needs; classes have it."""

    requirements: ClassVar[tuple[Requirement, ...]]


CAPABILITIES: dict[str, type] = {
    "go-cold": GoesCold,
    "settle": Settles,
    "byte-counters": CountsBytes,
    "durability": HasDurability,
    "health": HasHealth,
    "kill-hosts": KillsHosts,
    "resize": Resizes,
    "cluster-map": ExportsMap,
    "put-get": PutsAndGets,
    "fio-engine": DrivesFio,
}


def capabilities(adapter: object) -> list[str]:
    """Names of the optional capabilities that an adapter (instance or class) has."""
    return [
        name
        for name, protocol in CAPABILITIES.items()
        if all(hasattr(adapter, method) for method in vars(protocol) if not method.startswith("_"))
    ]
