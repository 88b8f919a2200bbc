"""Small traces made from text, for tests."""

from __future__ import annotations

from pathlib import Path

from assay.trace import calls

STRACE = b"""10 100.000001 openat(AT_FDCWD</w>, "a", O_RDWR|O_CREAT|O_TRUNC, 0644) = 3</w/a> <0.000010>
10 100.000020 write(3</w/a>, "x, y) = 3", 4096) = 4096 <0.000002>
10 100.000040 clone(child_stack=NULL, flags=SIGCHLD) = 11 <0.0001>
11 100.000050 write(3</w/a>, "zz", 4096 <unfinished ...>
10 100.000060 pread64(3</w/a>, "x", 512, 4) = 512 <0.000002>
11 100.000070 <... write resumed>) = 4096 <0.000020>
10 100.000080 lseek(3</w/a>, 0, SEEK_CUR) = 8192 <0.000001>
10 100.000085 wait4(-1, NULL, 0, NULL) = 11 <0.000001>
10 100.000090 rename("/w/a", "/w/b") = 0 <0.000001>
10 100.000110 unlink("/w/none") = -1 ENOENT (No such file or directory) <0.000001>
"""


def strace_trace(directory: Path) -> Path:
    """The trace of STRACE."""
    out = directory / "strace.assay"
    calls.import_text("strace", STRACE, out, strict=True)
    return out
