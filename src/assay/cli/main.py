"""The ``assay`` command: names, options and help. What a command does is in the modules it imports when it is called,
so that ``assay --help`` stays fast."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Annotated

import typer

import assay
from assay.cli.archive_commands import archive_app
from assay.cli.place_app import place_app
from assay.cli.tracing import trace_app

app = typer.Typer(
    name="assay",
    no_args_is_help=True,
    add_completion=False,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 110},
    help="Finds out which file system, layout and tuning serves a workload, and proves it.\n\n"
    "Start with: [bold]assay quick /mnt/a /mnt/b[/bold], or [bold]assay presets[/bold], then [bold]assay run NAME[/bold].\n\n"
    "Exit codes: 0 all valid; 1 the study ended, but cells failed or are invalid; 2 bad input; 3 a lab, system or tool "
    "failed; 130 interrupted.",
)
lab_app = typer.Typer(
    no_args_is_help=True, help="Labs of hosts on this machine, on their own: make, use and remove them."
)
presets_app = typer.Typer(invoke_without_command=True, help="The built-in studies.")
app.add_typer(lab_app, name="lab")
app.add_typer(presets_app, name="presets")
app.add_typer(place_app, name="place")
app.add_typer(archive_app, name="archive")
app.add_typer(trace_app, name="trace")

StudyArg = Annotated[
    str,
    typer.Argument(metavar="STUDY", help="A YAML file, a preset's name, or the id or name of a study in the ledger."),
]
LedgerOpt = Annotated[
    str | None, typer.Option("--ledger", metavar="URL", help="Ledger; default $ASSAY_LEDGER or the data directory's.")
]
JsonOpt = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, progress on stderr.")]
ScaleOpt = Annotated[
    float | None,
    typer.Option("--scale", min=0.0001, max=1.0, help="Shrink sizes and times by this factor; recorded and shown."),
]
CandidatesOpt = Annotated[
    list[str] | None,
    typer.Option(
        "--candidates", "-c", help="Use these candidates instead of the study's; repeat or separate by commas."
    ),
]


def _version(value: bool) -> None:
    if value:
        print(f"assay {assay.__version__}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    pass


@app.command()
def doctor(
    systems: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SYSTEM...]", help="Only what these need, e.g. ceph local/xfs; default: everything."),
    ] = None,
    as_json: JsonOpt = False,
    commands: Annotated[
        bool, typer.Option("--commands", help="Print just the shell commands that get what is missing, one per line.")
    ] = False,
) -> None:
    """What this machine can run, what is missing, and the command that gets it.

    Exit code 3 when something is missing without which nothing runs, or one of the SYSTEMs named does not.

    Example: assay doctor glusterfs --commands | sh
    """
    from assay.cli.doctor import run_doctor

    raise typer.Exit(run_doctor(systems or [], as_json, commands))


@app.command()
def systems(
    name: Annotated[str | None, typer.Argument(metavar="[SYSTEM]", help="One, with its layouts and tuning.")] = None,
    as_json: JsonOpt = False,
) -> None:
    """The systems that can be compared, with their layouts, tuning and capabilities.

    Example: assay systems glusterfs
    """
    from assay.cli.systems import show_systems

    raise typer.Exit(show_systems(name, as_json))


@presets_app.callback()
def presets(context: typer.Context, as_json: JsonOpt = False) -> None:
    """The built-in studies.

    Example: assay presets
    """
    if context.invoked_subcommand is None:
        from assay.cli.studies import list_presets

        list_presets(as_json)


@presets_app.command("show")
def presets_show(name: Annotated[str, typer.Argument(help="Name of the preset.")]) -> None:
    """Print a preset as YAML, ready to be copied and changed.

    Example: assay presets show kisti-2021 > mine.yaml
    """
    from assay.cli.studies import preset_text

    print(preset_text(name), end="")


@app.command()
def schema() -> None:
    """Print the JSON Schema of studies, for editors.

    Example: assay schema > study.schema.json
    """
    from assay.cli.studies import json_schema

    print(json_schema())


@app.command()
def plan(study: StudyArg, scale: ScaleOpt = None, candidates: CandidatesOpt = None, as_json: JsonOpt = False) -> None:
    """Cells, order, estimated time, bytes and disk of a study; touches nothing.

    Example: assay plan kisti-2021 --scale 0.01
    """
    from assay.cli.running import show_plan

    raise typer.Exit(show_plan(study, scale or 1.0, candidates, as_json))


@app.command()
def run(
    study: StudyArg,
    ledger: LedgerOpt = None,
    budget: Annotated[
        str | None, typer.Option("--budget", metavar="TIME", help="Time for the whole study, e.g. 2h.")
    ] = None,
    scale: ScaleOpt = None,
    candidates: CandidatesOpt = None,
    new: Annotated[bool, typer.Option("--new", help="Start anew even if the ledger holds this study.")] = False,
    report_to: Annotated[
        Path | None, typer.Option("--report", metavar="DIR", help="Where the report goes; default ./assay-report-ID.")
    ] = None,
    as_json: JsonOpt = False,
) -> None:
    """Run a study, or resume it where it was interrupted.

    Example: assay run local-quick
    """
    from assay.cli.running import run_study

    raise typer.Exit(run_study(study, ledger, budget, scale, candidates, new, report_to, as_json))


@app.command()
def quick(
    paths: Annotated[list[str], typer.Argument(metavar="PATH...", help="Directories that are mounted already.")],
    ledger: LedgerOpt = None,
    budget: Annotated[str, typer.Option("--budget", metavar="TIME", help="Time for the whole comparison.")] = "3min",
    report_to: Annotated[Path | None, typer.Option("--report", metavar="DIR", help="Where the report goes.")] = None,
    as_json: JsonOpt = False,
) -> None:
    """Compare directories that are already mounted; needs no root and no YAML.

    Example: assay quick /mnt/nas /scratch
    """
    from assay.cli.running import run_quick

    raise typer.Exit(run_quick(paths, ledger, budget, report_to, as_json))


@app.command()
def status(
    study: Annotated[str | None, typer.Argument(metavar="[STUDY]", help="Default: all studies in the ledger.")] = None,
    ledger: LedgerOpt = None,
    as_json: JsonOpt = False,
) -> None:
    """What is done, running, void and left.

    Example: assay status
    """
    from assay.cli.showing import show_status

    raise typer.Exit(show_status(study, ledger, as_json))


@app.command()
def report(
    study: StudyArg,
    ledger: LedgerOpt = None,
    formats: Annotated[
        str, typer.Option("--format", help="Of html, md, csv, parquet, png, svg; separated by commas.")
    ] = "html",
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="Directory; default ./assay-report-ID.")
    ] = None,
    as_json: JsonOpt = False,
) -> None:
    """Write the self-contained report of a study.

    Example: assay report local-quick --format html,csv,png
    """
    from assay.cli.showing import make_report

    raise typer.Exit(make_report(study, ledger, formats, out, as_json))


@app.command()
def compare(
    a: Annotated[str, typer.Argument(help="A candidate of --study, or a study.")],
    b: Annotated[str, typer.Argument(help="The other one.")],
    study: Annotated[
        str | None, typer.Option("--study", help="The study whose candidates A and B are; default: the newest.")
    ] = None,
    ledger: LedgerOpt = None,
    as_json: JsonOpt = False,
) -> None:
    """Two candidates (or two studies) cell by cell: ratio, interval, decision.

    Example: assay compare local/ext4 local/xfs --study local-quick
    """
    from assay.cli.showing import show_comparison

    raise typer.Exit(show_comparison(a, b, study, ledger, as_json))


@app.command()
def check(
    study: StudyArg,
    ledger: LedgerOpt = None,
    all_verdicts: Annotated[bool, typer.Option("--all", help="Show valid verdicts too.")] = False,
    as_json: JsonOpt = False,
) -> None:
    """Every check's verdict, per attempt, cell and study, with the evidence.

    Example: assay check local-quick --all
    """
    from assay.cli.showing import show_checks

    raise typer.Exit(show_checks(study, ledger, all_verdicts, as_json))


@app.command("export")
def export_study(
    study: StudyArg,
    file: Annotated[Path, typer.Argument(help="The bundle to write, e.g. study.assay.zip.")],
    ledger: LedgerOpt = None,
    as_json: JsonOpt = False,
) -> None:
    """One portable bundle: study, ledger rows, raw series, environment.

    Example: assay export local-quick local-quick.assay.zip
    """
    from assay.cli.showing import export_bundle

    raise typer.Exit(export_bundle(study, file, ledger, as_json))


@app.command("import")
def import_study(
    file: Annotated[Path, typer.Argument(help="A bundle that assay export wrote.")],
    ledger: LedgerOpt = None,
    as_json: JsonOpt = False,
) -> None:
    """Take a bundle into the ledger.

    Example: assay import local-quick.assay.zip
    """
    from assay.cli.showing import import_bundle

    raise typer.Exit(import_bundle(file, ledger, as_json))


LabArg = Annotated[str, typer.Argument(metavar="LAB", help="Name of a lab; see: assay lab list.")]


@lab_app.command("up")
def lab_up(
    name: Annotated[
        str | None, typer.Argument(metavar="[NAME]", help="Name of the lab; default: the next labN.")
    ] = None,
    hosts: Annotated[int, typer.Option("--hosts", min=1, max=64, help="Storage hosts, s1 to sN.")] = 6,
    clients: Annotated[int, typer.Option("--clients", min=1, max=32, help="Client hosts, c1 to cN.")] = 1,
    bandwidth: Annotated[
        str, typer.Option("--bandwidth", metavar="RATE", help="Of each link and direction, e.g. 1Gbit.")
    ] = "unlimited",
    delay: Annotated[str, typer.Option("--delay", metavar="TIME", help="Added one-way delay of each link.")] = "0s",
    loss: Annotated[str, typer.Option("--loss", metavar="SHARE", help="Packets lost on each link, e.g. 0.1%.")] = "0",
    cpus: Annotated[float | None, typer.Option("--cpus", help="Cores of each host, e.g. 0.5; default: all.")] = None,
    memory: Annotated[
        str | None,
        typer.Option("--memory", metavar="SIZE", help="Memory of each host with its page cache; default: all."),
    ] = None,
    disk_size: Annotated[str, typer.Option("--disk-size", metavar="SIZE", help="Size of each disk.")] = "2GiB",
    disks_per_host: Annotated[
        int, typer.Option("--disks-per-host", min=1, max=16, help="Disks of each storage host.")
    ] = 1,
    devices: Annotated[
        list[str] | None,
        typer.Option(
            "--device", metavar="DEV", help="An empty block device to be used as a disk; one option for each."
        ),
    ] = None,
    filesystem: Annotated[
        str, typer.Option("--filesystem", help="On the disks, mounted at /run/b/1 ...: xfs, ext4, btrfs or none.")
    ] = "xfs",
    candidate: Annotated[
        str | None,
        typer.Option("--candidate", metavar="NAME", help="Deploy and mount this system, e.g. glusterfs/rain-4-2."),
    ] = None,
    as_json: JsonOpt = False,
) -> None:
    """Make a lab of hosts on this machine that stays until it is taken down.

    Example: assay lab up mine --hosts 6 --bandwidth 1Gbit --candidate glusterfs/rain-4-2
    """
    from assay.cli.labs import up_lab

    shape = {
        "hosts": hosts,
        "clients": clients,
        "network": {"bandwidth": bandwidth, "delay": delay, "loss": loss},
        "limits": {"cpus": cpus} | ({"memory": memory} if memory else {}),
        "disk": {"size": disk_size, "per_host": disks_per_host, "devices": devices or []},
    }
    raise typer.Exit(up_lab(name, shape, candidate, filesystem, as_json))


@lab_app.command("list")
def lab_list(as_json: JsonOpt = False) -> None:
    """Labs on this machine: their hosts, addresses and state, and what killed ones have left.

    Example: assay lab list
    """
    from assay.cli.labs import list_labs

    raise typer.Exit(list_labs(as_json))


@lab_app.command("exec", context_settings={"ignore_unknown_options": True})
def lab_exec(
    lab: LabArg,
    host: Annotated[str, typer.Argument(metavar="HOST", help="s1, s2, ... or c1, ...")],
    command: Annotated[list[str], typer.Argument(metavar="-- COMMAND...", help="What to run there.")],
    as_json: Annotated[
        bool, typer.Option("--json", help="One JSON document with exit code and output instead of the output itself.")
    ] = False,
) -> None:
    """Run a command on a host of a lab, on this terminal; its exit code is passed on.

    Example: assay lab exec mine s1 -- df -h
    """
    from assay.cli.labs import exec_in_lab

    raise typer.Exit(exec_in_lab(lab, host, command, as_json))


@lab_app.command("down")
def lab_down(lab: LabArg, as_json: JsonOpt = False) -> None:
    """Take a lab down and remove everything of it: hosts, disks, files.

    Example: assay lab down mine
    """
    from assay.cli.labs import take_down

    raise typer.Exit(take_down(lab, as_json))


@lab_app.command("clean")
def lab_clean(
    lab: Annotated[str | None, typer.Argument(metavar="[LAB]", help="Only this lab, even if it is up.")] = None,
    as_json: JsonOpt = False,
) -> None:
    """Remove whatever killed labs have left: mounts, loop devices, processes, files. Labs in use or up are kept.

    Example: assay lab clean
    """
    from assay.cli.labs import clean_labs

    raise typer.Exit(clean_labs(lab, as_json))


def main() -> None:
    """Entry point of the console script: errors of known kinds become one line and an exit code."""
    from assay.cli.errors import one_line

    try:
        app(standalone_mode=True)
    except KeyboardInterrupt:
        print("assay: interrupted", file=sys.stderr)
        sys.exit(130)
    except Exception as error:  # noqa: BLE001 (the last line of defence: unknown kinds are raised again inside)
        line, code = one_line(error)
        print(f"assay: {line}", file=sys.stderr)
        sys.exit(code)
