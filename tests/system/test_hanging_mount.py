"""A file system that hangs never hangs Assay: a study ends by itself, its attempts are kept, and clean-up comes to an end."""

from __future__ import annotations

import json
import os
import shutil
import sqlite3
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hanging import HangingMount
from lab_helpers import eventually, nothing_left

from assay.lab.host import HostError, LocalHost
from assay.lab.mounts import unmount
from assay.lab.registry import Lab, LabError, clean, find_labs, processes_of
from assay.lab.remote import statvfs
from assay.model.lab import Disk
from assay.model.lab import Lab as LabDeclaration
from assay.systems.base import AdapterError, Deployment
from assay.systems.path import PathSystem

pytestmark = [
    pytest.mark.root,
    pytest.mark.fio,
    pytest.mark.slow,
    pytest.mark.skipif(shutil.which("glusterfs") is None, reason="apt-get install -y glusterfs-client"),
]
ASSAY = str(Path(sys.executable).parent / "assay")
HANGS = "no answer within 10 s, the file system hangs"
STUDY = """
study: hanging
candidates: [{system: "path:%(hanging)s", label: hanging}, {system: "path:%(sound)s", label: sound}]
workloads:
  - fio: {pattern: randread, block_size: 4KiB, size: 4MiB, runtime: 1.5s, iodepth: 4}
measure: {blocks: {pilot: 3, minimum: 3, maximum: 3}, deadline: 1s, aa: none, null_target: false, retries: 0, seed: 3}
"""


@pytest.fixture
def fuse(tmp_path: Path) -> Iterator[HangingMount]:
    mount = HangingMount(tmp_path / "fuse")
    yield mount
    mount.end()
    assert nothing_left(tmp_path)


@pytest.fixture
def lab(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Lab]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    made = Lab("0123456789ab", "test")
    yield made
    made.remove()
    assert find_labs() == []


def rows(ledger: Path, query: str) -> list[Any]:
    try:
        with sqlite3.connect(f"file:{ledger}?mode=ro", uri=True) as connection:
            return connection.execute(query).fetchall()
    except sqlite3.OperationalError:  # not made yet
        return []


def attempts(ledger: Path, candidate: str) -> list[dict[str, Any]]:
    found = [json.loads(evidence) for (evidence,) in rows(ledger, "SELECT evidence FROM attempt ORDER BY started_at")]
    return [f for f in found if f["candidate"] == candidate]


def loads(study: str) -> bool:
    """Whether a load generator of the study runs."""
    names = [Path(f"/proc/{pid}/comm") for pid in processes_of(study)]
    return any(name.exists() and name.read_text().strip() == "fio" for name in names)


def test_a_study_ends_by_itself_and_says_what_hung(fuse: HangingMount, tmp_path: Path) -> None:
    ledger, sound = tmp_path / "ledger.db", tmp_path / "sound"
    sound.mkdir()
    (tmp_path / "study.yaml").write_text(STUDY % {"hanging": fuse.point, "sound": sound})
    environment = {**os.environ, "XDG_DATA_HOME": str(tmp_path), "ASSAY_LEDGER": f"sqlite:///{ledger}"}
    run = subprocess.Popen(
        [ASSAY, "run", "study.yaml"], cwd=tmp_path, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT
    )
    try:
        assert eventually(lambda: len(attempts(ledger, "hanging")) == 1, 60)
        cell = attempts(ledger, "hanging")[0]["cell_id"]
        started = f"SELECT * FROM event WHERE kind = 'attempt-started' AND data LIKE '%{cell}%'"
        assert eventually(lambda: len(rows(ledger, started)) == 2, 60)
        assert eventually(lambda: loads(rows(ledger, "SELECT id FROM study")[0][0]), 30)
        time.sleep(0.3)  # fio needs a moment to begin
        fuse.hang()
        said = run.communicate(timeout=200)[0].decode()
    finally:
        run.kill()
        run.wait()
    assert run.returncode in (0, 1), said
    assert "Traceback" not in said
    (study,) = rows(ledger, "SELECT id, state FROM study")
    assert study[1] == "ended"
    assert [a["status"] for a in attempts(ledger, "sound")] == ["finished"] * 3
    first, *hung = attempts(ledger, "hanging")
    assert (first["status"], len(hung)) == ("finished", 2)
    for attempt in hung:
        assert attempt["status"] == "failed"
        assert attempt["error"].startswith("localhost: ")
        assert attempt["error"].endswith(HANGS)
        assert "\n" not in attempt["error"]
    assert hung[0]["clients"][0]["errors"] == {"deadline": 1}, "it hung while fio ran"
    assert "clean-up" in said, "what is left is said"

    fuse.answer()
    assert eventually(lambda: not processes_of(study[0])), "what was killed while it hung dies now"
    subprocess.run([ASSAY, "lab", "clean"], env=environment, check=True, timeout=60)
    assert list(fuse.point.iterdir()) == []
    assert list((tmp_path / "assay" / "labs").iterdir()) == []


def test_a_directory_that_hangs_is_refused_in_one_line(fuse: HangingMount) -> None:
    fuse.hang()
    began = time.monotonic()
    with pytest.raises(AdapterError, match=HANGS) as caught:
        PathSystem.preflight(str(fuse.point), LabDeclaration(), 1)
    assert time.monotonic() - began < 12
    assert "\n" not in str(caught.value)


def test_every_question_has_a_deadline(fuse: HangingMount, lab: Lab) -> None:
    host = LocalHost(environment=lab.environment)
    system = PathSystem(Deployment("path", str(fuse.point), lab, host, Disk()))
    system.deploy()
    system.mount()
    fuse.hang()
    for ask in (system.go_cold, system.health, system.space, system.facts):
        began = time.monotonic()
        with pytest.raises(HostError, match=HANGS):
            ask()
        assert time.monotonic() - began < 12
    host.close()
    with pytest.raises(LabError, match=r"is left: .* when it answers again: assay lab clean|does not die"):
        lab.remove()
    assert [state.bytes for state in find_labs()] != []
    fuse.answer()
    assert eventually(lambda: not processes_of(lab.id))
    assert clean() == ([lab.id], [])
    assert list(fuse.point.iterdir()) == []


@pytest.mark.parametrize("by", ["its user", "clean-up"])
def test_a_hanging_mount_of_a_lab_is_detached(by: str, lab: Lab) -> None:
    mount = HangingMount(lab.directory / "fuse")
    (mount.point / "open").write_text("")
    user = subprocess.Popen(["tail", "-f", mount.point / "open"], stdout=subprocess.DEVNULL)
    try:
        mount.hang()
        assert len(find_labs()[0].mounts) == 1
        began = time.monotonic()
        if by == "clean-up":
            lab.remove()
        else:
            unmount(LocalHost(), mount.point)
        assert time.monotonic() - began < 15
        assert not mount.mounted
    finally:
        user.kill()
        mount.end()
        user.wait()


def test_a_sound_mount_that_is_busy_is_never_detached(fuse: HangingMount) -> None:
    with (fuse.point / "open").open("w"), pytest.raises(LabError, match="busy"):
        unmount(LocalHost(), fuse.point)
    assert fuse.mounted
    assert statvfs(fuse.point)["total_bytes"]
    unmount(LocalHost(), fuse.point)
    assert not fuse.mounted
    unmount(LocalHost(), fuse.point)
