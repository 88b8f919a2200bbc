"""Models and migrations say the same, and a ledger of another schema is refused with one clear line."""

from __future__ import annotations

import sqlite3
from pathlib import Path

import pytest
from alembic import command
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import create_engine, text

import assay.ledger.migrate
from assay.ledger.migrate import HEAD, LedgerError, current_revision
from assay.ledger.queries import load_study
from assay.ledger.schema import Base
from assay.ledger.store import Ledger


def test_head_is_the_newest_revision_and_the_only_one() -> None:
    config = Config()
    config.set_main_option("script_location", str(Path(assay.ledger.migrate.__file__).parent / "migrations"))
    assert ScriptDirectory.from_config(config).get_heads() == [HEAD]


def test_models_equal_migrations(ledger: Ledger) -> None:
    with ledger.engine.connect() as connection:
        assert current_revision(connection) == HEAD
        context = MigrationContext.configure(connection, opts={"compare_type": True, "compare_server_default": True})
        assert compare_metadata(context, Base.metadata) == []


def test_the_comparison_would_see_a_difference(ledger: Ledger) -> None:
    with ledger.engine.begin() as connection:
        connection.execute(text("ALTER TABLE study ADD COLUMN planted INTEGER"))
        connection.execute(text("DROP INDEX ix_attempt_study_id_status_verdict"))
    with ledger.engine.connect() as connection:
        found = str(compare_metadata(MigrationContext.configure(connection), Base.metadata))
    assert "planted" in found
    assert "ix_attempt_study_id_status_verdict" in found


def test_a_ledger_of_the_first_schema_is_upgraded_with_all_it_holds(url: str) -> None:
    engine = create_engine(url)
    config = Config()
    config.set_main_option("script_location", str(Path(assay.ledger.migrate.__file__).parent / "migrations"))
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.upgrade(config, "0001")
        connection.execute(
            text(
                "INSERT INTO study (id, name, declaration_hash, declaration, text, seed, scale, assay_version, created_at, "
                "state) VALUES ('s', 'old', 'h', '{}', '', 1, 1.0, '0', 1.0, 'ended')"
            )
        )
        connection.execute(text("INSERT INTO lab (id, study_id, kind, shape) VALUES ('s', 's', 'local', '{\"a\": 1}')"))
    engine.dispose()
    with Ledger(url) as ledger:
        with ledger.engine.connect() as connection:
            assert current_revision(connection) == HEAD
        data = load_study(ledger, "s")
        assert (data.study.name, data.lab.shape, data.baselines) == ("old", {"a": 1}, None)


def test_opening_again_changes_nothing(url: str) -> None:
    for _ in range(2):
        with Ledger(url) as ledger, ledger.engine.connect() as connection:
            assert current_revision(connection) == HEAD


@pytest.mark.parametrize(("revision", "words"), [("9999", "newer Assay"), ("0000", "no Assay has written")])
def test_another_schema_is_refused_and_left_alone(url: str, revision: str, words: str) -> None:
    with Ledger(url) as ledger, ledger.engine.begin() as connection:
        connection.execute(text("UPDATE alembic_version SET version_num = :v"), {"v": revision})
    for _ in range(2):
        with pytest.raises(LedgerError, match=words) as caught:
            Ledger(url)
        assert "\n" not in str(caught.value)
        assert revision in str(caught.value)
        assert HEAD in str(caught.value)
    engine = create_engine(url)
    with engine.connect() as connection:
        assert current_revision(connection) == revision
    engine.dispose()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda p: p.write_bytes(b"this is no database, " * 100), "not a database"),
        (lambda p: p.mkdir(), "unable to open|directory"),
        (lambda p: sqlite3.connect(p).executescript("CREATE TABLE study (x)").close(), "already exists"),
    ],
    ids=["text", "directory", "foreign tables"],
)
def test_a_file_that_is_no_ledger(tmp_path: Path, make: object, words: str) -> None:
    file = tmp_path / "thing.db"
    make(file)  # type: ignore[operator]
    before = file.read_bytes() if file.is_file() else None
    with pytest.raises(LedgerError, match=words) as caught:
        Ledger(str(file))
    assert "\n" not in str(caught.value)
    if before is not None and before.startswith(b"this"):
        assert file.read_bytes() == before
    elif before is not None:
        tables = sqlite3.connect(file).execute("SELECT name FROM sqlite_master WHERE type='table'").fetchall()
        assert tables == [("study",)], "a migration that fails leaves nothing"


@pytest.mark.parametrize(
    ("bad", "words"),
    [
        ("sqlite://", "in memory"),
        ("sqlite:///:memory:", "in memory"),
        ("mysterysql://secret:word@host/db", "sqlite:///"),
        ("postgresql+nodriver://user:word@host/db", "sqlite:///"),
        ("postgresql+psycopg://user:word@127.0.0.1:1/db", "refused"),
        ("://", "sqlite:///"),
    ],
)
def test_bad_urls_give_one_line_without_the_password(bad: str, words: str) -> None:
    with pytest.raises(LedgerError, match=words) as caught:
        Ledger(bad)
    assert "\n" not in str(caught.value)
    assert "word@" not in str(caught.value)


def test_a_directory_that_cannot_be_made(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(LedgerError, match="file"):
        Ledger(str(tmp_path / "file" / "below" / "ledger.db"))
