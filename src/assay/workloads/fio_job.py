"""From a point to fio's options: the job file, the command line, the names of the files.

Decisions that a reader of the figures must know:

* One distinct file per client and thread (check W9): ``assay.c<client>.t<thread>``, made by fio from
  ``filename_format`` and ``numjobs``, so that the job file says what it is whatever the number of threads.
* Latency is total latency, submission to completion (fio's ``lat``), everywhere: histograms, percentiles and logs.
* ``verify``: fio abandons verification when the runtime is over, so a verifying point is bounded by ``size``, not by
  time (no ``runtime``, ``time_based`` or ``ramp_time``). The load writes checksums (``do_verify=0``) and is measured
  without any reading back; a second fio process with ``verify_only=1`` then reads and checks every block that the
  load wrote. The checksummed headers carry the attempt's seed: a write that was lost and left an older attempt's
  valid block is found. Points that do not write have nothing to verify.
* The null engine takes the same point without directory, data, ramp and verify, for at most one second.
"""

from __future__ import annotations

import hashlib
import re
import shlex
from pathlib import Path

from assay.model.point import FioPoint
from assay.workloads.base import WorkloadError

NULL_RUNTIME_SECONDS = 1.0

# Options that would make Assay's figures mean something else than it says.
_RESERVED = """
    bw_avg_time clat_percentiles clients create_only directory do_verify exec_postrun exec_prerun filename filename_format
    group_reporting invalidate iodepth ioengine iops_avg_time lat_percentiles log_avg_msec name new_group numjobs
    offset_increment opendir output per_job_logs percentile_list ramp_time randseed runtime rw readwrite size
    slat_percentiles stonewall thread time_based unlink verify verify_only wait_for write_bw_log write_iops_log
    write_lat_log direct buffered nrfiles file_size filesize unified_rw_reporting disable_lat gtod_reduce loops
    number_ios io_size include
"""
RESERVED = frozenset(_RESERVED.split())
OBJECT_BYTES = 4 << 20  # Ceph's default
_OPTION_NAME = re.compile(r"^[a-z][a-z0-9_]*$")


def file_name(client: int, thread: int) -> str:
    """Name of the file that one thread of one client works on."""
    return f"assay.c{client}.t{thread}"


def object_options(point: FioPoint, client: int, engine: dict[str, str]) -> dict[str, str]:
    """Where the work is when fio's own engine reaches the system: each thread's data in objects of 4 MiB, as CephFS cuts its
    files. Sequential work takes them one after another, random work in any order."""
    if point.fsync or point.fdatasync:
        raise WorkloadError(
            f"fsync has no meaning through fio's engine {engine['ioengine']}; leave fsync and fdatasync out"
        )
    objects = -(-point.size // OBJECT_BYTES)
    if point.size > OBJECT_BYTES and point.size % OBJECT_BYTES:
        raise WorkloadError(f"size {point.size} B is no multiple of the {OBJECT_BYTES >> 20} MiB of an object")
    return {
        **engine,
        "filename_format": f"assay.c{client}.t$jobnum.$filenum",
        "nrfiles": str(objects),
        "openfiles": str(objects),
        "file_service_type": "random" if point.random else "sequential",
    }


def verifies(point: FioPoint) -> bool:
    """Whether written data is read back and checked after the load."""
    return point.verify != "none" and point.writes


def log_interval_ms(point: FioPoint) -> int:
    """Interval of the time series: 1 s for runs of 30 s and more, else a thirtieth of the run, at least 20 ms."""
    if point.runtime >= 30:
        return 1000
    return max(20, round(point.runtime * 1000 / 30))


def has_fixed_block_size(point: FioPoint) -> bool:
    """Whether every operation moves ``block_size`` bytes (no free option says otherwise)."""
    return not any(key.startswith(("bs", "blocksize", "blockalign", "zero_buffers_bs")) for key in point.options)


def client_seed(seed: int, client: int) -> int:
    """fio's randseed of one client: never 0, and clients of one attempt differ (fio varies it by thread itself)."""
    digest = hashlib.sha256(f"{seed}:{client}".encode()).digest()
    return int.from_bytes(digest[:7], "big") | 1


def null_point(point: FioPoint) -> FioPoint:
    """The point as the null engine runs it."""
    return point.model_copy(update={"runtime": min(point.runtime, NULL_RUNTIME_SECONDS), "ramp": 0.0, "verify": "none"})


def check(point: FioPoint) -> None:
    """Raises WorkloadError when a free option is not one or would change what Assay measures."""
    for key, value in point.options.items():
        if not _OPTION_NAME.match(key):
            raise WorkloadError(f"{key!r} is not the name of a fio option")
        if key in RESERVED:
            raise WorkloadError(f"the fio option {key!r} is set by Assay; use the workload's own keys instead")
        if any(ord(char) < 32 for char in str(value)):
            raise WorkloadError(f"the value of the fio option {key!r} holds a control character")


def options(
    point: FioPoint,
    client: int,
    directory: Path | None,
    *,
    engine: dict[str, str] | None = None,
    seed: int | None = None,
    log: str | None = None,
) -> dict[str, str]:
    """fio's options for one client in the order of the job file; ``directory`` None means the null engine, or ``engine``
    where that is given.

    ``log`` is the prefix of the log files (None: no logs), ``seed`` the attempt's seed (None: fio's default).
    """
    null = directory is None and engine is None
    if null:
        point = null_point(point)
    out: dict[str, str] = {
        "ioengine": "null" if null else point.engine,
        "thread": "1",
        "numjobs": str(point.threads),
        "group_reporting": "0",
    }
    if directory is not None:
        out |= {
            "directory": _escaped(directory),
            "filename_format": f"assay.c{client}.t$jobnum",
            "overwrite": "1",
            "fallocate": "none",
            "allow_mounted_write": "0",
            "invalidate": "0" if point.cache == "warm" else "1",
        }
    if engine is not None:
        out |= object_options(point, client, engine)
    out |= {
        "rw": point.pattern,
        "bs": str(point.block_size),
        "size": str(point.size),
        "iodepth": str(point.iodepth),
        "direct": _flag(point.direct),
    }
    if point.pattern in ("rw", "randrw"):
        out["rwmixread"] = str(round(point.read_share * 100))
    if not verifies(point):
        out["runtime"] = f"{round(point.runtime * 1000)}ms"
        if point.time_based:
            out["time_based"] = "1"
        if point.ramp:
            out["ramp_time"] = f"{round(point.ramp * 1000)}ms"
    if (
        point.writes and engine is None
    ):  # what an engine of the system's own has written is durable, and it knows no fsync
        for key, every in (("fsync", point.fsync), ("fdatasync", point.fdatasync)):
            if every:
                out[key] = str(every)
        out["end_fsync"] = _flag(point.end_fsync)
    if point.rate is not None:
        out["rate"] = str(point.rate)
    if verifies(point):
        out |= {"verify": point.verify, "do_verify": "0", "verify_state_save": "0"}
    if seed is not None:
        out |= {"randrepeat": "1", "randseed": str(client_seed(seed, client))}
    out |= {"lat_percentiles": "1", "clat_percentiles": "0", "slat_percentiles": "0"}
    out["percentile_list"] = "50:90:95:99:99.9:99.99"
    if log is not None:
        out |= {"log_avg_msec": str(log_interval_ms(point)), "per_job_logs": "1", "write_bw_log": log}
        if not has_fixed_block_size(point):
            out["write_iops_log"] = log
        out["write_lat_log"] = log
    for key, value in point.options.items():
        out[key] = _flag(value) if isinstance(value, bool) else str(value)
    return out


def verify_options(load: dict[str, str]) -> dict[str, str]:
    """Options of the process that checks what the load with ``load`` has written; it counts errors and goes on."""
    dropped = ("do_verify", "log_avg_msec", "per_job_logs", "write_bw_log", "write_iops_log", "write_lat_log", "rate")
    out = {key: value for key, value in load.items() if key not in dropped}
    # invalidate: what is checked comes from the file system, not from pages that the load has left behind.
    return out | {"invalidate": "1", "verify_only": "1", "verify_fatal": "0", "continue_on_error": "verify"}


def job_file(name: str, job_options: dict[str, str]) -> str:
    """The text of a job file with one section."""
    return f"[{name}]\n" + "".join(f"{key}={value}\n" for key, value in job_options.items())


def command_line(name: str, job_options: dict[str, str]) -> str:
    """One shell line that runs the same job by hand."""
    return shlex.join(["fio", f"--name={name}", *(f"--{key}={value}" for key, value in job_options.items())])


def _flag(value: bool) -> str:
    return "1" if value else "0"


def _escaped(directory: Path) -> str:
    text = str(directory)
    if any(ord(char) < 32 for char in text) or text != text.strip():
        raise WorkloadError(f"fio cannot work in a directory of this name: {text!r}")
    return text.replace(":", "\\:")  # a bare colon separates several directories
