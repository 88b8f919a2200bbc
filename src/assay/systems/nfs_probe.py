"""What hosts carry out for the NFS adapter through :meth:`assay.lab.host.Host.call`.

Standard library and plain values only, as in :mod:`assay.lab.remote`. libnfs is the C library whose programs copy files; it
has none that makes directories or removes anything.
"""

from __future__ import annotations

import ctypes
import ctypes.util
import errno
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


class _Url(ctypes.Structure):
    """struct nfs_url of nfsc/libnfs.h."""

    _fields_ = [("server", ctypes.c_char_p), ("path", ctypes.c_char_p), ("file", ctypes.c_char_p)]


def library() -> str | None:
    """File name of libnfs; None without it."""
    return ctypes.util.find_library("nfs")


def reach(url: str) -> None:
    """Mount an export and let go of it again, in this process. Raises OSError."""
    with _mounted(url):
        return


def make_way(url: str, above: list[str], name: str) -> None:
    """Make directories of an export, each above those below it, unless they are there, and remove the file of that name if
    there is one. Raises OSError."""
    with _mounted(url) as (nfs, context):
        for directory in above:
            _check(nfs, context, nfs.nfs_mkdir(context, os.fsencode(f"/{directory}")), directory, errno.EEXIST)
        _check(nfs, context, nfs.nfs_unlink(context, os.fsencode(f"/{name}")), name, errno.ENOENT)


def remove(url: str, name: str) -> None:
    """Remove a file of an export; no error when there is none. Raises OSError."""
    with _mounted(url) as (nfs, context):
        _check(nfs, context, nfs.nfs_unlink(context, os.fsencode(f"/{name}")), name, errno.ENOENT)


def processes(name: str) -> list[str]:
    """``pid:start time`` of the processes of that name on this host."""
    found = []
    for entry in Path("/proc").iterdir():
        try:
            if entry.name.isdigit() and (entry / "comm").read_text().strip() == name:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                found.append(f"{entry.name}:{fields[19]}")
        except OSError:
            continue
    return sorted(found)


@contextmanager
def _mounted(url: str) -> Iterator[tuple[ctypes.CDLL, ctypes.c_void_p]]:
    nfs = ctypes.CDLL(library())
    nfs.nfs_init_context.restype = ctypes.c_void_p
    nfs.nfs_parse_url_dir.restype = ctypes.POINTER(_Url)
    nfs.nfs_get_error.restype = ctypes.c_char_p
    nfs.nfs_destroy_context.restype = None
    context = ctypes.c_void_p(nfs.nfs_init_context())
    try:
        parsed = nfs.nfs_parse_url_dir(context, os.fsencode(url))
        if not parsed:
            raise OSError(errno.EINVAL, _words(nfs, context))
        _check(nfs, context, nfs.nfs_mount(context, parsed.contents.server, parsed.contents.path), url)
        yield nfs, context
    finally:
        nfs.nfs_destroy_context(context)


def _check(nfs: ctypes.CDLL, context: ctypes.c_void_p, result: int, what: str, accepted: int = 0) -> None:
    if result < 0 and -result != accepted:
        raise OSError(-result, f"{what}: {_words(nfs, context)}")


def _words(nfs: ctypes.CDLL, context: ctypes.c_void_p) -> str:
    said = nfs.nfs_get_error(context)
    return said.decode(errors="replace") if said else "libnfs gives no reason"
