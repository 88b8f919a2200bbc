"""Real Tahoe-LAFS nodes on namespaces: what the contract tests do not ask of every system."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract_helpers import LAB, Subject, mounted
from fabric_helpers import left_of
from lab_helpers import eventually, nothing_left

from assay.lab.fabric import Fabric
from assay.lab.kernel import processes_of
from assay.lab.registry import clean
from assay.systems.base import AdapterError
from assay.systems.requirements import programs_directory
from assay.systems.tahoe import TahoeSystem, find_program
from assay.systems.tahoe_config import INDEX_LETTERS, STORAGE_DIRECTORY, file_health
from assay.workloads import integrity

pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(find_program() is None, reason=f"no Tahoe-LAFS here: {TahoeSystem.requirements[0].remedy}"),
]
MIB = 1 << 20
USE_SECONDS = 240.0
BACK_SECONDS = 120.0
sshfs_only = pytest.mark.skipif(
    any(r.find() is None for r in TahoeSystem.requirements),
    reason="no sshfs here: apt-get install -y sshfs openssh-client",
)


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ASSAY_SYSTEMS", str(programs_directory()))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield tmp_path
    clean(LAB)
    assert nothing_left(tmp_path)
    assert eventually(lambda: not any(left_of(LAB, tmp_path).values())), left_of(LAB, tmp_path)


def tahoe(system: object) -> TahoeSystem:
    assert isinstance(system, TahoeSystem)
    return system


def fabric_of(system: TahoeSystem) -> Fabric:
    assert system.deployment.fabric is not None
    return system.deployment.fabric


def content(path: Path, size: int) -> bytes:
    data = os.urandom(size)
    path.write_bytes(data)
    return data


def shares(system: TahoeSystem) -> dict[str, list[str]]:
    """Storage indices of all files on each host that is up."""
    listing = ["find", f"{STORAGE_DIRECTORY}/shares", "-mindepth", "2", "-maxdepth", "2", "-printf", "%f\\n"]
    found = {host.name: host.run(listing).stdout.decode().split() for host in system.grid.up}
    return {name: [index for index in indices if len(index) == INDEX_LETTERS] for name, indices in found.items()}


def test_names_lead_to_files_and_their_shares_go_with_them(home: Path) -> None:
    with mounted(Subject("tahoe/rain-2-1", 3, lab={"clients": 2}), home) as made:
        system = tahoe(made)
        one, other = system.deployment.clients
        source, target = home / "source", home / "target"
        big = content(source, 3 * MIB)
        system.put(one, source, "a/big", USE_SECONDS)
        system.put(other, source, "twin of big", USE_SECONDS)
        system.get(other, "a/big", target, USE_SECONDS)
        assert target.read_bytes() == big
        assert {len(indices) for indices in shares(system).values()} == {2}, "equal content is stored twice"
        system.delete(one, "a/big", USE_SECONDS)
        assert {len(indices) for indices in shares(system).values()} == {1}
        system.get(one, "twin of big", target, USE_SECONDS)
        assert target.read_bytes() == big
        small = content(source, 30)
        system.put(one, source, "twin of big", USE_SECONDS)  # in its place; so small that its capability holds it
        system.get(other, "twin of big", target, USE_SECONDS)
        assert target.read_bytes() == small
        assert not any(shares(system).values())
        with pytest.raises(AdapterError, match="there is no 'a/big'"):
            system.get(one, "a/big", target, USE_SECONDS)
        system.delete(one, "a/big", USE_SECONDS)
        with pytest.raises(AdapterError, match=r"c1: put x: .*No such file"):
            system.put(one, home / "missing", "x", USE_SECONDS)


def test_a_large_file_is_in_nobodys_memory(home: Path) -> None:
    size = 300 * MIB
    with mounted(Subject("tahoe/rain-2-1", 3), home) as made:
        system, client = tahoe(made), made.deployment.clients[0]
        source, target = home / "source", home / "target"
        with source.open("wb") as file:
            for _ in range(size // MIB):
                file.write(os.urandom(MIB))
        system.put(client, source, "large", USE_SECONDS)
        system.get(client, "large", target, USE_SECONDS)
        client.run(["cmp", str(source), str(target)]).must("comparing")
        peaks = [_peak_bytes(pid) for pid in processes_of(LAB)]
        assert max(peaks) < 200 * MIB, "neither a node nor a helper of Assay has held the file"


def _peak_bytes(pid: int) -> int:
    try:
        text = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0
    return next((int(line.split()[1]) << 10 for line in text.splitlines() if line.startswith("VmHWM:")), 0)


def test_files_written_without_hosts_survive_the_loss_of_others_once_healed(home: Path) -> None:
    """Tahoe-LAFS calls a file healthy whose shares are all there, although some share a server, and would not repair it."""
    with mounted(Subject("tahoe/rain-2-2", 4), home) as made:
        system, client = tahoe(made), made.deployment.clients[0]
        source, target = home / "source", home / "target"
        assert system.kill_hosts(2) == ["s4", "s3"]
        data = content(source, 2 * MIB)
        system.put(client, source, "degraded", USE_SECONDS)
        system.restart_hosts(BACK_SECONDS)
        path = f"/uri/{system._names['degraded'].replace(':', '%3A')}?t=check&output=JSON"
        checked = system.grid.ask(client, path, "POST", 60)
        before = file_health(checked)
        assert checked["results"]["healthy"]
        assert before is not None
        assert (before.shares, before.spread) == (4, 2)
        assert system.heal(BACK_SECONDS) is not None
        assert {len(indices) for indices in shares(system).values()} == {1}
        lost = [host for host in fabric_of(system).storage if host.name in ("s1", "s2")]
        for host in lost:  # those that it was written to, the introducer's host among them
            host.kill()
        assert eventually(lambda: system.health()[0] is False, 30)
        system.get(client, "degraded", target, USE_SECONDS)
        assert target.read_bytes() == data


def test_what_is_lost_is_said_to_be_lost(home: Path) -> None:
    with mounted(Subject("tahoe/rain-2-1", 3), home) as made:
        system, client = tahoe(made), made.deployment.clients[0]
        content(home / "source", MIB)
        system.put(client, home / "source", "file", USE_SECONDS)
        system.kill_hosts(2)
        assert eventually(lambda: "s2" in system.health()[1], 30)
        with pytest.raises(AdapterError, match=r"is lost: 1 of its 3 shares are there, 2 are needed"):
            system.heal(BACK_SECONDS)
        with pytest.raises(AdapterError, match=r"c1: put file: .*UploadUnhappinessError: .* on only 1 server"):
            system.put(client, home / "source", "file", USE_SECONDS)
        with pytest.raises(AdapterError, match=r"2 hosts cannot be killed: 1 run, and s1 stays"):
            system.kill_hosts(2)


def test_a_host_that_is_cut_off_hangs_nobody(home: Path) -> None:
    with mounted(Subject("tahoe/rain-2-1", 3), home) as made:
        system, client = tahoe(made), made.deployment.clients[0]
        data = content(home / "source", MIB)
        system.put(client, home / "source", "file", USE_SECONDS)
        fabric_of(system).cut(fabric_of(system).storage[-1], off=True)
        started = time.monotonic()
        system.get(client, "file", home / "target", USE_SECONDS)
        assert (home / "target").read_bytes() == data
        assert time.monotonic() - started < USE_SECONDS
        fabric_of(system).cut(fabric_of(system).storage[-2], off=True)  # one server is left, and two are needed
        with pytest.raises(AdapterError, match=r"no answer within|ran out of shares"):
            system.get(client, "file", home / "target", 2.0)


@pytest.mark.parametrize(("tuning", "words"), [
    ({"shares.happy": 4}, r"shares\.happy: 4 is no number of servers from 1 to 3"),
    ({"storage.reserved_space": "a lot"}, r"^tahoe-.*: s\d: .*a lot"),
    ({"client.no_such_option": 1}, r"^tahoe-.*: c1: .*no_such_option"),
])  # fmt: skip
def test_what_tahoe_refuses_is_one_line(home: Path, tuning: dict[str, object], words: str) -> None:
    with (
        pytest.raises(AdapterError, match=words) as refused,
        mounted(Subject("tahoe/rain-2-1", 3, tuning, label="tahoe-refused"), home),
    ):
        pass
    assert "\n" not in str(refused.value)


@sshfs_only
def test_old_versions_on_a_mount_are_collected(home: Path) -> None:
    with mounted(Subject("tahoe/rain-2-1", 3, {"access": "sshfs"}), home) as made:
        system, client = tahoe(made), made.deployment.clients[0]
        assert system.directory is not None
        for seed in (1, 2, 3):
            client.call(integrity.write_files, system.directory, seed, timeout_seconds=USE_SECONDS)
            assert system.settle(60).settled
        after = {name: len(indices) for name, indices in shares(system).items()}
        assert max(after.values()) <= integrity.FILES + 2, "one for each file, and their directories"
        assert client.call(integrity.check_files, system.directory, 3, timeout_seconds=USE_SECONDS) == []
        assert system.settle(60).settled
        assert {name: len(indices) for name, indices in shares(system).items()} == after


@sshfs_only
def test_two_clients_cannot_share_a_directory(home: Path) -> None:
    subject = Subject("tahoe/rain-1-1", 2, {"access": "sshfs"}, lab={"clients": 2})
    with pytest.raises(AdapterError, match=r"two gateways .* set lab\.clients to 1"), mounted(subject, home):
        pass
