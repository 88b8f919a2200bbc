"""The data set that fio's points work on: laid out once, every byte really written, proven complete.

A file counts as prepared when the marker names it with its size and it still has that size. The marker is written after
fio has ended without error and fsynced its files, and a file that is laid out anew is struck from it before: whatever
interrupts the work, nothing half-written is ever taken for complete. Sizes alone would not do, as some programs (fio
among them) extend a file before they fill it.
"""

from __future__ import annotations

import errno
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from assay.lab import remote
from assay.lab.host import Host, HostError
from assay.model.units import format_bytes
from assay.workloads import fio_files, fio_output
from assay.workloads.base import WorkloadError

_MIB = 1 << 20
_JOBS_PER_HOST = 8
_FILES_PER_JOB = 100  # fio reads job options up to 4096 characters


def file_size(size: int) -> int:
    """Bytes of a file for ``size`` bytes of work: whole MiB, so that O_DIRECT can write all of it in 1 MiB blocks."""
    return -(-size // _MIB) * _MIB


def ensure(directory: Path, hosts: Mapping[Host, Sequence[str]], size: int, seed: int, timeout_seconds: float) -> None:
    """Make every file (by the host that will use it) at least ``size`` bytes; larger ones are kept as they are.

    Raises WorkloadError with one line when the disk is full, read-only, does not answer, fio fails or the time is over;
    files that were begun are removed then.
    """
    first = next(iter(hosts))
    try:
        complete = first.call(fio_files.complete_files, directory)
        wanted = {host: [name for name in names if complete.get(name, 0) < size] for host, names in hosts.items()}
        missing = [name for names in wanted.values() for name in names]
        if missing:
            kept = {name: old for name, old in complete.items() if name not in set(missing)}
            first.call(fio_files.begin, directory, kept, missing)
            length = file_size(size)
            _check_space(first, directory, length * len(missing))
            _make(first, directory, kept, wanted, length, seed, timeout_seconds)
    except OSError as error:
        raise WorkloadError(f"cannot lay out data in {directory}: {error.strerror or error}") from error
    except HostError as error:
        raise WorkloadError(str(error)) from error


def read(directory: Path, hosts: Mapping[Host, Sequence[str]], size: int, timeout_seconds: float) -> None:
    """Read the first ``size`` bytes of every file on the host that will use it. Raises WorkloadError."""
    end = time.monotonic() + timeout_seconds
    try:
        for host, names in hosts.items():
            host.call(fio_files.read, directory, names, size, timeout_seconds=max(1.0, end - time.monotonic()))
    except OSError as error:
        raise WorkloadError(f"cannot read {directory} to make it warm: {error.strerror or error}") from error
    except HostError as error:
        raise WorkloadError(str(error)) from error


def _check_space(host: Host, directory: Path, needed: int) -> None:
    space = host.call(remote.statvfs, directory)
    if space["total_bytes"] and space["free_bytes"] < needed:
        raise WorkloadError(
            f"disk full: the data set needs {format_bytes(needed)} more in {directory}, "
            f"{format_bytes(space['free_bytes'])} are free"
        )


def _make(
    first: Host, directory: Path, kept: Mapping[str, int], wanted: Mapping[Host, Sequence[str]], length: int, seed: int,
    timeout_seconds: float,
) -> None:  # fmt: skip
    missing = [name for names in wanted.values() for name in names]
    try:
        _lay_out(first, directory, wanted, length, seed, timeout_seconds)
        for name, actual in first.call(fio_files.file_sizes, directory, missing).items():
            if actual != length:
                raise WorkloadError(f"fio left {directory / name} with {actual or 0} of {length} bytes")
        first.call(fio_files.write_marker, directory, {**kept, **dict.fromkeys(missing, length)})
    except BaseException:
        with suppress(OSError, HostError):
            first.call(fio_files.remove, directory, missing)
        raise


def _lay_out(
    first: Host, directory: Path, wanted: Mapping[Host, Sequence[str]], length: int, seed: int, timeout_seconds: float
) -> None:
    deadline = time.monotonic() + timeout_seconds
    direct = first.call(fio_files.direct_works, directory)
    processes = []
    try:
        for number, (host, names) in enumerate(wanted.items()):
            if names:
                processes.append(host.spawn(_command(directory, names, length, seed + number, direct)))
        while processes:
            done = processes.pop(0).wait(max(0.0, deadline - time.monotonic()))
            if done.exit_code is None:
                raise WorkloadError(f"laying out the data set in {directory} took more than {timeout_seconds:.0f} s")
            kinds, words = _failure(done.stdout)
            if "ENOSPC" in kinds or "EDQUOT" in kinds or b"No space left" in done.stderr:
                raise WorkloadError(f"disk full: the data set does not fit into {directory}")
            if done.exit_code != 0 or kinds:
                words = done.stderr.decode(errors="replace").strip() or words
                raise WorkloadError(f"fio could not lay out data in {directory}: {' '.join(words.split())[-300:]}")
    finally:
        for process in processes:
            process.kill()


def _failure(output: bytes) -> tuple[set[str], str]:
    try:
        result = fio_output.parse(output)
    except fio_output.FioOutputError as error:
        return set(), str(error)
    return {errno.errorcode.get(job.error, str(job.error)) for job in result.jobs if job.error}, result.text


def _command(directory: Path, names: Sequence[str], length: int, seed: int, direct: bool) -> list[str]:
    """One process; its jobs write their files one after another, so that each file is laid out in one go."""
    jobs = max(min(_JOBS_PER_HOST, len(names)), -(-len(names) // _FILES_PER_JOB))
    escaped = str(directory).replace(":", "\\:")
    argv = ["fio", "--output-format=json", "--eta=never"]
    for job in range(jobs):
        mine = names[job::jobs]
        argv += [f"--name=layout{job}", "--thread=1", "--ioengine=psync", "--rw=write", "--bs=1M"]
        argv += [f"--directory={escaped}", f"--filename={':'.join(mine)}", f"--size={length * len(mine)}"]
        argv += ["--file_service_type=sequential", "--refill_buffers=1", f"--randseed={seed + 1}"]
        argv += ["--fallocate=none", "--end_fsync=1", f"--direct={int(direct)}"]
    return argv
