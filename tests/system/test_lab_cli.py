"""``assay lab up | list | exec | down | clean`` as a person or a script uses them: separate commands, one lab."""

from __future__ import annotations

import json
import os
import pty
import random
import select
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from fabric_helpers import all_namespaces, left_of, loop_device, namespaces_of, now_in_ticks
from lab_helpers import eventually, nothing_left

from assay.lab.devices import signatures
from assay.lab.kernel import processes_of
from assay.lab.registry import Lab, clean, find_lab, labs_root

pytestmark = [pytest.mark.root, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]
KILLS = int(os.environ.get("ASSAY_TEST_KILLS", "8"))
ASSAY = [sys.executable, "-m", "assay", "lab"]
SMALL = ("--hosts", "2", "--disk-size", "300MiB")


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield tmp_path
    for directory in labs_root().iterdir() if labs_root().is_dir() else []:
        clean(directory.name)
    assert nothing_left(tmp_path)


def lab(*arguments: str, **options: Any) -> subprocess.CompletedProcess[str]:
    return subprocess.run([*ASSAY, *arguments], capture_output=True, text=True, check=False, timeout=120, **options)


def document(*arguments: str) -> Any:
    done = lab(*arguments, "--json")
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def bad(*arguments: str) -> str:
    """The one line that is said of bad input."""
    done = lab(*arguments)
    assert done.returncode == 2, (done.stdout, done.stderr)
    assert done.stdout == ""
    assert done.stderr.startswith("assay: ")
    assert done.stderr.count("\n") == 1
    return done.stderr.removeprefix("assay: ").strip()


def test_the_life_of_a_lab(home: Path) -> None:
    up = document("up", "mine", *SMALL, "--clients", "2", "--bandwidth", "1Gbit")
    assert up["lab"] == "mine"
    assert [(h["name"], h["address"], h["state"]) for h in up["hosts"]] == [
        ("s1", "10.77.0.11", "up"),
        ("s2", "10.77.0.12", "up"),
        ("c1", "10.77.0.101", "up"),
        ("c2", "10.77.0.102", "up"),
    ]
    assert up["mounted"] == ["s1:/run/b/1", "s2:/run/b/1"]
    assert up["shape"]["network"]["bandwidth"] == "125000000B/s"
    (listed,) = document("list")
    assert listed["state"] == "up"
    assert listed["hosts"] == up["hosts"]
    shown = lab("list").stdout
    assert "mine: s1 10.77.0.11, s2 10.77.0.12, c1 10.77.0.101, c2 10.77.0.102" in shown
    assert lab("exec", "mine", "s1", "--", "hostname").stdout == "s1\n"
    lab("exec", "mine", "s1", "--", "sh", "-c", "echo kept > /run/b/1/file")
    assert lab("exec", "mine", "s1", "--", "cat", "/run/b/1/file").stdout == "kept\n"
    assert lab("exec", "mine", "s2", "--", "cat", "/run/b/1/file").returncode == 1
    kept = lab("clean")
    assert kept.stdout == "removed: nothing was left\nkept: mine (alive: assay lab down mine)\n"
    assert document("clean") == {"removed": [], "in_use": [], "up": ["mine"]}
    seen = namespaces_of(processes_of("mine"))
    assert len(seen) >= 10
    started, down_at = time.monotonic(), now_in_ticks()
    assert lab("down", "mine").stdout == "mine is down, nothing of it is left\n"
    assert time.monotonic() - started < 5
    assert not seen & all_namespaces(down_at)
    assert lab("list").stdout == "no labs\n"
    assert {what: left for what, left in left_of("mine", home).items() if left} == {}


def test_labs_side_by_side_are_named_and_apart() -> None:
    first, second = document("up", *SMALL), document("up", *SMALL, "--filesystem", "none")
    assert [first["lab"], second["lab"]] == ["lab1", "lab2"]
    assert first["hosts"][0]["address"] == second["hosts"][0]["address"]
    assert (len(first["mounted"]), second["mounted"]) == (2, [])
    lab("exec", "lab1", "c1", "--", "touch", "/run/here")
    assert lab("exec", "lab2", "c1", "--", "test", "-e", "/run/here").returncode == 1
    assert document("down", "lab1") == {"removed": ["lab1"]}
    assert lab("exec", "lab2", "c1", "--", "true").returncode == 0
    assert document("clean", "lab2") == {"removed": ["lab2"], "in_use": [], "up": []}


def test_bad_input_is_one_line(home: Path) -> None:
    document("up", "mine", *SMALL, "--filesystem", "none")
    assert bad("up", "mine") == "the name mine is taken by a lab that is up; another name, or: assay lab down mine"
    assert bad("exec", "mine", "s3", "--", "true") == "lab mine has no host 's3'; it has: s1, s2, c1"
    assert bad("exec", "yours", "s1", "--", "true") == "no lab is called 'yours'; known: mine"
    assert bad("down", "yours") == bad("clean", "yours") == "no lab is called 'yours'; known: mine"
    assert bad("down", "../mine").startswith("no lab is called '../mine'")
    for name in ("a/b", "", "-x", "x" * 33, "0123456789ab", "é"):
        assert "cannot be a lab's name" in bad("up", "--", name)
    assert bad("up", "--filesystem", "zfs") == "--filesystem 'zfs' is none of xfs, ext4, btrfs, none"
    assert bad("up", "--bandwidth", "fast").startswith("lab.network.bandwidth: ")
    assert bad("up", "--disk-size", "1MiB").startswith("lab.disk.size: ")
    assert bad("up", "--device", "/dev/null").startswith("6 hosts with 1 disks each need 6 devices")
    assert bad("up", "--candidate", "local/ext4").startswith("local/ext4 needs no hosts")
    assert bad("up", "--candidate", "glusterfs/reliable").startswith("unknown candidate 'glusterfs/reliable'")
    left = Lab("left", "s")
    left.release()
    assert bad("exec", "left", "s1", "--", "true") == "lab left is not up; what there is: assay lab list"
    assert bad("up", "left").endswith("taken by a lab that is left over; another name, or: assay lab clean left")
    assert {p.name for p in (home / "assay" / "labs").iterdir()} == {"left", "mine"}


def test_what_cannot_be_made_leaves_nothing() -> None:
    done = lab("up", "mine", "--hosts", "1", "--device", "/dev/nothing")
    assert (done.returncode, done.stdout) == (3, "")
    assert done.stderr.startswith("assay: device /dev/nothing: No such file or directory;")
    done = lab("up", "mine", "--cpus", "10000")
    assert done.returncode == 3
    assert "this machine has" in done.stderr
    assert document("list") == []


# --- exec ---------------------------------------------------------------------------------------------------------------


@pytest.fixture
def mine() -> str:
    document("up", "mine", *SMALL, "--filesystem", "none", "--memory", "256MiB")
    return "mine"


def test_exec_passes_streams_directory_and_exit_code(mine: str, tmp_path: Path) -> None:
    done = lab("exec", mine, "c1", "--", "sh", "-c", "cat; echo err >&2; exit 7", input="given")
    assert (done.returncode, done.stdout, done.stderr) == (7, "given", "err\n")
    assert lab("exec", mine, "c1", "--", "sh", "-c", "kill -9 $$").returncode == 128 + 9
    assert lab("exec", mine, "c1", "--", "no-such-program").returncode == 127
    assert lab("exec", mine, "c1", "--", "pwd", cwd=tmp_path).stdout == f"{tmp_path}\n"
    assert lab("exec", mine, "c1", "--", "pwd", cwd="/proc/self").returncode == 0
    assert lab("exec", mine, "c1", "--", "ls", "--help").stdout.startswith("Usage: ls")
    done = lab("exec", "--json", mine, "c1", "--", "sh", "-c", "echo out; echo err >&2; exit 3")
    assert (done.returncode, done.stderr) == (3, "")
    assert json.loads(done.stdout) == {"lab": mine, "host": "c1", "exit_code": 3, "stdout": "out\n", "stderr": "err\n"}
    assert "assay-mine/lab-c1" in lab("exec", mine, "c1", "--", "cat", "/proc/self/cgroup").stdout


def test_exec_on_a_terminal_and_ctrl_c_reaches_the_command(mine: str) -> None:
    """The command decides what an interrupt means, as in a shell."""
    script = 'test -t 0 && test -t 1 && trap "echo caught; exit 42" INT; echo ready; while :; do sleep 0.05; done'
    pid, terminal = pty.fork()
    if pid == 0:
        os.execv(ASSAY[0], [*ASSAY, "exec", mine, "s1", "--", "sh", "-c", script])
    read_until(terminal, b"ready")
    os.write(terminal, b"\x03")
    read_until(terminal, b"caught")
    assert os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1]) == 42
    os.close(terminal)


def read_until(terminal: int, wanted: bytes) -> None:
    seen, end = b"", time.monotonic() + 20
    while wanted not in seen:
        assert time.monotonic() < end, seen
        if select.select([terminal], [], [], 0.1)[0]:
            seen += os.read(terminal, 1000)


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGHUP, signal.SIGKILL])
def test_what_exec_runs_ends_with_it(mine: str, number: signal.Signals) -> None:
    before = set(processes_of(mine))
    process = subprocess.Popen([*ASSAY, "exec", mine, "s1", "--", "sleep", "12345"])
    assert eventually(lambda: any(b"12345" in command_of(pid) for pid in processes_of(mine)))
    assert eventually(lambda: len(set(processes_of(mine)) - before) >= 2)
    time.sleep(0.1)
    process.send_signal(number)
    assert process.wait(10) == (-9 if number == signal.SIGKILL else 128 + number)
    assert eventually(lambda: set(processes_of(mine)) <= before)


def command_of(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def test_a_dead_host_is_said_to_be_down(mine: str) -> None:
    standing = find_lab(mine).standing
    assert standing is not None
    os.kill(standing.hosts[1].first.pid, signal.SIGKILL)
    assert eventually(lambda: not standing.hosts[1].first.alive)
    done = lab("exec", mine, "s2", "--", "true")
    assert (done.returncode, done.stderr) == (
        3, "assay: host s2 of lab mine is down; start again: assay lab down mine\n",
    )  # fmt: skip
    assert [h["state"] for h in document("list")[0]["hosts"]] == ["up", "down", "up"]
    assert "s2 10.77.0.12 (down)" in lab("list").stdout


# --- nothing is left ----------------------------------------------------------------------------------------------------


def test_a_lab_whose_supervisor_is_dead_is_left_over() -> None:
    document("up", "mine", *SMALL, "--cpus", "1")
    standing = find_lab("mine").standing
    assert standing is not None
    os.kill(standing.supervisor.pid, signal.SIGKILL)
    assert eventually(lambda: find_lab("mine").state == "left over")
    assert document("clean") == {"removed": ["mine"], "in_use": [], "up": []}


def test_a_lab_of_an_earlier_boot_is_left_over(home: Path) -> None:
    """Its process ids may be anybody's now."""
    document("up", "mine", *SMALL, "--filesystem", "none")
    note = home / "assay" / "labs" / "mine" / "standing.json"
    found = json.loads(note.read_text())
    note.write_text(json.dumps({**found, "boot": "an earlier one"}))
    assert find_lab("mine").state == "left over"
    note.write_text(json.dumps({**found, "supervisor": {"pid": os.getpid(), "started": 1}}))
    assert find_lab("mine").state == "left over"
    assert clean() == (["mine"], [])


def test_a_study_and_a_standing_lab_do_not_take_each_others_place() -> None:
    document("up", "mine", *SMALL, "--filesystem", "none")
    from assay.lab.errors import LabError

    with pytest.raises(LabError, match="lab mine is up; to take it down: assay lab down mine"):
        Lab("mine", "a study")
    running = Lab("running", "a study")
    done = lab("down", "running")
    assert (done.returncode, done.stderr) == (
        3, "assay: lab running is in use by another assay process; wait for it or stop it first\n",
    )  # fmt: skip
    running.remove()
    assert lab("exec", "mine", "c1", "--", "true").returncode == 0


def test_devices_are_wiped_when_the_lab_goes_down(tmp_path: Path) -> None:
    with loop_device(tmp_path / "device", 301 << 20) as device:
        document("up", "mine", "--hosts", "1", "--disk-size", "300MiB", "--device", device)
        assert [s.kind for s in signatures(device)] == ["xfs"]
        assert lab("down", "mine").returncode == 0
        assert signatures(device) == []


@pytest.mark.slow
@pytest.mark.parametrize("number", range(max(1, KILLS // 2)))
def test_up_killed_half_way_is_cleaned(home: Path, number: int) -> None:
    chance = random.Random(number)
    process = subprocess.Popen(
        [*ASSAY, "up", "half", "--hosts", "4", "--disk-size", "300MiB", "--memory", "256MiB"],
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )
    assert eventually(lambda: (home / "assay" / "labs" / "half").is_dir(), 20)
    time.sleep(chance.uniform(0, 0.8))
    process.kill()
    process.wait()
    if find_lab("half").standing is None:
        assert document("clean") == {"removed": ["half"], "in_use": [], "up": []}
    else:  # it was faster
        assert document("down", "half") == {"removed": ["half"]}
    assert nothing_left(home)
    assert {what: left for what, left in left_of("half", home).items() if left} == {}


def test_ctrl_c_while_it_comes_up_leaves_nothing(home: Path) -> None:
    process = subprocess.Popen(
        [*ASSAY, "up", "half", "--hosts", "12", "--disk-size", "300MiB"], stdout=subprocess.PIPE, stderr=subprocess.PIPE
    )
    assert eventually(lambda: len(processes_of("half")) > 5, 20)
    process.send_signal(signal.SIGINT)
    assert process.wait(30) == 130
    assert {what: left for what, left in left_of("half", home).items() if left} == {}


@pytest.mark.slow
def test_a_candidate_stays_mounted_between_commands(home: Path) -> None:
    up = document("up", "mine", "--hosts", "3", "--disk-size", "300MiB", "--candidate", "glusterfs/replicated-3")
    (place,) = up["mounted"]
    host, _, point = place.partition(":")
    assert lab("exec", "mine", host, "--", "sh", "-c", f"echo kept > {point}/file").returncode == 0
    assert lab("exec", "mine", host, "--", "cat", f"{point}/file").stdout == "kept\n"
    assert lab("exec", "mine", host, "--", "findmnt", "-no", "FSTYPE", point).stdout == "fuse.glusterfs\n"
    assert "glusterfs/replicated-3" in lab("list").stdout
    started = time.monotonic()
    assert lab("down", "mine").returncode == 0
    assert time.monotonic() - started < 5
    assert {what: left for what, left in left_of("mine", home).items() if left} == {}
