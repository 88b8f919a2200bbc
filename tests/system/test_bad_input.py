"""Bad input gives one clear line, the right exit code, no traceback, and nothing half-written."""

from __future__ import annotations

import os
import re
import sqlite3
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

pytestmark = [pytest.mark.root, pytest.mark.fio, pytest.mark.slow]

ASSAY = str(Path(sys.executable).parent / "assay")
FIO = "{fio: {pattern: read, block_size: 4KiB, size: 1MiB, runtime: 0.2s}}"
TINY = "{fio: {pattern: randwrite, block_size: 4KiB, size: 8MiB, runtime: 0.3s}}"


@dataclass(frozen=True)
class Case:
    """A broken study (or command), what it must exit with and say."""

    name: str
    study: str
    says: str  # regular expression on the one line
    code: int = 2
    arguments: list[str] = field(default_factory=list)


def study(candidates: str = "[local/ext4]", workloads: str = f"[{FIO}]", rest: str = "") -> str:
    return f"study: broken\ncandidates: {candidates}\nworkloads: {workloads}\n{rest}"


CASES = [
    Case("not YAML", "study: [", r"study\.yaml:\d+: "),
    Case("empty", "", r"study\.yaml:1: a study is a mapping"),
    Case("a list", "- 1\n- 2\n", r"a study is a mapping"),
    Case("tab", "study: x\n\tcandidates: []\n", r"study\.yaml:2: "),
    Case("key twice", "study: x\nstudy: y\n", r"study\.yaml:2: .*duplicate key"),
    Case("no candidates", f"study: x\nworkloads: [{FIO}]\n", r"candidates' is missing"),
    Case("cycle", "study: x\ncandidates: &a [local/ext4, *a]\nworkloads: []\n", r"study\.yaml:2: .*contains itself"),
    Case("unknown key", study(workloads="[{fio: {patern: read, block_size: 4KiB}}]"), r"study\.yaml:3: .*did you mean 'pattern'"),
    Case("unknown pattern", study(workloads="[{fio: {pattern: reed, block_size: 4KiB}}]"), r"study\.yaml:3: .*'reed' is not known"),
    Case("bare unit", study(workloads="[{fio: {pattern: read, block_size: 4K}}]"), r"4KiB \(2\^n\) or 4KB \(10\^n\)"),
    Case("unknown unit", study(workloads="[{fio: {pattern: read, block_size: 4KiB, runtime: 3parsec}}]"), r"unknown time unit 'parsec'"),
    Case("negative", study(workloads="[{fio: {pattern: read, block_size: 4KiB, threads: 0}}]"), r"threads.*greater than or equal to 1"),
    Case("wrong type", study(workloads="[{fio: {pattern: read, block_size: 4KiB, iodepth: deep}}]"), r"iodepth.*whole number.*'deep'"),
    Case("axis twice", study(workloads="[{fio: {pattern: [read, read], block_size: 4KiB}}]"), r"names 'read' twice"),
    Case("empty axis", study(workloads="[{fio: {pattern: [], block_size: 4KiB}}]"), r"pattern.*at least one value"),
    Case("workload without kind", study(workloads="[{name: x}]"), r"a workload needs its kind"),
    Case("blocks", study(rest="measure: {blocks: {pilot: 50, maximum: 10}}"), r"maximum 10 is below"),
    Case("share", study(rest="measure: {margin: 500%}"), r"not a share between"),
    Case("verify of a read", study(workloads="[{fio: {pattern: read, block_size: 4KiB, verify: md5}}]"), r"verify: md5 needs a pattern that writes"),
    Case("size below block", study(workloads="[{fio: {pattern: read, block_size: 1MiB, size: 4KiB}}]"), r"is smaller than block_size"),
    Case("unknown system", study("[local/zfs]"), r"unknown candidate 'local/zfs'; did you mean"),
    Case("same label", study("[local/ext4, local/ext4]"), r"two candidates are called 'local/ext4'"),
    Case("unknown tuning", study("[{system: local/ext4, tuning: {speed: fast}}]"), r"no tuning 'speed'; known: mkfs, mount"),
    Case("no room for the disk", study(rest="lab: {disk: {size: 900TiB}}"), r"does not fit", 3),
    Case("disk below data", study(workloads="[{fio: {pattern: read, block_size: 4KiB, size: 1GiB}}]", rest="lab: {disk: {size: 400MiB}}"), r"needs a disk of at least"),
    Case("path missing", study("['path:/no/such/dir']"), r"/no/such/dir does not exist"),
    Case("path is a file", study("['path:/etc/hostname']"), r"/etc/hostname is not a directory"),
    Case("path relative", study("['path:here']"), r"path:here is relative"),
    Case("path not writable", study("['path:/proc/sys']"), r"/proc/sys .*(not writable|read-only|does not fit|free)"),
    Case("data set beyond the path", study("['path:/dev/shm']", "[{fio: {pattern: read, block_size: 4KiB, size: 90TiB}}]"), r"does not fit"),
    Case("bad mkfs argument", study("[{system: local/ext4, tuning: {mkfs: '--bogus'}}]"), r"making ext4.*bogus", 3),
    Case("bad mount option", study("[{system: local/ext4, tuning: {mount: 'bogus=1'}}]"), r"mounting.*mount", 3),
    Case("reserved fio option", study(workloads="[{fio: {pattern: read, block_size: 4KiB, options: {numjobs: 3}}}]"), r"numjobs.*set by Assay", 3),
    Case("unknown preset", "", r"did you mean 'kisti-20", arguments=["run", "kisti-2012"]),
    Case("no such file", "", r"No such file", arguments=["run", "nothing.yaml"]),
    Case("directory as study", "", r"Is a directory", arguments=["run", "./"]),
    Case("bad budget", study(), r"--budget: ", arguments=["run", "study.yaml", "--budget", "soon"]),
    Case("bad candidate option", study(), r"unknown candidate 'local/ext5'; did you mean 'local/ext4'", arguments=["run", "study.yaml", "-c", "local/ext5"]),
    Case("ledger URL", study(), r"nosuchdb", 3, ["run", "study.yaml", "--ledger", "nosuchdb://x"]),
    Case("ledger in a file's place", study(), r"Not a directory|exists|unable to open", 3, ["run", "study.yaml", "--ledger", "study.yaml/l.db"]),
    Case("ledger is junk", study(), r"not a database", 3, ["run", "study.yaml", "--ledger", "junk.db"]),
    Case("unknown study", "", r"no file, no preset and no study", arguments=["report", "nothing-here"]),
    Case("no bundle", study(), r"not a complete assay bundle", arguments=["import", "study.yaml"]),
]  # fmt: skip


def run(place: Path, *arguments: str, **environment: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [ASSAY, *arguments],
        cwd=place,
        env={**os.environ, "XDG_DATA_HOME": str(place / "data"), "ASSAY_LEDGER": "", **environment},
        capture_output=True,
        text=True,
        timeout=120,
    )


def error_lines(done: subprocess.CompletedProcess[str]) -> list[str]:
    # progress lines carry a time in brackets
    return [line for line in done.stderr.splitlines() if line.strip() and not re.match(r"\[ *[0-9.]+ s\]", line)]


def assert_nothing_left(place: Path) -> None:
    assert str(place) not in Path("/proc/self/mountinfo").read_text()
    for backing in Path("/sys/block").glob("loop*/loop/backing_file"):
        assert str(place) not in backing.read_text()
    assert not list((place / "data" / "assay" / "labs").glob("*/*"))


def studies_in(ledger: Path) -> int:
    if not ledger.exists():
        return 0
    with sqlite3.connect(ledger) as connection:
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        return connection.execute("SELECT count(*) FROM study").fetchone()[0]


@pytest.mark.parametrize("case", CASES, ids=lambda c: c.name)
def test_one_clear_line(case: Case, tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(case.study)
    (tmp_path / "junk.db").write_bytes(b"this is not a database file at all" * 100)
    done = run(tmp_path, *(case.arguments or ["run", "study.yaml"]))
    assert done.returncode == case.code, done.stderr
    assert "Traceback" not in done.stderr
    lines = error_lines(done)
    assert len(lines) == 1, lines
    assert re.search(case.says, lines[0]), lines[0]
    assert studies_in(tmp_path / "data" / "assay" / "ledger.db") == 0, "a broken study was written to the ledger"
    assert_nothing_left(tmp_path)
    assert not list(tmp_path.glob("assay-report-*"))


def test_several_mistakes_are_all_named(tmp_path: Path) -> None:
    (tmp_path / "study.yaml").write_text(study(workloads="[{fio: {pattern: reed, block_size: 4K, threads: 0}}]"))
    done = run(tmp_path, "plan", "study.yaml")
    assert done.returncode == 2
    assert len(error_lines(done)) == 3
    assert all("study.yaml:3: " in line for line in error_lines(done))


@contextmanager
def tmpfs(point: Path, options: str) -> Iterator[Path]:
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", options, "assay-test", str(point)], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", "-l", str(point)], check=True)


def test_read_only_mount(tmp_path: Path) -> None:
    with tmpfs(tmp_path / "ro", "ro,size=64m") as point:
        done = run(tmp_path, "quick", str(point))
    assert done.returncode == 2
    (line,) = error_lines(done)
    assert "mounted read-only" in line
    assert "remount" in line


def test_fio_missing(tmp_path: Path) -> None:
    tools = tmp_path / "bin"
    tools.mkdir()
    for name in ("setpriv", "losetup", "mount", "umount", "mkfs.ext4"):
        found = subprocess.run(["which", name], capture_output=True, text=True).stdout.strip()
        (tools / name).symlink_to(found)
    (tmp_path / "study.yaml").write_text(study())
    done = run(tmp_path, "run", "study.yaml", PATH=str(tools))
    assert done.returncode == 3
    (line,) = error_lines(done)
    assert "apt-get install" in line
    assert "fio" in line
    assert studies_in(tmp_path / "data" / "assay" / "ledger.db") == 0


def _kill_children_named(name: str, marker: str, stop: threading.Event) -> int:
    """Kill load generators of the study under test, recognised by where they run, until told to stop."""
    killed = 0
    while not stop.wait(0.02):
        for entry in Path("/proc").iterdir():
            if not entry.name.isdigit():
                continue
            try:
                command = (entry / "cmdline").read_bytes()
                if command.startswith(name.encode() + b"\0") and str((entry / "cwd").readlink()).startswith(marker):
                    os.kill(int(entry.name), 9)
                    killed += 1
            except OSError:
                continue
    return killed


def test_fio_killed_is_data(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    rest = "measure: {aa: none, null_target: false, retries: 0, blocks: {pilot: 2, minimum: 2, maximum: 2}}"
    workload = "[{fio: {pattern: randread, block_size: 4KiB, size: 1MiB, runtime: 2s}}]"
    (tmp_path / "study.yaml").write_text(study(f"['path:{tmp_path}/d']", workload, rest))
    stop = threading.Event()
    began = threading.Event()

    def killer() -> None:
        while not (tmp_path / "data" / "assay" / "ledger.db").exists() and not stop.is_set():
            time.sleep(0.05)
        began.set()
        _kill_children_named("fio", str(tmp_path / "data"), stop)

    thread = threading.Thread(target=killer)
    thread.start()
    try:
        done = run(tmp_path, "run", "study.yaml")
    finally:
        stop.set()
        thread.join()
    assert "Traceback" not in done.stderr
    assert done.returncode == 1, done.stderr
    with sqlite3.connect(tmp_path / "data" / "assay" / "ledger.db") as connection:
        statuses = connection.execute("SELECT DISTINCT status FROM attempt").fetchall()
    assert statuses == [("failed",)]
    assert_nothing_left(tmp_path)


def test_ledgers_disk_full_while_running(tmp_path: Path) -> None:
    (tmp_path / "d").mkdir()
    workload = "[{fio: {pattern: randread, block_size: 4KiB, size: 1MiB, runtime: 0.2s}}]"
    rest = "measure: {blocks: {pilot: 5, minimum: 5, maximum: 5}}"
    (tmp_path / "study.yaml").write_text(study(f"['path:{tmp_path}/d']", workload, rest))
    with tmpfs(tmp_path / "small", "size=1m") as small:
        ledger = small / "ledger.db"
        done = run(tmp_path, "run", "study.yaml", ASSAY_LEDGER=f"sqlite:///{ledger}")
        assert done.returncode == 3, done.stderr
        assert "Traceback" not in done.stderr
        lines = error_lines(done)
        assert len(lines) == 1, lines
        assert re.search(r"full|space", lines[0]), lines[0]
        assert studies_in(ledger) <= 1  # and the integrity check inside has passed
        with sqlite3.connect(ledger) as connection:
            before = connection.execute("SELECT count(*) FROM attempt").fetchone()[0]
        # with room again the study goes on where it stopped
        subprocess.run(["mount", "-o", "remount,size=64m", str(small)], check=True)
        done = run(tmp_path, "run", "study.yaml", ASSAY_LEDGER=f"sqlite:///{ledger}")
        assert done.returncode in (0, 1), done.stderr
        with sqlite3.connect(ledger) as connection:
            rows = connection.execute("SELECT cell_id, block, try_number FROM attempt").fetchall()
        assert len(rows) == len(set(rows)) > before


def test_candidates_disk_full_while_running(tmp_path: Path) -> None:
    """A sparse disk whose backing file system runs full: the candidate fails, Assay does not."""
    workload = "[{fio: {pattern: write, block_size: 64KiB, size: 120MiB, runtime: 0.3s}}]"
    with tmpfs(tmp_path / "small", "size=80m") as small:
        rest = f"lab: {{disk: {{size: 400MiB, fill: sparse, directory: {small}}}}}"
        (tmp_path / "study.yaml").write_text(study("[local/ext4]", workload, rest))
        done = run(tmp_path, "run", "study.yaml")
        assert done.returncode == 3, done.stderr
        lines = error_lines(done)
        assert len(lines) == 1, lines
        assert "no candidate could be deployed" in lines[0]
        assert not list(small.iterdir())
    assert_nothing_left(tmp_path)
