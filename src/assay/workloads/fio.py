"""The fio workload: one fio process per client, run and never linked; raw results, no aggregates.

What the job says and why is in :mod:`assay.workloads.fio_job`. Hosts are taken to see the target's directory and the
scratch directory under the same names as Assay does.
"""

from __future__ import annotations

import errno
import re
import signal
from collections import Counter
from collections.abc import Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from weakref import WeakKeyDictionary

from assay.lab.host import Completed, Host, HostError, Process
from assay.model import histogram
from assay.model.evidence import (
    ClientResult,
    ClientSamples,
    Direction,
    DirectionTotal,
    Histogram,
    Series,
)
from assay.model.point import FioPoint
from assay.workloads import fio_data, fio_job, fio_log, fio_objects
from assay.workloads.base import Artefact, RunResult, Target, WorkloadError
from assay.workloads.fio_output import FioJob, FioOutput, FioOutputError, FioTotals, parse

DATA_DIRECTORY = "assay-data"
_ERRNO_IN_STDERR = re.compile(r"\berr(?:or)?=\s*(\d+)")
_MESSAGE_CHARACTERS = 400


@dataclass(frozen=True)
class _Installed:
    version: str
    engines: frozenset[str]


_installed: WeakKeyDictionary[Host, _Installed] = WeakKeyDictionary()  # asked once per host, not once per attempt


def installed(host: Host) -> _Installed:
    """fio's version and engines on a host, cached. Raises WorkloadError when fio is missing or does not answer."""
    if host in _installed:
        return _installed[host]
    try:
        version = host.run(["fio", "--version"], timeout_seconds=20)
        engines = host.run(["fio", "--enghelp"], timeout_seconds=20)
    except HostError as error:
        raise WorkloadError(f"fio is missing on {host.name}; install it: apt-get install fio") from error
    if not version.ok or not version.stdout.strip():
        raise WorkloadError(f"fio does not run on {host.name}: {_tail(version.stderr) or 'no answer to --version'}")
    names = frozenset(line.strip() for line in engines.stdout.decode(errors="replace").splitlines())
    found = _Installed(version.stdout.decode(errors="replace").strip(), names)
    _installed[host] = found
    return found


@dataclass(frozen=True)
class _Client:
    """One client of one run: its files in ``scratch`` are ``<name>.*``."""

    number: int
    host: Host
    options: dict[str, str]
    scratch: Path

    @property
    def name(self) -> str:
        return f"c{self.number}"

    def spawn(self, suffix: str, options: dict[str, str]) -> Process:
        stem = f"{self.name}{suffix}"
        (self.scratch / f"{stem}.fio").write_text(fio_job.job_file(self.name, options))
        argv = ["fio", "--output-format=json+", f"--output={stem}.json", "--eta=never", f"{stem}.fio"]
        return self.host.spawn(argv, cwd=self.scratch)

    def read(self, name: str) -> bytes:
        try:
            return (self.scratch / name).read_bytes()
        except OSError:
            return b""  # fio did not get as far as writing it


class FioWorkload:
    """One fio point. Implements :class:`assay.workloads.base.Workload`."""

    def __init__(self, point: FioPoint) -> None:
        """Raises WorkloadError when one of the point's free options is not allowed."""
        fio_job.check(point)
        self.point = point

    def data_directory(self, target: Target) -> Path:
        """Where the data set lies: a subdirectory of the target's own. Raises WorkloadError for the null target."""
        if target.directory is None:
            raise WorkloadError("the null target has no data")
        return target.directory / DATA_DIRECTORY

    def command(self, target: Target, client: int) -> str:
        """One shell line that repeats one client by hand: the job without seed and logs."""
        return fio_job.command_line(
            f"c{client}", fio_job.options(self.point, client, self._directory(target), engine=_engine(target))
        )

    def prepare(self, target: Target, clients: Sequence[Host], seed: int, timeout_seconds: float) -> int:
        """Lay out the files of all clients unless they are there, complete and large enough; returns the bytes that
        the point works on (0 for the null target). Raises WorkloadError with one clear line."""
        directory = self._directory(target)
        if _is_null(target):
            return 0
        for host in dict.fromkeys(clients):
            installed(host)
        if directory is None:
            fio_objects.ensure(target, self.point, clients, seed, timeout_seconds)
        else:
            fio_data.ensure(directory, self._files_of(clients), self.point.size, seed, timeout_seconds)
        return self.point.size * self.point.threads * len(clients)

    def stage(self, target: Target, clients: Sequence[Host], seed: int, timeout_seconds: float) -> None:
        """Nothing: fio's files stay."""

    def warm(self, target: Target, clients: Sequence[Host], timeout_seconds: float) -> None:
        """See :class:`assay.workloads.base.Workload`."""
        if _engine(target) is not None:
            return  # no page cache of the client's to fill
        fio_data.read(self.data_directory(target), self._files_of(clients), self.point.size, timeout_seconds)

    def facts(self, clients: Sequence[Host]) -> dict[str, Any]:
        """``{"fio": {host: version}}``. Raises WorkloadError when fio is missing on one."""
        return {"fio": {host.name: installed(host).version for host in dict.fromkeys(clients)}}

    def run(
        self, target: Target, clients: Sequence[Host], *, seed: int, scratch: Path, deadline_seconds: float
    ) -> RunResult:
        """Run one fio per client, all at once; see :class:`assay.workloads.base.Workload`.

        Error kinds in ``ClientResult.errors``: errno names (number of threads), ``deadline``, ``killed-by-SIG...``,
        ``not-started``, ``unparsable-output``, ``exit-<code>`` when fio gave no other reason, ``verify`` (blocks found
        wrong), ``verify-failed`` (verification itself did not end). ``deadline_seconds`` bounds load and verification
        together. Raises WorkloadError when no fio could be started or the engine is not there.
        """
        reached = _engine(target)
        engine = "null" if _is_null(target) else self.point.engine if reached is None else reached["ioengine"]
        for host in dict.fromkeys(clients):
            if engine not in installed(host).engines:
                raise WorkloadError(f"fio on {host.name} has no engine {engine!r}; see fio --enghelp")
        try:
            scratch.mkdir(parents=True, exist_ok=True)
        except OSError as error:
            raise WorkloadError(f"cannot use {scratch} for fio's output: {error.strerror}") from error
        jobs = [
            _Client(number, host, self._options(number, target, seed), scratch) for number, host in enumerate(clients)
        ]
        loads = _run_all(jobs, "", [job.options for job in jobs], deadline_seconds)
        if all(isinstance(load, HostError) for load in loads):
            raise WorkloadError(str(loads[0]) if loads else "a run needs at least one client")

        results: list[ClientResult] = []
        samples: list[ClientSamples] = []
        artefacts: list[Artefact] = []
        for job, load in zip(jobs, loads, strict=True):
            result, sample, files = self._collect(job, load, _is_null(target))
            results.append(result)
            samples.append(sample)
            artefacts += files
        if not _is_null(target) and fio_job.verifies(self.point):
            spent = max(r.ended_at for r in results) - min(r.started_at for r in results)
            results, files = _verify(jobs, results, max(0.1, deadline_seconds - spent))
            artefacts += files
        return RunResult(results, samples, artefacts)

    def _directory(self, target: Target) -> Path | None:
        return None if target.null or target.directory is None else self.data_directory(target)

    def _file_names(self, client: int) -> list[str]:
        return [fio_job.file_name(client, thread) for thread in range(self.point.threads)]

    def _files_of(self, clients: Sequence[Host]) -> dict[Host, list[str]]:
        names: dict[Host, list[str]] = {}
        for number, host in enumerate(clients):
            names.setdefault(host, []).extend(self._file_names(number))
        return names

    def _options(self, client: int, target: Target, seed: int) -> dict[str, str]:
        directory = self._directory(target)
        return fio_job.options(self.point, client, directory, engine=_engine(target), seed=seed, log=f"c{client}")

    def _collect(
        self, job: _Client, load: Completed | HostError, null: bool
    ) -> tuple[ClientResult, ClientSamples, list[Artefact]]:
        """What one client has left behind, whatever happened to it."""
        raw = job.read(f"{job.name}.json")
        output, errors, message = _judge(load, raw)
        threads = output.jobs if output else []
        directions = self._directions()
        logs, log_artefact = self._read_logs(job, threads, directions)
        result = ClientResult(
            client=job.name,
            host=job.host.name,
            started_at=load.started_at if isinstance(load, Completed) else 0.0,
            ended_at=load.ended_at if isinstance(load, Completed) else 0.0,
            exit_code=load.exit_code if isinstance(load, Completed) else 127,
            totals={d: _total([t.totals[d] for t in threads if d in t.totals]) for d in directions} if threads else {},
            job_runtimes_seconds=[t.runtime_seconds for t in threads],
            errors=errors,
            user_cpu_share=_mean(t.user_cpu_share for t in threads),
            system_cpu_share=_mean(t.system_cpu_share for t in threads),
            tool_version=output.version if output else "",
            file_names=[] if null else self._file_names(job.number),
            message=message,
        )
        sample = ClientSamples.model_construct(
            client=job.name,
            histograms={
                d: histogram.merge(
                    Histogram.model_construct(latency_ns=t.totals[d].latency_ns, counts=t.totals[d].counts)
                    for t in threads
                    if d in t.totals
                )
                for d in directions
                if threads
            },
            series=logs,
        )
        artefacts = [
            Artefact(f"{job.name}.fio", job.read(f"{job.name}.fio")),
            Artefact(f"{job.name}.json", raw),
            Artefact(f"{job.name}.stderr", load.stderr if isinstance(load, Completed) else str(load).encode()),
        ]
        return result, sample, artefacts + log_artefact

    def _directions(self) -> list[Direction]:
        out: list[Direction] = []
        if self.point.reads:
            out.append("read")
        if self.point.writes:
            out.append("write")
        return out

    def _read_logs(
        self, job: _Client, threads: Sequence[FioJob], directions: Sequence[Direction]
    ) -> tuple[list[Series], list[Artefact]]:
        """The client's series and its logs as one artefact. fio numbers its logs from 1 in the order of its jobs."""
        kinds = ["bw", "lat"] if fio_job.has_fixed_block_size(self.point) else ["bw", "lat", "iops"]
        names = {kind: [f"{job.name}_{kind}.{n + 1}.log" for n in range(len(threads))] for kind in kinds}
        contents = {kind: [job.read(name) for name in names[kind]] for kind in kinds}
        if not any(map(any, contents.values())):
            return [], []
        lines = {kind: fio_log.parse_logs(contents[kind]) for kind in kinds}
        series = fio_log.client_series(
            [
                fio_log.ThreadLogs(
                    bandwidth=lines["bw"][n],
                    latency=lines["lat"][n],
                    iops=lines["iops"][n] if "iops" in lines else None,
                    totals={d: (t.bytes, t.operations) for d, t in thread.totals.items()},
                )
                for n, thread in enumerate(threads)
            ],
            int(job.options["log_avg_msec"]) / 1000,
            self.point.block_size,
            directions,
        )
        combined = b"".join(
            f"# {name}\n".encode() + content
            for kind in kinds
            for name, content in zip(names[kind], contents[kind], strict=True)
        )
        return series, [Artefact(f"{job.name}.log", combined)]


def _engine(target: Target) -> dict[str, str] | None:
    return None if target.null or target.directory is not None else target.engine


def _is_null(target: Target) -> bool:
    return target.null or (target.directory is None and target.engine is None)


def _run_all(
    jobs: Sequence[_Client], suffix: str, options: Sequence[dict[str, str]], deadline_seconds: float
) -> list[Completed | HostError]:
    """Start one fio per client and wait for all; a thread each, so that ends are timed and pipes drained at once."""
    started: list[Process | HostError] = []
    try:
        for job, job_options in zip(jobs, options, strict=True):
            try:
                started.append(job.spawn(suffix, job_options))
            except HostError as error:
                started.append(error)
            except OSError as error:
                started.append(HostError(f"cannot write {job.name}{suffix}.fio: {error.strerror}"))
        with ThreadPoolExecutor(max_workers=max(1, len(started))) as pool:
            try:
                return list(pool.map(lambda p: p if isinstance(p, HostError) else p.wait(deadline_seconds), started))
            except BaseException:  # Ctrl-C: the pool would wait for the load's natural end
                _kill(started)
                raise
    except BaseException:
        _kill(started)
        raise


def _kill(processes: Iterable[Process | HostError]) -> None:
    for process in processes:
        if not isinstance(process, HostError):
            process.kill()


def _judge(load: Completed | HostError, raw: bytes) -> tuple[FioOutput | None, dict[str, int], str]:
    """fio's result if there is one, errors by kind, and what it said, for people."""
    if isinstance(load, HostError):
        return None, {"not-started": 1}, str(load)[-_MESSAGE_CHARACTERS:]
    if load.exit_code is None:
        return None, {"deadline": 1}, _tail(load.stderr) or "killed at its deadline"
    said = load.stderr.decode(errors="replace")
    output: FioOutput | None = None
    errors: Counter[str] = Counter()
    try:
        output = parse(raw)
        said = f"{output.text}\n{said}"
        for job in output.jobs:
            if job.error:
                errors[_errno_name(job.error)] += max(1, job.total_errors)
    except FioOutputError as error:
        if load.exit_code == 0:
            errors["unparsable-output"] += 1
        said = f"{said}\n{error}" if load.exit_code == 0 or not said.strip() else said
    if load.exit_code != 0 and not errors:
        for match in _ERRNO_IN_STDERR.finditer(said):
            if int(match[1]):
                errors[_errno_name(int(match[1]))] += 1
        if not errors:
            errors[_exit_kind(load.exit_code)] += 1
    return output, dict(errors), _tail(said.encode())


def _errno_name(number: int) -> str:
    return errno.errorcode.get(number, f"errno-{number}")


def _exit_kind(exit_code: int) -> str:
    if exit_code >= 0:
        return f"exit-{exit_code}"
    try:
        return f"killed-by-{signal.Signals(-exit_code).name}"
    except ValueError:
        return f"killed-by-{-exit_code}"


def _verify(
    jobs: Sequence[_Client], results: Sequence[ClientResult], deadline_seconds: float
) -> tuple[list[ClientResult], list[Artefact]]:
    """Read back and check what each client has written; only clients whose load ended well can be checked."""
    sound = [n for n, result in enumerate(results) if result.exit_code == 0 and not result.errors]
    chosen = [jobs[n] for n in sound]
    options = [fio_job.verify_options(job.options) for job in chosen]
    checked = list(results)
    artefacts: list[Artefact] = []
    for n, job, done in zip(sound, chosen, _run_all(chosen, ".verify", options, deadline_seconds), strict=True):
        raw = job.read(f"{job.name}.verify.json")
        output, errors, message = _judge(done, raw)
        wrong = errors.pop("EILSEQ", 0)
        update: dict[str, Any] = {}
        if output is not None and not errors:
            update["verify_errors"] = wrong
        if wrong:
            errors = {"verify": wrong, **errors}
        elif errors:
            errors = {"verify-failed": 1, **errors}
        if errors:
            update |= {"errors": {**results[n].errors, **errors}, "message": message}
        checked[n] = results[n].model_copy(update=update)
        artefacts += [
            Artefact(f"{job.name}.verify.fio", job.read(f"{job.name}.verify.fio")),
            Artefact(f"{job.name}.verify.json", raw),
        ]
        if isinstance(done, Completed) and done.stderr:
            artefacts.append(Artefact(f"{job.name}.verify.stderr", done.stderr))
    return checked, artefacts


def _total(threads: Sequence[FioTotals]) -> DirectionTotal:
    """A client's totals from its threads'. The runtime is the longest thread's, as in fio's group reports."""
    samples = sum(t.latency_samples for t in threads)
    return DirectionTotal(
        bytes=sum(t.bytes for t in threads),
        operations=sum(t.operations for t in threads),
        runtime_seconds=max((t.runtime_seconds for t in threads), default=0.0),
        latency_mean_seconds=sum(t.latency_mean_ns * t.latency_samples for t in threads) / samples * 1e-9
        if samples
        else 0.0,
        latency_min_seconds=min((t.latency_min_ns for t in threads if t.latency_samples), default=0.0) * 1e-9,
        latency_max_seconds=max((t.latency_max_ns for t in threads), default=0.0) * 1e-9,
    )


def _mean(values: Iterable[float]) -> float:
    numbers = list(values)
    return sum(numbers) / len(numbers) if numbers else 0.0


def _tail(text: bytes) -> str:
    return text.decode(errors="replace").strip()[-_MESSAGE_CHARACTERS:]
