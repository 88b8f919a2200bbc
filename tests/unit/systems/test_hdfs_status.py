"""What a NameNode and a DataNode say of themselves, as recorded from Hadoop 3.5.0."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.systems.base import AdapterError
from assay.systems.hdfs_client import words_of
from assay.systems.hdfs_status import actor_running, cluster_state, policy_name

DATA = Path(__file__).parents[2] / "data" / "hdfs"
SYSTEM = (DATA / "namesystem.json").read_text()
NAMENODE = (DATA / "namenode.json").read_text()
DATANODE = (DATA / "datanode.json").read_text()


def changed(text: str, bean: str, **values: Any) -> str:
    """The same answer with other values."""
    said = json.loads(text)
    for found in said["beans"]:
        if found["name"].endswith(f"name={bean}"):
            found.update(values)
    return json.dumps(said)


def node(silent: int, state: str = "In Service") -> dict[str, object]:
    return {"lastContact": silent, "adminState": state}


def test_a_cluster_at_rest() -> None:
    state = cluster_state(SYSTEM, NAMENODE)
    assert (state.version, state.safe_mode, list(state.live)) == ("3.5.0", False, ["localhost"])
    assert state.ready(["localhost"])
    assert state.whole
    assert not state.busy
    assert str(state) == "0 blocks low, 0 being rebuilt, 0 to be deleted"


def test_hosts_that_are_silent_or_dead_or_were_never_there() -> None:
    live = json.dumps({"s1:9866": node(0), "s2.lab:9866": node(60), "s3:9866": node(1, "Decommissioned")})
    state = cluster_state(SYSTEM, changed(NAMENODE, "NameNodeInfo", LiveNodes=live, DeadNodes='{"s4:9866": {}}'))
    assert state.gone(["s1", "s2", "s3", "s4", "s5"]) == ["s2", "s4", "s5"]
    assert state.dead == {"s4"}
    assert state.live["s3"].state == "Decommissioned"
    assert not state.ready(["s1", "s2"])
    assert state.ready(["s1", "s3"])


@pytest.mark.parametrize(("bean", "values", "busy", "whole"), [
    ("FSNamesystemState", {"LowRedundancyBlocks": 2}, True, False),
    ("FSNamesystemState", {"PendingReconstructionBlocks": 1}, True, False),
    ("FSNamesystemState", {"PendingDeletionBlocks": 5}, True, True),
    ("FSNamesystemState", {"NumStaleStorages": 1}, True, False),
    ("NameNodeInfo", {"Safemode": "Safe mode is ON."}, False, False),
])  # fmt: skip
def test_what_is_left_to_do(bean: str, values: dict[str, object], busy: bool, whole: bool) -> None:
    state = cluster_state(changed(SYSTEM, bean, **values), changed(NAMENODE, bean, **values))
    assert (state.busy, state.whole) == (busy, whole)


def test_blocks_of_which_too_little_is_left_cannot_be_waited_for() -> None:
    low = changed(SYSTEM, "FSNamesystemState", LowRedundancyBlocks=7)
    state = cluster_state(low, changed(NAMENODE, "NameNodeInfo", NumberOfMissingBlocks=7))
    assert not state.busy
    assert not state.whole
    assert str(state).endswith("7 missing")


@pytest.mark.parametrize(("system", "information", "words"), [
    ('{"beans": []}', NAMENODE, "has not started yet"),
    ("<html>", NAMENODE, "is not what was expected: <html>"),
    (SYSTEM, changed(NAMENODE, "NameNodeInfo", LiveNodes="nonsense"), "lacks"),
])  # fmt: skip
def test_answers_that_are_none(system: str, information: str, words: str) -> None:
    with pytest.raises(AdapterError, match=words):
        cluster_state(system, information)


def test_a_datanode_has_registered() -> None:
    assert actor_running(DATANODE)
    assert not actor_running(changed(DATANODE, "DataNodeInfo", BPServiceActorInfo="[]"))
    assert not actor_running(changed(DATANODE, "DataNodeInfo", BPServiceActorInfo='[{"ActorState": "INIT_FAILED"}]'))
    assert not actor_running('{"beans": []}')


def test_the_policy_of_a_directory() -> None:
    assert policy_name('{"FileStatus": {"ecPolicy": "RS-3-2-1024k", "type": "DIRECTORY"}}') == "RS-3-2-1024k"
    assert policy_name('{"FileStatus": {"type": "DIRECTORY"}}') is None
    assert policy_name("nonsense") is None


def test_the_clients_words_are_one_line() -> None:
    said = (
        'DataTransferError("All DataNodes failed: [DatanodeInfoProto { id: DatanodeIdProto { ip_addr: "10.77.0.12", '
        'host_name: "s2" } }, DatanodeInfoProto { id: DatanodeIdProto { host_name: "s3" } }]")'
    )
    assert words_of(ValueError(said)) == 'DataTransferError("All DataNodes failed: s2, s3'
    assert words_of(ValueError("two\n lines")) == "two lines"
