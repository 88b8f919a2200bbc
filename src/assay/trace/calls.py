"""Traces through the Rust core: every function takes paths and plain values and raises TraceError with one clear line."""

from __future__ import annotations

import json
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, Literal, TypeVar

from assay import _core

T = TypeVar("T")
Timing = Literal["think", "abs", "asap"]
IMPORT_FORMATS = ("strace", "iolog", "blkparse", "msr", "alibaba", "darshan")


class TraceError(Exception):
    """A trace cannot be recorded, read, converted or replayed; the message says why and what helps."""


def _core_call(function: Callable[..., T], *arguments: object) -> T:
    try:
        return function(*arguments)
    except ValueError as error:
        raise TraceError(str(error)) from None


def record(
    out: Path,
    *,
    command: Sequence[str] = (),
    pid: int | None = None,
    mount: str = "",
    raw: bool = False,
    stat: bool = False,
    mmap: bool = True,
    wait_all: bool = False,
    seconds: float | None = None,
) -> dict[str, Any]:
    """Record a command or a process with eBPF; needs root and Linux 5.12 (``raw``: 5.8, at about 2.5 times the cost).

    ``mount`` keeps only files below it; ``stat`` adds the calls that only ask (stat, access, readlink); ``mmap`` adds
    page-ins of mapped files. Returns ``summary`` (events, dropped, unwritten, duration in ns, exit_code, warnings),
    ``bytes`` and the recorder's CPU time.
    """
    options = {
        "out": str(out),
        "command": list(command),
        "pid": pid,
        "mount": mount,
        "raw": raw,
        "stat": stat,
        "mmap": mmap,
        "wait_all": wait_all,
        "seconds": seconds,
    }
    return json.loads(_core_call(_core.trace_record, json.dumps(options)))


def info(path: Path, interval_seconds: float = 0.0) -> dict[str, Any]:
    """What a trace consists of: operations by class and by call, sizes, sequentiality, think times, concurrency, working
    set, mix over time, hottest files. ``interval_seconds`` 0 chooses one by the trace's length."""
    return json.loads(_core_call(_core.trace_info, path, interval_seconds))


def import_text(kind: str, data: bytes, out: Path, *, strict: bool = False) -> dict[str, Any]:
    """Write another tool's text as a trace. Malformed lines are skipped and counted, or refused when ``strict``.
    Returns lines, skipped, ignored (calls without file I/O), and the first problems as (line, what)."""
    return json.loads(_core_call(_core.trace_import, kind, data, out, strict))


def export_text(path: Path, kind: Literal["iolog", "csv"]) -> tuple[str, int]:
    """A trace as fio iolog (version 3) or CSV, and how many operations the format cannot hold."""
    return _core_call(_core.trace_export, path, kind)


def anonymise(path: Path, out: Path, seed: int) -> None:
    """Write a copy in which every name is a seeded hash; the tree's shape, sizes and times stay."""
    _core_call(_core.trace_anonymise, path, out, seed)


def replay_plan(
    path: Path, *, only: Sequence[str] = (), copies: int = 1, seed: int = 0, spread_seconds: float = 0.0
) -> dict[str, Any]:
    """What a replay needs (files, bytes per copy) and does (operations, processes, threads, seconds), and when each copy
    starts."""
    return json.loads(_core_call(_core.trace_replay_plan, path, list(only), copies, seed, spread_seconds))
