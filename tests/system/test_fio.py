"""The fio workload with real fio on a temporary directory; root only where a tiny file system is mounted."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.lab.host import LocalHost
from assay.model.point import FioPoint
from assay.model.summary import summarise, total_series
from assay.workloads import fio_data, fio_files
from assay.workloads.base import RunResult, Target, WorkloadError
from assay.workloads.fio import FioWorkload

pytestmark = [pytest.mark.fio, pytest.mark.skipif(shutil.which("fio") is None, reason="fio is not installed")]
MIB = 1 << 20


def point(**changes: Any) -> FioPoint:
    fields: dict[str, Any] = {
        "pattern": "randrw", "block_size": 16384, "threads": 2, "iodepth": 4, "engine": "libaio", "size": 4 * MIB,
        "runtime": 0.6, "ramp": 0.0, "time_based": True, "direct": False, "cache": "any", "fsync": 0, "fdatasync": 0,
        "end_fsync": True, "rate": None, "read_share": 0.5, "verify": "none", "clients": 1,
    }  # fmt: skip
    return FioPoint(**(fields | changes))


@pytest.fixture
def target(tmp_path: Path) -> Target:
    directory = tmp_path / "target"
    directory.mkdir()
    return Target(directory)


def execute(
    it: FioPoint, target: Target, scratch: Path, *, clients: int = 1, deadline: float = 30, seed: int = 1
) -> RunResult:
    workload, hosts = FioWorkload(it), [LocalHost()] * clients
    workload.prepare(target, hosts, seed, 30)
    return workload.run(target, hosts, seed=seed, scratch=scratch, deadline_seconds=deadline)


def artefact(result: RunResult, name: str) -> bytes:
    return next(a.content for a in result.artefacts if a.name == name)


def test_figures_equal_fios_own(target: Target, tmp_path: Path) -> None:
    result = execute(point(threads=1, pattern="randread"), target, tmp_path / "s")
    raw = json.loads(artefact(result, "c0.json"))["jobs"][0]["read"]
    summary = summarise(result.clients, result.samples).directions["read"]
    assert (summary.bytes, summary.operations) == (raw["io_bytes"], raw["total_ios"])
    assert summary.bandwidth_bytes_per_second == pytest.approx(raw["bw_bytes"], abs=1)  # fio cuts to whole bytes
    assert summary.iops == pytest.approx(raw["iops"], rel=1e-6)
    assert summary.latency_mean_seconds == pytest.approx(raw["lat_ns"]["mean"] / 1e9)
    own = {f"{float(q):g}": ns / 1e9 for q, ns in raw["lat_ns"]["percentile"].items()}
    assert summary.latency_percentiles_seconds == {q: own[q] for q in summary.latency_percentiles_seconds}
    assert {"50", "99"} <= set(summary.latency_percentiles_seconds)
    client = result.clients[0]
    assert client.exit_code == 0 and client.errors == {} and client.verify_errors is None
    assert client.tool_version.startswith("fio-")


def test_several_clients_with_a_file_per_thread(target: Target, tmp_path: Path) -> None:
    result = execute(point(pattern="write"), target, tmp_path / "s", clients=2)
    names = [name for client in result.clients for name in client.file_names]
    assert len(set(names)) == 4
    assert target.directory
    assert {p.name for p in (target.directory / "assay-data").glob("assay.*")} == set(names)
    summary = summarise(result.clients, result.samples).directions["write"]
    assert summary.bytes == sum(client.totals["write"].bytes for client in result.clients)
    assert summary.operations == sum(sum(c.histograms["write"].counts) for c in result.samples)
    assert all(len(client.job_runtimes_seconds) == 2 for client in result.clients)


def test_series_integral_is_the_bytes(target: Target, tmp_path: Path) -> None:
    result = execute(point(rate=20_000_000, runtime=1.5), target, tmp_path / "s")
    client = result.clients[0]
    for direction, total in client.totals.items():
        seconds, values = total_series(result.samples, "bandwidth", direction)
        interval = seconds[1] - seconds[0]
        # fio never logs its last interval, and on a busy machine it may miss a few
        slack = max(2 * interval / total.runtime_seconds, 0.15)
        assert sum(values) * interval == pytest.approx(total.bytes, rel=slack)
        operations = sum(total_series(result.samples, "iops", direction)[1]) * interval
        assert operations == pytest.approx(total.operations, rel=slack)
        latency = total_series(result.samples, "latency", direction)[1]
        assert len(latency) > 20
        # a mean over intervals is no mean over operations, but it lies between the shortest and the longest of them
        assert total.latency_min_seconds <= sum(latency) / len(latency) <= total.latency_max_seconds
    assert b"# c0_bw.2.log" in artefact(result, "c0.log")


def test_data_set_is_laid_out_once_and_proven(target: Target) -> None:
    assert target.directory
    workload, hosts = FioWorkload(point(size=3 * MIB + 4096)), [LocalHost()]
    assert workload.prepare(target, hosts, 1, 30) == 2 * (3 * MIB + 4096)
    directory = workload.data_directory(target)
    files = sorted(directory.glob("assay.*"))
    before = [(f.stat().st_ino, f.stat().st_mtime_ns, f.stat().st_size) for f in files]
    assert [size for _, _, size in before] == [4 * MIB] * 2
    assert all(f.stat().st_blocks * 512 >= 4 * MIB for f in files)  # really written, no holes
    blocks = [f.read_bytes()[i : i + 4096] for f in files for i in range(0, 4 * MIB, 4096)]
    assert len(set(blocks)) == len(blocks)  # nothing to deduplicate
    FioWorkload(point(size=MIB)).prepare(target, hosts, 1, 30)
    assert [(f.stat().st_ino, f.stat().st_mtime_ns, f.stat().st_size) for f in files] == before

    os.truncate(files[0], MIB)  # the marker still says complete
    workload.prepare(target, hosts, 1, 30)
    assert files[0].stat().st_size == 4 * MIB and files[1].stat().st_ino == before[1][0]
    (directory / fio_files.MARKER).unlink()  # full size, but unproven
    assert fio_files.complete_files(directory) == {}
    workload.prepare(target, hosts, 1, 30)
    assert set(fio_files.complete_files(directory).values()) == {4 * MIB}


def test_interrupted_prepare_leaves_nothing_prepared(target: Target) -> None:
    workload = FioWorkload(point(size=1 << 30))
    with pytest.raises(WorkloadError, match="took more than"):
        workload.prepare(target, [LocalHost()], 1, 0.05)
    directory = workload.data_directory(target)
    assert fio_files.complete_files(directory) == {} and not list(directory.glob("assay.*"))


@pytest.mark.parametrize("pattern", ["write", "randwrite", "randrw"])
def test_verify_of_sound_data(pattern: str, target: Target, tmp_path: Path) -> None:
    result = execute(point(pattern=pattern, verify="crc32c"), target, tmp_path / "s")
    (client,) = result.clients
    assert (client.verify_errors, client.errors, client.exit_code) == (0, {}, 0)
    moved = sum(total.bytes for total in client.totals.values())
    assert moved == 2 * 4 * MIB  # the verification's reads are in no figure


def test_verify_finds_a_planted_corruption(target: Target, tmp_path: Path) -> None:
    it = point(pattern="write", threads=1, verify="crc32c", rate=4 * MIB)  # sequential and slow: a second
    workload = FioWorkload(it)
    workload.prepare(target, [LocalHost()], 1, 30)
    file = workload.data_directory(target) / "assay.c0.t0"

    def corrupt() -> None:
        with file.open("r+b") as opened:
            opened.seek(20_000)
            opened.write(b"not what was written")

    timer = threading.Timer(0.8, corrupt)
    timer.start()
    result = workload.run(target, [LocalHost()], seed=5, scratch=tmp_path / "s", deadline_seconds=30)
    timer.join()
    (client,) = result.clients
    assert client.verify_errors == 1 and client.errors == {"verify": 1}
    assert "verify" in client.message


def test_deadline_kills_in_time(target: Target, tmp_path: Path) -> None:
    began = time.monotonic()
    result = execute(point(runtime=60), target, tmp_path / "s", deadline=0.7, clients=2)
    assert time.monotonic() - began < 5
    for client in result.clients:
        assert client.exit_code is None and client.errors == {"deadline": 1} and client.totals == {}
    assert summarise(result.clients, result.samples).directions == {}


def test_null_engine(tmp_path: Path) -> None:
    result = execute(point(pattern="write", runtime=50, size=1 << 40), Target(None, null=True), tmp_path / "s")
    (client,) = result.clients
    assert client.errors == {} and client.file_names == []
    assert 0.9 < client.totals["write"].runtime_seconds < 1.5


def test_harness_cost_is_small(target: Target, tmp_path: Path) -> None:
    workload, host = FioWorkload(point(runtime=0.3)), LocalHost()
    workload.prepare(target, [host], 1, 30)
    costs = []
    for attempt in range(3):
        began = time.time()
        workload.prepare(target, [host], 1, 30)
        result = workload.run(target, [host], seed=1, scratch=tmp_path / f"s{attempt}", deadline_seconds=30)
        (client,) = result.clients
        costs.append(time.time() - began - (client.ended_at - client.started_at))
    assert min(costs) < 0.05, costs


def test_failures_are_results(target: Target, tmp_path: Path) -> None:
    refused = execute(point(options={"no_such_option": 1}), target, tmp_path / "a").clients[0]
    assert refused.exit_code == 1 and refused.errors == {"exit-1": 1} and "no_such_option" in refused.message
    too_small = execute(point(size=8192), target, tmp_path / "b").clients[0]  # below the block size
    assert too_small.exit_code != 0 and too_small.errors


def _fake_fio(directory: Path, body: str) -> Path:
    directory.mkdir()
    fake = directory / "fio"
    real = shutil.which("fio")
    fake.write_text(f'#!/bin/sh\ncase "$1" in --version|--enghelp) exec {real} "$@";; esac\n{body}\n')
    fake.chmod(0o755)
    return directory


@pytest.mark.parametrize(
    ("body", "exit_code", "errors"),
    [
        ("echo nonsense > c0.json", 0, {"unparsable-output": 1}),
        ("exit 0", 0, {"unparsable-output": 1}),
        ("kill -SEGV $$", -11, {"killed-by-SIGSEGV": 1}),
        ("echo 'fio: pid=1, err=5/file:io_u.c:1, func=io_u error' >&2; exit 1", 1, {"EIO": 1}),
    ],
)
def test_a_mad_fio_is_a_result(
    body: str, exit_code: int, errors: dict[str, int], target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    FioWorkload(point()).prepare(target, [LocalHost()], 1, 30)
    fake = _fake_fio(tmp_path / "bin", body)
    monkeypatch.setenv("PATH", f"{fake}:{os.environ['PATH']}")
    (client,) = execute(point(), target, tmp_path / "s").clients
    assert (client.exit_code, client.errors) == (exit_code, errors)


def test_missing_fio_and_missing_engine(target: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    missing = point().model_copy(update={"engine": "hologram"})
    with pytest.raises(WorkloadError, match="no engine 'hologram'"):
        FioWorkload(missing).run(target, [LocalHost()], seed=1, scratch=tmp_path / "s", deadline_seconds=5)
    monkeypatch.setenv("PATH", str(tmp_path))
    for call in (
        lambda: FioWorkload(point()).facts([LocalHost()]),
        lambda: FioWorkload(point()).prepare(target, [LocalHost()], 1, 5),
    ):
        with pytest.raises(WorkloadError, match="apt-get install fio"):
            call()


def test_many_threads(target: Target, tmp_path: Path) -> None:
    it = point(threads=128, size=16384, pattern="randread", iodepth=1, rate=200_000, runtime=0.5)
    result = execute(it, target, tmp_path / "s")
    (client,) = result.clients
    assert client.errors == {} and len(client.job_runtimes_seconds) == 128 == len(set(client.file_names))
    assert sum(result.samples[0].histograms["read"].counts) == client.totals["read"].operations


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Target]:
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a tmpfs")
    directory = tmp_path / "tiny"
    directory.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=12m", "assay-test", directory], check=True)
    yield Target(directory)
    subprocess.run(["umount", directory], check=True)


@pytest.mark.root
def test_disk_full_while_running_is_data(tiny: Target, tmp_path: Path) -> None:
    assert tiny.directory
    workload = FioWorkload(point(pattern="write", direct=False))
    workload.prepare(tiny, [LocalHost()], 1, 30)
    for file in workload.data_directory(tiny).glob("assay.*"):
        os.truncate(file, 0)  # so that the load must allocate anew ...
    (tiny.directory / "filler").write_bytes(bytes(11 * MIB))  # ... where nothing is left
    result = workload.run(tiny, [LocalHost()], seed=1, scratch=tmp_path / "s", deadline_seconds=30)
    (client,) = result.clients
    assert client.exit_code != 0 and "ENOSPC" in client.errors
    assert "No space left" in client.message


@pytest.mark.root
def test_disk_full_while_preparing_is_one_line(tiny: Target, monkeypatch: pytest.MonkeyPatch) -> None:
    workload = FioWorkload(point(size=32 * MIB))
    for check in (True, False):  # told by the free space, and by fio when that was wrong
        if not check:
            monkeypatch.setattr(fio_data, "_check_space", lambda *_: None)
        with pytest.raises(WorkloadError, match=r"^disk full: .*") as caught:
            workload.prepare(tiny, [LocalHost()], 1, 30)
        assert "\n" not in str(caught.value)
        directory = workload.data_directory(tiny)
        assert fio_files.complete_files(directory) == {} and not list(directory.glob("assay.*"))


@pytest.mark.root
def test_read_only_mount_is_one_line(tiny: Target) -> None:
    subprocess.run(["mount", "-o", "remount,ro", str(tiny.directory)], check=True)
    with pytest.raises(WorkloadError, match="Read-only file system"):
        FioWorkload(point()).prepare(tiny, [LocalHost()], 1, 30)
