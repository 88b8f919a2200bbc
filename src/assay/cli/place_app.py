"""``assay place``: names, options and help; what the commands do is in the modules they import when they are called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

place_app = typer.Typer(no_args_is_help=True, help="Distribution functions: where files go, and how evenly.")

JsonOpt = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, progress on stderr.")]
CrushOpt = Annotated[
    Path | None,
    typer.Option("--crushmap", metavar="FILE", help="Crush map: compiled, JSON (ceph osd crush dump) or text."),
]


@place_app.command("map")
def place_map(
    crushmap: CrushOpt = None,
    rule: Annotated[int | None, typer.Option(help="Rule of the crush map.")] = None,
    num_rep: Annotated[int | None, typer.Option(help="Devices per input.")] = None,
    min_x: Annotated[int, typer.Option(help="First input.")] = 0,
    max_x: Annotated[int, typer.Option(help="Last input.")] = 1023,
    weight: Annotated[
        list[str] | None, typer.Option("--weight", metavar="DEV=W", help="Reweight a device, 0 (out) to 1; repeat.")
    ] = None,
    pool_id: Annotated[int | None, typer.Option(help="Pool; with --min-x it is hashed in, as by crushtool.")] = None,
    pool: Annotated[
        str | None, typer.Option(metavar="JSON", help="A pool as ceph osd dump gives it: JSON or a file of it.")
    ] = None,
    osdmap: Annotated[
        Path | None, typer.Option(metavar="FILE", help="ceph osd dump -f json: upmaps, reweights, affinity and all.")
    ] = None,
    objects: Annotated[str | None, typer.Option(metavar="FILE", help="Names, one per line; - is stdin.")] = None,
    namespace: Annotated[str, typer.Option(help="RADOS namespace of the objects.")] = "",
    layout: Annotated[
        Path | None, typer.Option(metavar="FILE", help="GlusterFS layout: CSV of directory, subvolume, start, stop.")
    ] = None,
    bricks: Annotated[int | None, typer.Option(min=1, help="GlusterFS: a new directory on this many bricks.")] = None,
    directory: Annotated[str | None, typer.Option(help="GlusterFS: the directory's path in the volume.")] = None,
    volume: Annotated[str, typer.Option(help="GlusterFS: the volume's name, which orders its bricks.")] = "v",
    fmt: Annotated[str, typer.Option("--format", help="csv, json, or crushtool: its very lines.")] = "csv",
) -> None:
    """Where items go: inputs or objects to OSDs, names to bricks.

    Example: assay place map --crushmap map.bin --rule 0 --num-rep 3 --max-x 9999 --format crushtool
    """
    from assay.cli.errors import BadInput
    from assay.cli.placing import MapRequest, show_map

    weights = []
    for text in weight or []:
        device, _, share = text.partition("=")
        try:
            weights.append((int(device), float(share)))
        except ValueError:
            raise BadInput(f"--weight {text!r} is not DEVICE=WEIGHT, for example 3=0.5") from None
    request = MapRequest(
        crushmap, osdmap, rule, num_rep, min_x, max_x, tuple(weights), pool_id, pool, objects, namespace, layout,
        bricks, directory, volume, fmt,
    )  # fmt: skip
    raise typer.Exit(show_map(request))


@place_app.command("verify")
def place_verify(
    vectors: Annotated[
        list[Path] | None, typer.Option("--vectors", metavar="FILE", help="Results of real systems; repeat.")
    ] = None,
    system: Annotated[str | None, typer.Option(help="What the vectors must be of.")] = None,
    crushmap: CrushOpt = None,
    inputs: Annotated[int, typer.Option(min=1, help="With --crushmap: inputs per rule and size.")] = 10_000,
    live: Annotated[
        Path | None, typer.Option(metavar="DIR", help="A directory of a mounted GlusterFS volume (root).")
    ] = None,
    objects: Annotated[
        str | None, typer.Option(metavar="FILE", help="With --live: names of files in it; default: all. - is stdin.")
    ] = None,
    as_json: JsonOpt = False,
) -> None:
    """Hold the functions against real systems: files of results, the installed crushtool, or a mounted volume.

    Prints "N checked, M differ"; exits 1 when something differs.

    Example: assay place verify --system ceph --vectors tests/data/placement/ceph_upmap_16.2.15.json
    """
    from assay.cli.errors import BadInput
    from assay.cli.placing import verify_crushtool, verify_live, verify_vectors

    if sum(map(bool, (vectors, crushmap, live))) != 1:
        raise BadInput("give one of --vectors FILE, --crushmap FILE and --live DIR")
    if vectors:
        raise typer.Exit(verify_vectors(vectors, system, as_json))
    if crushmap:
        raise typer.Exit(verify_crushtool(crushmap, inputs, as_json))
    if live:
        raise typer.Exit(verify_live(live, objects, as_json))


@place_app.command("simulate")
def place_simulate(
    system: Annotated[
        list[str],
        typer.Option("--system", "-s", metavar="SYSTEM/LAYOUT", help="Such as ceph/rain-4-2 or lustre; repeat."),
    ],
    targets: Annotated[str, typer.Option(metavar="N,N,...", help="Numbers of targets.")] = "",
    streams: Annotated[str, typer.Option(metavar="N,N,...", help="Numbers of streams.")] = "1",
    trace: Annotated[
        Path | None, typer.Option(metavar="FILE", help="CSV or Parquet: time (s), op, file, offset, bytes.")
    ] = None,
    fio: Annotated[
        str | None, typer.Option(metavar="SPEC", help="randwrite:bs=4KiB,size=1GiB,threads=4,rate=100,runtime=60s")
    ] = None,
    fileset: Annotated[str | None, typer.Option(metavar="SPEC", help="COUNT:size=64KiB,rate=100MB (per s).")] = None,
    stripe_unit: Annotated[str | None, typer.Option(metavar="SIZE", help="Default: the system's own.")] = None,
    width: Annotated[int | None, typer.Option(min=1, help="Stripe width; default: all targets.")] = None,
    crushmap: CrushOpt = None,
    threshold: Annotated[int, typer.Option(min=0, help="Accesses per second above which a target is active.")] = 30,
    busy_only: Annotated[bool, typer.Option("--busy-only", help="Leave seconds without access out of means.")] = False,
    once: Annotated[bool, typer.Option("--once", help="Count a target once per access, not once per piece.")] = False,
    within: Annotated[str, typer.Option(metavar="TIME", help="Streams start at random within this.")] = "300s",
    seed: Annotated[int, typer.Option(help="Of starts and of whatever a system draws by lot.")] = 0,
    change: Annotated[int, typer.Option(metavar="N", help="What if: data moved by N targets more (or -N less).")] = 0,
    chart: Annotated[Path | None, typer.Option(metavar="FILE", help="Deviations over streams: html, png, svg.")] = None,
    fmt: Annotated[str, typer.Option("--format", help="table, csv or json.")] = "table",
) -> None:
    """How evenly a workload spreads over targets, second by second.

    Example: assay place simulate -s xtreemfs --targets 4,8,16 --streams 1,2,4,8 --fio randwrite:bs=64KiB,rate=200
    """
    from assay.cli.errors import BadInput
    from assay.cli.simulating import SimulateRequest, run_simulation

    def numbers(text: str) -> tuple[int, ...]:
        try:
            return tuple(int(n) for n in text.split(",") if n)
        except ValueError:
            raise BadInput(f"{text!r} is not a list of numbers such as 4,8,16") from None

    request = SimulateRequest(
        tuple(system), numbers(targets), numbers(streams) or (1,), trace, fio, fileset, stripe_unit, width, crushmap,
        threshold, not busy_only, once, within, seed, change, chart, fmt,
    )  # fmt: skip
    raise typer.Exit(run_simulation(request))
