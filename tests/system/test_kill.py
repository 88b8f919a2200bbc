"""kill -9 at random moments: nothing finished is lost or repeated, and ``assay lab clean`` finds what was left."""

from __future__ import annotations

import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import time
from collections import Counter
from pathlib import Path

import pytest

pytestmark = [pytest.mark.root, pytest.mark.fio, pytest.mark.slow]

ASSAY = str(Path(sys.executable).parent / "assay")
STUDY = """
study: killed
candidates: [local/ext4]
lab: {disk: {size: 320MiB, fill: sparse}}
workloads:
  - fio: {pattern: [randread, randwrite], block_size: 4KiB, threads: 2, iodepth: 4, size: 4MiB, runtime: 0.2s}
measure: {blocks: {pilot: 9, minimum: 9, maximum: 9}, seed: 5, retries: 0}
"""
CELLS, BLOCKS = 6, 9  # two points x (ext4, its A/A twin, null)
KILLS = int(os.environ.get("ASSAY_TEST_KILLS", "20"))


@pytest.fixture
def place(tmp_path: Path) -> Path:
    (tmp_path / "study.yaml").write_text(STUDY)
    return tmp_path


def _environment(place: Path) -> dict[str, str]:
    return {**os.environ, "XDG_DATA_HOME": str(place / "data"), "ASSAY_LEDGER": f"sqlite:///{place / 'ledger.db'}"}


def _start(place: Path) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [ASSAY, "run", "study.yaml", "--json"],
        cwd=place,
        env=_environment(place),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
    )


def _attempts(place: Path) -> list[tuple[str, int, int, str]]:
    if not (place / "ledger.db").exists():
        return []
    with sqlite3.connect(place / "ledger.db", timeout=30) as connection:
        try:
            return connection.execute("SELECT cell_id, block, try_number, status FROM attempt").fetchall()
        except sqlite3.OperationalError:  # killed before the tables were made
            return []


def _left_overs(place: Path) -> dict[str, list[str]]:
    mounts = [line for line in Path("/proc/self/mountinfo").read_text().splitlines() if str(place) in line]
    loops = [
        p.read_text().strip() for p in Path("/sys/block").glob("loop*/loop/backing_file") if str(place) in p.read_text()
    ]
    processes = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                command = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            if str(place) in command and int(entry.name) != os.getpid():
                processes.append(command)
    labs = [str(p) for p in (place / "data" / "assay" / "labs").glob("*/*")]
    return {"mounts": mounts, "loops": loops, "processes": processes, "files": labs}


@pytest.mark.timeout(1500)
def test_random_kills_lose_nothing_and_leave_nothing(place: Path) -> None:
    dice = random.Random(4)
    calibration = _start(place)
    began = time.monotonic()
    while not _attempts(place):
        assert time.monotonic() - began < 120, "never began"
        time.sleep(0.05)
    until_first_attempt = time.monotonic() - began  # seconds; start-up and deployment
    calibration.send_signal(signal.SIGKILL)
    calibration.wait()
    finished_before: set[tuple[str, int, int, str]] = set()
    kills = 0
    left_alive = 0
    while kills < KILLS:
        process = _start(place)
        try:
            process.wait(
                dice.uniform(0.2, 1.0) * until_first_attempt + dice.choice((0.0, 1.0)) * dice.uniform(0.0, 3.0)
            )
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGKILL)
            process.wait()
            kills += 1
            left_alive += any(_left_overs(place)[kind] for kind in ("mounts", "loops"))
        else:
            _, problem = process.communicate()
            assert process.returncode in (0, 1), problem.decode()
            assert kills, "the study ended before the first kill"
            # ended early: begin again, the remaining kills hit a second study
            (place / "study.yaml").write_text(STUDY.replace("study: killed", f"study: killed-{kills}"))
        now = set(_attempts(place))
        assert finished_before <= now, "an attempt that had been written is gone or changed"
        finished_before = now
    assert left_alive, "no kill ever hit a deployed lab: the test would prove nothing"
    process = _start(place)
    output, problem = process.communicate(timeout=600)
    assert process.returncode in (0, 1), problem.decode()
    study = json.loads(output)["study"]
    with sqlite3.connect(place / "ledger.db") as connection:
        rows = connection.execute(
            "SELECT cell_id, block FROM attempt WHERE status = 'finished' AND study_id = ?", (study,)
        ).fetchall()
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        lost = connection.execute("SELECT count(*) FROM attempt WHERE status = 'lost'").fetchone()[0]
    per_cell = Counter(rows)
    assert set(per_cell.values()) == {1}, "a finished attempt was repeated"
    assert len(per_cell) == CELLS * BLOCKS
    assert lost <= kills  # at most the attempt in flight for each kill
    cleaned = subprocess.run(
        [ASSAY, "lab", "clean"], env=_environment(place), capture_output=True, text=True, check=True, timeout=60
    )
    assert cleaned.stdout
    assert not any(_left_overs(place).values()), _left_overs(place)


def test_clean_after_a_kill_during_an_attempt(place: Path) -> None:
    process = _start(place)
    deadline = time.monotonic() + 60
    while not any("/mnt/" in m for m in _left_overs(place)["mounts"]) or not _attempts(place):
        assert time.monotonic() < deadline, "never deployed"
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    listed = subprocess.run(
        [ASSAY, "lab", "list", "--json"], env=_environment(place), capture_output=True, text=True, check=True
    )
    (lab,) = json.loads(listed.stdout)
    assert lab["mounts"]
    assert not lab["in_use"]
    subprocess.run([ASSAY, "lab", "clean"], env=_environment(place), check=True, capture_output=True, timeout=60)
    assert not any(_left_overs(place).values()), _left_overs(place)


def test_interrupt_stops_cleanly_and_resumes(place: Path) -> None:
    process = _start(place)
    deadline = time.monotonic() + 60
    while not _attempts(place):
        assert time.monotonic() < deadline, "never began"
        time.sleep(0.05)
    process.send_signal(signal.SIGINT)
    output, problem = process.communicate(timeout=60)
    assert process.returncode == 130, problem.decode()
    assert not json.loads(output)["complete"]
    assert b"Traceback" not in problem
    assert not any(_left_overs(place).values()), _left_overs(place)
    before = set(_attempts(place))
    process = _start(place)
    output, problem = process.communicate(timeout=300)
    assert process.returncode in (0, 1), problem.decode()
    assert before <= set(_attempts(place))
    assert json.loads(output)["complete"]


def test_refuses_to_mix_closures(place: Path) -> None:
    process = _start(place)
    deadline = time.monotonic() + 60
    while not _attempts(place):
        assert time.monotonic() < deadline, "never began"
        time.sleep(0.05)
    process.send_signal(signal.SIGKILL)
    process.wait()
    with sqlite3.connect(place / "ledger.db") as connection:  # as if the kernel had been upgraded meanwhile
        connection.execute("UPDATE cell SET closure = replace(closure, 'fio-', 'fio-0.'), closure_hash = 'another'")
    process = _start(place)
    _, problem = process.communicate(timeout=60)
    assert process.returncode == 2
    lines = [line for line in problem.decode().splitlines() if line.startswith("assay:")]
    assert len(lines) == 1
    assert "tools.fio" in lines[0]
    assert "--new" in lines[0]
    assert not any(_left_overs(place).values()), _left_overs(place)


def test_a_mount_that_vanishes_is_the_systems_failure(place: Path) -> None:
    """The host's own disk must never be measured in its place, and the campaign goes on to its end."""
    process = _start(place)
    deadline = time.monotonic() + 60
    while len(_attempts(place)) < 3:
        assert time.monotonic() < deadline, "never began"
        time.sleep(0.05)
    (mount,) = [line.split(" ")[4] for line in _left_overs(place)["mounts"]]
    subprocess.run(["umount", "--lazy", mount], check=True)
    _, problem = process.communicate(timeout=300)
    assert process.returncode == 1, problem.decode()
    assert b"Traceback" not in problem
    with sqlite3.connect(place / "ledger.db") as connection:
        rows = connection.execute(
            "SELECT json_extract(evidence, '$.role'), status, json_extract(evidence, '$.error') FROM attempt"
            " WHERE status = 'failed' ORDER BY started_at"
        ).fetchall()
        ended = connection.execute("SELECT state FROM study").fetchone()
    assert rows
    assert {role for role, _, _ in rows} <= {"subject", "twin"}
    assert all("mount" in error or "Input/output" in error or "directory" in error for _, _, error in rows[1:]), rows
    assert ended == ("ended",)
    assert not any(_left_overs(place).values()), _left_overs(place)
