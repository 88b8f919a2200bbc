"""Filesets on a file system: room, writing, manifest, verification, removal. The plan itself is pure: assay.archive.

The manifest is one text file beside the fileset, never inside it: a control file on the file system under test would be
measured too. Its first line is a comment with everything that makes the fileset again, then follows one CSV row per file in the
order of writing: number, bytes, XXH3 (64 bit, as ``xxhsum -H3`` prints it), path.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from numpy.typing import NDArray

from assay import _core
from assay.archive import ArchiveError
from assay.archive.fileset import Content, Plan, describe, parse_content
from assay.workloads.base import WorkloadError

DIRECT_FROM = 256 * 1024  # bytes from which a file is written with O_DIRECT: below it one write cannot keep a disk busy
NEVER = 2**64 - 1
THREADS = 16
VERSION = 1
_RESERVE = 0.01  # of a file system, left for its own metadata
Progress = Callable[[int, int], bool | None]


@dataclass(frozen=True)
class Written:
    """A written fileset: bytes, seconds, and the XXH3 of file ``order[k]`` at k (empty when not asked for)."""

    files: int
    bytes: int
    directories_seconds: float
    write_seconds: float
    sync_seconds: float
    direct_files: int
    checksums: NDArray[np.uint64]

    @property
    def seconds(self) -> float:
        """Directories, writing and sync."""
        return self.directories_seconds + self.write_seconds + self.sync_seconds


def engine(plan: Plan, root: Path) -> _core.Fileset:
    """The Rust side of a plan."""
    return _core.Fileset(
        root,
        list(plan.directories),
        plan.directory_of,
        plan.sizes,
        plan.content.kind,
        plan.content.zero_share,
        plan.seed,
    )


def capacity(root: Path) -> int:
    """Bytes of the file system that holds ``root``."""
    status = os.statvfs(root)
    return status.f_blocks * status.f_frsize


def volume_for(root: Path, utilisation: float) -> int:
    """Bytes that bring the file system to this share of its capacity, less what is used already. Raises ArchiveError
    when it is fuller than that."""
    status = os.statvfs(root)
    used = (status.f_blocks - status.f_bfree) * status.f_frsize
    wanted = round(utilisation * status.f_blocks * status.f_frsize) - used
    if wanted <= 0:
        raise ArchiveError(
            f"{root} is {100 * used / capacity(root):.1f} % full already, which is not below {100 * utilisation:g} %; "
            "make a new file system or ask for more"
        )
    return wanted - wanted % 2048


def check_room(plan: Plan, root: Path) -> None:
    """Raises ArchiveError when space or inodes would not do for the files of this plan's order."""
    status = os.statvfs(root)
    share = len(plan.order) / max(1, plan.files)
    needed, free = int(plan.needed * share), status.f_bavail * status.f_frsize
    room = free - int(_RESERVE * status.f_blocks * status.f_frsize)
    if needed > room:
        raise ArchiveError(
            f"the fileset needs {needed / 1e9:.3g} GB with its last blocks, {root} has {free / 1e9:.3g} GB free "
            f"({100 * _RESERVE:.0f} % is kept); ask for a smaller --volume"
        )
    if status.f_files and plan.inodes * share > status.f_favail:
        raise ArchiveError(
            f"the fileset needs {int(plan.inodes * share)} inodes, {root} has {status.f_favail} free; use larger files, or "
            "make the file system with more inodes (mkfs.ext4 -N)"
        )


def write(
    plan: Plan, root: Path, *, threads: int = THREADS, direct_from: int = DIRECT_FROM, checksums: bool = True,
    fsync: bool = False, sync: bool = True, progress: Progress | None = None,
) -> Written:  # fmt: skip
    """Write the plan's files in its order. Raises ArchiveError when there is no room, OSError with path, or
    WorkloadError when ``progress`` ended it."""
    if not root.is_dir():
        raise ArchiveError(f"{root} is no directory; make it first")
    check_room(plan, root)
    done = engine(plan, root).write(
        plan.order, plan.times, threads=threads, direct_from=direct_from, checksums=checksums, fsync=fsync, sync=sync,
        progress=progress,
    )  # fmt: skip
    if done["stopped"]:
        raise WorkloadError(f"writing was ended after {done['files']} files")
    return Written(
        done["files"], done["bytes"], done["directories_seconds"], done["write_seconds"], done["sync_seconds"],
        done["direct_files"], np.frombuffer(done["checksums"], "<u8"),
    )  # fmt: skip


@dataclass(frozen=True)
class Manifest:
    """A fileset as it was written. ``plan.order`` holds the files of this manifest; ``facts`` what was asked for."""

    root: Path
    plan: Plan
    checksums: NDArray[np.uint64]
    facts: dict[str, Any] = field(default_factory=dict)


def save(manifest: Manifest, file: Path) -> None:
    """Write a manifest: to a temporary name, synced, then renamed. Refuses a place inside the fileset."""
    if file.resolve().is_relative_to(manifest.root.resolve()):
        raise ArchiveError(f"{file} lies inside the fileset; keep the manifest elsewhere with --manifest FILE")
    plan = manifest.plan
    made = engine(plan, manifest.root)
    head = {
        "assay_fileset": VERSION, "root": str(manifest.root.resolve()), "content": plan.content.text, "seed": plan.seed,
        "directories": list(plan.directories), "digest": plan.digest, "total_files": plan.files, "rows": int(plan.order.size), **manifest.facts,
    }  # fmt: skip
    order = plan.order.astype(np.int64)
    table = pl.DataFrame(
        {
            "file": order,
            "bytes": plan.sizes[order],
            "xxh3": [f"{c:016x}" for c in manifest.checksums] if manifest.checksums.size else [""] * order.size,
            "path": [made.name(int(i)) for i in order],
        }
    )
    temporary = file.with_name(file.name + ".part")
    with temporary.open("wb") as out:
        out.write(f"# {json.dumps(head)}\n".encode())
        table.write_csv(out)
        out.flush()
        os.fsync(out.fileno())
    temporary.replace(file)


def load(file: Path) -> Manifest:
    """Read a manifest. Raises ArchiveError when it is none, or damaged."""
    try:
        with file.open("rb") as lines:
            first = lines.readline()
        if not first.startswith(b"# {"):
            raise ArchiveError(f"{file} is not a manifest that assay archive fileset wrote")
        head = json.loads(first[2:])
        if head["assay_fileset"] != VERSION:
            raise ArchiveError(
                f"{file}: manifest of version {head['assay_fileset']}; this Assay reads version {VERSION}"
            )
        table = pl.read_csv(
            file,
            comment_prefix="#",
            schema={"file": pl.Int64, "bytes": pl.UInt64, "xxh3": pl.String, "path": pl.String},
        )
        content, seed = parse_content(head["content"]), int(head["seed"])
        directories: list[str] = head["directories"]
    except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError, pl.exceptions.PolarsError) as error:
        raise ArchiveError(f"{file} is a damaged manifest: {type(error).__name__} {error!s:.80}") from None
    if table.height != head.get("rows"):
        raise ArchiveError(f"{file} is a damaged manifest: {table.height} of {head.get('rows')} rows")
    plan = _plan(table, directories, content, seed, head, file)
    texts = [c for c in table["xxh3"].to_list() if c]
    if len(texts) not in (0, table.height):
        raise ArchiveError(f"{file} is a damaged manifest: {table.height - len(texts)} files have no checksum")
    return Manifest(Path(head["root"]), plan, np.array([int(c, 16) for c in texts], dtype=np.uint64), head)


def _plan(
    table: pl.DataFrame, directories: list[str], content: Content, seed: int, head: dict[str, Any], file: Path
) -> Plan:
    order = table["file"].to_numpy().astype(np.uint64)
    total = int(head["total_files"])
    index = order.astype(np.int64)
    if table.height == 0 or int(order.max()) >= total or len(np.unique(order)) != order.size:
        raise ArchiveError(f"{file} is a damaged manifest: its file numbers are not those of {total} files")
    sizes, directory_of = np.zeros(total, dtype=np.uint64), np.zeros(total, dtype=np.uint64)
    sizes[index] = table["bytes"].to_numpy()
    number = {d: i for i, d in enumerate(directories)}
    parents = [path.rpartition("/")[0] for path in table["path"].to_list()]
    if not set(parents) <= set(number):
        raise ArchiveError(f"{file} is a damaged manifest: a path lies in no directory of the fileset")
    directory_of[index] = [number[p] for p in parents]
    plan = Plan(sizes, tuple(directories), directory_of, order, np.zeros(0, dtype=np.uint64), content, seed)
    if order.size == total and plan.digest != head["digest"]:
        raise ArchiveError(f"{file} is a damaged manifest: sizes or directories differ from its digest")
    return plan


@dataclass(frozen=True)
class Verified:
    """Outcome of a verification; ``faults`` are the first hundred, as path and words."""

    files: int
    bytes: int
    faulty: int
    faults: list[tuple[str, str]]


def verify(manifest: Manifest, *, threads: int = THREADS, progress: Progress | None = None) -> Verified:
    """Compare every byte of a fileset with its content made again, and the checksums of the manifest."""
    made = engine(manifest.plan, manifest.root)
    seen = made.verify(manifest.plan.order, manifest.checksums, threads=threads, progress=progress)
    if seen["stopped"]:
        raise WorkloadError(f"verification was ended after {seen['files']} files")
    return Verified(seen["files"], seen["bytes"], seen["faulty"], [(made.name(f), said) for f, said in seen["faults"]])


def remove(manifest: Manifest, *, threads: int = THREADS, progress: Progress | None = None) -> dict[str, Any]:
    """Remove exactly the files of a manifest and its directories that are empty then; counts, and what was kept."""
    return engine(manifest.plan, manifest.root).remove(manifest.plan.order, threads=threads, progress=progress)


def facts_of(plan: Plan) -> dict[str, Any]:
    """What a manifest and a report say of a plan."""
    return describe(plan)
