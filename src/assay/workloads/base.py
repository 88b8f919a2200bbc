"""The workload seam: what is done to a mounted candidate."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

from assay.lab.host import Host
from assay.model.evidence import ClientResult, ClientSamples


class WorkloadError(Exception):
    """The load generator is missing, cannot be used, or gave no usable result. The message is one clear line."""


class Store(Protocol):
    """Keeps whole files under names, without a mount: what systems.base.PutsAndGets is to workloads. Raises
    :class:`StoreError` (whatever the system's adapter raises is turned into one)."""

    def put(self, client: Host, source: Path, name: str, timeout_seconds: float) -> None: ...
    def get(self, client: Host, name: str, target: Path, timeout_seconds: float) -> None: ...
    def delete(self, client: Host, name: str, timeout_seconds: float) -> None: ...


class StoreError(Exception):
    """A put, get or delete failed; the message is one clear line."""


@dataclass(frozen=True)
class Target:
    """Where a workload works. ``directory`` is None for a target without a file system (the null engine, or one that is
    reached through ``store`` or by fio's own ``engine``)."""

    directory: Path | None
    null: bool = False
    store: Store | None = None
    engine: dict[str, str] | None = None  # fio's options that reach it, ioengine among them
    sources: Path | None = None  # directory of the clients for files to be copied, outside of the system under test
    laid_out: dict[str, int] = field(default_factory=dict)  # objects behind ``engine`` by name, with their bytes


@dataclass(frozen=True)
class Artefact:
    """A file worth keeping: job file, raw output, log."""

    name: str
    content: bytes


@dataclass(frozen=True)
class RunResult:
    """What one execution yields: totals and raw samples per client, and the files that produced them."""

    clients: list[ClientResult]
    samples: list[ClientSamples]
    artefacts: list[Artefact] = field(default_factory=list)


class Workload(Protocol):
    """One workload point, bound to its parameters."""

    def command(self, target: Target, client: int) -> str:
        """The exact shell command a person would type to repeat one client by hand."""
        ...

    def prepare(self, target: Target, clients: Sequence[Host], seed: int, timeout_seconds: float) -> int:
        """Make the data set unless it is there complete already; returns its bytes. Raises WorkloadError."""
        ...

    def stage(self, target: Target, clients: Sequence[Host], seed: int, timeout_seconds: float) -> None:
        """What must be in place before each attempt, done before caches are dropped; nothing for most. Raises
        WorkloadError."""
        ...

    def warm(self, target: Target, clients: Sequence[Host], timeout_seconds: float) -> None:
        """Read once on each client what the point will use there. Raises WorkloadError."""
        ...

    def run(
        self, target: Target, clients: Sequence[Host], *, seed: int, scratch: Path, deadline_seconds: float
    ) -> RunResult:
        """Run on all clients at once. A failing tool is a result (exit code, message); raises WorkloadError only when
        nothing could be started at all."""
        ...

    def facts(self, clients: Sequence[Host]) -> dict[str, Any]:
        """Tool versions per host, for the closure. Raises WorkloadError when the tool is missing."""
        ...
