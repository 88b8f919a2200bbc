"""``assay place map`` and ``assay place verify``: files in, placement computed, lines out."""

from __future__ import annotations

import csv
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from pathlib import Path

from assay.cli.errors import BadInput
from assay.placement import ceph, crush, glusterfs, vectors
from assay.placement.errors import PlacementError

FORMATS = ("csv", "json", "crushtool")
_TOOL_SECONDS = 600.0  # crushtool on one rule; more means that it hangs


@dataclass(frozen=True)
class MapRequest:
    """What ``assay place map`` was asked for."""

    crushmap: Path | None = None
    osdmap: Path | None = None
    rule: int | None = None
    num_rep: int | None = None
    first: int = 0
    last: int = 1023
    weights: tuple[tuple[int, float], ...] = ()
    pool_id: int | None = None
    pool: str | None = None
    objects: str | None = None
    namespace: str = ""
    layout: Path | None = None
    bricks: int | None = None
    directory: str | None = None
    volume: str = "v"
    format: str = "csv"


def show_map(request: MapRequest) -> int:
    """Print where items go. Raises BadInput."""
    if request.format not in FORMATS:
        raise BadInput(f"unknown format {request.format!r}; known: {', '.join(FORMATS)}")
    try:
        if request.layout or request.bricks:
            _print_rows(_gluster_rows(request), request.format)
        elif request.crushmap is None:
            raise BadInput("nothing to map with: give --crushmap FILE, --layout FILE or --bricks N")
        elif request.objects or request.pool:
            _print_rows(_object_rows(request), request.format)
        else:
            _print_inputs(request)
    except PlacementError as error:
        where = f"{request.crushmap or request.layout}: " if request.crushmap or request.layout else ""
        raise BadInput(f"{where}{error}") from None
    return 0


# --- Ceph ---


def _print_inputs(request: MapRequest) -> None:
    if request.rule is None or request.num_rep is None:
        raise BadInput("give --rule and --num-rep, or --pool and --objects")
    if request.last < request.first:
        raise BadInput(f"--max-x {request.last} is below --min-x {request.first}")
    crush_map = crush.read_map(_read(request.crushmap))
    weights = crush.reweights(crush_map, dict(request.weights))
    lines = crush.crushtool_lines(
        crush_map, request.rule, request.num_rep, request.first, request.last, weights,
        pool_id=request.pool_id, threads=os.cpu_count() or 1,
    )  # fmt: skip
    if request.format == "crushtool":
        for block in lines:
            sys.stdout.write(block)
        return
    rows = (line.removesuffix("]").split(" x ", 1)[1].split(" [") for block in lines for line in block.splitlines())
    _print_rows(({"x": int(x), "osds": [int(o) for o in osds.split(",") if o]} for x, osds in rows), request.format)


def _object_rows(request: MapRequest) -> Iterator[dict[str, object]]:
    crush_map = crush.read_map(_read(request.crushmap))
    weights = crush.reweights(crush_map, dict(request.weights))
    if request.osdmap:
        osd_map = ceph.OsdMap.from_dump(crush_map, _json(request.osdmap.read_text(), str(request.osdmap)))
        if request.pool_id is None:
            raise BadInput("give --pool-id: the OSD map has several pools")
        pool = osd_map.pool(request.pool_id)
    else:
        if request.pool is None:
            raise BadInput("give --pool JSON, or --osdmap FILE and --pool-id")
        text = request.pool
        pool = ceph.Pool.from_dump(_json(text if text.lstrip().startswith("{") else Path(text).read_text(), "--pool"))
        osd_map = ceph.OsdMap.of(crush_map, [pool], weights)
    osd_map.require_size(pool.id)
    rows, primary = osd_map.acting_sets(pool.id, os.cpu_count() or 1)
    if not request.objects:
        for number in range(pool.pg_num):
            yield {"pg": f"{pool.id}.{number:x}", "osds": rows[number].tolist(), "primary": int(primary[number])}
        return
    names = _names(request.objects)
    groups = pool.groups_of([n.encode() for n in names], namespace=request.namespace.encode())
    for name, group in zip(names, groups.tolist(), strict=True):
        osds = [o for o in rows[group].tolist() if o != crush.HOLE or pool.kind == ceph.ERASURE]
        yield {"object": name, "pg": f"{pool.id}.{group:x}", "osds": osds, "primary": int(primary[group])}


# --- GlusterFS ---


def _gluster_rows(request: MapRequest) -> Iterator[dict[str, object]]:
    if request.layout:
        layout = _read_layout(request.layout, request.directory)
    else:
        names = [f"{request.volume}-client-{i}" for i in range(request.bricks or 0)]
        layout = glusterfs.new_layout(request.directory or "/", names)
    if not request.objects:
        for name, start, stop in zip(layout.subvolumes, layout.starts, layout.stops, strict=True):
            yield {"subvolume": name, "start": f"{start:08x}", "stop": f"{stop:08x}"}
        return
    files = _names(request.objects)
    hashes = glusterfs.name_hashes([n.encode() for n in files]).tolist()
    found = layout.bricks_of([n.encode() for n in files])
    for name, hashed, subvolume in zip(files, hashes, found, strict=True):
        yield {"name": name, "hash": f"{hashed:08x}", "subvolume": subvolume}


def _read_layout(path: Path, directory: str | None) -> glusterfs.Layout:
    """Ranges from CSV with a header: the directory, the subvolume, and hexadecimal ``start`` and ``stop``."""
    with path.open(newline="") as file:
        rows = list(csv.DictReader(file))
    try:
        columns = [c for c in rows[0] if c not in ("start", "stop")]
        directories = {r[columns[0]] for r in rows}
        chosen = [r for r in rows if directory is None or r[columns[0]] == directory]
        if len({r[columns[0]] for r in chosen}) != 1:
            raise BadInput(f"{path}: --directory must name one of the {len(directories)} directories in it")
        ranges = [(r[columns[1]], int(r["start"], 16), int(r["stop"], 16)) for r in chosen]
    except (IndexError, KeyError, TypeError, ValueError):
        raise BadInput(f"{path}: needs the columns directory, subvolume, start, stop, ranges in hexadecimal") from None
    return glusterfs.Layout(*zip(*ranges, strict=True))


# --- verify ---


def verify_vectors(files: list[Path], system: str | None, as_json: bool) -> int:
    """Compare files of vectors; 1 when something differs. Raises BadInput."""
    results = []
    for file in files:
        beside = {p.name: p for p in file.parent.glob("ceph_crush_mappings*.json")}
        companions = {name: p.read_bytes() for name, p in beside.items()}
        try:
            verdict = vectors.verify(_read(file), system, companions)
        except PlacementError as error:
            raise BadInput(f"{file}: {error}") from None
        results.append({"file": str(file), **asdict(verdict)})
        if not as_json:
            prefix = f"{file.name}: " if len(files) > 1 else ""
            _print_verdict(verdict.checked, verdict.differ, [*verdict.examples, *verdict.notes], prefix)
    if as_json:
        print(json.dumps(results if len(results) > 1 else results[0]))
    return 1 if any(r["differ"] for r in results) else 0


def verify_crushtool(path: Path, inputs: int, as_json: bool) -> int:
    """Compare every rule of a map with the installed crushtool; 1 when a mapping differs. Raises BadInput."""
    tool = shutil.which("crushtool")
    if tool is None:
        raise BadInput("crushtool is not installed; Debian has it in the package ceph-base (ceph-common elsewhere)")
    try:
        crush_map = crush.read_map(_read(path))
    except PlacementError as error:
        raise BadInput(f"{path}: {error}") from None
    checked = differ = 0
    examples: list[str] = []
    for rule, *_ in crush_map.rules:
        for size in (1, 3, 6):
            argv = [tool, "-i", str(path), "--test", "--show-mappings", "--rule", str(rule), "--num-rep", str(size)]
            argv += ["--min-x", "0", "--max-x", str(inputs - 1)]
            done = subprocess.run(argv, capture_output=True, text=True, check=False, timeout=_TOOL_SECONDS)
            if done.returncode != 0:
                raise BadInput(f"crushtool failed on {path} (it takes compiled maps): {done.stderr.strip()[-200:]}")
            expected = done.stdout.splitlines()
            got = "".join(crush.crushtool_lines(crush_map, rule, size, 0, inputs - 1)).splitlines()
            wrong = [(a, b) for a, b in zip(expected, got, strict=False) if a != b]
            checked += max(len(expected), len(got))
            differ += len(wrong) + abs(len(expected) - len(got))
            examples += [f"crushtool {a!r}, assay {b!r}" for a, b in wrong[:2]]
    return _finish(checked, differ, examples[:5], as_json)


def verify_live(directory: Path, objects: str | None, as_json: bool) -> int:
    """Compare where a directory of a mounted GlusterFS volume has its files with where its layout sends them; 1 when
    one lies elsewhere (or was renamed, which leaves data in place). ``objects`` names the files instead of listing the
    directory. Needs root. Raises BadInput."""
    layout, _ = _pathinfo(directory)
    if layout is None:
        raise BadInput(f"{directory}: no directory of a distributed GlusterFS volume")
    if objects:
        names = [os.fsencode(n) for n in _names(objects)]
    else:
        with os.scandir(os.fsencode(directory)) as entries:
            names = [e.name for e in entries if e.is_file(follow_symlinks=False)]
    found = {n: _pathinfo(directory / os.fsdecode(n))[1] for n in names}
    wrong = glusterfs.misplaced(layout, found) if found else []
    return _finish(len(found), len(wrong), [f"{n!r} lies on {', '.join(found[n])}" for n in wrong[:5]], as_json)


def _pathinfo(path: Path) -> tuple[glusterfs.Layout | None, tuple[str, ...]]:
    try:
        value = os.getxattr(path, glusterfs.PATHINFO)
    except OSError as error:
        raise BadInput(f"{path}: not on a mounted GlusterFS volume, or not root ({error.strerror})") from None
    return glusterfs.parse_pathinfo(value.rstrip(b"\0").decode(errors="surrogateescape"))


def _finish(checked: int, differ: int, examples: list[str], as_json: bool) -> int:
    if as_json:
        print(json.dumps({"checked": checked, "differ": differ, "examples": examples}))
    else:
        _print_verdict(checked, differ, examples, "")
    return 1 if differ else 0


def _print_verdict(checked: int, differ: int, details: list[str], prefix: str) -> None:
    print(f"{prefix}{checked} checked, {differ} differ")
    for line in details:
        print(f"  {line}", file=sys.stderr)


# --- in and out ---


def _print_rows(rows: Iterable[dict[str, object]], kind: str) -> None:
    if kind == "json":
        print(json.dumps(list(rows)))
        return
    header = False
    for row in rows:
        if not header:
            print(",".join(row))
            header = True
        print(",".join(_cell(v) for v in row.values()))


def _cell(value: object) -> str:
    text = " ".join(map(str, value)) if isinstance(value, list) else str(value)
    return '"' + text.replace('"', '""') + '"' if any(c in text for c in ',"\n') else text


def _read(path: Path | None) -> bytes:
    if path is None:
        raise BadInput("no file given")
    return path.read_bytes()


def _json(text: str, what: str) -> dict:
    try:
        document = json.loads(text)
    except ValueError as error:
        raise BadInput(f"{what}: not JSON: {error}") from None
    if not isinstance(document, dict):
        raise BadInput(f"{what}: a JSON object is needed")
    return document


def _names(source: str) -> list[str]:
    """One name per line, from a file or standard input."""
    text = sys.stdin.read() if source == "-" else Path(source).read_text()
    return [line for line in text.splitlines() if line]
