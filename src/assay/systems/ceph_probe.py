"""What hosts carry out for the Ceph adapter through an agent (:mod:`assay.lab.agent`).

Standard library and plain values only. The functions that speak to the cluster need Ceph's Python bindings, which the system's
Python has and the one that runs Assay need not have: :mod:`assay.systems.ceph_command` starts an agent under it.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

_connected: dict[str, Any] = {}  # of this process: its connection to the cluster
LAYOUT_POOL = "ceph.dir.layout.pool"
LAYOUT = "ceph.dir.layout"


# --- under the system's Python --------------------------------------------------------------------------------------------


def connect(timeout_seconds: float) -> str:
    """Connect to the cluster of /etc/ceph/ceph.conf; returns librados' version. Raises OSError in Ceph's words."""
    import rados  # pyright: ignore[reportMissingImports] (the system's Python has it)

    if "rados" not in _connected:
        with _plain_errors():
            cluster = rados.Rados(conffile="/etc/ceph/ceph.conf", rados_id="admin")
            cluster.connect(timeout=timeout_seconds)
        _connected["rados"] = cluster
    return str(_connected["rados"].version())


def command(target: str, words: dict[str, Any], data: bytes, timeout_seconds: float) -> tuple[int, bytes, str]:
    """Send a command to ``mon``, ``mgr`` or ``osd.N``: errno (0: done), output, words for people."""
    connect(timeout_seconds)
    cluster, text, seconds = _connected["rados"], json.dumps(words), int(timeout_seconds)
    with _plain_errors():
        if target == "mon":
            code, out, said = cluster.mon_command(text, data, timeout=seconds)
        elif target == "mgr":
            code, out, said = cluster.mgr_command(text, data, timeout=seconds)
        else:
            code, out, said = cluster.osd_command(int(target.partition(".")[2]), text, data, timeout=seconds)
    return abs(code), bytes(out), said if isinstance(said, str) else bytes(said).decode(errors="replace")


def make_directory(filesystem: str, path: str, pool: str) -> str:
    """Make a directory of a CephFS whose files go to a pool; returns its layout as the file system says it. Raises OSError."""
    import cephfs  # pyright: ignore[reportMissingImports]

    connect(30)
    with _plain_errors():
        mounted = cephfs.LibCephFS(rados_inst=_connected["rados"])
        mounted.mount(filesystem_name=filesystem.encode())
        try:
            mounted.mkdir(path, 0o755)
            mounted.setxattr(path, LAYOUT_POOL, pool.encode(), 0)
            return bytes(mounted.getxattr(path, LAYOUT)).decode()
        finally:
            mounted.unmount()
            mounted.shutdown()


def write_object(pool: str, name: str, size: int) -> None:
    """Write an object of random bytes, durable when it returns. Raises OSError."""
    connect(30)
    with _plain_errors(), _connected["rados"].open_ioctx(pool) as context:
        context.write_full(name, os.urandom(size))


def remove_object(pool: str, name: str) -> None:
    """Remove an object. Raises OSError."""
    connect(30)
    with _plain_errors(), _connected["rados"].open_ioctx(pool) as context:
        context.remove_object(name)


@contextmanager
def _plain_errors() -> Iterator[None]:
    """Errors of the bindings as OSError: Assay's own Python does not know their classes."""
    try:
        yield
    except Exception as error:  # noqa: BLE001 (there is no common class)
        raise OSError(getattr(error, "errno", None) or 5, str(error)) from None


# --- under Assay's own Python -------------------------------------------------------------------------------------------


def ask_daemon(admin_socket: Path, prefix: str, words: dict[str, Any], timeout_seconds: float) -> Any:
    """The answer of a daemon or client to a command on its admin socket (common/admin_socket.cc: JSON and a zero byte there,
    a length of four bytes and JSON back). Raises OSError when nobody answers, ValueError when the answer is no JSON."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as connection:
        connection.settimeout(timeout_seconds)
        connection.connect(str(admin_socket))
        connection.sendall(json.dumps({"prefix": prefix, "format": "json", **words}).encode() + b"\0")
        length = int.from_bytes(_exactly(connection, 4), "big")
        return json.loads(_exactly(connection, length))


def _exactly(connection: socket.socket, size: int) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        got = connection.recv(size - len(parts))
        if not got:
            raise OSError(5, "the daemon closed its admin socket in the middle of an answer")
        parts += got
    return bytes(parts)


def client_process(pid_file: Path) -> str:
    """Identity of the process that a pid file names: pid and start time, which no other process ever has. Raises OSError
    when it is not there."""
    pid = int(pid_file.read_text())
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    if fields[0] in ("Z", "X"):
        raise ProcessLookupError(3, f"process {pid} has ended")
    return f"{pid}:{fields[19]}"


def attribute(directory: Path, name: str) -> str:
    """An extended attribute, as text. Raises OSError."""
    return os.getxattr(directory, name).decode()
