"""One portable file per study: rows, raw samples, artefacts and their checksums in a zip archive.

Layout: ``manifest.json`` (format, version, study id, SHA-256 of every member), ``rows.json`` (table -> rows) and
``files/…`` as in the ledger's file store.
"""

from __future__ import annotations

import gzip
import hashlib
import io
import json
import os
import re
import tempfile
import zipfile
import zlib
from pathlib import Path
from typing import Any

from sqlalchemy import inspect as sa_inspect
from sqlalchemy import select

import assay
from assay.ledger.files import write_atomically
from assay.ledger.migrate import HEAD
from assay.ledger.schema import (
    AttemptRow,
    Base,
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
from assay.ledger.store import Ledger

FORMAT = "assay-bundle"
VERSION = 1
#: Columns that bundles of an earlier schema lack, by schema and table; they had nothing to say in them.
_LACKING: dict[str, dict[str, list[str]]] = {HEAD: {}, "0001": {"lab": ["baselines"]}}
_MEMBER = re.compile(r"files/([0-9a-f]{2})/([0-9a-f]{64})\.(parquet|gz)")
_TABLES: tuple[type[Base], ...] = (  # parents before children
    StudyRow, LabRow, HostRow, CandidateRow, WorkloadRow, CellRow, BlockRow, AttemptRow, CheckRow, ComparisonRow, EventRow,
)  # fmt: skip


class BundleError(Exception):
    """A file that is no bundle, is damaged, or clashes with the ledger; the message is one clear line."""


def write_bundle(ledger: Ledger, study_id: str, target: Path) -> int:
    """Write a study to ``target`` (complete or not at all); returns its size in bytes. Raises OSError, LedgerError, and
    BundleError when there is no such study."""
    rows: dict[str, list[dict[str, Any]]] = {}
    with ledger.reading() as session:
        for table in _TABLES:
            if table is StudyRow:
                where = StudyRow.id == study_id
            elif table is HostRow:
                where = HostRow.lab_id.in_(select(LabRow.id).where(LabRow.study_id == study_id))
            else:
                where = table.study_id == study_id  # type: ignore[attr-defined]
            rows[table.__tablename__] = [_as_dict(row) for row in session.scalars(select(table).where(where))]
    if not rows[StudyRow.__tablename__]:
        raise BundleError(f"there is no study {study_id} in the ledger; nothing was exported")
    members = {"rows.json": json.dumps(rows).encode()}
    for attempt in rows[AttemptRow.__tablename__]:
        hashes = [(attempt["samples_hash"], ".parquet")] if attempt["samples_hash"] else []
        hashes += [(h, ".gz") for h in attempt["evidence"].get("artefacts", {}).values()]
        for content_hash, suffix in hashes:
            path = ledger.files.path(content_hash, suffix)
            if path.exists():
                members[f"files/{content_hash[:2]}/{path.name}"] = path.read_bytes()
    manifest = {
        "format": FORMAT,
        "version": VERSION,
        "schema": HEAD,
        "assay": assay.__version__,
        "study": study_id,
        "sha256": {name: hashlib.sha256(content).hexdigest() for name, content in members.items()},
    }
    target.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=target.parent, prefix=".part-")
    os.close(handle)
    try:
        with zipfile.ZipFile(temporary, "w", zipfile.ZIP_DEFLATED, compresslevel=6) as archive:
            archive.writestr("manifest.json", json.dumps(manifest, indent=1))
            for name, content in members.items():
                # Parquet and gzip are compressed already
                how = zipfile.ZIP_STORED if name.startswith("files/") else zipfile.ZIP_DEFLATED
                archive.writestr(name, content, compress_type=how)
        Path(temporary).chmod(0o644)
        Path(temporary).replace(target)
    finally:
        Path(temporary).unlink(missing_ok=True)
    return target.stat().st_size


def read_bundle(ledger: Ledger, source: Path) -> str:
    """Take a bundle into the ledger; returns the study's id. Raises BundleError, LedgerError, OSError.

    Everything is proven before anything is written: a bundle may come from anybody.
    """
    study_id, members, rows = _open(source)
    with ledger.reading() as session:
        if session.get(StudyRow, study_id) is not None:
            raise BundleError(f"study {study_id} is in the ledger already; nothing was imported")
    for name, content in members.items():
        if name.startswith("files/"):
            path = ledger.files.root / name.removeprefix("files/")
            if not path.exists():
                write_atomically(path, content)
    with ledger.session() as session:
        for table, found in rows.items():
            session.add_all(table(**row) for row in found)
            session.flush()
    return study_id


def _open(source: Path) -> tuple[str, dict[str, bytes], dict[type[Base], list[dict[str, Any]]]]:
    """Study id, members and rows of a bundle that is proven to be whole. Raises BundleError, OSError."""
    content_of_file = (
        source.read_bytes()
    )  # a file that cannot be read is an OSError; from here on every error is the bundle's
    try:
        with zipfile.ZipFile(io.BytesIO(content_of_file)) as archive:
            manifest = json.loads(archive.read("manifest.json"))
            known = manifest.get("schema") in _LACKING
            if manifest.get("format") != FORMAT or manifest.get("version") != VERSION or not known:
                raise BundleError(
                    f"{source} is bundle format {manifest.get('version')} with schema {manifest.get('schema')}; this Assay "
                    f"reads format {VERSION} with schema {' or '.join(sorted(_LACKING))}"
                )
            members = {name: archive.read(name) for name in manifest["sha256"]}
        for name, content in members.items():
            if hashlib.sha256(content).hexdigest() != manifest["sha256"][name]:
                raise BundleError(f"{source} is damaged: {name} does not match its checksum")
            _prove_member(source, name, content)
        study_id, tables = str(manifest["study"]), json.loads(members["rows.json"])
        rows = {table: list(tables[table.__tablename__]) for table in _TABLES}
        for table, columns in _LACKING[manifest["schema"]].items():
            for row in tables[table]:
                row |= dict.fromkeys(columns)
        labs = {row["id"] for row in rows[LabRow]}
        for table, found in rows.items():
            columns = {column.key for column in sa_inspect(table).column_attrs}
            for row in found:
                owner = row["lab_id"] in labs if table is HostRow else row[_owner(table)] == study_id
                if set(row) != columns or not owner:
                    raise BundleError(f"{source} is damaged: a row of table {table.__tablename__} is not this study's")
        if len(rows[StudyRow]) != 1:
            raise BundleError(f"{source} is damaged: it holds {len(rows[StudyRow])} studies")
    # what reading and decoding of any bytes can raise; RuntimeError: encrypted, NotImplementedError: unknown compression
    except (
        zipfile.BadZipFile, zlib.error, KeyError, ValueError, TypeError, AttributeError, EOFError, RuntimeError,
    ) as error:  # fmt: skip
        raise BundleError(f"{source} is not a complete assay bundle: {error}") from None
    return study_id, members, rows


def _prove_member(source: Path, name: str, content: bytes) -> None:
    """A file is what its name says, or it would take the place of another study's file. Raises BundleError."""
    if name == "rows.json":
        return
    match = _MEMBER.fullmatch(name)
    if match is None:
        raise BundleError(f"{source} is damaged: {name!r} is no member of a bundle")
    try:
        proven = hashlib.sha256(gzip.decompress(content) if match[3] == "gz" else content).hexdigest()
    except (OSError, EOFError, zlib.error):
        proven = ""
    if proven != match[2] or match[1] != match[2][:2]:
        raise BundleError(f"{source} is damaged: {name} is not what its name says")


def _owner(table: type[Base]) -> str:
    return "id" if table is StudyRow else "study_id"


def _as_dict(row: Base) -> dict[str, Any]:
    return {column.key: getattr(row, column.key) for column in sa_inspect(type(row)).column_attrs}
