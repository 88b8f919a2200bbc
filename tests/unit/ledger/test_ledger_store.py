"""Attempts are kept whole, once, by any number of writers; readers wait for nobody."""

from __future__ import annotations

import math
import multiprocessing
import os
import threading
import time

import pytest
from ledger_rows import BASELINES, add_study, check, evidence, samples, write
from sqlalchemy import func, select

from assay.ledger.migrate import LedgerError
from assay.ledger.queries import count_studies, load_baselines, load_study
from assay.ledger.schema import AttemptRow, CheckRow, ComparisonRow, StudyRow
from assay.ledger.store import Ledger
from assay.model.evidence import AttemptEvidence


def attempts(ledger: Ledger) -> int:
    with ledger.reading() as session:
        return session.scalar(select(func.count()).select_from(AttemptRow)) or 0


def test_an_attempt_comes_back_as_it_was(ledger: Ledger) -> None:
    cell, _ = add_study(ledger)
    e = evidence(cell, error="Störung \U0001f4a5 'quoted'\n\"two\" lines")
    ledger.add_attempt(e, "invalid", ["A1", "K2"], [check(e.attempt_id, found=1.5)], samples())
    data = load_study(ledger, "s1")
    assert data.baselines == load_baselines(ledger, "s1") == BASELINES
    assert load_baselines(ledger, "nobody") is None
    assert data.evidence(e.attempt_id) == e
    assert data.samples(e.attempt_id) == samples()
    row = data.attempts.row(0, named=True)
    assert (row["cell_id"], row["candidate"], row["workload_id"], row["block"], row["try_number"]) == (
        cell,
        "local/ext4",
        "w0",
        1,
        1,
    )
    assert row["broken_rules"] == ["A1", "K2"]
    assert (row["bandwidth"], row["latency_p99"]) == (1e6 + 1, 3e-3)
    assert row["ended_at"] - row["started_at"] == e.ended_at - e.started_at, "times are doubles on every database"
    assert data.study.seed == 2**62
    assert data.hosts[0].facts == {"é": [1, None, 0.1]}


def test_a_mean_of_nothing_is_kept(ledger: Ledger) -> None:
    cell, _ = add_study(ledger)
    e = evidence(cell, latency=math.nan)
    ledger.add_attempt(
        e, "valid", [], [check(e.attempt_id, share=math.inf, low=-math.inf, deep=[{"x": math.nan}])], None
    )
    data = load_study(ledger, "s1")
    again = data.evidence(e.attempt_id).summary
    assert again is not None
    assert math.isnan(again.directions["read"].latency_mean_seconds)
    assert data.attempts["latency_mean"].to_list() == [None]
    assert data.checks["evidence"].to_list() == ['{"share": "Infinity", "low": "-Infinity", "deep": [{"x": "NaN"}]}']


def test_one_attempt_per_cell_block_and_try(ledger: Ledger) -> None:
    cell, other = add_study(ledger)
    write(ledger, cell, 1)
    clash = evidence(cell).model_copy(update={"attempt_id": "another-id"})
    with pytest.raises(LedgerError, match=r"(?i)unique") as caught:
        ledger.add_attempt(clash, "valid", [], [check("another-id")], None)
    assert "\n" not in str(caught.value)
    for c, block, try_number in ((cell, 1, 2), (cell, 2, 1), (other, 1, 1)):
        write(ledger, c, block, try_number)
    assert attempts(ledger) == 4
    with ledger.reading() as session:
        assert session.scalar(select(func.count()).where(CheckRow.subject == "another-id")) == 0, "all or nothing"


def test_an_attempt_of_an_unknown_cell_is_refused(ledger: Ledger) -> None:
    add_study(ledger)
    with pytest.raises(LedgerError, match=r"(?i)foreign key"):
        write(ledger, "nowhere", 1)
    assert attempts(ledger) == 0


def test_a_transaction_is_rolled_back_on_any_exception(ledger: Ledger) -> None:
    add_study(ledger)

    class Accident(BaseException):
        pass

    for error in (RuntimeError, Accident, KeyboardInterrupt):
        with pytest.raises(error), ledger.session() as session:
            session.get_one(StudyRow, "s1").name = "changed"
            session.flush()
            raise error
    with ledger.reading() as session:
        assert session.get_one(StudyRow, "s1").name == "test"
    ledger.set_state("s1", "ended", "works again")


def test_checks_and_attempt_are_one_transaction(ledger: Ledger) -> None:
    cell, _ = add_study(ledger)
    e = evidence(cell)
    with pytest.raises(LedgerError):
        ledger.add_attempt(e, "valid", [], [check(e.attempt_id, study_id="no such study")], None)
    assert attempts(ledger) == 0
    ledger.add_attempt(e, "valid", [], [check(e.attempt_id)], None)


def test_conclusions_are_replaced_and_attempts_checks_stay(ledger: Ledger) -> None:
    cell, _ = add_study(ledger)
    write(ledger, cell, 1)
    for _ in range(2):
        on_cell = check(cell, rule="A5")
        on_cell.scope = "cell"
        comparison = ComparisonRow(
            study_id="s1", workload_id="w0", a="x", b="y", metric="bandwidth", n=5, decision="faster", reason=""
        )  # fmt: skip
        ledger.replace_conclusions("s1", [comparison], [on_cell])
    with ledger.reading() as session:
        assert session.scalar(select(func.count()).select_from(CheckRow)) == 2
        assert session.scalar(select(func.count()).select_from(ComparisonRow)) == 1


def test_the_log_is_numbered_without_gaps(ledger: Ledger) -> None:
    add_study(ledger)
    for i in range(5):
        ledger.add_event("s1", "k", {"i": i})
    assert [(e.sequence, e.data["i"]) for e in ledger.events("s1")] == [(i + 1, i) for i in range(5)]


def test_a_block_is_written_once_and_never_in_another_order(ledger: Ledger) -> None:
    add_study(ledger)
    for _ in range(2):
        ledger.add_block("s1", 1, "pilot", ["b", "a"])
    with pytest.raises(LedgerError, match="another order"):
        ledger.add_block("s1", 1, "pilot", ["a", "b"])
    assert count_studies(ledger)[0].blocks == 1


def test_studies_are_found_by_id_beginning_or_name(ledger: Ledger) -> None:
    add_study(ledger, "abcd11", name="nas")
    add_study(ledger, "abcd22", name="nas")
    found = {key: row.id if (row := ledger.find_study(key)) else None for key in
             ("abcd11", "abcd1", "abcd", "abc", "nas", "", "%", "____", "zzzz")}  # fmt: skip
    assert found == {"abcd11": "abcd11", "abcd1": "abcd11", "abcd": None, "abc": None, "nas": "abcd22", "": None,
                     "%": None, "____": None, "zzzz": None}  # fmt: skip


def test_a_reader_neither_waits_for_a_writer_nor_makes_one_wait(ledger: Ledger) -> None:
    cell, _ = add_study(ledger)
    write(ledger, cell, 1)
    count = select(func.count()).select_from(AttemptRow)
    with ledger.reading() as session:
        assert session.scalar(count) == 1
        writer = threading.Thread(target=write, args=(ledger, cell, 2))
        writer.start()
        writer.join(10)
        assert not writer.is_alive(), "an open reader blocks a writer"
        assert session.scalar(count) == 1, "a transaction sees one state of the ledger"
    assert attempts(ledger) == 2
    with ledger.session() as session:
        session.get_one(StudyRow, "s1").name = "half done"
        session.flush()
        started = time.monotonic()
        assert load_study(ledger, "s1").study.name == "test", "what is not committed is not seen"
        assert time.monotonic() - started < 5


def _writer(url: str, study_id: str, gate: str, n: int, results: multiprocessing.Queue[str]) -> None:
    try:
        while not os.path.exists(gate):  # noqa: PTH110
            time.sleep(0.001)
        with Ledger(url) as ledger:  # both may have to create it
            (cell,) = add_study(ledger, study_id, cells=1)
            for block in range(1, n + 1):
                write(ledger, cell, block, study_id=study_id)
                ledger.add_event(study_id, "attempt", {"block": block})
        results.put("")
    except BaseException as error:  # noqa: BLE001
        results.put(f"{type(error).__name__}: {error}")


def test_two_processes_write_at_once_and_nothing_is_lost(url: str, tmp_path: object) -> None:
    n = 100
    context = multiprocessing.get_context("spawn")
    results: multiprocessing.Queue[str] = context.Queue()  # type: ignore[assignment]
    gate = f"{tmp_path}/go"
    writers = [context.Process(target=_writer, args=(url, s, gate, n, results)) for s in ("one", "two")]
    for w in writers:
        w.start()
    time.sleep(1.5)  # until both have imported everything
    open(gate, "w").close()  # noqa: PTH123
    ends = [results.get(timeout=120) for _ in writers]
    for w in writers:
        w.join(10)
    assert ends == ["", ""]
    with Ledger(url) as ledger:
        assert attempts(ledger) == 2 * n
        for study in ("one", "two"):
            data = load_study(ledger, study)
            assert data.attempts["block"].to_list() == list(range(1, n + 1))
            assert all(data.samples(f"{study}c0-{b}-1") == samples(b) for b in (1, n))
            assert [e.sequence for e in ledger.events(study)] == list(range(1, n + 1))
            overlap = data.attempts["started_at"].to_list()
            assert overlap == sorted(overlap)
        one, two = (load_study(ledger, s).attempts["started_at"] for s in ("one", "two"))
        assert max(one.min(), two.min()) < min(one.max(), two.max()), "they did not write at the same time"  # type: ignore[type-var, operator]


def test_evidence_of_a_later_assay_is_not_misread() -> None:
    with pytest.raises(ValueError, match="extra"):
        AttemptEvidence.model_validate({**evidence("c").model_dump(), "unheard_of": 1})
