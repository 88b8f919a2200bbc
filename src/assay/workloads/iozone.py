"""IOzone, where it is installed: sequential and random access with large records, in throughput mode."""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.lab.host import Host, HostError
from assay.model.point import IozonePoint
from assay.workloads import timed
from assay.workloads.base import Artefact, RunResult, Target, WorkloadError
from assay.workloads.iozone_output import IozoneOutputError, Throughput, parse
from assay.workloads.transfers import Client, at_once, result_of, samples_of

DIRECTORY = "assay-iozone"
_TESTS = {"write": "0", "read": "1", "randread": "2", "randwrite": "2"}
_CLEAN_SECONDS = 60.0


class IozoneWorkload:
    """One IOzone test. Implements :class:`assay.workloads.base.Workload`. IOzone reports rates only: one operation stands
    for a thread's whole file, and its latency for the time that the file took."""

    def __init__(self, point: IozonePoint) -> None:
        self.point = point

    def command(self, target: Target, client: int) -> str:
        """One shell line that repeats one client by hand."""
        lay_out = [] if self.point.test == "write" else [shlex.join(self._argv(target, client, "write"))]
        return "\n".join([*lay_out, shlex.join(self._argv(target, client, self.point.test))])

    def facts(self, clients: Sequence[Host]) -> dict[str, Any]:
        """``{"iozone": {host: version}}``. Raises WorkloadError when IOzone is missing on one."""
        return {"iozone": {host.name: _version(host) for host in dict.fromkeys(clients)}}

    def prepare(self, target: Target, clients: Sequence[Host], seed: int, timeout_seconds: float) -> int:  # noqa: ARG002
        """Nothing stays between attempts. Raises WorkloadError when there is no file system or no IOzone."""
        for host in dict.fromkeys(clients):
            _version(host)
        self._files(target, 0)
        return self.point.dataset_bytes

    def stage(self, target: Target, clients: Sequence[Host], seed: int, timeout_seconds: float) -> None:  # noqa: ARG002
        """Remove the files of an earlier attempt, and for all but writing write them anew. Raises WorkloadError."""

        def one(client: Client) -> None:
            files = self._files(target, client.number)
            client.host.call(timed.make_directory, files[0].parent)
            client.host.call(timed.remove, files, timeout_seconds=_CLEAN_SECONDS)
            if self.point.test != "write":
                argv = self._argv(target, client.number, "write")
                done = client.host.call(timed.run, argv, timeout_seconds=self.point.allowed_seconds + timeout_seconds)
                if done.exit_code:
                    raise WorkloadError(f"iozone cannot write its files: {done.words.strip()[-300:]}")

        try:
            at_once([Client(number, host) for number, host in enumerate(clients)], one)
        except (OSError, HostError) as error:
            raise WorkloadError(f"iozone's files in {target.directory}: {error}") from error

    def warm(self, target: Target, clients: Sequence[Host], timeout_seconds: float) -> None:
        """Nothing: no IOzone point claims to be warm."""

    def run(
        self, target: Target, clients: Sequence[Host], *, seed: int, scratch: Path, deadline_seconds: float  # noqa: ARG002
    ) -> RunResult:  # fmt: skip
        """All clients at once. Error kinds: ``deadline``, ``exit-N``, ``unparsable-output``, ``not-started``."""
        states = [Client(number, host) for number, host in enumerate(clients)]
        at_once(states, lambda c: self._client(target, c, deadline_seconds))
        direction = "read" if self.point.reads else "write"
        results = [
            result_of(
                client,
                direction,
                seconds=max(client.latencies_seconds, default=0.0),
                files=[f"{DIRECTORY}/{file.name}" for file in self._files(target, client.number)],
                version=_version(client.host),
                threads=self.point.threads,
            ).model_copy(update={"job_runtimes_seconds": client.latencies_seconds})
            for client in states
        ]
        artefacts = [Artefact(f"{client.name}.iozone", client.output.encode()) for client in states]
        return RunResult(results, [samples_of(client, direction) for client in states], artefacts)

    def _client(self, target: Target, client: Client, deadline: float) -> None:
        client.started_at = time.time()
        try:
            done = client.host.call(
                timed.run, self._argv(target, client.number, self.point.test), timeout_seconds=deadline
            )
        except HostError as error:
            client.fail("deadline", str(error), None)
        except OSError as error:
            client.fail("not-started", str(error), 127)
        else:
            client.output = done.words
            client.user_seconds, client.system_seconds = done.user_seconds, done.system_seconds
            if done.exit_code:
                client.fail(f"exit-{done.exit_code}", done.words.strip())
            else:
                self._figures(client, done.words)
        client.ended_at = time.time()

    def _figures(self, client: Client, report: str) -> None:
        try:
            found = parse(report, self.point.test)
        except IozoneOutputError as error:
            client.fail("unparsable-output", str(error))
            return
        client.bytes = self.point.size * self.point.threads
        client.latencies_seconds = latencies(found, self.point.size)

    def _files(self, target: Target, client: int) -> list[Path]:
        if target.directory is None:
            raise WorkloadError("IOzone needs a mounted file system")
        return [target.directory / DIRECTORY / f"c{client}-t{n}" for n in range(self.point.threads)]

    def _argv(self, target: Target, client: int, test: str) -> list[str]:
        p = self.point
        tests = ["-i", _TESTS[test]]
        options = ["-I"] if p.direct else []
        # -w keeps the files for the next test, -e counts fsync, -c counts close
        return ["iozone", "-t", str(p.threads), "-s", f"{p.size >> 10}k", "-r", f"{p.record >> 10}k", *tests, "-w", "-e", "-c",
                "-+n", *options, "-F", *map(str, self._files(target, client))]  # fmt: skip


def latencies(found: Throughput, size: int) -> list[float]:
    """Seconds that each process took for its file. IOzone tells the slowest, the fastest and the sum: the slowest and the
    fastest are exact, the others are taken to lie at the time of all together."""
    together = size * found.processes / found.parent
    if found.processes == 1:
        return [together]
    middle = [together] * (found.processes - 2)
    return [min(size / found.fastest, together), *middle, together]


def _version(host: Host) -> str:
    try:
        done = host.run(["iozone", "-v"], timeout_seconds=20)
    except HostError as error:
        raise WorkloadError(
            f"iozone is missing on {host.name}; install it: apt-get install iozone3 (non-free)"
        ) from error
    lines = done.stdout.decode(errors="replace").splitlines()
    return next((" ".join(line.split()) for line in lines if "Version" in line), "iozone")
