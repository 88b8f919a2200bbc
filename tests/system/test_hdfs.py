"""Real HDFS services on namespaces: what the contract tests do not ask of every system."""

from __future__ import annotations

import json
import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract_helpers import LAB, Subject, made, mounted, write, wrong
from fabric_helpers import left_of
from lab_helpers import eventually, nothing_left

from assay.lab.registry import clean
from assay.systems import hdfs_install
from assay.systems.base import AdapterError
from assay.systems.hdfs import HdfsSystem
from assay.systems.hdfs_status import beans
from assay.systems.requirements import first_missing, programs_directory

LACKING = first_missing(HdfsSystem.requirements)
pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.timeout(900),
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(LACKING is not None, reason=str(LACKING)),
]
MIB = 1 << 20
USE_SECONDS = 120.0
BACK_SECONDS = 180.0


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ASSAY_SYSTEMS", str(programs_directory()))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield tmp_path
    clean(LAB)
    assert nothing_left(tmp_path)
    assert eventually(lambda: not any(left_of(LAB, tmp_path).values()), 20), left_of(LAB, tmp_path)


def hdfs(system: object) -> HdfsSystem:
    assert isinstance(system, HdfsSystem)
    return system


def blocks(system: HdfsSystem) -> dict[str, int]:
    """Blocks, or parts of erasure-coded ones, that each host holds."""
    url = "http://s1:9870/jmx?qry=Hadoop:service=NameNode,name=NameNodeInfo"
    info = beans(system.cluster._ask(url, 10))["NameNodeInfo"]
    return {name.partition(":")[0]: node["numBlocks"] for name, node in json.loads(info["LiveNodes"]).items()}


def content(path: Path, size: int) -> bytes:
    data = os.urandom(size)
    path.write_bytes(data)
    return data


def test_names_are_written_again_read_by_others_and_removed(home: Path) -> None:
    with mounted(Subject("hdfs/replicated-2", 2, lab={"clients": 2}), home) as made_:
        system = hdfs(made_)
        one, other = system.deployment.clients
        source, target = home / "source", home / "target"
        for size in (3 * MIB + 17, 0, 40):  # in place of what was there
            data = content(source, size)
            system.put(one, source, "a b/é", USE_SECONDS)
            system.get(other, "a b/é", target, USE_SECONDS)
            assert target.read_bytes() == data
        system.delete(other, "a b/é", USE_SECONDS)
        system.delete(other, "a b/é", USE_SECONDS)  # no error
        with pytest.raises(AdapterError, match=r"c1: /assay/a b/é: .*") as caught:
            system.get(one, "a b/é", target, USE_SECONDS)
        assert "\n" not in str(caught.value)
        assert eventually(lambda: set(blocks(system).values()) == {0}, 60), "what was deleted leaves the disks"
        assert hdfs_install.class_archive().exists(), "the first deployment of an installation makes it"


def test_each_part_lies_on_a_host_of_its_own_and_is_rebuilt(home: Path) -> None:
    with mounted(Subject("hdfs/rain-3-2", 6), home) as made_:
        system = hdfs(made_)
        source, target = home / "source", home / "target"
        data = content(source, 3 * MIB)
        client = system.deployment.clients[0]
        system.put(client, source, "stripe", USE_SECONDS)
        assert eventually(lambda: sorted(blocks(system).values()) == [0, 1, 1, 1, 1, 1], 60), blocks(system)
        write(system)
        assert system.heal(BACK_SECONDS) is not None, "on a busy machine a client may have left a part out"
        assert system.kill_hosts(2) == ["s6", "s5"]
        assert wrong(system) == [], "at once, before the NameNode has noticed"
        assert eventually(lambda: system.health()[0] is False, 60)
        assert "missing: s5, s6" in system.health()[1]
        assert eventually(lambda: not {"s5", "s6"} & set(system.cluster.state().live), 120), "it counts them as dead"
        assert "rebuilding waits for" in system.settle(60.0).detail, "four hosts are too few for five parts"
        write(system, 7)
        assert wrong(system, 7) == []
        assert system.restart_hosts(BACK_SECONDS) < BACK_SECONDS
        assert system.heal(BACK_SECONDS) is not None
        # without two other hosts some file that was written with too few of them cannot be read: see docs/systems/hdfs.md
        system.go_cold()
        assert wrong(system, 7) == []
        system.get(client, "stripe", target, USE_SECONDS)
        assert target.read_bytes() == data


def test_a_spare_host_takes_over_what_a_dead_one_had(home: Path) -> None:
    with mounted(Subject("hdfs/replicated-2", 3), home) as made_:
        system = hdfs(made_)
        write(system)
        assert system.heal(BACK_SECONDS) is not None
        system.kill_hosts(1)
        healed = system.heal(BACK_SECONDS)
        assert healed is not None
        assert healed > 5, "not before the NameNode counts the host as dead"
        system.cluster.kill(["s2"])
        assert wrong(system) == [], "s1 has a copy of everything"


def test_blocks_move_to_new_hosts_and_back(home: Path) -> None:
    subject = Subject("hdfs/distributed", 2, {"dfs.blocksize": "4m"}, lab={"disk": {"size": "1GiB"}})
    with mounted(subject, home) as made_:
        system = hdfs(made_)
        source = home / "source"
        content(source, 64 * MIB)
        for number in range(8):
            system.put(system.deployment.clients[0], source, f"f{number}", USE_SECONDS)
        said: list[str] = []
        system.grow(1, said.append)
        assert said[0] == "s3 added, 3 DataNodes"
        assert eventually(lambda: blocks(system)["s3"] > 10, 60), blocks(system)
        with pytest.raises(AdapterError, match="hdfs/distributed needs 1 hosts; without 3 of 3 there are 0"):
            system.shrink(3, said.append)
        system.shrink(1, said.append)
        assert said[-1] == "s3 taken out, 2 DataNodes"
        assert sum(count for name, count in blocks(system).items() if name != "s3") == 128
        assert system.health()[0] is True


def test_a_service_that_dies_is_told_with_its_last_words(home: Path) -> None:
    subject = Subject("hdfs/distributed", 1, {"dfs.namenode.handler.count": "many"})
    with made(subject, home) as system:
        started = time.monotonic()
        with pytest.raises(AdapterError, match=r'^hdfs-.*s1: the NameNode has ended; .*"many"') as caught:
            system.deploy()
        assert time.monotonic() - started < 280, "it is not waited for"
        assert "\n" not in str(caught.value)
