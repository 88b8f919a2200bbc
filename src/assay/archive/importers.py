"""Histograms and size lists of other tools, recognised by what they look like.

Each importer takes the text and a name and returns a :class:`~assay.archive.histogram.Histogram`; ArchiveError says in one
line what was not understood. Long size lists go through :class:`SizeCounter`, whose memory does not grow with them.
"""

from __future__ import annotations

import csv
import io
import re
from collections.abc import Callable, Iterable

from assay.archive import ArchiveError
from assay.archive.histogram import HEADER, KIB, Bucket, Histogram, from_csv, make

_UNITS = {"": 1, "b": 1, "k": 1024, "m": 1024**2, "g": 1024**3, "t": 1024**4, "p": 1024**5}
_SIZE = re.compile(r"([0-9][0-9,]*\.?[0-9]*)\s*([kmgtp]?)(?:i?b|ytes)?\b", re.IGNORECASE)


def parse_size(text: str) -> float:
    """Bytes of ``4.00 KiB``, ``32K``, ``1T``, ``512``, ``1,024``; powers of 1024, as these tools mean them."""
    match = _SIZE.fullmatch(text.strip())
    if match is None:
        raise ArchiveError(f"{text.strip()!r} is not a size")
    return float(match[1].replace(",", "")) * _UNITS[match[2].lower()]


class SizeCounter:
    """Counts sizes into power-of-two buckets, one by one: [0, 1), [1, 2), [2, 4) ... bytes."""

    def __init__(self) -> None:
        self.counts = [0] * 65
        self.volumes = [0] * 65

    def add(self, size: int) -> None:
        """Count one file of ``size`` bytes."""
        k = size.bit_length()
        self.counts[k] += 1
        self.volumes[k] += size

    def histogram(self, name: str, facts: dict[str, str]) -> Histogram:
        """What was counted."""
        rows = [
            Bucket(0.0 if k == 0 else 2.0 ** (k - 1), 2.0**k, self.counts[k], float(self.volumes[k]))
            for k in range(self.last + 1)
        ]
        return make(name, rows, facts)

    @property
    def last(self) -> int:
        """The highest bucket that holds anything."""
        return max((k for k in range(65) if self.counts[k]), default=0)


def size_list(lines: Iterable[str], name: str) -> Histogram:
    """Bytes of one file per line, the first field counts: ``find -printf '%s\\n'``, elbencho's treefile (f SIZE PATH)."""
    counter = SizeCounter()
    for number, line in enumerate(lines, start=1):
        fields = line.split(None, 2)
        if not fields or line.startswith("#") or fields[0] == "d":
            continue
        said = fields[1] if fields[0] == "f" and len(fields) > 1 else fields[0]
        if not said.isdecimal():
            if said.startswith("-") and said[1:].isdecimal():
                raise ArchiveError(f"{name}, line {number}: a file cannot have {said} bytes")
            raise ArchiveError(f"{name}, line {number}: {said[:40]!r} is not a number of bytes")
        counter.add(int(said))
    return counter.histogram(name, {"source": "list of sizes"})


def s3_inventory(lines: Iterable[str], name: str) -> Histogram:
    """An S3 inventory: CSV with a header that names Size (and IsLatest, IsDeleteMarker), or without one: bucket, key,
    [version, latest, delete marker,] size. Old versions and delete markers are left out."""
    reader = csv.reader(lines)
    counter = SizeCounter()
    columns: dict[str, int] | None = None
    for number, row in enumerate(reader, start=1):
        if columns is None:
            columns, is_header = _inventory_columns(row, name)
            if is_header:
                continue
        if not row or len(row) <= columns["size"]:
            continue
        latest, marker = columns.get("islatest"), columns.get("isdeletemarker")
        if (latest is not None and row[latest].lower() == "false") or (
            marker is not None and row[marker].lower() == "true"
        ):
            continue
        said = row[columns["size"]].strip()
        if not said.isdecimal():
            raise ArchiveError(f"{name}, line {number}: {said[:40]!r} is not an object's size in bytes")
        counter.add(int(said))
    return counter.histogram(name, {"source": "S3 inventory"})


def _inventory_columns(first: list[str], name: str) -> tuple[dict[str, int], bool]:
    lower = [c.strip().lower().replace("_", "").replace(" ", "") for c in first]
    if "size" in lower:
        return {c: lower.index(c) for c in ("size", "islatest", "isdeletemarker") if c in lower}, True
    if len(first) >= 6 and first[3].lower() in ("true", "false") and first[5].isdecimal():
        return {"islatest": 3, "isdeletemarker": 4, "size": 5}, False
    if len(first) >= 3 and first[2].isdecimal():
        return {"size": 2}, False
    raise ArchiveError(f"{name}: no column Size; give the inventory the field names of its manifest as first line")


def fsstats(text: str, name: str) -> Histogram:
    """The ``histogram,file size`` table of an fsstats CSV: KB buckets, half-open; ``val count`` is the volume in KB."""
    rows: list[Bucket] = []
    inside = False
    for number, line in enumerate(text.splitlines(), start=1):
        cells = [c.strip() for c in line.split(",")]
        if cells[0] == "histogram":
            if inside:
                break
            inside = len(cells) > 1 and cells[1].lower() == "file size"
        elif inside and re.fullmatch(r"[0-9.eE+]+", cells[0]) and len(cells) >= 3:
            try:
                volume = float(cells[5]) * KIB if len(cells) > 5 and cells[5] else None
                rows.append(Bucket(float(cells[0]) * KIB, float(cells[1]) * KIB, float(cells[2]), volume))
            except ValueError:
                raise ArchiveError(f"{name}, line {number}: not a row of numbers") from None
        elif inside and rows and not any(cells):
            break
    if not rows:
        raise ArchiveError(f"{name}: no table 'histogram,file size' in this fsstats file")
    return make(name, rows, {"source": "fsstats"})


_FPROF = re.compile(
    r"^\s*(<=|<|>=|>)\s+([0-9.,]+\s*[KMGTP]?i?B?)\s+([0-9,]+)(?:\s+([0-9.,]+\s*[KMGTP]?i?B)?)?", re.IGNORECASE
)


def fprof(text: str, name: str) -> Histogram:
    """Text of pcircle's fprof: rows ``<= 4.00 KiB  19,888,046  38.6 GiB  17 %``. Each row starts where the last ended;
    volumes are rounded by fprof to two decimals."""
    rows: list[Bucket] = []
    low = 0.0
    for line in text.splitlines():
        match = _FPROF.match(line)
        if match is None:
            if rows and "histogram" in line.lower():
                break  # the directory histogram
            continue
        edge, count = parse_size(match[2]), float(match[3].replace(",", ""))
        volume = parse_size(match[4]) if match[4] else None
        if match[1].startswith("<"):
            rows.append(Bucket(low, edge, count, volume))
            low = edge
        else:
            rows.append(Bucket(edge, float("inf"), count, volume))
    if not rows:
        raise ArchiveError(f"{name}: no rows such as '<= 4.00 KiB 123' in this fprof report")
    return make(name, rows, {"source": "fprof"})


def gufi(text: str, name: str) -> Histogram:
    """GUFI's ``gufi_stats filesize-log2-bins``: ``exponent count`` per line; an empty exponent means empty files."""
    found: dict[int, float] = {}
    for number, line in enumerate(text.splitlines(), start=1):
        fields = [f for f in re.split(r"[\s,|]+", line.strip()) if f]
        if not fields or not fields[-1].isdecimal():
            continue
        exponent = fields[0].lower() if len(fields) > 1 else ""
        if exponent in ("", "none", "null", "-inf", "nan"):
            key = -1
        elif re.fullmatch(r"-?[0-9]+(\.0)?", exponent):
            key = max(-1, int(float(exponent)))
        else:
            raise ArchiveError(f"{name}, line {number}: {exponent!r} is not a power of two")
        found[key] = found.get(key, 0) + float(fields[-1])
    rows = [Bucket(0.0 if k < 0 else 2.0**k, 2.0 ** (k + 1), found[k]) for k in sorted(found)]
    return make(name, rows, {"source": "GUFI filesize-log2-bins"})


#: Robinhood's ranges by their titles, in bytes.
_ROBINHOOD = {
    "0": (0, 1), "1~31": (1, 32), "32~1k-": (32, 2**10), "1k~31k": (2**10, 2**15), "32k~1m-": (2**15, 2**20),
    "1m~31m": (2**20, 2**25), "32m~1g-": (2**25, 2**30), "1g~31g": (2**30, 2**35), "32g~1t-": (2**35, 2**40),
    "+1t": (2**40, float("inf")),
}  # fmt: skip


def robinhood(text: str, name: str) -> Histogram:
    """``rbh-report --size-profile``, as CSV with a header line or as ``range: count`` lines; rows are added up."""
    totals = dict.fromkeys(_ROBINHOOD, 0.0)
    columns: list[str] | None = None
    for line in text.splitlines():
        cells = [c.strip() for c in re.split(r"[,;:\t]|\s{2,}", line) if c.strip()]
        labels = [c.lower() for c in cells]
        if "32~1k-" in labels and len(labels) >= 5:
            columns = labels
        elif columns is not None and len(cells) == len(columns):
            for label, cell in zip(columns, cells, strict=True):
                if label in totals and cell.isdecimal():
                    totals[label] += float(cell)
        elif columns is None and len(cells) >= 2 and labels[0] in totals and cells[1].isdecimal():
            totals[labels[0]] += float(cells[1])
    rows = [Bucket(float(low), float(high), totals[k]) for k, (low, high) in _ROBINHOOD.items()]
    return make(name, rows, {"source": "Robinhood size profile"})


_DWALK = re.compile(r"^\s*\[\s*([0-9]+)\s*~\s*([0-9]+|MAX)\s*\]\s+([0-9]+)\s*$", re.IGNORECASE)


def dwalk(text: str, name: str) -> Histogram:
    """mpiFileUtils' ``dwalk --distribution size:...``: rows ``[1~1024] 17``; the ends are inclusive."""
    rows: list[Bucket] = []
    for line in text.splitlines():
        match = _DWALK.match(line)
        if match is not None:
            high = float("inf") if match[2].upper() == "MAX" else float(match[2]) + 1
            rows.append(Bucket(float(match[1]), high, float(match[3])))
    if not rows:
        raise ArchiveError(f"{name}: no rows such as '[1~1024] 17' in this dwalk report")
    # 1025 bytes is where a bucket of (.., 1024] ends: on a grid of powers of two it is 1024
    return make(name, [_off_by_one(b) for b in rows], {"source": "dwalk"})


def _off_by_one(b: Bucket) -> Bucket:
    def edge(x: float) -> float:
        whole = x not in (0.0, float("inf")) and int(x - 1) > 0 and (int(x - 1) & (int(x - 1) - 1)) == 0
        return x - 1 if whole else x

    low, high = edge(b.low), edge(b.high)
    return Bucket(low, max(high, low), b.count) if high > low else Bucket(b.low, b.high, b.count)


IMPORTERS: dict[str, Callable[[str, str], Histogram]] = {
    "assay": from_csv,
    "fsstats": fsstats,
    "fprof": fprof,
    "gufi": gufi,
    "robinhood": robinhood,
    "dwalk": dwalk,
    "sizes": lambda text, name: size_list(io.StringIO(text), name),
    "s3": lambda text, name: s3_inventory(io.StringIO(text), name),
}


def recognise(text: str) -> str:
    """Name of the importer for a text, by its first lines; raises ArchiveError when none fits."""
    head = text[:20000]
    lines = [line for line in head.splitlines() if line.strip() and not line.startswith("#")]
    if not lines:
        raise ArchiveError("it holds nothing but comments and blank lines")
    if lines[0].lower().startswith(",".join(HEADER[:3])):
        return "assay"
    if re.search(r"^histogram,", head, re.MULTILINE):
        return "fsstats"
    if any(_DWALK.match(line) for line in lines):
        return "dwalk"
    if any(_FPROF.match(line) for line in lines):
        return "fprof"
    if "32~1k-" in head.lower():
        return "robinhood"
    if lines[0].startswith("f ") or lines[0].startswith("d ") or all(line.strip().isdecimal() for line in lines[:50]):
        return "sizes"
    if re.search(r"\bsize\b", lines[0], re.IGNORECASE) or re.match(r'^"[^"]*","[^"]*",', lines[0]):
        return "s3"
    if all(re.fullmatch(r"\s*(-?[0-9]+|None|NULL)?[\s,|]+[0-9]+\s*", line) for line in lines[:60]):
        return "gufi"
    raise ArchiveError(f"it is none of {', '.join(IMPORTERS)}; its first line is {lines[0][:60]!r}")


def read(text: str, name: str, form: str | None = None) -> Histogram:
    """A histogram from the text of any known tool; ``form`` names the importer when it should not be guessed."""
    if form is not None and form not in IMPORTERS:
        raise ArchiveError(f"unknown format {form!r}; known: {', '.join(IMPORTERS)}")
    try:
        return IMPORTERS[form or recognise(text)](text, name)
    except ArchiveError as error:
        if str(error).startswith(name):
            raise
        raise ArchiveError(f"{name}: {error}") from None
