from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from trace_rows import STRACE, strace_trace

from assay.trace import calls
from assay.trace.frames import frame
from assay.trace.text import bytes_text, seconds_text


def test_strace_text_becomes_calls_with_offsets(tmp_path: Path) -> None:
    rows = frame(strace_trace(tmp_path))
    assert rows["operation"].to_list() == [
        "open", "write", "pread", "write", "lseek", "wait", "rename", "unlink",
    ]  # fmt: skip
    assert rows["offset"].to_list()[:4] == [0, 0, 4, 4096]
    assert rows["path"].to_list()[:2] == ["/w/a", "/w/a"]
    assert rows["result"].to_list()[-1] == -2


def test_info_counts_by_class(tmp_path: Path) -> None:
    info = calls.info(strace_trace(tmp_path))
    assert info["classes"]["write"]["operations"] == 2
    assert info["classes"]["write"]["bytes"] == 8192
    assert info["classes"]["lseek"]["operations"] == 1
    assert info["processes"] == 2
    assert info["sequential_write_share"] == 1.0
    assert info["working_set_bytes"] == 8192


def test_a_malformed_line_is_reported_by_number(tmp_path: Path) -> None:
    lines = STRACE.splitlines()
    text = b"\n".join([*lines[:2], b'10 100.00003 write(3, "unfin', *lines[2:]])
    notes = calls.import_text("strace", text, tmp_path / "t")
    assert [number for number, _ in notes["problems"]] == [3]
    with pytest.raises(calls.TraceError, match="line 3"):
        calls.import_text("strace", text, tmp_path / "t", strict=True)


def test_iolog_out_and_in_again(tmp_path: Path) -> None:
    text, left_out = calls.export_text(strace_trace(tmp_path), "iolog")
    assert text.startswith("fio version 3 iolog\n")
    assert left_out == 4  # seek, wait, rename, failed unlink
    calls.import_text("iolog", text.encode(), tmp_path / "again", strict=True)
    assert calls.info(tmp_path / "again")["classes"]["write"]["bytes"] == 8192


def test_anonymise_keeps_the_figures_and_drops_the_names(tmp_path: Path) -> None:
    path = strace_trace(tmp_path)
    calls.anonymise(path, tmp_path / "anonymous", 7)
    assert b"none" not in json.dumps(frame(tmp_path / "anonymous")["path"].to_list()).encode()
    before, after = calls.info(path), calls.info(tmp_path / "anonymous")
    assert before["classes"] == after["classes"]


def test_a_cut_file_is_read_to_its_last_block(tmp_path: Path) -> None:
    path = strace_trace(tmp_path)
    whole = path.read_bytes()
    cut = tmp_path / "cut"
    cut.write_bytes(whole[: len(whole) - 40])
    info = calls.info(cut)
    assert info["operations"] == 7  # the wait is no operation of a file
    assert not info["whole"]


def test_no_trace_is_one_clear_line(tmp_path: Path) -> None:
    (tmp_path / "x").write_bytes(b"something else")
    with pytest.raises(calls.TraceError, match="no trace of Assay"):
        calls.info(tmp_path / "x")
    with pytest.raises(calls.TraceError, match="cannot open"):
        calls.info(tmp_path / "missing")


def test_starts_are_drawn_once_and_are_uniform(tmp_path: Path) -> None:
    path = strace_trace(tmp_path)
    plan = calls.replay_plan(path, copies=500, seed=3, spread_seconds=300)
    again = calls.replay_plan(path, copies=12, seed=3, spread_seconds=300)
    starts = plan["starts_seconds"]
    assert starts[:12] == again["starts_seconds"]
    assert min(starts) >= 0 and max(starts) <= 300
    assert abs(sum(starts) / len(starts) - 150) < 20


def test_numbers_for_people() -> None:
    assert [bytes_text(n) for n in (0, 512, 4096, 2.416 * 2**30)] == ["0 B", "512 B", "4 KiB", "2.42 GiB"]
    assert [seconds_text(n) for n in (3.4e-7, 1.25e-5, 0.0031, 42)] == ["340 ns", "12.5 us", "3.1 ms", "42 s"]


_text = st.one_of(
    st.binary(max_size=400),
    st.lists(
        st.sampled_from([*STRACE.splitlines(), b"0 f read 1 2", b"fio version 3 iolog", b"1,W,0,512,3", b"[pid", b"<... x resumed>", b"("]),
        max_size=12,
    ).map(b"\n".join),
)  # fmt: skip


@settings(max_examples=300, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(kind=st.sampled_from(["strace", "iolog", "blkparse", "msr", "alibaba"]), text=_text, cut=st.integers(0, 400))
def test_no_text_breaks_a_parser(tmp_path: Path, kind: str, text: bytes, cut: int) -> None:
    try:
        notes = calls.import_text(kind, text[cut:] if cut < len(text) else text, tmp_path / "fuzz")
    except calls.TraceError as error:
        assert "\n" not in str(error)
    else:
        assert notes["skipped"] <= notes["lines"]


@settings(max_examples=200, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_no_damage_breaks_the_reader(tmp_path: Path, data: st.DataObject) -> None:
    whole = bytearray(strace_trace(tmp_path).read_bytes())
    for _ in range(data.draw(st.integers(1, 6))):
        whole[data.draw(st.integers(0, len(whole) - 1))] = data.draw(st.integers(0, 255))
    (tmp_path / "bad").write_bytes(whole)
    try:
        calls.info(tmp_path / "bad")
        calls.replay_plan(tmp_path / "bad")
    except calls.TraceError as error:
        assert "\n" not in str(error)
