"""What MooseFS' tools say, as a real master of 3.0.117 said it."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.systems.base import AdapterError
from assay.systems.moosefs_cli import (
    Chunk,
    ClientInfo,
    chunk_servers,
    chunk_state,
    client_info,
    files_of_chunks,
    goal,
    records,
)
from assay.systems.moosefs_resize import balanced

DATA = Path(__file__).parents[2] / "data" / "moosefs"


def said(name: str) -> list[tuple[str, ...]]:
    return records((DATA / f"{name}.txt").read_text())


def test_a_lost_server_and_its_chunks() -> None:
    answer = said("one-gone")
    assert [s.address for s in chunk_servers(answer)] == ["10.77.0.11", "10.77.0.12", "10.77.0.13"]
    first = chunk_servers(answer)[0]
    assert (first.port, first.version, first.chunks, first.used_bytes, first.total_bytes) == (
        9422, "3.0.117", 5, 322805760, 1006632960,
    )  # fmt: skip
    assert not first.may_leave
    state = chunk_state(answer)
    assert (state.missing, state.endangered, state.undergoal, state.stable) == (2, 0, 0, 10)
    assert not state.whole
    assert str(state) == "chunks: 2 missing, 0 endangered, 0 undergoal"


def test_a_server_that_leaves() -> None:
    *staying, leaving = chunk_servers(said("leaving"))
    assert (leaving.may_leave, leaving.chunks, leaving.leaving_chunks) == (False, 0, 3)
    assert leaving.leaving_total_bytes == 1006632960
    assert not any(server.leaving_chunks for server in staying)
    assert [s.may_leave for s in chunk_servers(said("left"))] == [False, False, False, True]
    assert [s.may_leave for s in chunk_servers(said("emptied"))] == [False, False, False, True]
    state = chunk_state(said("leaving-chunks"))
    assert (state.endangered, state.whole) == (12, False)


def test_whole_chunks_in_words() -> None:
    answer = [("t", f"chunkclass {name}:", "0") for name in ("missing", "endangered", "undergoal", "pending deletion")]
    answer += [
        ("t", "chunkclass to be removed:", "1"),
        ("t", "chunkclass stable:", "5"),
        ("t", "chunkclass overgoal:", "2"),
    ]
    assert chunk_state(answer).whole
    assert str(chunk_state(answer)) == "all 7 chunks have their copies"
    assert chunk_state(answer).deleting == 1


def test_answers_of_another_format_are_refused() -> None:
    with pytest.raises(AdapterError, match="no number of missing chunks"):
        chunk_state([])
    with pytest.raises(AdapterError, match=r"mfscli -SCS: 'chunk servers:\|x' is of no known format"):
        chunk_servers([("chunk servers:", "x")])
    with pytest.raises(AdapterError, match="mfsgetgoal: No such file or directory"):
        goal("No such file or directory\n")


def test_chunks_of_files() -> None:
    assert files_of_chunks((DATA / "fileinfo.txt").read_text()) == {
        "/run/mnt/assay/f": [
            Chunk(0, "0000000000000001", ["10.77.0.12", "10.77.0.14"]),
            Chunk(1, "0000000000000002", ["10.77.0.11", "10.77.0.13"]),
        ],
        "/run/mnt/assay/one/1": [Chunk(0, "0000000000000005", [])],
        "/run/mnt/assay/empty": [],
    }


def test_a_client_tells_its_session_and_version() -> None:
    assert client_info(bytes.fromhex("7f000001b5bb00000001000300ea")) == ClientInfo(1, "3.0.117")
    with pytest.raises(AdapterError, match="has 3 bytes"):
        client_info(b"abc")


def test_goals() -> None:
    assert goal("/run/mnt/assay: 2\n") == 2
    assert goal("/mnt/a: 3/b: 1\n") == 1


def test_servers_are_balanced_to_a_chunk_or_to_what_the_master_accepts() -> None:
    servers = chunk_servers(said("one-gone"))
    assert balanced(servers, 0.01), "they differ by 38 MB, less than a chunk"
    apart = chunk_servers(said("leaving"))[:3]
    assert not balanced(apart, 0.1), "180 of 1006 MB apart"
    assert balanced(apart, 0.2)
    assert balanced(servers[:1], 0.01)
