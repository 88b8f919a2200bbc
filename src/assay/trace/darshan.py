"""Import of Darshan DXT logs (HPC applications), through Darshan's own ``darshan`` package.

DXT knows reads and writes of POSIX files with their times and threads; it knows no opens, seeks, closes or name changes.
"""

from __future__ import annotations

from pathlib import Path

from assay.trace.calls import TraceError

_PROCESS_STRIDE = 1 << 16  # a rank's threads get numbers of their own


def import_darshan(path: Path, out: Path) -> int:
    """Write a Darshan log's DXT records as a trace; returns its size in bytes. Raises TraceError when the package or DXT
    data is missing."""
    try:
        import darshan  # type: ignore[import-not-found,import-untyped]  # an extra: heavy, and only for these logs
    except ImportError:
        raise TraceError("Darshan logs need the darshan package: pip install darshan") from None
    from assay import _core

    try:
        report = darshan.DarshanReport(str(path), read_all=False)
        report.read_all_dxt_records()
        records = report.records["DXT_POSIX"].to_df() if "DXT_POSIX" in report.records else []
        names = report.name_records
    except Exception as error:  # noqa: BLE001 (its reader raises whatever its C library says)
        raise TraceError(f"{path}: no Darshan log that can be read ({error})") from None
    rows: list[tuple[str, int, str, int, int, int, int]] = []
    for record in records:
        name = names.get(record["id"], f"/{record['id']}")
        name = name if name.startswith("/") else f"/{name}"
        for operation, key in (("pread", "read_segments"), ("pwrite", "write_segments")):
            for segment in record[key].to_dict("records"):
                start, end = float(segment["start_time"]), float(segment["end_time"])
                tid = int(record["rank"]) * _PROCESS_STRIDE + 1
                duration = max(0, round((end - start) * 1e9))
                rows.append(
                    (
                        name,
                        tid,
                        operation,
                        max(0, round(start * 1e9)),
                        duration,
                        int(segment["offset"]),
                        int(segment["length"]),
                    )
                )
    if not rows:
        raise TraceError(f"{path} holds no DXT records; run the application with DXT_ENABLE_IO_TRACE=1")
    return _core.trace_from_rows(out, "darshan-dxt", rows)
