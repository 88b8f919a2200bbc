"""fio's json+ output, read tolerantly: text around and within the JSON, NaN, missing keys, several jobs.

Nothing is guessed: a job without byte counts in a direction has no figures in that direction, and an output that was cut
off is an error, because its last jobs would be missing from every sum.
"""

from __future__ import annotations

import json
import math
import re
from dataclasses import dataclass, field
from typing import Any

from assay.model.evidence import Direction

_DIRECTIONS: tuple[Direction, ...] = ("read", "write")
_MAX_STARTS = 64  # places tried as the beginning of the JSON
_BARE_NUMBER = re.compile(r"(?<=[:\[,])(\s*)[-+]?(?:nan|inf(?:inity)?)(?=\s*[,\]}\n])", re.IGNORECASE)
_JSON_LINE = re.compile(r'^\s*(?:"[^"]*"\s*:.*|"[^"]*"\s*,?|[{}\[\]][{}\[\],\s]*|[-+0-9.eE]+\s*,?)\s*$')
_MAX_COUNT = 1 << 63


class FioOutputError(Exception):
    """The output holds no complete result of fio. The message is one clear line."""


@dataclass(frozen=True)
class FioTotals:
    """One direction of one thread. Latency is total latency (submission to completion) in nanoseconds."""

    bytes: int
    operations: int
    runtime_seconds: float
    latency_mean_ns: float
    latency_min_ns: float
    latency_max_ns: float
    latency_samples: int
    latency_ns: list[int] = field(default_factory=list)
    counts: list[int] = field(default_factory=list)
    percentiles_ns: dict[str, int] = field(default_factory=dict)  # fio's own; for tests, never for figures


@dataclass(frozen=True)
class FioJob:
    """One thread. ``error`` is an errno (0: none), ``total_errors`` counts those that continue_on_error let pass."""

    name: str
    error: int
    total_errors: int
    runtime_seconds: float
    user_cpu_share: float
    system_cpu_share: float
    totals: dict[Direction, FioTotals]


@dataclass(frozen=True)
class FioOutput:
    """A whole output: fio's version, its threads, and the text that was not JSON (warnings, errors)."""

    version: str
    jobs: list[FioJob]
    text: str


def parse(raw: bytes) -> FioOutput:
    """The result in ``raw``. Raises FioOutputError, nothing else, when there is none or it is cut off."""
    document, text = _find(raw.decode("utf-8", errors="replace"))
    jobs = document["jobs"]
    try:
        return FioOutput(
            version=str(document.get("fio version", "")),
            jobs=[_job(job) for job in jobs if isinstance(job, dict)],
            text=text.strip(),
        )
    except (ValueError, TypeError, OverflowError) as error:
        raise FioOutputError(f"fio's output has a value that cannot be: {error}") from error


def _find(text: str) -> tuple[dict[str, Any], str]:
    """The JSON object with the jobs, and the text around it."""
    if "{" not in text:
        words = " ".join(text.split())[-200:]
        raise FioOutputError(f"fio gave no result: {words or 'the output is empty'}")
    found = _decode(text)
    if found is None:  # only then: the substitution costs more than all the rest
        found = _decode(_BARE_NUMBER.sub(r"\1NaN", text))
    if found is not None:
        return found
    # Warnings of other threads can fall between the lines of the JSON: keep what looks like fio's own lines.
    lines = _BARE_NUMBER.sub(r"\1NaN", text).splitlines()
    kept = [line for line in lines if _JSON_LINE.match(line)]
    found = _decode("\n".join(kept))
    if found is not None:
        return found[0], "\n".join(line for line in lines if not _JSON_LINE.match(line))
    raise FioOutputError("fio's output is not a complete JSON result (cut off or damaged)")


def _decode(text: str) -> tuple[dict[str, Any], str] | None:
    decoder = json.JSONDecoder()
    start = -1
    for _ in range(_MAX_STARTS):
        start = text.find("{", start + 1)
        if start < 0:
            return None
        try:
            value, end = decoder.raw_decode(text, start)
        except (ValueError, RecursionError):
            continue
        if isinstance(value, dict) and isinstance(value.get("jobs"), list) and value["jobs"]:
            return value, f"{text[:start]}\n{text[end:]}"
    return None


def _job(job: dict[str, Any]) -> FioJob:
    totals: dict[Direction, FioTotals] = {}
    for direction in _DIRECTIONS:
        section = job.get(direction)
        if isinstance(section, dict) and (found := _totals(section)) is not None:
            totals[direction] = found
    return FioJob(
        name=str(job.get("jobname", "")),
        error=_count(job.get("error")),
        total_errors=_count(job.get("total_err")),
        runtime_seconds=_number(job.get("job_runtime")) / 1000,
        user_cpu_share=_number(job.get("usr_cpu")) / 100,
        system_cpu_share=_number(job.get("sys_cpu")) / 100,
        totals=totals,
    )


def _totals(section: dict[str, Any]) -> FioTotals | None:
    if "io_bytes" in section:
        moved = _count(section["io_bytes"])
    elif "io_kbytes" in section:
        moved = _count(section["io_kbytes"]) * 1024
    else:
        return None
    latency = section.get("lat_ns")
    if not isinstance(latency, dict):
        latency = {}
    bins = latency.get("bins")
    latency_ns, counts = _bins(bins) if isinstance(bins, dict) else ([], [])
    percentile = latency.get("percentile")
    return FioTotals(
        bytes=moved,
        operations=_count(section.get("total_ios")),
        runtime_seconds=_number(section.get("runtime")) / 1000,
        latency_mean_ns=_number(latency.get("mean")),
        latency_min_ns=_number(latency.get("min")),
        latency_max_ns=_number(latency.get("max")),
        latency_samples=_count(latency.get("N")),
        latency_ns=latency_ns,
        counts=counts,
        percentiles_ns={str(q): _count(ns) for q, ns in percentile.items()} if isinstance(percentile, dict) else {},
    )


def _bins(bins: dict[str, Any]) -> tuple[list[int], list[int]]:
    """Latencies (ns, ascending) and counts. Checked in bulk: 128 threads have 100,000 bins."""
    latency_ns = [int(ns) for ns in bins]
    counts = list(bins.values())
    if any(type(n) is not int for n in counts):
        counts = [_count(n) for n in counts]
    if latency_ns and not (
        min(latency_ns) >= 0 and max(latency_ns) < _MAX_COUNT and min(counts) >= 0 and max(counts) < _MAX_COUNT
    ):
        raise ValueError("a latency bin outside 63 bits")
    if latency_ns != sorted(latency_ns):
        order = sorted(range(len(latency_ns)), key=latency_ns.__getitem__)
        latency_ns, counts = [latency_ns[i] for i in order], [counts[i] for i in order]
    return latency_ns, counts


def _number(value: object) -> float:
    """A finite number that is not negative; 0.0 for anything else (fio prints NaN where nothing was counted)."""
    if isinstance(value, bool) or not isinstance(value, int | float):
        return 0.0
    number = float(value)  # OverflowError for an integer beyond all floats
    return number if math.isfinite(number) and number > 0 else 0.0


def _count(value: object) -> int:
    """A whole number that is not negative; 0 for a missing one; ValueError for one that no counter can hold."""
    if isinstance(value, float) and math.isfinite(value):
        value = int(value)
    if isinstance(value, bool) or not isinstance(value, int):
        return 0
    if not 0 <= value < _MAX_COUNT:
        raise ValueError(f"{value} as a counter")
    return value
