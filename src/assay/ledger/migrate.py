"""Bringing a ledger to the current schema."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Connection, Engine, inspect, text

HEAD = "0002"  # the newest revision in migrations/versions; a test compares the two


class LedgerError(Exception):
    """The ledger cannot be opened, read or written; the message is one clear line."""


def current_revision(connection: Connection) -> str | None:
    """Revision of the database, or None when it is empty."""
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def migrate(engine: Engine) -> None:
    """Create or upgrade all tables in one transaction. Raises LedgerError when the ledger is newer than this Assay."""
    with engine.connect() as connection:
        revision = current_revision(connection)
    if revision == HEAD:
        return
    if revision is not None and revision > HEAD:
        raise LedgerError(
            f"the ledger was written by a newer Assay (schema {revision}, this one knows {HEAD}); upgrade Assay"
        )
    # imported late: alembic costs a quarter of a second that a current ledger need not pay
    from alembic import command
    from alembic.config import Config
    from alembic.util import CommandError

    config = Config()
    config.set_main_option("script_location", str(Path(__file__).parent / "migrations"))
    with engine.begin() as connection:
        if connection.dialect.name == "postgresql":
            connection.execute(text("SELECT pg_advisory_xact_lock(7265642)"))
        if current_revision(connection) == HEAD:  # another process was faster
            return
        config.attributes["connection"] = connection
        try:
            command.upgrade(config, "head")
        except CommandError:
            raise LedgerError(
                f"the ledger has schema {revision}, which no Assay has written (this one knows {HEAD}); give another file"
            ) from None
