"""The parser on recorded outputs (tests/data/fio/record made them) and on damaged ones."""

from __future__ import annotations

import contextlib
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.model import histogram
from assay.model.evidence import Histogram
from assay.workloads.fio_output import FioOutput, FioOutputError, parse

DATA = Path(__file__).parents[2] / "data" / "fio"
RECORDED = {path.stem: path.read_bytes() for path in sorted(DATA.glob("*.json"))}


def test_single_thread() -> None:
    output = parse(RECORDED["randread"])
    raw = json.loads(RECORDED["randread"])["jobs"][0]["read"]
    (job,) = output.jobs
    assert output.version.startswith("fio-") and output.text == "" and job.error == 0
    read = job.totals["read"]
    assert (read.bytes, read.operations) == (1 << 20, 256)
    assert read.runtime_seconds == raw["runtime"] / 1000
    assert read.latency_mean_ns == raw["lat_ns"]["mean"]
    assert sum(read.counts) == read.latency_samples == 256
    assert job.totals["write"].bytes == 0


@pytest.mark.parametrize("name", ["randread", "randrw-2-threads", "null"])
def test_percentiles_equal_those_that_fio_prints(name: str) -> None:
    compared = 0
    for job in parse(RECORDED[name]).jobs:
        for total in job.totals.values():
            h = Histogram(latency_ns=total.latency_ns, counts=total.counts)
            for q, ns in total.percentiles_ns.items():
                assert histogram.percentile(h, float(q)) == ns / 1e9
                compared += 1
    assert compared >= 6


def test_two_threads_both_directions() -> None:
    output = parse(RECORDED["randrw-2-threads"])
    assert len(output.jobs) == 2
    for job in output.jobs:
        assert job.totals["read"].bytes + job.totals["write"].bytes == 1 << 20
        assert job.totals["read"].bytes > 0 < job.totals["write"].bytes


def test_disk_full_is_a_result_with_text() -> None:
    output = parse(RECORDED["disk-full"])
    assert output.jobs[0].error == 28
    assert "No space left on device" in output.text


def test_nan_in_the_words_of_c() -> None:
    raw = RECORDED["randread"].replace(b'"stddev" : 0.000000', b'"stddev" : -nan')
    damaged = raw.replace(b'"usr_cpu" : ', b'"usr_cpu" : nan,\n"was" : ', 1)
    assert parse(damaged).jobs[0].user_cpu_share == 0.0


def test_warning_within_the_json() -> None:
    lines = RECORDED["randread"].splitlines()
    lines.insert(30, b"fio: clocksource warning, tsc is not: {reliable}")
    output = parse(b"\n".join(lines))
    assert output.jobs == parse(RECORDED["randread"]).jobs
    assert "tsc is not" in output.text


def test_missing_keys_leave_out_what_they_would_have_said() -> None:
    document = json.loads(RECORDED["randread"])
    del document["jobs"][0]["read"]["io_bytes"]
    assert parse(json.dumps(document).encode()).jobs[0].totals["read"].bytes == 1 << 20  # from io_kbytes
    del document["jobs"][0]["read"]["io_kbytes"]
    assert "read" not in parse(json.dumps(document).encode()).jobs[0].totals


@pytest.mark.parametrize("text", [b"", b"fio: engine bogus not loadable", b"{}", b'{"jobs": []}', b"{" * 5000, b"\xff"])
def test_no_result_is_an_error(text: bytes) -> None:
    with pytest.raises(FioOutputError):
        parse(text)


@given(st.sampled_from(sorted(RECORDED)), st.floats(0, 1))
def test_cut_off_output_is_an_error(name: str, share: float) -> None:
    raw = RECORDED[name].rstrip()
    with pytest.raises(FioOutputError):
        parse(raw[: int((len(raw) - 1) * share)])


@given(
    st.sampled_from(sorted(RECORDED)),
    st.lists(st.tuples(st.floats(0, 1), st.integers(0, 40), st.binary(max_size=12)), min_size=1, max_size=6),
)
def test_mutated_output_never_raises_anything_else(name: str, edits: list[tuple[float, int, bytes]]) -> None:
    raw = RECORDED[name]
    for at, length, insertion in edits:
        place = int(at * len(raw))
        raw = raw[:place] + insertion + raw[place + length :]
    try:
        output = parse(raw)
    except FioOutputError as error:
        assert "\n" not in str(error)
        return
    assert isinstance(output, FioOutput)
    for job in output.jobs:
        for total in job.totals.values():
            assert total.bytes >= 0 and total.runtime_seconds >= 0 and len(total.latency_ns) == len(total.counts)


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@given(json_values, st.sampled_from(["io_bytes", "runtime", "lat_ns", "total_ios", "bins", "N", "mean", "percentile"]))
def test_any_value_at_any_key(value: object, key: str) -> None:
    document = json.loads(RECORDED["randread"])
    section = document["jobs"][0]["read"]
    (section["lat_ns"] if key in ("bins", "N", "mean", "percentile") else section)[key] = value
    with contextlib.suppress(FioOutputError):
        parse(json.dumps(document).encode())
