"""Rust hot paths (rust/assay-core through rust/assay-py). All functions release the GIL while they compute.

A histogram is a pair (values, counts) of equal length. ``Integers`` is a list of ints or a contiguous buffer of 64-bit
integers such as a numpy array. ValueError: lengths differ, values do not ascend, nothing to compute on, percentile
outside (0, 100]. OverflowError: a negative number, one above 64 bits, or counts that exceed 64 bits together.
"""

import os
from collections.abc import Callable, Sequence
from os import PathLike as _PathLike
from typing import Any, TypeAlias

from numpy.typing import NDArray

Integers: TypeAlias = Sequence[int] | NDArray[Any]
PathLike: TypeAlias = str | _PathLike[str]

__version__: str

def merge(histograms: Sequence[tuple[Integers, Integers]], /) -> tuple[list[int], list[int]]:
    """All histograms as one: values ascend strictly, equal values are added up, empty bins are dropped."""

def percentiles(values: Integers, counts: Integers, qs: Sequence[float], /) -> list[int]:
    """Values at the percentiles ``qs`` (each in (0, 100], any order) by the rule of fio's calc_clat_percentiles."""

def mean(values: Integers, counts: Integers, /) -> float:
    """Mean of the values weighted by their counts."""

def total(counts: Integers, /) -> int:
    """Sum of the counts."""

# --- operations on names (rust/assay-core/src/metadata.rs) ---

def metadata_stage(directory: PathLike, name: str, threads: int, files: int, /) -> None:
    """Make the directory anew with one directory per thread and the empty files that the operation needs. OSError;
    ValueError for an unknown operation."""

def metadata_run(
    directory: PathLike, name: str, threads: int, files: int, limit_seconds: float, /
) -> list[tuple[float, float, bytes, int | None]]:
    """Carry it out; per thread: seconds, CPU seconds, latencies (ns, little-endian u64) of what succeeded, errno of the
    operation that ended it (ETIME past the limit) or None. ValueError."""

# --- placement (rust/assay-core/src/place); every function raises ValueError with one clear line ---

class CrushMap:
    """A crush map, checked: text form, JSON dump or compiled form. ValueError names the line, byte, bucket or rule."""

    def __new__(cls, data: bytes, /) -> CrushMap: ...
    @property
    def max_devices(self) -> int: ...
    @property
    def type_names(self) -> dict[int, str]: ...
    @property
    def tunables(self) -> list[tuple[str, int]]: ...
    @property
    def rules(self) -> list[tuple[int, str, int, int, int, list[str]]]:
        """(id, name, kind, smallest and largest size, steps)."""

    @property
    def buckets(self) -> list[tuple[int, str, str, str, int, list[int], list[int]]]:
        """(id, name, type, algorithm, weight, items, their weights), weights in 16.16; shadow trees included."""

    @property
    def classes(self) -> list[tuple[int, str]]: ...
    @property
    def present(self) -> list[bool]:
        """Whether each device is in some bucket."""

    def map(
        self, rule: int, xs: NDArray[Any], size: int, reweights: Integers, pool: int, threads: int
    ) -> tuple[bytes, bytes]:
        """Items (int32, ``size`` per input) and how many of them hold (uint8) for each of ``xs`` (uint32)."""

    def crushtool_lines(
        self, rule: int, labels: NDArray[Any], xs: NDArray[Any], size: int, reweights: Integers, pool: int, threads: int
    ) -> str:
        """The lines of ``crushtool --test --show-mappings``; ``labels`` as printed, ``xs`` as hashed (uint32)."""

def crush_hash(words: Sequence[int], /) -> int:
    """CRUSH's hash of one to five 32-bit words."""

def crush_hash_with(words: NDArray[Any], other: int, /) -> bytes:
    """CRUSH's hash of every word (uint32) with one other; uint32."""

def crush_ln(u: int, /) -> int:
    """``2^44 * log2(u + 1)`` with straw2's errors, of the low 16 bits."""

def ceph_name_hashes(names: Sequence[bytes], /) -> bytes:
    """Ceph's hash of each object name; uint32."""

def gluster_name_hashes(names: Sequence[bytes], munge: bool, /) -> bytes:
    """GlusterFS's hash of each name, munged by the default rsync rule if wanted; uint32."""

def superfast_hash(data: bytes, /) -> int:
    """Hsieh's hash, which GlusterFS takes of gfids."""

def xxh3_64(data: bytes, /) -> int:
    """XXH3 with 64 bits."""

class PatternCounter:
    """Counts accesses per second and target; see ``assay.placement.simulate``.

    ``units`` (uint64) per file, ``table_starts`` (uint64) per file and stream and one more, ``tables`` (uint32) of groups,
    lists of targets per group as (starts, items), both uint32.
    """

    def __new__(
        cls,
        targets: int,
        units: NDArray[Any],
        table_starts: NDArray[Any],
        tables: NDArray[Any],
        read_lists: tuple[NDArray[Any], NDArray[Any]],
        write_lists: tuple[NDArray[Any], NDArray[Any]],
        once: bool,
        threads: int,
    ) -> PatternCounter: ...
    def feed(
        self,
        at: NDArray[Any],
        op: NDArray[Any],
        file: NDArray[Any],
        offset: NDArray[Any],
        length: NDArray[Any],
        starts: NDArray[Any],
        /,
    ) -> None:
        """Accesses for every stream: uint64 ns, uint8 (0 read, 1 write), uint32, uint64, uint64; starts in uint64 ns."""

    def counts(self) -> tuple[list[bytes], list[list[int]], int]:
        """Per class: counters (uint32, a row per second) and bytes per target; and all touches."""

# --- archives: the part that does I/O ------------------------------------------------------------------------------
# Raises OSError with errno and path (relative to the fileset's root). ``progress`` is called four times a second from
# the calling thread; a false answer other than None ends the work, an exception (also Ctrl-C) ends it and is raised.
# Arrays come back as little-endian 64-bit integers in bytes, for numpy.frombuffer(..., "<u8").

def scan_tree(
    root: str | os.PathLike[str],
    *,
    threads: int,
    one_file_system: bool,
    sample: float,
    seed: int,
    now: int,
    names_per_second: int,
    remembered_inodes: int,
    progress: Callable[[int, int], bool | None] | None = None,
) -> dict[str, Any]:
    """Histograms of a tree: 65 size buckets (0 holds 0, k holds [2^(k-1), 2^k) bytes), files per directory likewise,
    depth, age in days. ``progress`` gets names and directories."""

class Fileset:
    """Files ``directories[directory_of[i]]/f<i:08x>`` of ``sizes[i]`` bytes below ``root``."""

    def __init__(
        self,
        root: str | os.PathLike[str],
        directories: Sequence[str],
        directory_of: Integers,
        sizes: Integers,
        content: str,
        zero_share: float,
        seed: int,
    ) -> None: ...
    def name(self, file: int) -> str:
        """A file's path relative to the root."""

    def write(
        self,
        order: Integers,
        times: Integers,
        *,
        threads: int,
        direct_from: int,
        checksums: bool,
        fsync: bool,
        sync: bool,
        progress: Callable[[int, int], bool | None] | None = None,
    ) -> dict[str, Any]:
        """Write files in this order; ``progress`` gets files and bytes. The first failure stops all threads."""

    def verify(
        self,
        order: Integers,
        checksums: Integers,
        *,
        threads: int,
        keep: int = 100,
        progress: Callable[[int, int], bool | None] | None = None,
    ) -> dict[str, Any]:
        """Compare files with their content made again, and with checksums if there are any."""

    def remove(
        self, order: Integers, *, threads: int, progress: Callable[[int, int], bool | None] | None = None
    ) -> dict[str, Any]:
        """Remove these files, then the fileset's empty directories."""

    def read(
        self,
        order: Integers,
        *,
        threads: int,
        call_bytes: int,
        direct: bool,
        minimum_seconds: float,
        maximum_seconds: float,
        bin_seconds: float,
        seed: int,
        progress: Callable[[int, int, float], bool | None] | None = None,
    ) -> dict[str, Any]:
        """Read whole files, each once per pass; ``progress`` gets files, bytes and seconds."""

# Traces (rust/assay-trace). Options and results are JSON; ValueError carries one clear line.

def trace_record(options: str, /) -> str:
    """Record a command or a process with eBPF; see assay.trace.calls.record."""

def trace_replay(options: str, /) -> str:
    """Replay a trace; forks, so the calling process must have one thread only."""

def trace_replay_plan(path: PathLike, only: Sequence[str], copies: int, seed: int, spread_seconds: float, /) -> str:
    """What a replay needs and does, and when each copy starts (seconds)."""

def trace_info(path: PathLike, interval_seconds: float, /) -> str:
    """The characterisation of a trace."""

def trace_import(format: str, data: bytes, out: PathLike, strict: bool, /) -> str:
    """Write another tool's text as a trace; the notes."""

def trace_export(path: PathLike, format: str, /) -> tuple[str, int]:
    """A trace as "iolog" or "csv", and how many operations are left out."""

def trace_anonymise(path: PathLike, out: PathLike, seed: int, /) -> None:
    """Write a copy without names."""

def trace_columns(path: PathLike, /) -> tuple[dict[str, bytes], str]:
    """Columns of 64-bit little-endian integers by name, and the tables as JSON."""

def trace_from_rows(out: PathLike, backend: str, rows: Sequence[tuple[str, int, str, int, int, int, int]], /) -> int:
    """Write a trace from rows (path, tid, operation, start ns, duration ns, offset, bytes); its size in bytes."""
