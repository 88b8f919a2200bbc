"""From single transfers to what an attempt keeps: totals and histograms of clients whose operations are whole files."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from typing import TypeVar

import numpy as np

from assay.lab.host import Host
from assay.model.evidence import ClientResult, ClientSamples, Direction, DirectionTotal, Histogram

T = TypeVar("T")
_KEPT_BITS = 8  # of a latency: bins of at most 0.8 %, as fine as fio's


@dataclass
class Client:
    """What one client has done so far."""

    number: int
    host: Host
    started_at: float = 0.0  # Unix seconds
    ended_at: float = 0.0
    bytes: int = 0
    latencies_seconds: list[float] = field(default_factory=list)  # one per operation
    user_seconds: float = 0.0
    system_seconds: float = 0.0
    errors: dict[str, int] = field(default_factory=dict)
    exit_code: int | None = 0
    message: str = ""
    verify_errors: int | None = None
    output: str = ""  # for the artefact

    @property
    def name(self) -> str:
        """c0, c1, ..."""
        return f"c{self.number}"

    def fail(self, kind: str, message: str, exit_code: int | None = 1) -> None:
        """Count an error; the client's exit code is not 0 any more."""
        self.errors[kind] = self.errors.get(kind, 0) + 1
        self.exit_code, self.message = exit_code, message


def at_once(clients: Sequence[Client], work: Callable[[Client], None]) -> None:
    """Let all clients work at the same time; the first exception is raised when all have ended."""
    with ThreadPoolExecutor(max_workers=max(1, len(clients))) as pool:
        for future in [pool.submit(work, client) for client in clients]:
            future.result()


def result_of(
    client: Client, direction: Direction, *, seconds: float, files: list[str], version: str, threads: int = 1
) -> ClientResult:
    """The client's result; ``seconds`` is the time that its operations took, gaps between them left out."""
    latencies = client.latencies_seconds
    totals: dict[Direction, DirectionTotal] = {}
    if latencies:
        totals[direction] = DirectionTotal(
            bytes=client.bytes,
            operations=len(latencies),
            runtime_seconds=seconds,
            latency_mean_seconds=math.fsum(latencies) / len(latencies),
            latency_min_seconds=min(latencies),
            latency_max_seconds=max(latencies),
        )
    return ClientResult(
        client=client.name,
        host=client.host.name,
        started_at=client.started_at,
        ended_at=client.ended_at,
        exit_code=client.exit_code,
        totals=totals,
        job_runtimes_seconds=[seconds] if threads == 1 else [],
        errors=client.errors,
        user_cpu_share=client.user_seconds / seconds / threads if seconds > 0 else 0.0,
        system_cpu_share=client.system_seconds / seconds / threads if seconds > 0 else 0.0,
        verify_errors=client.verify_errors,
        tool_version=version,
        file_names=files,
        message=client.message,
    )


def samples_of(client: Client, direction: Direction) -> ClientSamples:
    """The client's histogram; there is no series of operations that last as long as the attempt."""
    nanoseconds = np.rint(np.asarray(client.latencies_seconds) * 1e9).astype(np.uint64)
    return ClientSamples(
        client=client.name, histograms={direction: histogram_of(nanoseconds)} if nanoseconds.size else {}
    )


def histogram_of(latency_ns: np.ndarray) -> Histogram:
    """Histogram of latencies (ns, n values), each rounded down to its 8 highest bits."""
    values = latency_ns.astype(np.uint64)
    bits = np.floor(np.log2(np.maximum(values, 1).astype(float))).astype(np.int64) + 1
    drop = np.maximum(bits - _KEPT_BITS, 0).astype(np.uint64)
    binned, counts = np.unique((values >> drop) << drop, return_counts=True)
    return Histogram(latency_ns=binned.tolist(), counts=counts.tolist())
