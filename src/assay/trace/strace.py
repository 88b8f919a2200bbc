"""The fallback recorder: strace, for machines without root or BTF. It slows each call down 11 times; the trace says so."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assay.trace.calls import TraceError, import_text

COST = "strace makes each system call about 11 times slower (12 us); think times in this trace hold that cost"
_CALLS = (
    "read,write,pread64,pwrite64,readv,writev,preadv,pwritev,preadv2,pwritev2,open,openat,creat,close,lseek,dup,dup2,dup3,"
    "fcntl,fsync,fdatasync,sync_file_range,syncfs,truncate,ftruncate,fallocate,rename,renameat,renameat2,link,linkat,symlink,"
    "symlinkat,unlink,unlinkat,mkdir,mkdirat,rmdir,copy_file_range,sendfile,splice,getdents64,chdir,fork,vfork,clone,clone3,"
    "wait4"
)


def arguments(out: Path, *, command: Sequence[str] = (), pid: int | None = None) -> list[str]:
    """The strace command whose text :func:`import_text` reads without loss."""
    what = ["-p", str(pid)] if pid is not None else ["--", *command]
    return ["strace", "-f", "-y", "-q", "-ttt", "-T", "-s", "4096", "-e", f"trace={_CALLS}", "-o", str(out), *what]


def record(out: Path, *, command: Sequence[str] = (), pid: int | None = None) -> dict[str, Any]:
    """Record with strace and import its text. Returns the import's notes with ``exit_code``. Raises TraceError."""
    if shutil.which("strace") is None:
        raise TraceError("strace is missing; install it: apt-get install strace")
    with tempfile.TemporaryDirectory(prefix="assay-strace-") as scratch:
        text = Path(scratch) / "strace.txt"
        done = subprocess.run(arguments(text, command=command, pid=pid), check=False)
        if not text.exists() or not text.stat().st_size:
            raise TraceError(f"strace recorded nothing (exit code {done.returncode})")
        notes = import_text("strace", text.read_bytes(), out)
    return {**notes, "exit_code": done.returncode}
