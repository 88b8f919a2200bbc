"""Files beside the ledger: what was put in comes out, and a name that exists is complete."""

from __future__ import annotations

import errno
import hashlib
import math
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from ledger_rows import add_study, check, evidence, samples, write

from assay.ledger.files import FileStore, samples_frame, samples_from_frame, write_atomically
from assay.ledger.migrate import LedgerError
from assay.ledger.queries import load_study
from assay.ledger.store import Ledger
from assay.model.evidence import ClientSamples, Histogram, Samples, Series

DIRECTIONS = st.sampled_from(["read", "write"])
VALUES = st.floats(allow_nan=False) | st.just(0.0)


@st.composite
def histograms(draw: st.DrawFn) -> Histogram:
    latencies = sorted(draw(st.sets(st.integers(0, 2**53), min_size=1, max_size=20)))
    return Histogram(
        latency_ns=latencies,
        counts=draw(st.lists(st.integers(0, 2**53), min_size=len(latencies), max_size=len(latencies))),
    )


@st.composite
def series(draw: st.DrawFn, quantity: str, direction: str) -> Series:
    points = draw(st.lists(st.tuples(VALUES, VALUES), min_size=1, max_size=20))
    seconds, values = [p[0] for p in points], [p[1] for p in points]
    interval = draw(st.floats(0.001, 1000))
    return Series.model_validate(
        {
            "quantity": quantity,
            "direction": direction,
            "interval_seconds": interval,
            "seconds": seconds,
            "values": values,
        }
    )


@st.composite
def client_samples(draw: st.DrawFn, name: str) -> ClientSamples:
    kinds = draw(
        st.lists(st.tuples(st.sampled_from(["bandwidth", "iops", "latency"]), DIRECTIONS), unique=True, max_size=6)
    )
    shapes = {d: draw(histograms()) for d in draw(st.sets(DIRECTIONS, min_size=1))}
    return ClientSamples.model_validate(
        {"client": name, "histograms": shapes, "series": [draw(series(q, d)) for q, d in kinds]}
    )


@settings(max_examples=60, deadline=None)
@given(st.data(), st.lists(st.text(max_size=8), unique=True, max_size=4))
def test_samples_survive_parquet(
    tmp_path_factory: pytest.TempPathFactory, data: st.DataObject, names: list[str]
) -> None:
    store = FileStore(tmp_path_factory.getbasetemp() / "store")
    given_samples = Samples(clients=[data.draw(client_samples(name)) for name in names])
    assert samples_from_frame(samples_frame(given_samples)) == given_samples
    content_hash = store.put_samples(given_samples)
    assert store.get_samples(content_hash) == given_samples
    assert hashlib.sha256(store.path(content_hash, ".parquet").read_bytes()).hexdigest() == content_hash


def test_nan_and_infinity_survive_parquet(tmp_path: Path) -> None:
    odd = Series(
        quantity="latency", direction="read", interval_seconds=1, seconds=[1, 2, 3], values=[math.nan, math.inf, -0.0]
    )
    store = FileStore(tmp_path)
    again = store.get_samples(store.put_samples(Samples(clients=[ClientSamples(client="c", series=[odd])])))
    assert again is not None
    values = again.clients[0].series[0].values
    assert math.isnan(values[0])
    assert values[1:] == [math.inf, 0.0]


@settings(max_examples=60)
@given(st.binary(max_size=5000))
def test_artefacts_survive_gzip(tmp_path_factory: pytest.TempPathFactory, content: bytes) -> None:
    store = FileStore(tmp_path_factory.getbasetemp() / "store")
    content_hash = store.put_artefact(content)
    assert content_hash == hashlib.sha256(content).hexdigest()
    assert store.get_artefact(content_hash) == content
    assert store.put_artefact(content) == content_hash


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    store = FileStore(tmp_path)
    assert store.get_artefact("0" * 64) is None
    assert store.get_samples("0" * 64) is None


@pytest.mark.parametrize("call", ["fsync", "fdopen"])
@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, "No space left on device"), KeyboardInterrupt()])
def test_a_failed_write_leaves_the_old_file_or_none(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, call: str, error: BaseException
) -> None:
    kept = tmp_path / "kept"
    write_atomically(kept, b"old")

    def fail(*_: object, **__: object) -> None:
        raise error

    monkeypatch.setattr(os, call, fail)
    for target in (kept, tmp_path / "sub" / "new"):
        with pytest.raises(type(error)):
            write_atomically(target, b"new")
    monkeypatch.undo()
    assert kept.read_bytes() == b"old"
    assert [p.name for p in tmp_path.rglob("*") if p.is_file()] == ["kept"]


@pytest.fixture
def tiny(tmp_path: Path) -> Iterator[Path]:
    """A file system of 3 MiB."""
    if os.geteuid() != 0:
        pytest.skip("needs root to mount a tmpfs")
    point = tmp_path / "tiny"
    point.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=3m", "assay-test", point], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", "-l", point], check=True)


@pytest.mark.root
@pytest.mark.parametrize("what", ["samples", "rows"])
def test_a_full_disk_never_corrupts_the_ledger(tiny: Path, what: str) -> None:
    with Ledger(str(tiny / "ledger.db")) as ledger:
        (cell,) = add_study(ledger, cells=1)
        written = 0
        with pytest.raises(LedgerError, match=r"(?i)no space|full|i/o") as caught:
            for block in range(1, 2000):
                if what == "samples":
                    n = 4000
                    noise = Histogram(
                        latency_ns=list(range(block, block + n)), counts=[hash((block, i)) % 2**50 for i in range(n)]
                    )
                    big = Samples(clients=[ClientSamples(client="c", histograms={"read": noise})])
                    e = evidence(cell, block)
                    ledger.add_attempt(e, "valid", [], [check(e.attempt_id)], big)
                else:
                    e = evidence(cell, block, error="x" * 20_000)
                    ledger.add_attempt(e, "valid", [], [check(e.attempt_id)], None)
                written += 1
        assert written > 3
        assert "\n" not in str(caught.value)
        assert str(tiny) in str(caught.value), "the message says where"
        data = load_study(ledger, "s1")
        assert data.attempts["block"].to_list() == list(range(1, written + 1)), "every finished attempt and no other"
        for attempt, samples_hash in data.attempts.select("id", "samples_hash").iter_rows():
            assert data.evidence(attempt).attempt_id == attempt
            assert samples_hash is None or data.samples(attempt) is not None, "a named file is complete"
        assert not list(tiny.rglob(".part-*"))
        assert sqlite3.connect(tiny / "ledger.db").execute("PRAGMA integrity_check").fetchone() == ("ok",)
        subprocess.run(["mount", "-o", "remount,size=8m", tiny], check=True)
        write(ledger, cell, written + 1)
    with Ledger(str(tiny / "ledger.db")) as again:
        assert load_study(again, "s1").samples(f"{cell}-{written + 1}-1") == samples(written + 1)


@pytest.mark.root
def test_a_ledger_on_a_full_disk_is_refused_with_one_line(tiny: Path) -> None:
    with (tiny / "filler").open("wb") as filler, pytest.raises(OSError, match="No space"):
        while True:
            filler.write(b"x" * 65536)
            filler.flush()
    with pytest.raises(LedgerError, match=r"(?i)full|no space|i/o") as caught:
        Ledger(str(tiny / "ledger.db"))
    assert "\n" not in str(caught.value)
    (tiny / "filler").unlink()
    with Ledger(str(tiny / "ledger.db")) as ledger:
        write(ledger, add_study(ledger)[0], 1)
