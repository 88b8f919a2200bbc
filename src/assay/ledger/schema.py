"""The ledger's tables: one for each word of docs/architecture.md that is kept.

Only types and features that SQLite and PostgreSQL share. All times are Unix seconds (float), all sizes bytes.
"""

from __future__ import annotations

from typing import Any, ClassVar

from sqlalchemy import (
    JSON,
    BigInteger,
    Float,
    ForeignKey,
    Index,
    Integer,
    MetaData,
    String,
    Text,
    UniqueConstraint,
)
from sqlalchemy.orm import DeclarativeBase, Mapped, mapped_column

_NAMING = {
    "ix": "ix_%(table_name)s_%(column_0_N_name)s",
    "uq": "uq_%(table_name)s_%(column_0_N_name)s",
    "fk": "fk_%(table_name)s_%(column_0_N_name)s_%(referred_table_name)s",
    "pk": "pk_%(table_name)s",
}


class Base(DeclarativeBase):
    """Declarative base with stable constraint names, which migrations need."""

    metadata = MetaData(naming_convention=_NAMING)
    type_annotation_map: ClassVar = {
        dict[str, Any]: JSON,
        list[Any]: JSON,
        str: Text,
        float: Float(53),
        int: BigInteger,
    }


class StudyRow(Base):
    """A declared experiment; ``declaration`` is the validated study, ``text`` what the user wrote."""

    __tablename__ = "study"
    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    name: Mapped[str] = mapped_column(String(80), index=True)
    declaration_hash: Mapped[str] = mapped_column(String(64), index=True)
    declaration: Mapped[dict[str, Any]]
    text: Mapped[str]
    seed: Mapped[int]
    scale: Mapped[float]
    assay_version: Mapped[str] = mapped_column(String(40))
    created_at: Mapped[float]
    state: Mapped[str] = mapped_column(String(16))  # running | interrupted | ended
    ended_at: Mapped[float | None]
    outcome: Mapped[str | None]  # why it ended, in words


class LabRow(Base):
    """The hosts, disks and network of a study."""

    __tablename__ = "lab"
    id: Mapped[str] = mapped_column(String(40), primary_key=True)
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"), index=True)
    kind: Mapped[str] = mapped_column(String(16))
    shape: Mapped[dict[str, Any]]
    baselines: Mapped[dict[str, Any] | None]  # model.baseline.Baselines; None: not measured


class HostRow(Base):
    """One host of a lab, its roles and facts."""

    __tablename__ = "host"
    lab_id: Mapped[str] = mapped_column(ForeignKey("lab.id", ondelete="CASCADE"), primary_key=True)
    name: Mapped[str] = mapped_column(String(120), primary_key=True)
    roles: Mapped[list[Any]]
    facts: Mapped[dict[str, Any]]


class CandidateRow(Base):
    """System + version + layout + tuning on a lab; ``role`` is subject, twin (of the A/A pair), null or floor."""

    __tablename__ = "candidate"
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"), primary_key=True)
    label: Mapped[str] = mapped_column(String(120), primary_key=True)
    system: Mapped[str] = mapped_column(String(200))
    role: Mapped[str] = mapped_column(String(16))
    twin_of: Mapped[str | None] = mapped_column(String(120))
    position: Mapped[int] = mapped_column(Integer)
    tuning: Mapped[dict[str, Any]]
    facts: Mapped[dict[str, Any]]


class WorkloadRow(Base):
    """One workload point."""

    __tablename__ = "workload"
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"), primary_key=True)
    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    name: Mapped[str] = mapped_column(String(200))
    kind: Mapped[str] = mapped_column(String(16))
    position: Mapped[int] = mapped_column(Integer)
    point: Mapped[dict[str, Any]]


class CellRow(Base):
    """Candidate x workload point. ``closure`` is all that its result depends on, ``closure_hash`` its SHA-256."""

    __tablename__ = "cell"
    id: Mapped[str] = mapped_column(String(16), primary_key=True)
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"), index=True)
    candidate: Mapped[str] = mapped_column(String(120))
    workload_id: Mapped[str] = mapped_column(String(16))
    closure: Mapped[dict[str, Any]]
    closure_hash: Mapped[str] = mapped_column(String(64))
    not_applicable: Mapped[str | None]  # the capability that is missing, in words
    __table_args__ = (UniqueConstraint("study_id", "candidate", "workload_id"),)


class BlockRow(Base):
    """One round over the cells; ``cells`` is the randomised order that was planned."""

    __tablename__ = "block"
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"), primary_key=True)
    number: Mapped[int] = mapped_column(Integer, primary_key=True)
    stage: Mapped[str] = mapped_column(String(8))  # pilot | main
    cells: Mapped[list[Any]]
    started_at: Mapped[float]


class AttemptRow(Base):
    """One execution of a cell in one block. Never updated, never deleted.

    The figures are columns so that tables and charts need not parse JSON; ``evidence`` is the whole AttemptEvidence.
    """

    __tablename__ = "attempt"
    id: Mapped[str] = mapped_column(String(32), primary_key=True)
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"))
    cell_id: Mapped[str] = mapped_column(ForeignKey("cell.id", ondelete="CASCADE"))
    block: Mapped[int] = mapped_column(Integer)
    try_number: Mapped[int] = mapped_column(Integer)
    status: Mapped[str] = mapped_column(String(16))
    verdict: Mapped[str] = mapped_column(String(8))
    broken_rules: Mapped[list[Any]]  # ids of the rules that made it invalid or unknown
    started_at: Mapped[float]
    ended_at: Mapped[float]
    bandwidth: Mapped[float | None]  # bytes/s
    iops: Mapped[float | None]
    latency_mean: Mapped[float | None]  # seconds
    latency_p50: Mapped[float | None]
    latency_p95: Mapped[float | None]
    latency_p99: Mapped[float | None]
    evidence: Mapped[dict[str, Any]]
    samples_hash: Mapped[str | None] = mapped_column(String(64))  # Parquet file beside the ledger
    __table_args__ = (
        UniqueConstraint("cell_id", "block", "try_number"),
        Index("ix_attempt_study_id_status_verdict", "study_id", "status", "verdict"),
    )


class CheckRow(Base):
    """One rule's verdict on an attempt (``subject`` = attempt id), a cell (cell id) or the study (study id)."""

    __tablename__ = "check_verdict"
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"), primary_key=True)
    subject: Mapped[str] = mapped_column(String(32), primary_key=True)
    rule: Mapped[str] = mapped_column(String(4), primary_key=True)
    scope: Mapped[str] = mapped_column(String(8))  # attempt | cell | study
    verdict: Mapped[str] = mapped_column(String(8))
    message: Mapped[str]
    evidence: Mapped[dict[str, Any]]


class ComparisonRow(Base):
    """A statement about two candidates on one workload point."""

    __tablename__ = "comparison"
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"), primary_key=True)
    workload_id: Mapped[str] = mapped_column(String(16), primary_key=True)
    a: Mapped[str] = mapped_column(String(120), primary_key=True)
    b: Mapped[str] = mapped_column(String(120), primary_key=True)
    metric: Mapped[str] = mapped_column(String(16), primary_key=True)
    ratio: Mapped[float | None]
    low: Mapped[float | None]
    high: Mapped[float | None]  # None: infinite
    n: Mapped[int] = mapped_column(Integer)
    p_value: Mapped[float | None]
    p_adjusted: Mapped[float | None]
    decision: Mapped[str] = mapped_column(String(12))
    reason: Mapped[str]


class EventRow(Base):
    """The campaign's log: every event and instruction in order; replaying it gives the same campaign."""

    __tablename__ = "event"
    study_id: Mapped[str] = mapped_column(ForeignKey("study.id", ondelete="CASCADE"), primary_key=True)
    sequence: Mapped[int] = mapped_column(Integer, primary_key=True)
    at: Mapped[float]
    kind: Mapped[str] = mapped_column(String(32))
    data: Mapped[dict[str, Any]]
