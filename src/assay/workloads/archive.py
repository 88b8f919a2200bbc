"""The archival protocol on a mounted file system: write a fileset, sync, go cold and prove it, read it in random order.

One cell is one fileset (a curve of a profile, or fixed sizes) at one capacity utilisation, read by one number of threads.
The directory holds nothing else before and after; the caller makes a new file system between cells where it can.
"""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import numpy as np

from assay.archive import ArchiveError, protocol
from assay.archive.fileset import Plan, describe, stream
from assay.workloads import fileset
from assay.workloads.base import WorkloadError

CALL_BYTES = 2**20
BIN_SECONDS = 0.1
_PROBES = 200
_DROP = Path("/proc/sys/vm/drop_caches")
Mode = Literal["paper", "scaled"]
Say = Callable[[str], None]


@dataclass(frozen=True)
class Reading:
    """How a fileset is read. ``paper``: one full pass and at least 30 minutes. ``scaled``: a random prefix of the pass, until
    the 95 % half-width of the rate is ``half_width`` of it and ``minimum_seconds`` are over."""

    threads: int = 128
    mode: Mode = "scaled"
    minimum_seconds: float = protocol.SCALED_SECONDS
    maximum_seconds: float = 7 * 86400.0
    half_width: float = protocol.HALF_WIDTH
    direct: bool = False


@dataclass(frozen=True)
class Cold:
    """Proof that the caches were cold: of ``probed`` files, how many had their first page in memory (None: the file
    system cannot say), and the exit code of each step."""

    steps: tuple[tuple[str, int], ...]
    probed: int
    resident: int | None

    @property
    def proven(self) -> bool:
        """Whether nothing of the sample was in memory after steps that all worked."""
        return self.resident == 0 and all(code == 0 for _, code in self.steps)


def go_cold(root: Path, plan: Plan) -> Cold:
    """Drop this host's caches and ask a sample of the files whether they are gone. Without the privilege for the whole
    host, each file's own pages are dropped."""
    os.sync()
    try:
        _DROP.write_text("3\n")
        steps = [("drop_caches=3", 0)]
    except OSError as error:
        steps = [("drop_caches=3 refused, fadvise DONTNEED per file", 0 if error.errno else 1)]
        made = fileset.engine(plan, root)
        for file in plan.order:
            handle = os.open(root / made.name(int(file)), os.O_RDONLY)
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            os.close(handle)
    probed, resident = _probe(root, plan)
    return Cold(tuple(steps), probed, resident)


def _probe(root: Path, plan: Plan) -> tuple[int, int | None]:
    """Files of a sample whose first page can be read without waiting (RWF_NOWAIT), and so is in memory."""
    made = fileset.engine(plan, root)
    resident = probed = 0
    for file in stream(plan.seed, "probe").permutation(plan.order)[:_PROBES]:
        if not plan.sizes[int(file)]:
            continue
        handle = os.open(root / made.name(int(file)), os.O_RDONLY)
        try:
            resident += os.preadv(handle, [bytearray(1)], 0, os.RWF_NOWAIT) > 0
        except BlockingIOError:
            pass
        except OSError:
            return probed, None  # FUSE and some network file systems do not know RWF_NOWAIT
        finally:
            os.close(handle)
        probed += 1
    return probed, resident


def run_cell(
    plan: Plan, root: Path, readings: Sequence[Reading], *, write_threads: int = fileset.THREADS, keep: bool = False,
    verify: bool = False, say: Say = lambda _: None,
) -> dict[str, Any]:  # fmt: skip
    """Carry one fileset through the protocol and remove it again; everything measured, as JSON-able data.

    Raises ArchiveError when the directory is not empty or too small, OSError and WorkloadError when writing or reading
    fails. The fileset is removed in any case, unless ``keep``.
    """
    if any(root.iterdir()):
        raise ArchiveError(f"{root} is not empty; the protocol needs a fresh file system or an empty directory")
    whole = fileset.capacity(root)
    manifest = fileset.Manifest(root, plan, np.zeros(0, dtype=np.uint64))
    try:
        say(f"writing {plan.files} files, {plan.volume / 1e9:.2f} GB")
        written = fileset.write(plan, root, threads=write_threads)
        manifest = fileset.Manifest(root, plan, written.checksums)
        out: dict[str, Any] = {
            "fileset": describe(plan), "capacity_bytes": whole, "utilisation": plan.volume / whole,
            "write": _writing(written), "reads": [],
        }  # fmt: skip
        for reading in readings:
            out["reads"].append(_read(plan, root, reading, say))
        if verify:
            say("verifying")
            out["faulty_files"] = fileset.verify(manifest).faulty
        return out
    finally:
        if not keep:
            fileset.remove(manifest)


def _writing(written: fileset.Written) -> dict[str, Any]:
    return {
        "seconds": written.write_seconds, "sync_seconds": written.sync_seconds,
        "bytes_per_second": written.bytes / written.seconds, "files_per_second": written.files / written.seconds,
        "sync_share": written.sync_seconds / written.seconds, "direct_files": written.direct_files,
    }  # fmt: skip


def _read(plan: Plan, root: Path, reading: Reading, say: Say) -> dict[str, Any]:
    cold = go_cold(root, plan)
    order = stream(plan.seed, f"read {reading.threads}").permutation(plan.order)
    stop = protocol.StopWhenNarrow(reading.minimum_seconds, reading.half_width)
    told = time.monotonic()

    def tick(files: int, done: int, seconds: float) -> bool:
        nonlocal told
        if time.monotonic() - told > 10:
            told = time.monotonic()
            say(
                f"reading with {reading.threads} threads: {files} of {plan.files} files, {done / 1e6 / seconds:.0f} MB/s"
            )
        return reading.mode == "paper" or stop(files, done, seconds)

    seen = fileset.engine(plan, root).read(
        order, threads=reading.threads, call_bytes=CALL_BYTES, direct=reading.direct,
        minimum_seconds=reading.minimum_seconds if reading.mode == "paper" else 0.0,
        maximum_seconds=reading.maximum_seconds, bin_seconds=BIN_SECONDS, seed=plan.seed, progress=tick,
    )  # fmt: skip
    if seen["bytes"] == 0:
        raise WorkloadError("nothing was read: the fileset holds empty files only")
    file = np.frombuffer(seen["file"], "<u8")
    bins = np.frombuffer(seen["bins"], "<u8")
    found = protocol.rate(bins, BIN_SECONDS, seen["drain_from_seconds"], seconds=seen["seconds"])
    service, first = np.frombuffer(seen["service_ns"], "<u8"), np.frombuffer(seen["first_byte_ns"], "<u8")
    notes = []
    if not cold.proven:
        what = (
            "cannot tell" if cold.resident is None else f"{cold.resident} of {cold.probed} probed files were in memory"
        )
        notes.append(f"not proven cold: {what}")
    if plan.files < 20 * reading.threads:
        notes.append(f"{plan.files} files are fewer than 20 per thread: the drain weighs")
    if reading.mode == "scaled" and not found.relative_half_width <= reading.half_width:
        notes.append("the pass ended before the interval was narrow enough")
    return {
        "threads": reading.threads, "mode": reading.mode, "cold": cold.proven,
        "cold_evidence": {"steps": cold.steps, "probed": cold.probed, "resident": cold.resident},
        "rate": found.as_dict(), "files": int(file.size), "bytes": seen["bytes"], "seconds": seen["seconds"],
        "passes": seen["passes"], "share_of_pass": file.size / plan.files,
        "files_per_second": file.size / seen["seconds"], "drain_from_seconds": seen["drain_from_seconds"],
        "bins": bins.tolist(), "bin_seconds": BIN_SECONDS,
        "by_bucket": protocol.by_bucket(plan.sizes[file.astype(np.int64)], service, first) if file.size else [],
        "notes": notes,
    }  # fmt: skip
