"""A trace as a table, for Parquet and for whoever wants to look further."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import polars as pl

from assay import _core
from assay.trace.calls import TraceError


def frame(path: Path) -> pl.DataFrame:
    """One row per operation, in the order of their ends: start_ns, duration_ns, pid, tid, process, operation, path, path2,
    file (one number per open), fd, offset, offset2, count, result (bytes, 0 or negative errno), flags."""
    try:
        columns, text = _core.trace_columns(path)
    except ValueError as error:
        raise TraceError(str(error)) from None
    tables = json.loads(text)
    rows = {name: np.frombuffer(data, dtype="<i8") for name, data in columns.items()}
    tasks = tables["tasks"]
    names = dict(tables["operations"])
    paths = pl.Series("path", tables["paths"], dtype=pl.String)
    task = rows["task"]
    return pl.DataFrame(
        {
            "start_ns": rows["start_ns"],
            "duration_ns": rows["duration_ns"],
            "pid": np.array([t["pid"] for t in tasks], dtype=np.int64)[task] if tasks else task,
            "tid": np.array([t["tid"] for t in tasks], dtype=np.int64)[task] if tasks else task,
            "process": pl.Series([t["name"] for t in tasks], dtype=pl.String).gather(task),
            "operation": pl.Series([names[n] for n in rows["operation"].tolist()], dtype=pl.String),
            "path": paths.gather(rows["path"]),
            "path2": paths.gather(rows["path2"]),
            **{name: rows[name] for name in ("file", "fd", "offset", "offset2", "count", "result", "flags")},
        }
    )
