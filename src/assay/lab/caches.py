"""Dropping caches, and measuring that it happened: an exit code is kept for every step (checks K1, K2)."""

from __future__ import annotations

import os
import time
from collections.abc import Callable
from pathlib import Path

from assay.lab.environment import host_state
from assay.model.evidence import ColdEvidence

_DROP = Path("/proc/sys/vm/drop_caches")


def can_drop_caches() -> bool:
    """Whether this process may drop the page cache of the whole host."""
    return os.access(_DROP, os.W_OK)


def drop_caches(directory: Path) -> ColdEvidence:
    """Flush the file system that holds ``directory``, then drop page cache, dentries and inodes of this host.

    Without the privilege for the whole host, only the pages of the files below ``directory`` are dropped
    (posix_fadvise), which needs none. Never raises: what failed is in the exit codes (errno).
    """
    started = time.monotonic()
    before = host_state().cached_bytes
    steps: list[str] = []
    codes: list[int] = []

    def step(name: str, action: Callable[[], object]) -> None:
        steps.append(name)
        try:
            action()
            codes.append(0)
        except OSError as error:
            codes.append(error.errno or 1)

    step(f"fsync {directory}", lambda: _sync_below(directory))
    if can_drop_caches():
        step("drop_caches=3", lambda: _DROP.write_text("3\n"))
    else:
        step(f"fadvise DONTNEED {directory}", lambda: _forget_below(directory))
    return ColdEvidence(
        requested=True,
        steps=steps,
        exit_codes=codes,
        cached_before_bytes=before,
        cached_after_bytes=host_state().cached_bytes,
        seconds=time.monotonic() - started,
    )


def _files_below(directory: Path) -> list[Path]:
    return [Path(root) / name for root, _, names in os.walk(directory) for name in names]


def _sync_below(directory: Path) -> None:
    # dirty pages cannot be dropped. fsync of the data files rather than sync(2): other file systems of the host are
    # none of our business and may take minutes
    for file in [*_files_below(directory), directory]:
        handle = os.open(file, os.O_RDONLY)
        try:
            os.fsync(handle)
        finally:
            os.close(handle)


def _forget_below(directory: Path) -> None:
    for file in _files_below(directory):
        handle = os.open(file, os.O_RDONLY)
        try:
            os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
        finally:
            os.close(handle)
