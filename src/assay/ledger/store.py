"""Opening the ledger and writing to it: one transaction per attempt, nothing ever updated but a study's state."""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from sqlalchemy import Engine, create_engine, delete, event, func, make_url, select
from sqlalchemy.exc import ArgumentError, DBAPIError, NoSuchModuleError
from sqlalchemy.orm import Session

from assay.ledger.files import FileStore, data_directory
from assay.ledger.migrate import LedgerError, migrate
from assay.ledger.schema import (
    AttemptRow,
    BlockRow,
    CandidateRow,
    CellRow,
    CheckRow,
    ComparisonRow,
    EventRow,
    HostRow,
    LabRow,
    StudyRow,
    WorkloadRow,
)
from assay.model.evidence import AttemptEvidence, Samples

BUSY_SECONDS = 30.0  # how long a writer waits for another before it gives up


def default_url() -> str:
    """``$ASSAY_LEDGER`` or the SQLite file in the data directory."""
    return os.environ.get("ASSAY_LEDGER") or f"sqlite:///{data_directory() / 'ledger.db'}"


class Ledger:
    """One open ledger. Use as a context manager, or call :meth:`close`."""

    def __init__(self, url: str | None = None) -> None:
        """Open and, where needed, create or upgrade. Raises LedgerError."""
        self.url = url or default_url()
        if "://" not in self.url:
            self.url = f"sqlite:///{Path(self.url).absolute()}"
        try:
            parsed = make_url(self.url)
            if parsed.get_backend_name() == "sqlite":
                if not parsed.database or parsed.database == ":memory:":
                    raise LedgerError(
                        "a ledger in memory would be lost; give a file, for example sqlite:////tmp/ledger.db"
                    )
                database = Path(parsed.database)
                database.parent.mkdir(parents=True, exist_ok=True)
                self.files = FileStore(database.parent / f"{database.stem}.files")
            else:
                self.files = FileStore(data_directory() / "files")
            self.engine = _engine(self.url)
            self._writer = self.engine.execution_options(assay_writes=True)
            # several queries, one view: SQLite's transactions are like that, PostgreSQL's only when asked
            postgresql = parsed.get_backend_name() == "postgresql"
            self._reader = (
                self.engine.execution_options(isolation_level="REPEATABLE READ") if postgresql else self.engine
            )
            with _one_at_a_time(self.files.root):
                migrate(self.engine)
        except (ArgumentError, NoSuchModuleError, ModuleNotFoundError) as error:
            # no password in messages: the URL is shown only when it can be taken apart
            shown = "URL" if isinstance(error, ArgumentError) else self._shown_url
            raise LedgerError(f"ledger {shown}: {error}; write for example sqlite:////path/ledger.db") from None
        except (DBAPIError, OSError) as error:
            raise LedgerError(f"ledger {self._shown_url}: {_first_line(error)}") from None

    @property
    def _shown_url(self) -> str:
        return make_url(self.url).render_as_string(hide_password=True)

    def __enter__(self) -> Ledger:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close all connections."""
        self.engine.dispose()

    @contextmanager
    def session(self) -> Iterator[Session]:
        """One writing transaction: committed at the end, rolled back on any exception. Raises LedgerError."""
        with self._session(self._writer) as session:
            yield session
            session.commit()

    @contextmanager
    def reading(self) -> Iterator[Session]:
        """One reading transaction, a consistent view that never blocks a writer. Raises LedgerError."""
        with self._session(self._reader) as session:
            yield session

    @contextmanager
    def _session(self, engine: Engine) -> Iterator[Session]:
        with Session(engine, expire_on_commit=False) as session:
            try:
                yield session
            except DBAPIError as error:
                session.rollback()
                raise LedgerError(f"ledger {self._shown_url}: {_first_line(error)}") from error

    # --- studies ---------------------------------------------------------------------------------------------

    def add_study(
        self,
        study: StudyRow,
        lab: LabRow,
        hosts: Sequence[HostRow],
        candidates: Sequence[CandidateRow],
        workloads: Sequence[WorkloadRow],
        cells: Sequence[CellRow],
    ) -> None:
        """Write a new study and its plan in one transaction."""
        with self.session() as session:
            for rows in ([study], [lab], hosts, candidates, workloads, cells):
                session.add_all(rows)
                session.flush()

    def find_study(self, key: str) -> StudyRow | None:
        """The study of that id (or unique beginning of at least 4 characters), else the newest of that name."""
        with self.reading() as session:
            if row := session.get(StudyRow, key):
                return row
            named = session.scalars(
                select(StudyRow).where(StudyRow.name == key).order_by(StudyRow.created_at.desc()).limit(1)
            ).first()
            if named is not None or len(key) < 4:
                return named
            matches = session.scalars(
                select(StudyRow).where(StudyRow.id.startswith(key, autoescape=True)).limit(2)
            ).all()
            return matches[0] if len(matches) == 1 else None

    def find_declared(self, declaration_hash: str) -> StudyRow | None:
        """The newest study with that declaration."""
        with self.reading() as session:
            return session.scalars(
                select(StudyRow)
                .where(StudyRow.declaration_hash == declaration_hash)
                .order_by(StudyRow.created_at.desc())
                .limit(1)
            ).first()

    def studies(self) -> list[StudyRow]:
        """All studies, newest first."""
        with self.reading() as session:
            return list(session.scalars(select(StudyRow).order_by(StudyRow.created_at.desc())))

    def set_state(self, study_id: str, state: str, outcome: str | None = None) -> None:
        """Change a study's state (running, interrupted, ended); ``ended`` stamps the time."""
        with self.session() as session:
            row = session.get_one(StudyRow, study_id)
            row.state, row.outcome = state, outcome
            row.ended_at = time.time() if state == "ended" else None

    # --- while it runs ---------------------------------------------------------------------------------------

    def add_block(self, study_id: str, number: int, stage: str, cells: Sequence[str]) -> None:
        """Write the planned order of a block; no error when the very same block is there already (resume)."""
        with self.session() as session:
            known = session.get(BlockRow, (study_id, number))
            if known is None:
                session.add(
                    BlockRow(
                        study_id=study_id,
                        number=number,
                        stage=stage,
                        cells=list(cells),
                        started_at=time.time(),
                    )
                )
            elif known.cells != list(cells):
                raise LedgerError(
                    f"block {number} of study {study_id} was planned in another order; this is a defect of Assay"
                )

    def add_attempt(
        self,
        evidence: AttemptEvidence,
        verdict: str,
        broken: Sequence[str],
        checks: Iterable[CheckRow],
        samples: Samples | None,
    ) -> None:
        """Write one ended attempt with its checks and samples: files first, then one transaction. Raises LedgerError."""
        try:
            samples_hash = self.files.put_samples(samples) if samples and samples.clients else None
        except OSError as error:
            raise LedgerError(f"cannot keep samples in {self.files.root}: {error.strerror or error}") from error
        summary = evidence.summary
        figures: dict[str, float | None] = {}
        if summary is not None and summary.directions:
            figures = {
                "bandwidth": summary.bandwidth,
                "iops": summary.iops,
                "latency_mean": summary.latency_mean,
                "latency_p50": summary.percentile("50"),
                "latency_p95": summary.percentile("95"),
                "latency_p99": summary.percentile("99"),
            }
        row = AttemptRow(
            id=evidence.attempt_id,
            study_id=evidence.study_id,
            cell_id=evidence.cell_id,
            block=evidence.block,
            try_number=evidence.try_number,
            status=evidence.status.value,
            verdict=verdict,
            broken_rules=list(broken),
            started_at=evidence.started_at,
            ended_at=evidence.ended_at,
            evidence=evidence.model_dump(mode="json"),
            samples_hash=samples_hash,
            **{k: (v if v is not None and v == v else None) for k, v in figures.items()},
        )
        with self.session() as session:
            session.add(row)
            session.flush()
            session.add_all(checks)

    def replace_conclusions(
        self, study_id: str, comparisons: Sequence[ComparisonRow], checks: Sequence[CheckRow]
    ) -> None:
        """Replace what is derived from attempts: comparisons and the verdicts on cells and study."""
        with self.session() as session:
            session.execute(delete(ComparisonRow).where(ComparisonRow.study_id == study_id))
            session.execute(delete(CheckRow).where(CheckRow.study_id == study_id, CheckRow.scope != "attempt"))
            session.add_all([*comparisons, *checks])

    def replace_checks(self, checks: Sequence[CheckRow]) -> None:
        """Write verdicts, each in the place of an earlier one of the same rule on the same subject."""
        with self.session() as session:
            for check in checks:
                session.merge(check)

    def add_event(self, study_id: str, kind: str, data: dict[str, Any]) -> None:
        """Append to the campaign's log. Only the holder of the study's lock may call this."""
        with self.session() as session:
            last = session.scalar(select(func.max(EventRow.sequence)).where(EventRow.study_id == study_id))
            session.add(EventRow(study_id=study_id, sequence=(last or 0) + 1, at=time.time(), kind=kind, data=data))

    def events(self, study_id: str) -> list[EventRow]:
        """The campaign's log in order."""
        with self.reading() as session:
            return list(
                session.scalars(select(EventRow).where(EventRow.study_id == study_id).order_by(EventRow.sequence))
            )


def _json(value: Any) -> str:
    """JSON for the ledger. A mean of nothing is NaN, which PostgreSQL refuses: it becomes the text that Pydantic reads
    as NaN again."""
    try:
        return json.dumps(value, allow_nan=False)
    except ValueError:
        return json.dumps(_finite(value), allow_nan=False)


def _finite(value: Any) -> Any:
    if isinstance(value, dict):
        return {k: _finite(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [_finite(v) for v in value]
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"
    return value


def _engine(url: str) -> Engine:
    if make_url(url).get_backend_name() != "sqlite":
        return create_engine(url, pool_pre_ping=True, json_serializer=_json)
    engine = create_engine(url, connect_args={"timeout": BUSY_SECONDS}, json_serializer=_json)

    @event.listens_for(engine, "connect")
    def _configure(connection: Any, _: Any) -> None:
        connection.isolation_level = None  # SQLAlchemy's documented way to take BEGIN out of sqlite3's hands
        connection.execute("PRAGMA foreign_keys=ON")
        connection.execute("PRAGMA journal_mode=WAL")
        connection.execute("PRAGMA synchronous=FULL")

    @event.listens_for(engine, "begin")
    def _begin(connection: Any) -> None:
        # a writer takes the lock at once: a reader that becomes a writer later cannot wait, it gets SQLITE_BUSY
        writes = connection.get_execution_options().get("assay_writes", False)
        connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")

    return engine


@contextmanager
def _one_at_a_time(root: Path) -> Iterator[None]:
    from filelock import FileLock, Timeout

    root.mkdir(parents=True, exist_ok=True)
    try:
        with FileLock(root / "migrate.lock", timeout=BUSY_SECONDS):
            yield
    except Timeout:
        raise LedgerError(f"another process has been opening the ledger for {BUSY_SECONDS:.0f} s ({root})") from None


def _first_line(error: BaseException) -> str:
    inner = getattr(error, "orig", None) or error
    return str(inner).strip().splitlines()[0] if str(inner).strip() else type(inner).__name__
