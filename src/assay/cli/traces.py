"""What ``assay trace`` does: calls into :mod:`assay.trace`, tables for people, JSON for programs."""

from __future__ import annotations

import json
import secrets
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from rich.table import Table

from assay.cli.console import stdout
from assay.cli.errors import BadInput
from assay.trace import calls, fidelity, replayer
from assay.trace import strace as strace_backend
from assay.trace.text import bytes_text, seconds_text


def run_record(
    out: Path,
    command: Sequence[str],
    pid: int | None,
    mount: str,
    backend: str,
    stat: bool,
    mmap: bool,
    wait_all: bool,
    seconds: float | None,
    as_json: bool,
) -> int:
    """Record; the exit code is the command's own, or 1 when operations were lost."""
    if bool(command) == (pid is not None):
        raise BadInput("give either a command after -- or --pid; for example: assay trace record -- ls -l")
    if backend not in ("ebpf", "raw", "strace"):
        raise BadInput(f"--backend {backend}: one of ebpf, raw, strace")
    if backend == "strace":
        notes = strace_backend.record(out, command=command, pid=pid)
        if as_json:
            print(json.dumps(notes))
        else:
            print(f"{out}: {notes['lines']} lines of strace, {notes['skipped']} not understood. {strace_backend.COST}.")
        return notes["exit_code"]
    done = calls.record(
        out,
        command=command,
        pid=pid,
        mount=str(Path(mount).resolve()) if mount else "",
        raw=backend == "raw",
        stat=stat,
        mmap=mmap,
        wait_all=wait_all,
        seconds=seconds,
    )
    summary = done["summary"]
    if as_json:
        print(json.dumps(done))
    else:
        per_event = done["bytes"] / max(1, summary["events"])
        print(
            f"{out}: {summary['events']} operations in {seconds_text(summary['duration'] / 1e9)}, "
            f"{bytes_text(done['bytes'])} ({per_event:.1f} B each); "
            f"recorder CPU {seconds_text(done['recorder_seconds'])}",
            file=sys.stderr,
        )
        for warning in summary["warnings"]:
            print(f"assay: {warning}", file=sys.stderr)
    lost = summary["dropped"] + summary["unwritten"]
    if lost:
        print(f"assay: {lost} operations were lost; the trace says so and checks refuse it", file=sys.stderr)
    return summary["exit_code"] or (1 if lost else 0)


def _info_table(rows: dict[str, dict[str, Any]], title: str) -> Table:
    table = Table(
        title, "share", "number", "mean size", "total", "errors", "mean", "p50", "p99", box=None, pad_edge=False
    )
    for column in table.columns[1:]:
        column.justify = "right"
    for name, row in sorted(rows.items(), key=lambda item: -item[1]["operations"]):
        table.add_row(
            name,
            f"{row['share']:.1%}",
            str(row["operations"]),
            bytes_text(row["mean_bytes"]) if row["bytes"] else "",
            bytes_text(row["bytes"]) if row["bytes"] else "",
            str(row["errors"] or ""),
            seconds_text(row["latency_mean_seconds"]),
            seconds_text(row["latency_p50_seconds"]),
            seconds_text(row["latency_p99_seconds"]),
        )
    return table


def show_info(trace: Path, plots: Path | None, as_json: bool) -> int:
    """Print the characterisation; charts on request."""
    info = calls.info(trace)
    if plots is not None:
        from assay.cli.trace_charts import write_charts

        written = write_charts(info, plots)
        print(f"charts: {', '.join(str(path) for path in written)}", file=sys.stderr)
    if as_json:
        print(json.dumps(info))
        return 0
    console = stdout()
    meta = info["meta"]
    console.print(
        f"{info['operations']} operations in {seconds_text(info['seconds'])} by {info['processes']} processes, "
        f"{info['threads']} threads, on {info['files']} files; recorded by {meta['backend']}"
        + (f": {' '.join(meta['command'])}" if meta["command"] else ""),
        markup=False,
    )
    if info["dropped"] or info["unwritten"]:
        console.print(f"[red]{info['dropped'] + info['unwritten']} operations were lost while recording[/red]")
    if not info["whole"]:
        console.print(f"[red]cut off: {info['unreadable_bytes']} bytes at its end cannot be read[/red]")
    console.print(_info_table(info["classes"], "class"))
    console.print(_info_table(info["calls"], "call"))
    think = info["think_time_percentiles_seconds"]
    facts = [
        ("working set", f"{bytes_text(info['working_set_bytes'])} (read {bytes_text(info['read_working_set_bytes'])}, "
                        f"written {bytes_text(info['written_working_set_bytes'])})"),
        ("sequential", f"{info['sequential_read_share']:.1%} of reads, {info['sequential_write_share']:.1%} of writes"),
        ("think time", f"p50 {seconds_text(think['50'])}, p99 {seconds_text(think['99'])}, "
                       f"{seconds_text(info['think_time_total_seconds'])} in all threads"),
        ("concurrency", f"{info['concurrency_mean']:.2f} operations at once, at most {info['concurrency_max']}"),
        ("through mmap", f"{info['mapped_share']:.1%} of the bytes read; only first touches are seen, stores are not"),
        ("asynchronous", f"{info['asynchronous_share']:.1%} of the operations (libaio, io_uring)"),
        ("opened O_SYNC", str(info["sync_opens"])),
    ]  # fmt: skip
    table = Table(box=None, show_header=False, pad_edge=False)
    for name, text in facts:
        table.add_row(name, text)
    console.print(table)
    hot = Table("hottest files", "operations", "read", "written", box=None, pad_edge=False)
    for file in info["hottest"][:10]:
        hot.add_row(
            file["path"], str(file["operations"]), bytes_text(file["read_bytes"]), bytes_text(file["written_bytes"])
        )
    console.print(hot)
    return 0


def run_replay(chosen: dict[str, Any], as_json: bool) -> int:
    """Replay and judge; 1 when unfaithful, 3 past the deadline."""
    outcome = replayer.run(chosen)
    if chosen["prepare_only"]:
        prepared = outcome["prepared"]
        if as_json:
            print(json.dumps(prepared))
        else:
            print(
                f"{prepared['files']} files, {bytes_text(prepared['bytes'])}, written in {seconds_text(prepared['seconds'])}"
            )
        return 0
    findings = fidelity.judge(outcome["fidelity"])
    faithful = fidelity.faithful(findings) and not outcome["timed_out"]
    if as_json:
        print(json.dumps({**outcome, "faithful": faithful, "checks": [vars(f) for f in findings]}))
    else:
        _print_replay(outcome, findings, faithful)
    if outcome["timed_out"]:
        print("assay: the replay passed its deadline and was killed", file=sys.stderr)
        return 3
    return 0 if faithful else 1


def _print_replay(outcome: dict[str, Any], findings: list[fidelity.Finding], faithful: bool) -> None:
    console = stdout()
    table = Table(
        "copy", "class", "operations", "bytes", "errors", "mean latency", "p99", "throughput", box=None, pad_edge=False
    )
    for copy in outcome["copies"]:
        for name, row in copy["classes"].items():
            rate = row["bytes"] / copy["seconds"] if copy["seconds"] else 0.0
            table.add_row(
                str(copy["copy"]),
                name,
                str(row["operations"]),
                bytes_text(row["bytes"]) if row["bytes"] else "",
                str(row["errors"] or ""),
                seconds_text(row["latency_mean_seconds"]),
                seconds_text(_percentile(row, 0.99)),
                f"{bytes_text(rate)}/s" if row["bytes"] else "",
            )
    console.print(table)
    copy = outcome["copies"][0]
    console.print(
        f"{seconds_text(copy['seconds'])} (recorded {seconds_text(copy['recorded_seconds'])}), {outcome['processes']} processes, "
        f"{outcome['threads']} threads, CPU {seconds_text(outcome['cpu_seconds'])}"
    )
    for finding in findings:
        mark = {True: "[green]valid[/green]", False: "[red]invalid[/red]", None: "not applicable"}[finding.passed]
        console.print(f"{finding.check} {mark}: {finding.title}: ", end="")
        console.print(finding.detail, markup=False)
    for what, count in outcome["fidelity"]["substituted"].items():
        console.print(f"replayed otherwise: {what} ({count})", markup=False)
    console.print("[green]faithful[/green]" if faithful else "[red]unfaithful[/red]")


def _percentile(row: dict[str, Any], q: float) -> float:
    left = q * sum(row["counts"])
    for value, count in zip(row["latency_ns"], row["counts"], strict=True):
        left -= count
        if left <= 0:
            return value / 1e9
    return 0.0


def run_import(file: Path, out: Path, kind: str, strict: bool, as_json: bool) -> int:
    """Import; 1 when lines had to be skipped."""
    if kind not in calls.IMPORT_FORMATS:
        raise BadInput(f"--format {kind}: one of {', '.join(calls.IMPORT_FORMATS)}")
    if kind == "darshan":
        from assay.trace.darshan import import_darshan

        size = import_darshan(file, out)
        print(json.dumps({"bytes": size}) if as_json else f"{out}: {bytes_text(size)}")
        return 0
    notes = calls.import_text(kind, file.read_bytes(), out, strict=strict)
    if as_json:
        print(json.dumps(notes))
    else:
        print(f"{out}: {notes['lines']} lines, {notes['ignored']} without file I/O, {notes['skipped']} malformed")
        for line, what in notes["problems"]:
            print(f"{file}: line {line}: {what}", file=sys.stderr)
    return 1 if notes["skipped"] else 0


def run_export(trace: Path, out: Path, kind: str | None) -> int:
    """Export by format or by the name's end."""
    chosen = kind or out.suffix.removeprefix(".")
    if chosen == "parquet":
        from assay.trace.frames import frame

        frame(trace).write_parquet(out)
        return 0
    if chosen == "csv":
        out.write_text(calls.export_text(trace, "csv")[0])
        return 0
    if chosen == "iolog":
        text, left_out = calls.export_text(trace, "iolog")
        out.write_text(text)
        if left_out:
            print(f"assay: {left_out} operations are none that fio's iolog knows and were left out", file=sys.stderr)
        return 0
    raise BadInput(f"--format {chosen or '(none)'}: one of iolog, csv, parquet")


def run_anonymise(trace: Path, out: Path, seed: int | None) -> int:
    """Anonymise with the given seed or a secret one."""
    calls.anonymise(trace, out, secrets.randbits(64) if seed is None else seed)
    return 0
