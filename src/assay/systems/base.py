"""The system seam (model: Jepsen's ``db.clj``): a tiny core and optional capabilities, each its own protocol.

A cell that needs a capability which the adapter lacks is *not applicable*: never failed, never silently weaker.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any, ClassVar, Protocol, runtime_checkable

from assay.model.evidence import ColdEvidence, DeviceCounters, DurabilityEvidence, SettleEvidence


class AdapterError(Exception):
    """A system could not be deployed, mounted or asked; the message is one clear line with what would help."""


class SystemAdapter(Protocol):
    """The core: what every system can do."""

    name: ClassVar[str]  # the first part of system/layout, e.g. "local"
    directory: Path | None  # where it is mounted; None before mount and for targets without a file system

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
        """System version, layout, configuration and mount options, as found (for the closure)."""
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
    """Knows the bytes its devices have moved."""

    def counters(self) -> list[DeviceCounters]: ...


@runtime_checkable
class HasDurability(Protocol):
    """Declares its durability tier and can probe it."""

    def probe_durability(self) -> DurabilityEvidence: ...


@runtime_checkable
class HasHealth(Protocol):
    """Can tell whether it is healthy."""

    def health(self) -> tuple[bool, str]: ...


CAPABILITIES: dict[str, type] = {
    "go-cold": GoesCold,
    "settle": Settles,
    "byte-counters": CountsBytes,
    "durability": HasDurability,
    "health": HasHealth,
}


def capabilities(adapter: object) -> list[str]:
    """Names of the optional capabilities that an adapter (instance or class) has."""
    return [name for name, protocol in CAPABILITIES.items() if all(hasattr(adapter, m) for m in _methods(protocol))]


def _methods(protocol: type) -> list[str]:
    return [m for m in vars(protocol) if not m.startswith("_")]
