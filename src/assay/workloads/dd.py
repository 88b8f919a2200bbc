"""Whole files copied by dd, as in the test platform of paper 002; on systems without a mount put and got by their own client.

One operation is one file: its latency is the end-to-end time, of a write including fsync (dd's ``conv=fsync``).
"""

from __future__ import annotations

import shlex
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.lab import remote
from assay.lab.host import Host, HostError
from assay.model.point import DdPoint
from assay.model.units import format_bytes
from assay.workloads import timed
from assay.workloads.base import Artefact, RunResult, StoreError, Target, WorkloadError
from assay.workloads.transfers import Client, at_once, result_of, samples_of

DIRECTORY = "assay-dd"
_SPACE_FACTOR = 1.05
_CLEAN_SECONDS = 60.0


class DdWorkload:
    """One dd point. Implements :class:`assay.workloads.base.Workload`."""

    def __init__(self, point: DdPoint) -> None:
        self.point = point

    def command(self, target: Target, client: int) -> str:
        """One shell line that repeats one client by hand; for a store what is asked of its client, in words."""
        if target.store is not None:
            verb = "put" if self.point.writes else "get"
            return f"# {verb} {self.point.files} files of {self.point.size} bytes through the system's own client"
        return "\n".join(shlex.join(self._argv(target, client, n)) for n in range(self.point.files))

    def facts(self, clients: Sequence[Host]) -> dict[str, Any]:
        """``{"dd": {host: version}}``. Raises WorkloadError when dd is missing on one."""
        return {"dd": {host.name: _version(host) for host in dict.fromkeys(clients)}}

    def prepare(self, target: Target, clients: Sequence[Host], seed: int, timeout_seconds: float) -> int:
        """Make the files to be copied: on the clients, and for reads on the target. Raises WorkloadError."""
        end = time.monotonic() + timeout_seconds
        source = self._source(target)
        try:
            for host in dict.fromkeys(clients):
                host.call(
                    timed.make_source,
                    source,
                    self.point.size,
                    self.point.content,
                    seed,
                    timeout_seconds=timeout_seconds,
                )
            if target.directory is not None:
                clients[0].call(timed.make_directory, target.directory / DIRECTORY)
                self._check_space(clients[0], target.directory)
            if self.point.reads and not target.null:
                for number, host in enumerate(clients):
                    self._lay_out(target, number, host, max(1.0, end - time.monotonic()))
        except OSError as error:
            raise WorkloadError(
                f"cannot make files to copy: {error.filename or source}: {error.strerror or error}"
            ) from error
        except (HostError, StoreError) as error:
            raise WorkloadError(str(error)) from error
        return 0 if target.null else self.point.dataset_bytes

    def stage(self, target: Target, clients: Sequence[Host], seed: int, timeout_seconds: float) -> None:  # noqa: ARG002
        """Remove what an earlier attempt has written. Raises WorkloadError."""
        if not self.point.writes or target.null:
            return
        try:
            for number, host in enumerate(clients):
                names = [self._name(number, n) for n in range(self.point.files)]
                if target.directory is not None:
                    host.call(
                        timed.remove, [target.directory / DIRECTORY / n for n in names], timeout_seconds=_CLEAN_SECONDS
                    )
                elif target.store is not None:
                    for name in names:
                        target.store.delete(host, name, _CLEAN_SECONDS)
        except OSError as error:
            raise WorkloadError(f"cannot remove {error.filename}: {error.strerror}") from error
        except (HostError, StoreError) as error:
            raise WorkloadError(str(error)) from error

    def warm(self, target: Target, clients: Sequence[Host], timeout_seconds: float) -> None:
        """Nothing: no dd point claims to be warm."""

    def run(
        self, target: Target, clients: Sequence[Host], *, seed: int, scratch: Path, deadline_seconds: float  # noqa: ARG002
    ) -> RunResult:  # fmt: skip
        """Copy on all clients at once. Error kinds: ``deadline``, ``exit-N``, ``failed`` (put or get), ``verify`` (what was got is
        not what was put), ``short`` (a file has another size afterwards), ``not-started``."""
        states = [Client(number, host) for number, host in enumerate(clients)]
        end = time.monotonic() + deadline_seconds
        if self.point.writes:  # the disk that the sources lie on must not be measured
            at_once(
                states,
                lambda c: c.host.call(timed.read_through, self._source(target), timeout_seconds=deadline_seconds),
            )
        at_once(states, lambda c: self._client(target, c, end))
        direction = "read" if self.point.reads else "write"
        results = [
            result_of(
                client,
                direction,
                seconds=sum(client.latencies_seconds),
                files=[] if target.null else [self._name(client.number, n) for n in range(self.point.files)],
                version=_version(client.host) if target.store is None else "put/get",
            )
            for client in states
        ]
        artefacts = [Artefact(f"{c.name}.dd", f"{self.command(target, c.number)}\n{c.output}".encode()) for c in states]
        return RunResult(results, [samples_of(c, direction) for c in states], artefacts)

    # --- one client -----------------------------------------------------------------------------------------------------

    def _client(self, target: Target, client: Client, end: float) -> None:
        client.started_at = time.time()
        try:
            for n in range(self.point.files):
                left = end - time.monotonic()
                if left <= 0:
                    client.fail("deadline", "killed at its deadline", None)
                    break
                if target.store is not None:
                    self._transfer(target, client, n, left)
                else:
                    self._copy(target, client, n, left)
                if client.exit_code != 0:
                    break
        except StoreError as error:
            client.fail("failed", str(error))
        except HostError as error:
            client.fail("deadline" if time.monotonic() >= end else "not-started", str(error), None)
        except OSError as error:
            client.fail("not-started", str(error), 127)
        client.ended_at = time.time()

    def _copy(self, target: Target, client: Client, n: int, left: float) -> None:
        done = client.host.call(timed.run, self._argv(target, client.number, n), timeout_seconds=left)
        client.output += done.words
        client.user_seconds += done.user_seconds
        client.system_seconds += done.system_seconds
        if done.exit_code:
            client.fail(f"exit-{done.exit_code}", done.words.strip())
            return
        if self.point.writes and target.directory is not None:
            (found,) = client.host.call(
                timed.sizes, [self._path(target, client.number, n)], timeout_seconds=_CLEAN_SECONDS
            )
            if found != self.point.size:
                client.fail(
                    "short", f"{self._name(client.number, n)} has {found} bytes after the copy, not {self.point.size}"
                )
                return
        self._count(client, done.seconds)

    def _transfer(self, target: Target, client: Client, n: int, left: float) -> None:
        assert target.store is not None
        assert target.sources is not None
        name, source = self._name(client.number, n), self._source(target)
        began = time.monotonic()
        if self.point.writes:
            target.store.put(client.host, source, name, left)
            seconds = time.monotonic() - began
        else:
            fetched = target.sources / f"got-{client.name}-{n}"
            target.store.get(client.host, name, fetched, left)
            seconds = time.monotonic() - began
            client.verify_errors = client.verify_errors or 0
            if not client.host.call(timed.same, fetched, source, timeout_seconds=max(_CLEAN_SECONDS, left)):
                client.verify_errors += 1
                client.fail("verify", f"{name}: what was got is not what was put")
            client.host.call(timed.remove, [fetched])
        # the CPU time of the system's own client is not told apart from its servers': it stays unknown, and rule R4 says so
        self._count(client, seconds)

    def _count(self, client: Client, seconds: float) -> None:
        client.bytes += self.point.size
        client.latencies_seconds.append(seconds)

    # --- files ----------------------------------------------------------------------------------------------------------

    def _argv(self, target: Target, client: int, n: int) -> list[str]:
        p, source, there = self.point, str(self._source(target)), str(self._path(target, client, n))
        if target.null:
            ends = [f"if={source}", "of=/dev/null"]
        else:
            ends = [f"if={source}", f"of={there}"] if p.writes else [f"if={there}", "of=/dev/null"]
        sync = ["conv=fsync"] if p.fsync and p.writes and not target.null else []
        return ["dd", *ends, f"bs={p.block_size}", f"count={p.size // p.block_size}", *sync]

    def _source(self, target: Target) -> Path:
        if target.sources is None:
            raise WorkloadError("a copy needs a directory of the client for its sources")
        return target.sources / f"{self.point.content}-{self.point.size}"

    def _name(self, client: int, n: int) -> str:
        """What is written has the same name whatever its size: only one such file stays."""
        what = "w" if self.point.writes else f"{self.point.content}-{self.point.size}"
        return f"{what}-c{client}-{n}"

    def _path(self, target: Target, client: int, n: int) -> Path:
        return (target.directory or Path("/dev")) / DIRECTORY / self._name(client, n)

    def _lay_out(self, target: Target, number: int, host: Host, left: float) -> None:
        source = self._source(target)
        end = time.monotonic() + left
        for n in range(self.point.files):
            left = max(1.0, end - time.monotonic())
            if target.store is not None:
                target.store.put(host, source, self._name(number, n), left)
                continue
            path = self._path(target, number, n)
            (found,) = host.call(timed.sizes, [path], timeout_seconds=_CLEAN_SECONDS)
            if found == self.point.size:
                continue
            argv = ["dd", f"if={source}", f"of={path}", "bs=1M", "conv=fsync"]
            done = host.call(timed.run, argv, timeout_seconds=left)
            if done.exit_code:
                raise WorkloadError(f"cannot lay out {path}: {done.words.strip()[-300:]}")

    def _check_space(self, host: Host, directory: Path) -> None:
        space = host.call(remote.statvfs, directory)
        needed = round(self.point.dataset_bytes * _SPACE_FACTOR)
        if space["total_bytes"] and space["free_bytes"] < needed:
            raise WorkloadError(
                f"disk full: the copies need {format_bytes(needed)} in {directory}, {format_bytes(space['free_bytes'])} are free"
            )


def _version(host: Host) -> str:
    try:
        done = host.run(["dd", "--version"], timeout_seconds=20)
    except HostError as error:
        raise WorkloadError(f"dd is missing on {host.name}; install it: apt-get install coreutils") from error
    return done.stdout.decode(errors="replace").splitlines()[0] if done.stdout else "dd"
