"""The same tests for every system: what an adapter promises (assay.systems.base) is what Assay relies on everywhere.

To add a system, add subjects to ``contract_helpers.SUBJECTS``.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
import traceback
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract_helpers import (
    BACK_SECONDS,
    DATA_BYTES,
    LAB,
    SEED,
    SETTLE_SECONDS,
    TEARDOWN_SECONDS,
    Subject,
    made,
    mounted,
    remove_all,
    subjects,
    take_down,
    trouble,
    write,
    wrong,
)
from fabric_helpers import Running, left_of
from lab_helpers import eventually, nothing_left

from assay.lab.registry import clean
from assay.systems.base import (
    AdapterError,
    CountsBytes,
    ExportsMap,
    GoesCold,
    HasDurability,
    HasHealth,
    KillsHosts,
    Resizes,
    Settles,
    SystemAdapter,
)
from assay.systems.catalogue import check_tuning, find_system

CYCLES = int(os.environ.get("ASSAY_TEST_CYCLES", "2"))
KILLS = int(os.environ.get("ASSAY_TEST_KILLS_SYSTEMS", "1"))

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.timeout(600 + 120 * max(CYCLES, KILLS)),
]
each_subject = pytest.mark.parametrize("subject", subjects())
each_killable = pytest.mark.parametrize("subject", subjects(killable=True))


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    # systems that no distribution packages stay where they are
    monkeypatch.setenv("ASSAY_SYSTEMS", str(_programs()))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield tmp_path
    clean(LAB)
    assert nothing_left(tmp_path)


def _programs() -> Path:
    from assay.systems.requirements import programs_directory

    return programs_directory()


def nothing_is_left(home: Path) -> None:
    assert eventually(lambda: not any(left_of(LAB, home).values()), 20), left_of(LAB, home)


def healthy(system: SystemAdapter) -> bool | None:
    """None also for those that cannot tell."""
    found, said = system.health() if isinstance(system, HasHealth) else (None, "cannot tell")
    assert "\n" not in said
    assert said
    return found


# --- deploy, mount, verify, unmount, destroy ------------------------------------------------------------------------------


@each_subject
def test_cycles_leave_nothing_and_are_alike(subject: Subject, home: Path) -> None:
    closures = []
    for _ in range(CYCLES):
        with mounted(subject, home) as system:
            closures.append(json.dumps(system.facts(), sort_keys=True))
            write(system)
            assert wrong(system) == []
            assert healthy(system) in (True, None if not isinstance(system, HasHealth) else True)
            remove_all(system)
            assert json.dumps(system.facts(), sort_keys=True) == closures[-1]
        nothing_is_left(home)
    assert len(set(closures)) == 1, "facts hold nothing that differs between two deployments of the same thing"
    facts = json.loads(closures[0])
    assert facts["version"]
    assert facts["system"].startswith(find_system(subject.candidate)[0].system)


@each_subject
def test_nothing_to_undo_is_no_error(subject: Subject, home: Path) -> None:
    with made(subject, home) as system:
        system.unmount()
        system.destroy()
    nothing_is_left(home)


@each_subject
def test_kill_9_at_any_moment_leaves_nothing_after_clean(subject: Subject, home: Path) -> None:
    """While it is deployed, mounted, loaded, or while a host is dead."""
    words = home / "words"

    def use() -> None:
        try:
            with mounted(subject, home) as system:
                write(system)
                if isinstance(system, KillsHosts) and subject.survives:
                    system.kill_hosts(1)
                while subject.writes_degraded:
                    write(system)
                    time.sleep(0.05)
                time.sleep(600)
        except BaseException:
            words.write_text(traceback.format_exc())
            raise

    for number in range(KILLS):
        chance = random.Random(f"{subject.name} {number}")
        child = Running(use)
        time.sleep(chance.uniform(0.1, 1.6 * subject.loaded_seconds))
        status = child.kill()
        assert status == 9, f"it has ended before it was killed: {words.read_text() if words.exists() else status}"
        clean(LAB)
        nothing_is_left(home)


# --- capabilities ---------------------------------------------------------------------------------------------------------


@each_subject
def test_what_it_claims_it_can_works(subject: Subject, home: Path) -> None:
    with mounted(subject, home) as system:
        before = system.facts()
        _durability(system, subject)
        written = _bytes(system, 1)
        write(system)
        if isinstance(system, Settles):
            settled = system.settle(SETTLE_SECONDS)
            # a disk that is not its own may never be quiet on a busy machine
            assert settled.settled or not (subject.hosts or subject.candidate.startswith("local/")), settled
        _cold(system)
        if written is not None:
            now = _bytes(system, 1)
            assert now is not None
            assert now - written >= DATA_BYTES, "what was written has reached the devices that are counted"
        read = _bytes(system, 0)
        assert wrong(system) == []
        if read is not None and isinstance(system, GoesCold):
            now = _bytes(system, 0)
            assert now is not None
            assert now - read >= DATA_BYTES, "cold data come from the devices"
        if isinstance(system, ExportsMap):
            exported = json.dumps(system.cluster_map(), sort_keys=True)
            assert len(exported) > 2
            assert json.dumps(system.cluster_map(), sort_keys=True) == exported
        assert healthy(system) is True or not isinstance(system, HasHealth)
        assert system.facts() == before, "what the closure holds is the same after everything"


def _durability(system: SystemAdapter, subject: Subject) -> None:
    if isinstance(system, HasDurability):
        found = system.probe_durability()
        assert found.detail
        assert found.declared in ("volatile", "unknown", "page-cache", "device", "replicated"), found
        assert found.probed or found.declared in ("unknown", "page-cache"), found
        assert subject.tier in ("", found.declared), found


def _cold(system: SystemAdapter) -> None:
    if isinstance(system, GoesCold):
        cold = system.go_cold()
        assert cold.requested
        assert cold.steps
        assert set(cold.exit_codes) == {0}, cold
        assert len(cold.steps) == len(cold.exit_codes)


def _bytes(system: SystemAdapter, written: int) -> int | None:
    """Bytes that all devices have read or written; None when there is none to ask."""
    counters = system.counters() if isinstance(system, CountsBytes) else None
    return None if counters is None else sum(c.written_bytes if written else c.read_bytes for c in counters)


# --- failures -------------------------------------------------------------------------------------------------------------


@each_killable
def test_hosts_that_may_die_come_back_and_heal(subject: Subject, home: Path) -> None:
    if not subject.survives:
        pytest.skip("this layout promises nothing")
    with mounted(subject, home) as system:
        assert isinstance(system, KillsHosts)
        facts = system.facts()
        write(system)
        killed = system.kill_hosts(subject.survives)
        assert len(set(killed)) == subject.survives
        assert "s1" not in killed, "clients mount from it"
        assert wrong(system) == []
        assert eventually(lambda: healthy(system) is not True, BACK_SECONDS), "health must tell that hosts are gone"
        seed = SEED
        if subject.writes_degraded:
            seed += 1
            write(system, seed)
            assert wrong(system, seed) == []
        assert 0 <= system.restart_hosts(BACK_SECONDS) <= BACK_SECONDS
        healed = system.heal(BACK_SECONDS)
        assert healed is not None, f"not whole again after {BACK_SECONDS} s"
        assert eventually(lambda: healthy(system) is True, BACK_SECONDS), system.health()  # type: ignore[attr-defined]
        _cold(system)
        assert wrong(system, seed) == []
        assert system.facts() == facts
    nothing_is_left(home)


@each_killable
def test_one_more_dead_host_is_a_failure_in_time_and_words(subject: Subject, home: Path) -> None:
    assert subject.survives is not None
    with mounted(subject, home) as system:
        assert isinstance(system, KillsHosts)
        with pytest.raises(AdapterError) as refused:
            system.kill_hosts(subject.hosts)  # one stays
        assert "\n" not in str(refused.value)
        write(system)
        system.kill_hosts(subject.survives + subject.lethal)
        started = time.monotonic()
        said = trouble(system, subject.patience_seconds)
        # a reader and a writer, each given up after its patience; the rest is a busy machine's
        assert time.monotonic() - started < 2 * subject.patience_seconds + 60
        assert said, "operations must fail"
        assert all("\n" not in line and len(line) < 600 for line in said), said
        print(f"{subject.name}: {said[0]}")
        assert eventually(lambda: healthy(system) is not True, BACK_SECONDS)
        started = time.monotonic()
        take_down(system)
        assert time.monotonic() - started < TEARDOWN_SECONDS
    nothing_is_left(home)


@pytest.mark.parametrize("subject", subjects(grows=True))
def test_it_grows_and_shrinks_with_all_data(subject: Subject, home: Path) -> None:
    with mounted(subject, home) as system:
        assert isinstance(system, Resizes)
        assert system.deployment.fabric is not None
        write(system)
        said: list[str] = []
        system.grow(subject.grows, said.append)
        assert len(system.deployment.fabric.storage) == subject.hosts + subject.grows
        assert wrong(system) == []
        system.shrink(subject.grows, said.append)
        assert len(system.deployment.fabric.storage) == subject.hosts
        assert said
        assert all("\n" not in line for line in said), said
        assert wrong(system) == []
        assert healthy(system) is True
    nothing_is_left(home)


# --- refused before anything is touched -------------------------------------------------------------------------------------

#: Hides each file that is needed, in turn, and prints what ought to be said and what preflight says, as JSON lines. By
#: system calls: mount itself may be what is hidden.
_HIDE = """
import ctypes, json, os, sys, tempfile
from pathlib import Path
sys.path.insert(0, sys.argv[1])
from contract_helpers import SUBJECTS
from assay.systems.base import AdapterError
from assay.systems.catalogue import check_candidate, check_tuning

libc = ctypes.CDLL(None, use_errno=True)
subject = next(s for s in SUBJECTS if s.name == sys.argv[2])
empty = tempfile.mkdtemp()
needed_by_all = {Path(p) for p in ("/", "/dev", "/bin", "/usr/bin", "/sbin", "/usr/sbin", "/usr/lib")}

def said():
    try:
        check_candidate(subject.candidate.replace("DIR", "/tmp"), None, subject.shape(), 1 << 20)
        check_tuning(subject.candidate, dict(subject.tuning))
    except AdapterError as error:
        return str(error)
    return ""

for requirement in subject.requirements:
    found = requirement.find()
    for over in {found.resolve(), found.resolve().parent} - needed_by_all:
        source = empty if over.is_dir() else "/dev/null"
        if libc.mount(os.fsencode(source), os.fsencode(over), None, 4096, None):
            raise OSError(ctypes.get_errno(), f"bind over {over}")
        # one file may have several names
        lacking = [f"{r.name} is missing; install it with: {r.remedy}" for r in subject.requirements if not r.find()]
        if lacking:
            print(json.dumps([lacking, said()]), flush=True)
        libc.umount2(os.fsencode(over), 2)
os.rmdir(empty)
"""


@each_subject
def test_a_missing_requirement_is_refused_with_the_command_that_gets_it(subject: Subject) -> None:
    if not subject.requirements:
        pytest.skip("it needs nothing")
    hidden = ["unshare", "--mount", "--propagation", "private", sys.executable, "-c", _HIDE]
    done = subprocess.run(
        [*hidden, str(Path(__file__).parent), subject.name], capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    told = [json.loads(line) for line in done.stdout.splitlines()]
    assert told, "no requirement could be hidden"
    for lacking, said in told:
        assert any(line in said for line in lacking), (lacking, said)
        assert "\n" not in said


@each_subject
def test_tuning_and_layouts_that_it_does_not_have_are_refused(subject: Subject) -> None:
    adapter, _ = find_system(subject.candidate)
    with pytest.raises(AdapterError, match="has no tuning 'no such key'") as refused:
        check_tuning(subject.candidate, {"no such key": 1})
    assert "\n" not in str(refused.value)
    if adapter.system != "path":
        with pytest.raises(AdapterError, match="unknown candidate"):
            find_system(f"{adapter.system}/no-such-layout")
