"""``assay trace``: names, options and help; what the commands do is in :mod:`assay.cli.traces`."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

trace_app = typer.Typer(
    no_args_is_help=True,
    help="Record an application's file I/O, characterise it, replay it faithfully anywhere.",
)
JsonOpt = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
TraceArg = Annotated[Path, typer.Argument(metavar="TRACE", help="A trace file.")]
OutOpt = Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The trace to write.")]


@trace_app.command(context_settings={"allow_extra_args": True, "ignore_unknown_options": True})
def record(
    context: typer.Context,
    out: OutOpt = Path("trace.assay"),
    pid: Annotated[int | None, typer.Option("--pid", help="Attach to this process instead of starting one.")] = None,
    mount: Annotated[str, typer.Option("--mount", metavar="DIR", help="Keep only files below this directory.")] = "",
    backend: Annotated[
        str,
        typer.Option("--backend", help="ebpf (root, Linux 5.12), raw (root, 5.8), strace (no root, 11 times slower)."),
    ] = "ebpf",
    stat: Annotated[bool, typer.Option("--stat", help="Also stat, access and readlink.")] = False,
    mmap: Annotated[bool, typer.Option(help="Also page-ins of mapped files.")] = True,
    wait_all: Annotated[bool, typer.Option("--wait-all", help="Go on until all descendants have ended.")] = False,
    seconds: Annotated[float | None, typer.Option("--seconds", help="Stop after so long.")] = None,
    as_json: JsonOpt = False,
) -> None:
    """Record what a command (after --) or a process does to its files.

    Example: assay trace record -o build.assay -- make
    """
    from assay.cli.traces import run_record

    raise typer.Exit(run_record(out, context.args, pid, mount, backend, stat, mmap, wait_all, seconds, as_json))


@trace_app.command()
def info(
    trace: TraceArg,
    plots: Annotated[Path | None, typer.Option("--plots", metavar="DIR", help="Write charts (SVG) here.")] = None,
    as_json: JsonOpt = False,
) -> None:
    """What a trace consists of: operations, sizes, patterns, think times, working set, hottest files.

    Example: assay trace info build.assay --plots charts
    """
    from assay.cli.traces import show_info

    raise typer.Exit(show_info(trace, plots, as_json))


@trace_app.command()
def replay(
    trace: TraceArg,
    target: Annotated[
        Path, typer.Argument(metavar="DIR", help="Where to replay: a directory of the file system under test.")
    ],
    timing: Annotated[
        str, typer.Option("--timing", help="think (recorded think times), abs (recorded start times), asap.")
    ] = "think",
    scale: Annotated[float, typer.Option("--scale", min=0.0, help="Multiply think or start times.")] = 1.0,
    copies: Annotated[int, typer.Option("--copies", min=1, help="So many copies at once.")] = 1,
    spread: Annotated[
        float, typer.Option("--spread", metavar="SECONDS", help="Copies start at times from U[0, SECONDS].")
    ] = 0.0,
    seed: Annotated[int, typer.Option("--seed", help="For start times and file contents.")] = 0,
    only: Annotated[
        list[str] | None, typer.Option("--only", metavar="DIR", help="Only what was below DIR; repeatable.")
    ] = None,
    sync: Annotated[bool, typer.Option("--sync", help="Open for writing with O_SYNC.")] = False,
    direct: Annotated[
        bool, typer.Option("--direct", help="Open with O_DIRECT; offsets and lengths are aligned.")
    ] = False,
    shared_tree: Annotated[bool, typer.Option("--shared-tree", help="All copies work on the same files.")] = False,
    real_time: Annotated[
        int | None, typer.Option("--rt", metavar="PRIORITY", min=1, max=99, help="SCHED_FIFO priority.")
    ] = None,
    prepare_only: Annotated[bool, typer.Option("--prepare-only", help="Lay the files out and stop.")] = False,
    deadline: Annotated[
        float | None, typer.Option("--deadline", metavar="SECONDS", help="Kill the replay after so long.")
    ] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="FILE", help="Write what was replayed as a trace.")
    ] = None,
    as_json: JsonOpt = False,
) -> None:
    """Replay a trace and say how faithful it was; exit code 1 when it was not.

    Example: assay trace replay build.assay /mnt/candidate --timing think
    """
    from assay.cli.traces import run_replay
    from assay.trace.replayer import options

    if timing not in ("think", "abs", "asap"):
        raise typer.BadParameter("one of think, abs, asap", param_hint="--timing")
    chosen = options(
        trace,
        target,
        timing=timing,
        scale=scale,
        copies=copies,
        spread_seconds=spread,
        seed=seed,
        only=only or (),
        o_sync=sync,
        o_direct=direct,
        shared_tree=shared_tree,
        rt_priority=real_time,
        prepare_only=prepare_only,
        deadline_seconds=deadline,
        out=out,
    )
    raise typer.Exit(run_replay(chosen, as_json))


@trace_app.command("import")
def import_trace(
    file: Annotated[Path, typer.Argument(help="The other tool's file.")],
    out: OutOpt,
    kind: Annotated[str, typer.Option("--format", help="strace, iolog, blkparse, msr, alibaba, darshan.")] = "strace",
    strict: Annotated[bool, typer.Option("--strict", help="Refuse a malformed line instead of skipping it.")] = False,
    as_json: JsonOpt = False,
) -> None:
    """Turn another tool's trace into Assay's.

    Example: assay trace import strace.txt -o app.assay --format strace
    """
    from assay.cli.traces import run_import

    raise typer.Exit(run_import(file, out, kind, strict, as_json))


@trace_app.command("export")
def export_trace(
    trace: TraceArg,
    out: OutOpt,
    kind: Annotated[
        str | None, typer.Option("--format", help="iolog, csv, parquet; default by the name's end.")
    ] = None,
) -> None:
    """Write a trace for another tool.

    Example: assay trace export app.assay -o app.parquet
    """
    from assay.cli.traces import run_export

    raise typer.Exit(run_export(trace, out, kind))


@trace_app.command()
def anonymise(
    trace: TraceArg,
    out: OutOpt,
    seed: Annotated[
        int | None, typer.Option("--seed", help="The same seed gives the same names; default: a secret one.")
    ] = None,
) -> None:
    """Replace all names by hashes; sizes, times and the tree's shape stay.

    Example: assay trace anonymise app.assay -o public.assay
    """
    from assay.cli.traces import run_anonymise

    raise typer.Exit(run_anonymise(trace, out, seed))
