"""What hosts carry out for Assay, by :meth:`assay.lab.host.Host.call`: whatever touches a file system under test, since
it may never return, and what a host's kernel knows of itself.

Standard library and plain values only: a helper process is there in 50 ms then and takes 13 MB. Sizes are in bytes.
"""

from __future__ import annotations

import os
from pathlib import Path

from assay.lab.kernel import mountinfo

DROP_CACHES = Path("/proc/sys/vm/drop_caches")


# --- mounts ---------------------------------------------------------------------------------------------------------


def mount_entry(directory: Path) -> dict[str, str] | None:
    """The mount that holds a directory, from /proc/self/mountinfo: point, source, fstype, options, device (major:minor)."""
    real = os.path.realpath(directory)
    best: dict[str, str] | None = None
    for point, fields, tail in mountinfo():
        inside = real == point or real.startswith(point.rstrip("/") + "/") or point == "/"
        if inside and (best is None or len(point) >= len(best["point"])):
            options = sorted({*fields[5].split(","), *tail[2].split(",")}) if len(tail) > 2 else fields[5].split(",")
            best = {
                "point": point,
                "source": tail[1],
                "fstype": tail[0],
                "options": ",".join(options),
                "device": fields[2],
            }
    return best


def is_mount_point(path: Path) -> bool:
    """Whether something is mounted at that very path, which must be real. Asks the file system nothing."""
    return any(point == str(path) for point, _, _ in mountinfo())


# --- a file system under test ---------------------------------------------------------------------------------------


def statvfs(directory: Path) -> dict[str, int]:
    """Room on the file system: free_bytes (for ordinary users), total_bytes, free_inodes. Raises OSError."""
    stat = os.statvfs(directory)
    return {
        "free_bytes": stat.f_bavail * stat.f_frsize,
        "total_bytes": stat.f_blocks * stat.f_frsize,
        "free_inodes": stat.f_favail,
    }


def is_writable(directory: Path) -> bool:
    """Whether this user may write there."""
    return os.access(directory, os.W_OK)


def unusable(directory: Path) -> str | None:
    """Why one cannot work in a directory, in one clear line; None when one can. Raises OSError or ValueError."""
    if not directory.exists():
        return f"{directory} does not exist; mount it first or correct the path"
    if not directory.is_dir():
        return f"{directory} is not a directory"
    if os.statvfs(directory).f_flag & os.ST_RDONLY:
        return f"{directory} is mounted read-only; remount it writable: mount -o remount,rw {directory}"
    if not os.access(directory, os.W_OK | os.X_OK):
        return f"{directory} is not writable for this user (uid {os.geteuid()})"
    return None


def open_synced(path: Path, size: int) -> int:
    """Write a new file and fsync it; returns its open descriptor for :func:`close_and_remove`: closing may flush what
    fsync did not. Raises OSError; nothing is left then."""
    handle = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    try:
        os.write(handle, os.urandom(size))
        os.fsync(handle)
    except BaseException:
        close_and_remove(handle, path)
        raise
    return handle


def close_and_remove(handle: int, path: Path) -> None:
    """End what :func:`open_synced` began. Raises OSError."""
    os.close(handle)
    path.unlink(missing_ok=True)


def flush_below(directory: Path) -> int:
    """fsync everything below a directory: dirty pages cannot be dropped. Returns 0 or the errno.

    Files rather than sync(2): other file systems of the host are none of our business and may take minutes.
    """
    try:
        for file in [*_files_below(directory), directory]:
            handle = os.open(file, os.O_RDONLY)
            try:
                os.fsync(handle)
            finally:
                os.close(handle)
    except OSError as error:
        return error.errno or 1
    return 0


def forget_below(directory: Path) -> int:
    """Drop the pages of the files below a directory (posix_fadvise), which needs no privilege. Returns 0 or the errno."""
    try:
        for file in _files_below(directory):
            handle = os.open(file, os.O_RDONLY)
            try:
                os.posix_fadvise(handle, 0, 0, os.POSIX_FADV_DONTNEED)
            finally:
                os.close(handle)
    except OSError as error:
        return error.errno or 1
    return 0


def _files_below(directory: Path) -> list[Path]:
    return [Path(root) / name for root, _, names in os.walk(directory) for name in names]


# --- the host -------------------------------------------------------------------------------------------------------


def can_drop_caches() -> bool:
    """Whether this process may drop the page cache of the whole host."""
    return os.access(DROP_CACHES, os.W_OK)


def drop_caches() -> int:
    """Drop page cache, dentries and inodes of the whole host. Returns 0 or the errno."""
    try:
        DROP_CACHES.write_text("3\n")
    except OSError as error:
        return error.errno or 1
    return 0


def meminfo() -> dict[str, int]:
    """/proc/meminfo."""
    fields = {}
    for line in Path("/proc/meminfo").read_text().splitlines():
        name, _, value = line.partition(":")
        fields[name] = int(value.split()[0]) * 1024
    return fields


def cpu_times() -> tuple[float, float]:
    """Busy and total CPU time since boot, in clock ticks of all cores (/proc/stat)."""
    fields = [float(v) for v in Path("/proc/stat").read_text().split("\n", 1)[0].split()[1:9]]
    idle = fields[3] + fields[4]
    return sum(fields) - idle, sum(fields)


def load() -> dict[str, float]:
    """CPU times (busy, total), memory (memory_bytes, cached_bytes, dirty_bytes) and the load average of one minute."""
    busy, total = cpu_times()
    memory = meminfo()
    return {
        "busy": busy,
        "total": total,
        "memory_bytes": memory["MemTotal"],
        "cached_bytes": memory["Cached"],
        "dirty_bytes": memory["Dirty"] + memory["Writeback"],
        "load_average": os.getloadavg()[0],
    }
