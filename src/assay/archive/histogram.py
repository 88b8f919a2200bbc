"""File-size histograms and their one CSV form.

Buckets are half-open, [low, high) bytes; gaps between buckets are empty buckets (fsstats leaves those out).
"""

from __future__ import annotations

import csv
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field

from assay.archive import ArchiveError

KIB = 1024
HEADER = ("bucket_min_kb", "bucket_max_kb", "count", "cum_count", "cum_pct", "bytes")
ERROR_COLUMNS = ("count_se", "bytes_se")
_SNAP = 1e-4  # of log2: edges that a source has rounded (1.04858e+06 KiB) are powers of two


@dataclass(frozen=True)
class Bucket:
    """Files of [low, high) bytes; ``high`` may be infinite. ``bytes`` is None when the source gives no volume; the
    standard errors are of a sampled scan and 0 for a count."""

    low: float
    high: float
    count: float
    bytes: float | None = None
    count_se: float = 0.0
    bytes_se: float = 0.0


@dataclass(frozen=True)
class Histogram:
    """One archive's file sizes. Buckets ascend, do not overlap, and hold at least one file together."""

    name: str
    buckets: tuple[Bucket, ...]
    facts: Mapping[str, str] = field(default_factory=dict)  # where it comes from, as key and value
    tables: tuple[SideTable, ...] = ()

    def __post_init__(self) -> None:
        """Raises ArchiveError with the first thing that is wrong."""
        _check(self.name, self.buckets)

    @property
    def files(self) -> float:
        """Number of files."""
        return math.fsum(b.count for b in self.buckets)

    @property
    def volume(self) -> float | None:
        """Bytes of all files, None when one bucket does not say."""
        if any(b.bytes is None for b in self.buckets if b.count):
            return None
        return math.fsum(b.bytes or 0 for b in self.buckets)

    @property
    def empty_files(self) -> float | None:
        """Files of zero bytes, None when they share a bucket with others."""
        return next((b.count for b in self.buckets if b.high <= 1), None)


@dataclass(frozen=True)
class SideTable:
    """A further histogram of a scan: files per directory, depth, age. Rows are (low, high, count, bytes or None)."""

    title: str
    unit: str
    rows: tuple[tuple[float, float, float, float | None], ...]


def _check(name: str, buckets: Sequence[Bucket]) -> None:
    if not buckets:
        raise ArchiveError(f"{name}: no buckets; is it a file-size histogram?")
    before = -math.inf
    for b in buckets:
        where = f"{name}: bucket {show(b.low)} to {show(b.high)}"
        if not (b.low >= 0 and b.high > b.low) or math.isinf(b.low):
            raise ArchiveError(f"{where}: the end must lie above the start, and the start at 0 or above")
        if b.low < before:
            what = "overlaps the one before it, which ends at" if b.high > before else "comes after one that ends at"
            raise ArchiveError(f"{where} {what} {show(before)}; sort the buckets and make them disjoint")
        before = b.high
        for what, value in (("count", b.count), ("bytes", b.bytes if b.bytes is not None else 0.0)):
            if not (value >= 0 and math.isfinite(value)):
                raise ArchiveError(f"{where}: {what} {value:g} is not a number at 0 or above")
    if not any(b.count for b in buckets):
        raise ArchiveError(f"{name}: no files in any bucket")


def show(size: float) -> str:
    """Bytes for people, exact for powers of two: ``64 KiB``."""
    if math.isinf(size):
        return "inf"
    for unit in ("B", "KiB", "MiB", "GiB", "TiB", "PiB"):
        if size < 1024 or unit == "PiB":
            return f"{size:.4g} {unit}"
        size /= 1024
    return ""


def snap(size: float) -> float:
    """A bucket edge as the power of two that a source has rounded, or as it is."""
    if size <= 0 or math.isinf(size):
        return size
    power = round(math.log2(size))
    return 2.0**power if abs(math.log2(size) - power) < _SNAP else size


def make(name: str, rows: Iterable[Bucket], facts: Mapping[str, str] | None = None) -> Histogram:
    """A histogram from rows as sources have them: edges are snapped to powers of two, and a bucket [0, 0] of empty
    files becomes part of the bucket that follows it, or [0, 1)."""
    out: list[Bucket] = []
    held: Bucket | None = None
    for row in rows:
        b = Bucket(snap(row.low), snap(row.high), row.count, row.bytes, row.count_se, row.bytes_se)
        if b.low == b.high == 0:
            held = b
            continue
        if held is not None:
            out, b = _place_empty(held, b, out)
            held = None
        out.append(b)
    if held is not None:
        out.append(Bucket(0, 1, held.count, held.bytes))
    return Histogram(name, tuple(out), dict(facts or {}))


def _place_empty(empty: Bucket, b: Bucket, out: list[Bucket]) -> tuple[list[Bucket], Bucket]:
    """Empty files before their neighbour: a bucket of their own if it leaves room, else inside it."""
    if b.low >= 1:
        return [*out, Bucket(0, 1, empty.count, 0.0)], b
    if b.high > 1:
        return [*out, Bucket(0, 1, empty.count, 0.0)], Bucket(1, b.high, b.count, b.bytes)
    return out, Bucket(b.low, b.high, b.count + empty.count, b.bytes)  # (0 B, 1 B]: both are below 2 B


def to_csv(histogram: Histogram) -> str:
    """The histogram as CSV: ``# key: value`` lines, the size table, and one table per side table after a blank line."""
    facts = {"site": histogram.name, **histogram.facts, "bin": "[min,max), half-open; KB = 1024 bytes"}
    lines = [f"# {key}: {value}" for key, value in facts.items()]
    sampled = any(b.count_se for b in histogram.buckets)
    lines.append(",".join(HEADER + (ERROR_COLUMNS if sampled else ())))
    total, running = histogram.files, 0.0
    for b in histogram.buckets:
        running += b.count
        cells = [_number(b.low / KIB), _number(b.high / KIB), _number(b.count), _number(running),
                 f"{100 * running / total:.6f}", "" if b.bytes is None else _number(b.bytes)]  # fmt: skip
        lines.append(",".join(cells + ([_number(b.count_se), _number(b.bytes_se)] if sampled else [])))
    for table in histogram.tables:
        lines += ["", f"# histogram: {table.title}", f"min_{table.unit},max_{table.unit},count,cum_count,cum_pct,bytes"]
        total, running = math.fsum(row[2] for row in table.rows) or 1.0, 0.0
        for low, high, count, volume in table.rows:
            running += count
            lines.append(
                f"{_number(low)},{_number(high)},{_number(count)},{_number(running)},{100 * running / total:.6f},"
                + ("" if volume is None else _number(volume))
            )
    return "\n".join(lines) + "\n"


def from_csv(text: str, name: str) -> Histogram:
    """Reads what :func:`to_csv` writes; side tables are left aside. Raises ArchiveError with the line."""
    facts: dict[str, str] = {}
    rows: list[Bucket] = []
    columns: list[str] | None = None
    for number, line in enumerate(text.splitlines(), start=1):
        if line.startswith("#"):
            key, _, value = line[1:].partition(":")
            facts.setdefault(key.strip(), value.strip())
            continue
        if not line.strip():
            if columns is not None:
                break  # the side tables
            continue
        cells = next(csv.reader([line]))
        if columns is None:
            columns = [c.strip() for c in cells]
            missing = [c for c in HEADER[:3] if c not in columns]
            if missing:
                raise ArchiveError(f"{name}, line {number}: no column {missing[0]}; columns are {','.join(HEADER)}")
            continue
        rows.append(_row(dict(zip(columns, cells, strict=False)), f"{name}, line {number}"))
    return make(facts.pop("site", name), rows, facts)


def side_tables(text: str) -> list[SideTable]:
    """The further tables of a scan's CSV."""
    out: list[SideTable] = []
    title, unit, rows = "", "", []
    for line in [*text.splitlines(), "# histogram: "]:
        if line.startswith("# histogram:"):
            if title and rows:
                out.append(SideTable(title, unit, tuple(rows)))
            title, rows = line.partition(":")[2].strip(), []
        elif title and line.startswith("min_"):
            unit = line.split(",")[0].removeprefix("min_")
        elif title and line.strip() and not line.startswith("#"):
            cells = line.split(",")
            try:
                rows.append((float(cells[0]), float(cells[1]), float(cells[2]), float(cells[5]) if cells[5] else None))
            except (ValueError, IndexError):
                raise ArchiveError(
                    f"table {title!r}: {line!r} is not a row min,max,count,cum_count,cum_pct,bytes"
                ) from None
    return out


def _row(cells: dict[str, str], where: str) -> Bucket:
    def number(column: str, default: float | None = None) -> float:
        said = cells.get(column, "").strip()
        if not said and default is not None:
            return default
        try:
            return float(said)
        except ValueError:
            raise ArchiveError(f"{where}: {column} is {said!r}, not a number") from None

    volume = cells.get("bytes", "").strip()
    return Bucket(
        number("bucket_min_kb") * KIB, number("bucket_max_kb") * KIB, number("count"),
        number("bytes") if volume else None, number("count_se", 0.0), number("bytes_se", 0.0),
    )  # fmt: skip


def _number(value: float) -> str:
    if math.isinf(value):
        return "inf"
    return str(int(value)) if value == int(value) else f"{value:.12g}"
