"""Rates of operations on names (create, stat, rename, readdir, unlink), by Assay's own loop in Rust: fio has no engine for
renaming and listing, and starts a job per file for the others."""

from __future__ import annotations

import errno
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np

import assay
from assay.lab.host import Host, HostError
from assay.model.evidence import ClientSamples, Direction, Histogram
from assay.model.point import MetadataPoint
from assay.workloads import names
from assay.workloads.base import Artefact, RunResult, Target, WorkloadError
from assay.workloads.transfers import Client, at_once, histogram_of, result_of

DIRECTORY = "assay-names"


class MetadataWorkload:
    """One operation. Implements :class:`assay.workloads.base.Workload`."""

    def __init__(self, point: MetadataPoint) -> None:
        self.point = point

    def command(self, target: Target, client: int) -> str:
        """What one client runs, as a Python line: there is no shell command for it."""
        p, where = self.point, self._directory(target, client)
        call = f"metadata_run({str(where)!r}, {p.operation!r}, {p.threads}, {p.files}, 3600.0)"
        return f'python3 -c "from assay._core import *; metadata_stage{call[12 : call.rindex(",")]}); print({call})"'

    def facts(self, clients: Sequence[Host]) -> dict[str, Any]:
        """The loop is Assay's own."""
        return {"metadata": {host.name: f"assay {assay.__version__}" for host in dict.fromkeys(clients)}}

    def prepare(self, target: Target, clients: Sequence[Host], seed: int, timeout_seconds: float) -> int:  # noqa: ARG002
        """Nothing stays between attempts: no data. Raises WorkloadError when there is no file system."""
        if target.directory is None:
            raise WorkloadError("operations on names need a mounted file system")
        return 0

    def stage(self, target: Target, clients: Sequence[Host], seed: int, timeout_seconds: float) -> None:  # noqa: ARG002
        """Make each client's directories and the files that the operation needs. Raises WorkloadError."""
        p = self.point

        def one(client: Client) -> None:
            where = self._directory(target, client.number)
            client.host.call(
                names.stage, where, p.operation, p.threads, p.files, timeout_seconds=p.allowed_seconds + timeout_seconds
            )

        try:
            at_once([Client(number, host) for number, host in enumerate(clients)], one)
        except OSError as error:
            raise WorkloadError(f"cannot make files in {target.directory}: {error.strerror or error}") from error
        except HostError as error:
            raise WorkloadError(str(error)) from error

    def warm(self, target: Target, clients: Sequence[Host], timeout_seconds: float) -> None:
        """Nothing: no metadata point claims to be warm."""

    def run(
        self, target: Target, clients: Sequence[Host], *, seed: int, scratch: Path, deadline_seconds: float  # noqa: ARG002
    ) -> RunResult:  # fmt: skip
        """All clients at once. Error kinds: errno names (number of threads), ``deadline``, ``not-started``. CPU time is not
        told apart and counts as system time."""
        states = [Client(number, host) for number, host in enumerate(clients)]
        found: dict[int, list[names.Worked]] = {}
        at_once(states, lambda c: self._client(target, c, deadline_seconds, found))
        direction: Direction = "read" if self.point.reads else "write"
        results, samples, artefacts = [], [], []
        for client in states:
            threads = found.get(client.number, [])
            latencies = [np.frombuffer(t.latencies, "<u8") for t in threads]
            merged = np.concatenate(latencies) if latencies else np.empty(0, "<u8")
            client.latencies_seconds = (merged * 1e-9).tolist()
            seconds = max((t.seconds for t in threads), default=0.0)
            result = result_of(
                client,
                direction,
                seconds=seconds,
                files=[f"{DIRECTORY}/c{client.number}/t{n}" for n in range(self.point.threads)],
                version=f"assay {assay.__version__}",
                threads=self.point.threads,
            )
            results.append(result.model_copy(update={"job_runtimes_seconds": [t.seconds for t in threads]}))
            histograms: dict[Direction, Histogram] = {direction: histogram_of(merged)} if merged.size else {}
            samples.append(ClientSamples(client=client.name, histograms=histograms))
            artefacts.append(Artefact(f"{client.name}.latencies-ns.u64", merged.astype("<u8").tobytes()))
        return RunResult(results, samples, artefacts)

    def _client(self, target: Target, client: Client, deadline: float, found: dict[int, list[names.Worked]]) -> None:
        p = self.point
        client.started_at = time.time()
        try:
            threads = client.host.call(
                names.work, self._directory(target, client.number), p.operation, p.threads, p.files, deadline,
                timeout_seconds=deadline + 5.0,
            )  # fmt: skip
        except HostError as error:
            client.fail("deadline", str(error), None)
        except OSError as error:
            client.fail("not-started", str(error), 127)
        else:
            found[client.number] = threads
            client.system_seconds = sum(t.cpu_seconds for t in threads)
            for thread in threads:
                if thread.error is not None:
                    kind = (
                        "deadline"
                        if thread.error == errno.ETIME
                        else errno.errorcode.get(thread.error, str(thread.error))
                    )
                    client.fail(kind, f"{p.operation}: {kind}")
        client.ended_at = time.time()

    def _directory(self, target: Target, client: int) -> Path:
        if target.directory is None:
            raise WorkloadError("operations on names need a mounted file system")
        return target.directory / DIRECTORY / f"c{client}"
