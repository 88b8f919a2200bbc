"""Recording and replaying real programs."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from assay import _core
from assay.trace import calls, fidelity, replayer
from assay.trace import strace as strace_backend
from assay.trace.frames import frame

root = pytest.mark.skipif(os.geteuid() != 0, reason="recording with eBPF needs root")
DATA = Path(__file__).parents[1] / "data" / "trace"


def record(out: Path, *command: str, **options: Any) -> dict[str, Any]:
    """Record a command; nothing may be lost."""
    done = calls.record(out, command=command, **options)
    assert done["summary"]["dropped"] == 0
    assert done["summary"]["exit_code"] == 0, command
    return done


def until(holds: Callable[[], bool]) -> None:
    """Waits for a minute at most, which a loaded machine may need."""
    end = time.monotonic() + 60
    while not holds():
        assert time.monotonic() < end, "waited for a minute"
        time.sleep(0.05)


def listing(directory: Path) -> list[tuple[str, str, int]]:
    """Names, kinds and sizes of files below a directory."""
    found = []
    for path in sorted(directory.rglob("*")):
        kind = "link" if path.is_symlink() else "directory" if path.is_dir() else "file"
        found.append((str(path.relative_to(directory)), kind, path.stat().st_size if kind == "file" else 0))
    return found


@root
def test_dd_is_recorded_call_by_call(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "in").write_bytes(b"x" * 65536)
    record(
        tmp_path / "t", "dd", f"if={work}/in", f"of={work}/out", "bs=4096", "conv=fsync", "status=none", mount=str(work)
    )
    rows = frame(tmp_path / "t")
    reads = rows.filter(pl.col("operation") == "read")
    writes = rows.filter(pl.col("operation") == "write")
    assert reads["offset"].to_list() == [*range(0, 65536, 4096), 65536]
    assert reads["result"].to_list() == [4096] * 16 + [0]
    assert writes["offset"].to_list() == list(range(0, 65536, 4096))
    assert set(writes["path"]) == {f"{work}/out"}
    assert rows.filter(pl.col("operation") == "fsync").height == 1


@root
def test_what_strace_sees_is_what_is_recorded(tmp_path: Path) -> None:
    """The same deterministic program under both recorders: the same calls in the same order on the same files."""
    if shutil.which("strace") is None:
        pytest.skip("no strace here: apt-get install -y strace")
    work = tmp_path / "work"
    script = (
        f"mkdir {work}; cd {work}; cp /etc/services a; cat a > b; mv b c; mkdir d; cp a d/x; "
        "dd if=a of=d/y bs=1000 count=3 status=none; truncate -s 100 c; ln -s a l; ln a h; rm -r d; cat c nothing > /dev/null; true"
    )
    record(tmp_path / "bpf", "sh", "-c", script, mount=str(work))
    shutil.rmtree(work)
    strace_backend.record(tmp_path / "strace", command=["sh", "-c", script])

    def shown(path: Path) -> Counter[tuple[Any, ...]]:
        """What was done how often; the order across processes is not the same twice."""
        rows = frame(path).filter(
            pl.col("path").str.starts_with(str(work)) | pl.col("path2").str.starts_with(str(work))
        )
        rows = rows.filter(~pl.col("operation").is_in(["mmap", "page-in", "stat", "fstat", "access", "clone"]))
        return Counter(rows.select("operation", "path", "path2", "fd", "offset", "count", "result").rows())

    assert shown(tmp_path / "bpf") == shown(tmp_path / "strace")


@root
@pytest.mark.slow
def test_a_million_scripted_calls_of_64_threads_come_back(tmp_path: Path) -> None:
    program, work = tmp_path / "scripted", tmp_path / "work"
    work.mkdir()
    subprocess.run(["cc", "-O2", "-pthread", "-o", program, DATA / "scripted.c"], check=True)
    log = tmp_path / "log"
    record(tmp_path / "t", str(program), str(work), str(log), "4", "16", "1000000", mount=str(work), mmap=False)
    own = np.concatenate([np.fromfile(f"{log}.{p}", dtype="<i8").reshape(-1, 5) for p in range(4)])
    rows = frame(tmp_path / "t")
    operations = {name: number for number, name in json.loads(_core.trace_columns(tmp_path / "t")[1])["operations"]}
    numbers = np.array([operations[o] for o in rows["operation"]])
    assert len(own) >= 1_000_000
    recorded = np.column_stack([rows["tid"], numbers, rows["offset"], rows["count"], rows["result"], rows["start_ns"]])
    for tid in np.unique(own[:, 0]):
        mine = own[own[:, 0] == tid]
        seen = recorded[recorded[:, 0] == tid]
        seen = seen[np.argsort(seen[:, 5], kind="stable")][:, :5]
        assert len(seen) == len(mine)
        wrong = np.flatnonzero((seen != mine).any(axis=1))
        assert not len(wrong), (mine[wrong[:3]].tolist(), seen[wrong[:3]].tolist())


@root
def test_a_replayed_build_gives_the_same_tree(tmp_path: Path) -> None:
    work = tmp_path / "work"
    script = f"""set -e
rm -rf {work}; mkdir {work}; cd {work}; mkdir src
for i in 1 2 3 4 5; do echo "int f$i(void){{return $i;}}" > src/f$i.c; done
tar cf a.tar src; mkdir x; tar xf a.tar -C x; cp -r x y
for i in 1 2 3; do gcc -c y/src/f$i.c -o y/f$i.o; done; ar rcs y/lib.a y/*.o
mv y/src y/moved; rm -r x; cat y/moved/*.c > all.c; dd if=/dev/zero of=big bs=64k count=50 status=none
truncate -s 1000 big; ln -s big l; ln big hard; rm a.tar"""
    record(tmp_path / "t", "bash", "-c", script)
    for timing in ("asap", "think", "abs"):
        target = tmp_path / f"replay-{timing}"
        outcome = replayer.run(
            replayer.options(tmp_path / "t", target, timing=timing, only=[str(work)], deadline_seconds=60)
        )
        assert listing(target / "copy-0") == listing(work), timing
        assert outcome["fidelity"]["mismatches"] == 0, outcome["fidelity"]["mismatch_kinds"]


@root
def test_sqlite_through_fork_and_sync_is_faithful_as_fast_as_possible(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    program = (
        "import sqlite3, sys; c = sqlite3.connect(sys.argv[1]); c.execute('pragma synchronous=full');"
        "c.execute('create table t(i integer primary key, v text)');"
        "[(c.execute('insert into t(v) values(?)', ('x' * 300,)), c.commit()) for _ in range(50)]"
    )
    record(tmp_path / "t", sys.executable, "-c", program, str(work / "db"), mount=str(work))
    outcome = replayer.run(replayer.options(tmp_path / "t", tmp_path / "r", timing="asap", only=[str(work)], copies=3))
    assert fidelity.faithful(fidelity.judge(outcome["fidelity"])), outcome["fidelity"]
    assert {listing(tmp_path / "r" / f"copy-{n}")[0] for n in range(3)} == {
        ("db", "file", (work / "db").stat().st_size)
    }
    info = calls.info(tmp_path / "t")
    assert info["classes"]["sync"]["operations"] >= 100


@root
@pytest.mark.fio
@pytest.mark.parametrize("engine", ["io_uring", "libaio", "psync"])
def test_every_operation_of_fio_is_seen(tmp_path: Path, engine: str) -> None:
    report = tmp_path / "fio.json"
    record(
        tmp_path / "t", "fio", "--name=a", f"--directory={tmp_path}", "--size=4M", "--bs=4k", "--rw=randrw", "--direct=1",
        f"--ioengine={engine}", "--iodepth=8", "--output-format=json", f"--output={report}",
    )  # fmt: skip
    job = json.loads(report.read_text())["jobs"][0]
    rows = frame(tmp_path / "t").filter(pl.col("path").str.ends_with("a.0.0") & (pl.col("result") == 4096))
    kinds = {"io_uring": "uring_", "libaio": "aio_", "psync": "p"}[engine]
    assert rows.filter(pl.col("operation") == f"{kinds}read").height == job["read"]["total_ios"]
    assert rows.filter(pl.col("operation") == f"{kinds}write").height == job["write"]["total_ios"]


@root
def test_a_running_process_can_be_attached_to(tmp_path: Path) -> None:
    file = tmp_path / "f"
    program = "import os,sys,time; f=open(sys.argv[1],'wb',0)\nwhile True: f.write(b'x'*100); time.sleep(.005)"
    process = subprocess.Popen([sys.executable, "-c", program, str(file)])
    try:
        while not file.exists():
            time.sleep(0.01)
        done = calls.record(tmp_path / "t", pid=process.pid, seconds=0.5)
    finally:
        process.kill()
        process.wait()
    rows = frame(tmp_path / "t").filter(pl.col("operation") == "write")
    assert rows.height >= 10
    assert set(rows["path"]) == {str(file)}
    assert np.all(np.diff(rows["offset"].to_numpy()) == 100)
    assert done["summary"]["exit_code"] is None


@root
def test_the_portable_backend_sees_the_same(tmp_path: Path) -> None:
    for raw in (False, True):
        record(tmp_path / f"t{raw}", "cp", "/etc/services", str(tmp_path / "copy"), mount=str(tmp_path), raw=raw)
    assert [r["operation"] for r in frame(tmp_path / "tTrue").rows(named=True)][1:] == [
        r["operation"] for r in frame(tmp_path / "tFalse").rows(named=True)
    ][1:]


@root
def test_a_killed_recorder_leaves_a_readable_trace_and_a_running_program(tmp_path: Path) -> None:
    script = (
        "from assay.trace import calls; from pathlib import Path; import sys;"
        "calls.record(Path(sys.argv[1]), command=['sh', '-c', f'while :; do cat /etc/services > {sys.argv[2]}; done'])"
    )
    out, copy = tmp_path / "t", tmp_path / "x"
    recorder = subprocess.Popen([sys.executable, "-c", script, str(out), str(copy)], start_new_session=True)
    try:
        until(lambda: out.exists() and out.stat().st_size > 4096 and calls.info(out)["operations"] > 100)
        recorder.kill()
        recorder.wait()
        written = copy.stat().st_mtime_ns
        until(lambda: copy.stat().st_mtime_ns > written)  # the program goes on
    finally:
        os.killpg(recorder.pid, signal.SIGKILL)
    info = calls.info(out)
    assert info["operations"] > 100
    assert not info["whole"]


@root
def test_a_full_disk_leaves_a_readable_trace(tmp_path: Path) -> None:
    small = tmp_path / "small"
    small.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64k", "tmpfs", small], check=True)
    try:
        script = "import os,random; f=os.open('/etc/services',0)\nfor i in range(60000): os.pread(f, random.randrange(9999), random.randrange(9999))"
        done = calls.record(small / "t", command=[sys.executable, "-c", script])
        info = calls.info(small / "t")
    finally:
        subprocess.run(["umount", small], check=True)
    assert done["summary"]["unwritten"] > 0
    assert any("No space left" in warning for warning in done["summary"]["warnings"])
    assert info["unreadable_bytes"] == 0


@root
def test_think_times_are_kept(tmp_path: Path) -> None:
    work = tmp_path / "work"
    work.mkdir()
    (work / "f").write_bytes(b"x" * 4096)
    program = "import os,sys,time; f=os.open(sys.argv[1],0)\nfor _ in range(200): os.pread(f,100,0); time.sleep(0.002)"
    record(tmp_path / "t", sys.executable, "-c", program, str(work / "f"), mount=str(work))
    recorded = calls.info(tmp_path / "t")["think_time_total_seconds"]
    outcome = replayer.run(replayer.options(tmp_path / "t", tmp_path / "r", only=[str(work)], out=tmp_path / "again"))
    replayed = calls.info(tmp_path / "again")["think_time_total_seconds"]
    assert outcome["fidelity"]["issue_error_seconds"]["50"] < 50e-6
    assert replayed == pytest.approx(recorded, rel=0.2)
    half = replayer.run(replayer.options(tmp_path / "t", tmp_path / "r", only=[str(work)], scale=0.5))
    assert half["copies"][0]["seconds"] < outcome["copies"][0]["seconds"] * 0.8


@root
def test_the_command_line(tmp_path: Path) -> None:
    assay = Path(sys.executable).with_name("assay")
    trace = tmp_path / "t.assay"

    def run(*arguments: object, code: int = 0) -> str:
        done = subprocess.run([assay, "trace", *map(str, arguments)], capture_output=True, text=True, check=False)
        assert done.returncode == code, done.stderr
        return done.stdout + done.stderr

    assert "operations" in run("record", "-o", trace, "--", "cp", "/etc/services", tmp_path / "copy")
    assert "page-in" in run("info", trace, "--plots", tmp_path / "charts")
    assert len(list((tmp_path / "charts").glob("*.svg"))) == 3
    assert json.loads(run("info", trace, "--json"))["operations"] > 5
    shown = run("replay", trace, tmp_path / "r", "--timing", "asap", "--only", tmp_path)
    assert "faithful" in shown and "T5 valid" in shown
    for name in ("a.csv", "a.parquet", "a.iolog"):
        run("export", trace, "-o", tmp_path / name)
    assert "one of" in run("export", trace, "-o", tmp_path / "a.xyz", code=2)
    run("anonymise", trace, "-o", tmp_path / "anonymous")
    assert "no trace of Assay" in run("info", "/etc/services", code=3)
    assert run("record", "-o", trace, "--", "sh", "-c", "exit 7", code=7)
