"""GlusterFS' XML, as a real 10.3 printed it (tests/data/gluster)."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.lab.host import Completed
from assay.systems.base import AdapterError, NoAnswerError
from assay.systems.gluster_cli import (
    HealState,
    brick_states,
    connected_peers,
    heal_state,
    parse_answer,
    rebalance_state,
    volume_info,
)

DATA = Path(__file__).parents[2] / "data" / "gluster"
ASKED = ["volume", "set", "assay"]


def done(stdout: bytes, exit_code: int | None = 0, stderr: bytes = b"") -> Completed:
    return Completed(("gluster",), exit_code, stdout, stderr, 100.0, 107.0)


def answer(name: str) -> object:
    return parse_answer(done((DATA / f"{name}.xml").read_bytes()), ASKED)


# --- the answer itself ------------------------------------------------------------------------------------------------


def test_an_error_with_exit_code_0_is_an_error() -> None:
    with pytest.raises(
        AdapterError, match=r"^gluster volume set: option : performance\.nosuch does not exist Did you"
    ) as e:
        answer("set-unknown")
    assert "\n" not in str(e.value)
    with pytest.raises(AdapterError, match='gluster volume set: invalid number format "abc" in option "event-threads"'):
        answer("set-wrong")
    with pytest.raises(AdapterError, match="Volume does not exist"):
        answer("no-volume")


@pytest.mark.parametrize(
    ("stdout", "stderr", "words"),
    [
        (b"Connection failed. Please check if gluster\ndaemon is operational.", b"", "gluster daemon is operational"),
        (b"", b"gluster: no such thing", "gluster: no such thing"),
        (b"", b"", "exit code 1 and no output"),
        (b"<cliOutput>", b"", "<cliOutput>"),
        (b"<cliOutput></cliOutput>", b"", "<cliOutput></cliOutput>"),
        (
            b"<cliOutput><opRet>-1</opRet><opErrstr/><output>Set volume\n unsuccessful</output></cliOutput>",
            b"",
            "unsuccess",
        ),
    ],
)
def test_what_is_no_answer_is_said_in_one_line(stdout: bytes, stderr: bytes, words: str) -> None:
    with pytest.raises(AdapterError, match=words) as caught:
        parse_answer(done(stdout, 1, stderr), ASKED)
    assert "\n" not in str(caught.value)


def test_a_deadline_is_its_own_error() -> None:
    with pytest.raises(
        NoAnswerError, match="gluster volume set: no answer within 7 s; a server may be cut off or hang"
    ):
        parse_answer(done(b"", None), ASKED)


# --- parsers ------------------------------------------------------------------------------------------------------------


def test_peers() -> None:
    assert connected_peers(answer("peers")) == 5  # type: ignore[arg-type]
    assert connected_peers(answer("peers-one-gone")) == 4  # type: ignore[arg-type]


def test_a_peer_that_is_only_connected_does_not_count() -> None:
    text = (DATA / "peers.xml").read_bytes().replace(b"<state>3</state>", b"<state>4</state>", 1)
    assert connected_peers(parse_answer(done(text), ASKED)) == 4


@pytest.mark.parametrize(
    ("name", "kind", "bricks", "replicas", "shards", "parity"),
    [
        ("rain-4-2", "Disperse", 6, 1, 6, 2),
        ("replicated-3", "Distributed-Replicate", 6, 3, 0, 0),
        ("distributed", "Distribute", 2, 1, 0, 0),
    ],
)
def test_volumes(name: str, kind: str, bricks: int, replicas: int, shards: int, parity: int) -> None:
    info = volume_info(answer(f"info-{name}"))  # type: ignore[arg-type]
    assert (info.name, info.status, info.kind) == ("assay", "Started", kind)
    assert info.bricks == tuple(f"s{i}:/run/b/1/brick" for i in range(1, bricks + 1))
    assert (info.replicas, info.shards, info.parity) == (replicas, shards, parity)
    assert info.options["nfs.disable"] == "on"


def test_brick_processes() -> None:
    states = brick_states(answer("status"))  # type: ignore[arg-type]
    assert [s.brick for s in states] == [f"s{i}:/run/b/1/brick" for i in range(1, 7)], "self-heal daemons are no bricks"
    assert all(s.online and s.pid for s in states)
    assert len(brick_states(answer("status-one-gone"))) == 5  # type: ignore[arg-type]


def test_healing() -> None:
    assert heal_state(answer("heal-none")) == HealState(0, 0, ())  # type: ignore[arg-type]
    assert heal_state(answer("heal-none")).healed  # type: ignore[arg-type]
    gone = heal_state(answer("heal-one-gone"))  # type: ignore[arg-type]
    assert gone == HealState(20, 0, ("s6:/run/b/1/brick",)), "four files, on each of five bricks"
    assert not gone.healed
    assert str(gone) == "20 entries in the bricks' heal indices, 1 bricks do not answer"


def test_a_brick_that_does_not_answer_is_not_healed() -> None:
    text = (DATA / "heal-none.xml").read_bytes().replace(b"Connected", b"Transport endpoint is not connected", 1)
    state = heal_state(parse_answer(done(text), ASKED))
    assert state.pending == 0
    assert not state.healed


def test_rebalance() -> None:
    running = rebalance_state(answer("rebalance-running"))  # type: ignore[arg-type]
    assert (running.status, running.files, running.bytes, running.scanned) == ("in progress", 4, 400_000, 69)
    assert not running.ended
    ended = rebalance_state(answer("rebalance-ended"))  # type: ignore[arg-type]
    assert (ended.status, ended.ended, ended.failures) == ("completed", True, 0)
    assert ended.files > 4
    removed = rebalance_state(answer("remove-brick"))  # type: ignore[arg-type]
    assert (removed.status, removed.ended) == ("completed", True)


@pytest.mark.parametrize(
    ("statuses", "expected"),
    [
        (["completed", "completed", "not started"], "completed"),
        (["not started", "not started", "not started"], "not started"),
        (["completed", "in progress", "failed"], "in progress"),
        (["completed", "failed", "not started"], "failed"),
        (["completed", "stopped", "completed"], "stopped"),
    ],
)
def test_the_slowest_host_decides(statuses: list[str], expected: str) -> None:
    nodes = "".join(f"<node><statusStr>{s}</statusStr><runtime>1.5</runtime></node>" for s in statuses)
    text = f"<cliOutput><opRet>0</opRet><volRebalance>{nodes}</volRebalance></cliOutput>".encode()
    assert rebalance_state(parse_answer(done(text), ASKED)).status == expected


def test_a_rebalance_that_nobody_started() -> None:
    with pytest.raises(AdapterError, match="Rebalance not started for volume assay"):
        answer("rebalance-none")
