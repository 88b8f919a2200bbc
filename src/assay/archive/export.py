"""Filesets for other tools: elbencho's treefile, a fio job, a profile for FFSB."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import numpy as np

from assay.archive import ArchiveError
from assay.archive.fileset import Plan

FORMATS = ("elbencho", "fio", "ffsb")


def elbencho(plan: Plan, name: Callable[[int], str]) -> Iterator[str]:
    """Lines of an elbencho treefile (``d PATH``, ``f SIZE PATH``) in the order of writing; use it with ``--treerand``,
    or elbencho sorts files by size."""
    for directory in plan.directories:
        if directory:
            yield f"d {directory}\n"
    for file in plan.order:
        yield f"f {int(plan.sizes[int(file)])} {name(int(file))}\n"


def _by_size(plan: Plan) -> list[tuple[int, int]]:
    """(size, count); sizes inside a bucket are grouped by their power of two so that a job stays short."""
    sizes, counts = np.unique(plan.sizes[plan.order.astype(np.int64)], return_counts=True)
    return [(int(s), int(n)) for s, n in zip(sizes, counts, strict=True)]


def _buckets(plan: Plan) -> list[tuple[int, int, int]]:
    """(smallest, largest, count) per power of two."""
    out: dict[int, tuple[int, int, int]] = {}
    for size, count in _by_size(plan):
        k = size.bit_length()
        low, high, n = out.get(k, (size, size, 0))
        out[k] = (min(low, size), max(high, size), n + count)
    return [out[k] for k in sorted(out)]


def fio(plan: Plan, directory: str) -> Iterator[str]:
    """A fio job: one section per bucket. fio cannot mix buckets within a thread and creates files in time quadratic in
    their number per section (5,300 files/s at 2,000, 543 files/s at 16,000 with fio 3.33), so large buckets are split.
    Sync afterwards (``sync -f DIRECTORY``): an fsync per file would measure something else."""
    yield "[global]\n"
    yield f"directory={directory}\nrw=write\nioengine=psync\nthread\ngroup_reporting\n"
    yield "fallocate=none\ncreate_on_open=1\nopenfiles=16\n"
    yield "zero_buffers\n" if plan.content.kind == "zero" else "refill_buffers\n"
    if plan.content.kind == "compressible":
        yield f"buffer_compress_percentage={round(100 * plan.content.zero_share)}\n"
    for low, high, count in _buckets(plan):
        if low == 0:
            continue  # fio has no empty files
        for part, n in enumerate(_pieces(count, 1000)):
            size = f"{low}" if low == high else f"{low}-{high}"
            yield f"\n[b{low.bit_length():02d}-{part}]\nfilesize={size}\nnrfiles={n}\nfile_service_type=sequential\nbs={min(2**20, low)}\n"
            yield f"size={n * high}\nfilename_format=b{low.bit_length():02d}-{part}.$filenum\n"


def _pieces(count: int, most: int) -> list[int]:
    return [most] * (count // most) + ([count % most] if count % most else [])


def ffsb(plan: Plan, directory: str) -> Iterator[str]:
    """An FFSB profile with the size table. FFSB draws sizes from the weights: count and volume are then not exact, and
    its reads draw with replacement."""
    pairs = [(high, n) for _, high, n in _buckets(plan) if high]
    if not pairs:
        raise ArchiveError("FFSB has no use for a fileset of empty files")
    yield "time=1800\nalignio=1\ndirectio=0\n\n[filesystem0]\n"
    yield f"location={directory}\nnum_files={plan.files}\nnum_dirs={max(1, len(plan.directories))}\nreuse=0\n"
    for size, count in pairs:
        yield f"size_weight {size} {count}\n"
    yield "[end0]\n\n[threadgroup0]\nnum_threads=512\nread_random=0\nread_size=0\nread_blocksize=1048576\n"
    yield "readall_weight=1\n[end0]\n"


def export(plan: Plan, form: str, directory: str, name: Callable[[int], str]) -> Iterator[str]:
    """Lines in one of :data:`FORMATS`; raises ArchiveError for another."""
    if form == "elbencho":
        return elbencho(plan, name)
    if form == "fio":
        return fio(plan, directory)
    if form == "ffsb":
        return ffsb(plan, directory)
    raise ArchiveError(f"unknown format {form!r}; known: {', '.join(FORMATS)}")
