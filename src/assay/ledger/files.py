"""Files beside the ledger, named by content hash: Parquet samples and artefacts.

A file is written to a temporary name, fsynced, then renamed: a name that exists is complete.
"""

from __future__ import annotations

import gzip
import hashlib
import os
import tempfile
from pathlib import Path
from typing import TYPE_CHECKING

from assay.model.evidence import ClientSamples, Histogram, Samples, Series

if TYPE_CHECKING:
    import polars as pl


def data_directory() -> Path:
    """Assay's data directory: ``$XDG_DATA_HOME/assay``, by default ``~/.local/share/assay``."""
    base = os.environ.get("XDG_DATA_HOME")
    return (Path(base) if base else Path.home() / ".local" / "share") / "assay"


def write_atomically(path: Path, content: bytes) -> None:
    """Write all of ``content`` under its final name or nothing. Raises OSError."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(dir=path.parent, prefix=".part-")
    try:
        with os.fdopen(handle, "wb") as file:
            file.write(content)
            file.flush()
            os.fsync(file.fileno())
        Path(temporary).chmod(0o644)
        Path(temporary).replace(path)
    except BaseException:
        Path(temporary).unlink(missing_ok=True)
        raise


class FileStore:
    """Content-addressed files below one directory."""

    def __init__(self, root: Path) -> None:
        self.root = root

    def warm_up(self) -> None:
        """Load what keeping samples needs, so that the first attempt of a study does not pay for it."""
        import io

        samples_frame(Samples()).write_parquet(io.BytesIO(), compression="zstd")

    def path(self, content_hash: str, suffix: str) -> Path:
        """Where a file of that hash lies or would lie."""
        return self.root / content_hash[:2] / f"{content_hash}{suffix}"

    def put_artefact(self, content: bytes) -> str:
        """Keep ``content`` (gzip on disk); returns the SHA-256 of the uncompressed bytes. Raises OSError."""
        content_hash = hashlib.sha256(content).hexdigest()
        path = self.path(content_hash, ".gz")
        if not path.exists():
            write_atomically(path, gzip.compress(content, compresslevel=3, mtime=0))
        return content_hash

    def get_artefact(self, content_hash: str) -> bytes | None:
        """The bytes of an artefact, or None when it is not here."""
        path = self.path(content_hash, ".gz")
        return gzip.decompress(path.read_bytes()) if path.exists() else None

    def put_samples(self, samples: Samples) -> str:
        """Keep samples as Parquet; returns the SHA-256 of the file. Raises OSError.

        What holds no number (a client, series or histogram without entries) is not kept: a long table has no row for it.
        """
        import io

        buffer = io.BytesIO()
        samples_frame(samples).write_parquet(buffer, compression="zstd", statistics=False)
        content = buffer.getvalue()
        content_hash = hashlib.sha256(content).hexdigest()
        path = self.path(content_hash, ".parquet")
        if not path.exists():
            write_atomically(path, content)
        return content_hash

    def get_samples(self, content_hash: str) -> Samples | None:
        """The samples of that hash, or None when they are not here."""
        path = self.path(content_hash, ".parquet")
        if not path.exists():
            return None
        import polars as pl

        return samples_from_frame(pl.read_parquet(path))


def samples_frame(samples: Samples) -> pl.DataFrame:
    """Long table: client, direction, kind (histogram, bandwidth, iops, latency), interval (s), x (ns or s), y."""
    import polars as pl

    columns: dict[str, list[object]] = {
        "client": [],
        "direction": [],
        "kind": [],
        "interval": [],
        "x": [],
        "y": [],
    }

    def add(client: str, direction: str, kind: str, interval: float, x: list[float], y: list[float]) -> None:
        n = len(x)
        columns["client"] += [client] * n
        columns["direction"] += [direction] * n
        columns["kind"] += [kind] * n
        columns["interval"] += [interval] * n
        columns["x"] += x
        columns["y"] += y

    for client in samples.clients:
        for direction, histogram in client.histograms.items():
            x = [float(v) for v in histogram.latency_ns]  # below 2^53 ns (104 days): exact
            add(client.client, direction, "histogram", 0.0, x, [float(c) for c in histogram.counts])
        for series in client.series:
            add(
                client.client,
                series.direction,
                series.quantity,
                series.interval_seconds,
                series.seconds,
                series.values,
            )
    schema = {
        "client": pl.String,
        "direction": pl.String,
        "kind": pl.String,
        "interval": pl.Float64,
        "x": pl.Float64,
        "y": pl.Float64,
    }
    return pl.DataFrame(columns, schema=schema)


def samples_from_frame(frame: pl.DataFrame) -> Samples:
    """Inverse of :func:`samples_frame`."""
    clients: dict[str, tuple[dict[str, Histogram], list[Series]]] = {}
    for (client, direction, kind, interval), part in frame.group_by(
        "client", "direction", "kind", "interval", maintain_order=True
    ):
        histograms, series = clients.setdefault(str(client), ({}, []))
        x, y = part["x"].to_list(), part["y"].to_list()
        if kind == "histogram":
            histograms[str(direction)] = Histogram(latency_ns=[int(v) for v in x], counts=[int(c) for c in y])
        else:
            series.append(
                Series.model_validate(
                    {
                        "quantity": kind,
                        "direction": direction,
                        "interval_seconds": interval,
                        "seconds": x,
                        "values": y,
                    }
                )
            )
    return Samples(
        clients=[
            ClientSamples.model_validate({"client": name, "histograms": h, "series": s})
            for name, (h, s) in clients.items()
        ]
    )
