"""The job file as text, and what may not be said in it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from assay.model.point import FioPoint
from assay.workloads import fio_job
from assay.workloads.base import Target, WorkloadError
from assay.workloads.fio import FioWorkload


def point(**changes: Any) -> FioPoint:
    fields: dict[str, Any] = {
        "pattern": "randwrite", "block_size": 4096, "threads": 3, "iodepth": 32, "engine": "libaio", "size": 1 << 30,
        "runtime": 180.0, "ramp": 0.0, "time_based": True, "direct": True, "cache": "cold", "fsync": 0, "fdatasync": 0,
        "end_fsync": True, "rate": None, "read_share": 0.5, "verify": "none", "clients": 1,
    }  # fmt: skip
    return FioPoint(**(fields | changes))


GOLDEN = """\
[c2]
ioengine=libaio
thread=1
numjobs=3
group_reporting=0
directory=/mnt/a
filename_format=assay.c2.t$jobnum
overwrite=1
fallocate=none
allow_mounted_write=0
invalidate=1
rw=randwrite
bs=4096
size=1073741824
iodepth=32
direct=1
runtime=180000ms
time_based=1
ramp_time=2500ms
fsync=8
end_fsync=1
rate=1000000
randrepeat=1
randseed={seed}
lat_percentiles=1
clat_percentiles=0
slat_percentiles=0
percentile_list=50:90:95:99:99.9:99.99
log_avg_msec=1000
per_job_logs=1
write_bw_log=c2
write_lat_log=c2
buffer_compress_percentage=50
refill_buffers=1
"""


def test_job_file_golden() -> None:
    it = point(ramp=2.5, fsync=8, rate=1_000_000, options={"buffer_compress_percentage": 50, "refill_buffers": True})
    options = fio_job.options(it, 2, Path("/mnt/a"), seed=9, log="c2")
    assert fio_job.job_file("c2", options) == GOLDEN.format(seed=fio_job.client_seed(9, 2))


def test_reading_points_sync_nothing_and_warm_keeps_the_cache() -> None:
    options = fio_job.options(point(pattern="read", cache="warm", fsync=3), 0, Path("/m"))
    assert not {"fsync", "end_fsync", "rwmixread"} & set(options)
    assert options["invalidate"] == "0"
    mixed = fio_job.options(point(pattern="randrw", read_share=0.7, fdatasync=4), 0, Path("/m"))
    assert (mixed["rwmixread"], mixed["fdatasync"]) == ("70", "4")


def test_verifying_points_are_bounded_by_size() -> None:
    options = fio_job.options(point(verify="crc32c", ramp=3), 0, Path("/m"), log="c0")
    assert not {"runtime", "time_based", "ramp_time"} & set(options)
    assert (options["verify"], options["do_verify"]) == ("crc32c", "0")
    check = fio_job.verify_options(options)
    assert check["verify_only"] == "1" and "do_verify" not in check and "write_bw_log" not in check
    assert "verify" not in fio_job.options(point(pattern="read", verify="crc32c"), 0, Path("/m"))


def test_null_engine_has_no_files_and_at_most_a_second() -> None:
    options = fio_job.options(point(ramp=5, verify="md5"), 0, None)
    assert options["ioengine"] == "null" and options["runtime"] == "1000ms" and options["size"] == str(1 << 30)
    assert not {"directory", "filename_format", "ramp_time", "verify"} & set(options)


@pytest.mark.parametrize(("runtime", "ms"), [(180, 1000), (30, 1000), (29.9, 997), (3, 100), (0.1, 20)])
def test_log_interval(runtime: float, ms: int) -> None:
    assert fio_job.log_interval_ms(point(runtime=runtime)) == ms


def test_seeds_differ_by_client_and_are_never_zero() -> None:
    seeds = {fio_job.client_seed(seed, client) for seed in range(20) for client in range(20)}
    assert len(seeds) == 400 and 0 not in seeds


def test_command_is_one_shell_line() -> None:
    line = FioWorkload(point()).command(Target(Path("/mnt/my disk:1")), 1)
    assert line.startswith("fio --name=c1 ") and "\n" not in line
    assert "'--directory=/mnt/my disk\\:1/assay-data'" in line
    assert "'--filename_format=assay.c1.t$jobnum'" in line
    assert "--ioengine=null" in FioWorkload(point()).command(Target(None, null=True), 0)


@pytest.mark.parametrize("options", [{"numjobs": 4}, {"filename": "/dev/sda"}, {"a\nb": 1}, {"bsrange": "1\n2"}])
def test_options_that_change_what_is_measured_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(WorkloadError):
        FioWorkload(point(options=options))


def test_directory_that_fio_cannot_name_is_refused() -> None:
    with pytest.raises(WorkloadError, match="directory of this name"):
        fio_job.options(point(), 0, Path("/mnt/a\nb"))


def test_objects_through_an_engine_of_the_systems_own() -> None:
    engine = {"ioengine": "rados", "clientname": "admin", "pool": "data"}
    found = fio_job.options(point(pattern="randwrite", size=32 << 20, end_fsync=True), 1, None, engine=engine, seed=3)
    assert list(found)[:1] == ["ioengine"]
    assert {k: found[k] for k in ("ioengine", "pool", "nrfiles", "file_service_type", "filename_format")} == {
        "ioengine": "rados", "pool": "data", "nrfiles": "8", "file_service_type": "random",
        "filename_format": "assay.c1.t$jobnum.$filenum",
    }  # fmt: skip
    assert not {"end_fsync", "directory", "overwrite"} & set(found), "written is durable, and there is no directory"
    assert (
        fio_job.options(point(pattern="read", size=1 << 20), 0, None, engine=engine)["file_service_type"]
        == "sequential"
    )
    with pytest.raises(WorkloadError, match="fsync has no meaning through fio's engine rados"):
        fio_job.options(point(pattern="write", size=4 << 20, fsync=1), 0, None, engine=engine)
    with pytest.raises(WorkloadError, match="no multiple of the 4 MiB of an object"):
        fio_job.options(point(pattern="write", size=5 << 20), 0, None, engine=engine)
