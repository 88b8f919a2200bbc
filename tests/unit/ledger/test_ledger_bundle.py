"""One file per study: it comes back row by row, and a bundle that is not whole changes nothing."""

from __future__ import annotations

import gzip
import hashlib
import json
import math
import os
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from ledger_rows import add_study, check, evidence, samples, write
from sqlalchemy import inspect, select

from assay.ledger.bundle import BundleError, read_bundle, write_bundle
from assay.ledger.queries import load_study
from assay.ledger.schema import Base, ComparisonRow
from assay.ledger.store import Ledger

Rows = dict[str, list[dict[str, Any]]]


def dump(ledger: Ledger) -> Rows:
    """Every row of every table."""
    found: Rows = {}
    with ledger.reading() as session:
        for mapper in Base.registry.mappers:
            rows = session.scalars(select(mapper.class_)).all()
            found[mapper.class_.__tablename__] = sorted(
                ({c.key: getattr(r, c.key) for c in inspect(mapper.class_).column_attrs} for r in rows), key=repr
            )
    return found


def fill(ledger: Ledger) -> None:
    cell, other = add_study(ledger)
    ledger.add_block("s1", 1, "pilot", [other, cell])
    for c in (cell, other):
        write(ledger, c, 1)
    e = evidence(cell, 2, latency=math.nan, error="ä\n\t\x1b")
    e = e.model_copy(update={"artefacts": {"job": ledger.files.put_artefact(b"[job]\nrw=read\n")}})
    ledger.add_attempt(e, "invalid", ["A1"], [check(e.attempt_id, x=math.inf)], samples(9))
    on_study = check("s1", rule="C1")
    on_study.scope = "study"
    comparison = ComparisonRow(study_id="s1", workload_id="w0", a="x", b="y", metric="iops", n=5, ratio=1.01,
                               low=0.1 + 0.2, high=None, decision="undecided", reason="")  # fmt: skip
    ledger.replace_conclusions("s1", [comparison], [on_study])
    ledger.add_event("s1", "begun", {"assay": "0"})
    ledger.set_state("s1", "ended", "done")


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    with Ledger(str(tmp_path / "origin" / "ledger.db")) as ledger:
        fill(ledger)
        add_study(ledger, "zz", name="another study that must stay at home")
        size = write_bundle(ledger, "s1", tmp_path / "s1.assay")
    assert size == (tmp_path / "s1.assay").stat().st_size > 0
    return tmp_path / "s1.assay"


def test_a_bundle_comes_back_row_by_row(bundle: Path, ledger: Ledger, tmp_path: Path) -> None:
    assert read_bundle(ledger, bundle) == "s1"
    with Ledger(str(tmp_path / "origin" / "ledger.db")) as origin:
        wanted = {
            table: [r for r in rows if r.get("study_id", r.get("lab_id", r.get("id"))) == "s1"]
            for table, rows in dump(origin).items()
        }
        got = dump(ledger)
        assert got == wanted
        assert all(got[t] for t in got), "a table without a row is not tested here"
        here, there = load_study(ledger, "s1"), load_study(origin, "s1")
        assert here.attempts.equals(there.attempts)
        for attempt in here.attempts["id"]:
            assert here.samples(attempt) == there.samples(attempt) is not None
            for content_hash in here.evidence(attempt).artefacts.values():
                assert here.artefact(content_hash) == there.artefact(content_hash) == b"[job]\nrw=read\n"


def test_a_second_import_is_refused_and_changes_nothing(bundle: Path, ledger: Ledger) -> None:
    read_bundle(ledger, bundle)
    before = dump(ledger)
    with pytest.raises(BundleError, match="s1 is in the ledger already"):
        read_bundle(ledger, bundle)
    assert dump(ledger) == before


def test_an_unknown_study_makes_no_file(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(BundleError, match="no study nothing"):
        write_bundle(ledger, "nothing", tmp_path / "x.assay")
    assert not (tmp_path / "x.assay").exists()


def test_an_export_that_fails_leaves_the_old_bundle(
    bundle: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    old = bundle.read_bytes()

    def fail(*_: object, **__: object) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(zipfile.ZipFile, "writestr", fail)
    with Ledger(str(tmp_path / "origin" / "ledger.db")) as ledger, pytest.raises(OSError, match="No space"):
        write_bundle(ledger, "s1", bundle)
    assert bundle.read_bytes() == old
    assert not list(tmp_path.glob(".part-*"))


# --- damaged and hostile bundles ----------------------------------------------------------------------------------


def rewrite(bundle: Path, change: Callable[[dict[str, bytes], dict[str, Any]], object], *, sign: bool = True) -> Path:
    """The bundle with its members changed, checksums made anew when ``sign``."""
    with zipfile.ZipFile(bundle) as archive:
        members = {n: archive.read(n) for n in archive.namelist()}
    manifest = json.loads(members.pop("manifest.json"))
    change(members, manifest)
    if sign and isinstance(manifest.get("sha256"), dict):
        manifest["sha256"] = {n: hashlib.sha256(c).hexdigest() for n, c in members.items()}
    target = bundle.with_name("changed.assay")
    with zipfile.ZipFile(target, "w") as archive:
        archive.writestr("manifest.json", json.dumps(manifest))
        for name, content in members.items():
            archive.writestr(name, content)
    return target


def edit(table: str, **values: object) -> Callable[[dict[str, bytes], dict[str, Any]], object]:
    def change(members: dict[str, bytes], _: dict[str, Any]) -> None:
        rows = json.loads(members["rows.json"])
        rows[table][0].update(values)
        members["rows.json"] = json.dumps(rows).encode()

    return change


def member(name: str, content: bytes = b"evil") -> Callable[[dict[str, bytes], dict[str, Any]], object]:
    return lambda members, _: members.update({name: content})


def swap_files(members: dict[str, bytes], _: dict[str, Any]) -> None:
    a, b = [n for n in members if n.endswith(".parquet")][:2]
    members[a], members[b] = members[b], members[a]


def test_a_bundle_of_the_first_schema_is_read(bundle: Path, tmp_path: Path) -> None:
    def change(members: dict[str, bytes], manifest: dict[str, Any]) -> None:
        rows = json.loads(members["rows.json"])
        del rows["lab"][0]["baselines"]
        members["rows.json"] = json.dumps(rows).encode()
        manifest["schema"] = "0001"

    with Ledger(str(tmp_path / "origin" / "ledger.db")) as origin, Ledger(str(tmp_path / "new" / "l.db")) as ledger:
        assert read_bundle(ledger, rewrite(bundle, change)) == "s1"
        assert load_study(ledger, "s1").baselines is None
        assert len(load_study(ledger, "s1").attempts) == len(load_study(origin, "s1").attempts)


HOSTILE: dict[str, tuple[Callable[[dict[str, bytes], dict[str, Any]], object], str]] = {
    "another format": (lambda _, m: m.update(format="x"), "reads format 1"),
    "a later version": (lambda _, m: m.update(version=99), "bundle format 99"),
    "a later schema": (lambda _, m: m.update(schema="9999"), "schema 9999"),
    "a schema that is no text": (lambda _, m: m.update(schema=["0001"]), "not a complete"),
    "no checksums": (lambda _, m: m.pop("sha256"), "not a complete"),
    "checksums as list": (lambda _, m: m.update(sha256=[]), "not a complete"),
    "no rows": (lambda members, _: members.pop("rows.json"), "not a complete"),
    "rows are a list": (member("rows.json", b"[]"), "not a complete"),
    "rows are no JSON": (member("rows.json", b"{"), "not a complete"),
    "a table is missing": (member("rows.json", b'{"study": []}'), "not a complete"),
    "unknown column": (edit("attempt", evil=1), "table attempt"),
    "row of another study": (edit("event", study_id="zz"), "table event"),
    "host of another lab": (edit("host", lab_id="zz"), "table host"),
    "study of another name": (lambda _, m: m.update(study="zz"), "not this study's"),
    "path upwards": (member("files/../../../evil"), "no member"),
    "absolute path": (member("/tmp/evil"), "no member"),
    "dots": (member("files/.."), "no member"),
    "unknown suffix": (member(f"files/aa/{'a' * 64}.py"), "no member"),
    "a file that is not its hash": (member(f"files/aa/{'a' * 64}.parquet"), "not what its name says"),
    "gzip that is none": (member(f"files/aa/{'a' * 64}.gz"), "not what its name says"),
    "gzip of something else": (member(f"files/aa/{'a' * 64}.gz", gzip.compress(b"x")), "not what its name says"),
    "two files exchanged": (swap_files, "not what its name says"),
}  # fmt: skip


def everything(directory: Path) -> list[str]:
    return sorted(
        str(p)
        for p in directory.rglob("*")
        if "migrate.lock" not in p.name and "-wal" not in p.name and "-shm" not in p.name
    )


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_bundles_are_refused_and_nothing_is_written(bundle: Path, tmp_path: Path, name: str) -> None:
    change, words = HOSTILE[name]
    changed = rewrite(bundle, change)
    with Ledger(str(tmp_path / "target" / "ledger.db")) as ledger:
        add_study(ledger, "zz")
        rows, files = dump(ledger), everything(tmp_path)
        with pytest.raises(BundleError, match=words) as caught:
            read_bundle(ledger, changed)
        assert "\n" not in str(caught.value)
        assert str(changed) in str(caught.value)
        assert dump(ledger) == rows
        assert everything(tmp_path) == files


def test_any_flipped_byte_is_noticed_or_harmless(bundle: Path, tmp_path: Path) -> None:
    content = bundle.read_bytes()
    with Ledger(str(tmp_path / "origin" / "ledger.db")) as origin:
        wanted = {t: [r for r in rows if "zz" not in repr(r)] for t, rows in dump(origin).items()}
    refused = 0
    for i in range(0, len(content), max(1, len(content) // 60)):
        damaged = bundle.with_name("damaged.assay")
        damaged.write_bytes(content[:i] + bytes([content[i] ^ 0x55]) + content[i + 1 :])
        with Ledger(str(tmp_path / f"t{i}" / "ledger.db")) as ledger:
            try:
                read_bundle(ledger, damaged)
            except BundleError as error:
                assert "\n" not in str(error)
                assert not any(dump(ledger).values())
                refused += 1
            else:
                assert dump(ledger) == wanted, f"byte {i}"
    assert refused > 30


@pytest.mark.parametrize("length", [0, 1, 100, -1])
def test_cut_off_bundles(bundle: Path, tmp_path: Path, length: int) -> None:
    cut = tmp_path / "cut.assay"
    cut.write_bytes(bundle.read_bytes()[:length])
    with Ledger(str(tmp_path / "t" / "ledger.db")) as ledger, pytest.raises(BundleError, match="not a complete"):
        read_bundle(ledger, cut)


def test_a_bundle_that_is_not_there(ledger: Ledger, tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        read_bundle(ledger, tmp_path / "nothing.assay")


def test_the_member_that_climbs_did_not_climb(bundle: Path, tmp_path: Path) -> None:
    changed = rewrite(bundle, member("files/../../climbed"))
    with Ledger(str(tmp_path / "target" / "ledger.db")) as ledger, pytest.raises(BundleError):
        read_bundle(ledger, changed)
    assert not [f for f in os.listdir(tmp_path) + os.listdir(tmp_path / "target") if "climbed" in f]  # noqa: PTH208
