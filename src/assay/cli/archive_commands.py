"""``assay archive``: names, options and help. What a command does is in assay.cli.archiving, imported when it is called."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

archive_app = typer.Typer(
    no_args_is_help=True,
    help="Archives: model file sizes with an honest envelope, build exact filesets.\n\n"
    "scan or import, then fit, then fileset; the method is in docs/archive.md.",
)

JsonOpt = Annotated[bool, typer.Option("--json", help="One JSON document on stdout, progress on stderr.")]
OutFile = Annotated[Path | None, typer.Option("--out", "-o", metavar="FILE", help="Where it goes; default: stdout.")]
FormatOpt = Annotated[
    str | None,
    typer.Option("--from", help="assay, fsstats, fprof, gufi, robinhood, dwalk, sizes or s3; default: recognised."),
]
ThreadsOpt = Annotated[int, typer.Option("--threads", min=1, max=1024, help="Threads.")]
ManifestArg = Annotated[Path, typer.Argument(metavar="MANIFEST", help="What assay archive fileset has left.")]
RootOpt = Annotated[
    Path | None, typer.Option("--root", help="Where the fileset is now; default: where it was written.")
]


@archive_app.command("scan")
def archive_scan(
    directory: Annotated[Path, typer.Argument(help="Root of the tree.")],
    out: OutFile = None,
    threads: ThreadsOpt = 16,
    sample: Annotated[
        float, typer.Option(help="Share of the files to look at; names are always counted. Errors go into the CSV.")
    ] = 1.0,
    seed: Annotated[int, typer.Option(help="Chooses the sample.")] = 1,
    all_mounts: Annotated[bool, typer.Option("--all-mounts", help="Descend into other file systems too.")] = False,
    rate: Annotated[int, typer.Option(min=0, help="Names per second at most; 0: no bound.")] = 0,
    name: Annotated[str | None, typer.Option(help="Name of the archive; default: the directory's.")] = None,
    as_json: JsonOpt = False,
) -> None:
    """Count a tree's file sizes, without names, into one CSV.

    Example: assay archive scan /archive -o archive.csv
    """
    from assay.cli.archiving import scan

    raise typer.Exit(scan(directory, out, threads, sample, seed, all_mounts, rate, name, as_json))


@archive_app.command("import")
def archive_import(
    file: Annotated[Path, typer.Argument(help="Another tool's report, or a list of sizes.")],
    form: FormatOpt = None,
    out: OutFile = None,
    name: Annotated[str | None, typer.Option(help="Name of the archive; default: the file's.")] = None,
) -> None:
    """Turn another tool's histogram or size list into Assay's CSV.

    Example: assay archive import fprof.txt -o atlas.csv
    """
    from assay.cli.archiving import import_file

    raise typer.Exit(import_file(file, form, out, name))


@archive_app.command("fit")
def archive_fit(
    files: Annotated[
        list[Path], typer.Argument(metavar="CSV...", help="One histogram per archive, in any known format.")
    ],
    form: FormatOpt = None,
    model: Annotated[str, typer.Option(help="spline, gamma, generalized-gamma or lognormal-pareto.")] = "spline",
    mode: Annotated[str, typer.Option(help="robust, or paper: as in PDSW'11, misprints mended.")] = "robust",
    knots: Annotated[
        int | None, typer.Option(min=1, help="Interior knots of the spline; default: chosen by BIC.")
    ] = None,
    method: Annotated[
        str, typer.Option("--envelope", help="pointwise-t, gls-t, or predictive (for the next archive).")
    ] = "pointwise-t",
    levels: Annotated[
        list[float] | None, typer.Option("--level", help="Confidence; repeat. Default 0.95 and 0.99.")
    ] = None,
    x_max: Annotated[
        str | None, typer.Option(help="End of the last bucket, e.g. 4GiB; default: where 1-F < 1e-6.")
    ] = None,
    independent: Annotated[bool, typer.Option("--independent", help="Independent errors instead of CAR(1).")] = False,
    seed: Annotated[int, typer.Option(help="Of the draws.")] = 1,
    draws: Annotated[int, typer.Option(min=1000, help="Draws of a bootstrapped envelope.")] = 20_000,
    name: Annotated[str | None, typer.Option(help="Name of the profile.")] = None,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="profile.json, curves.csv, plots.")
    ] = None,
    as_json: JsonOpt = False,
) -> None:
    """Fit a profile, a centre with envelopes, to several archives.

    Example: assay archive fit a.csv b.csv c.csv d.csv -o profile
    """
    from assay.cli.archiving import fit_files

    raise typer.Exit(
        fit_files(
            files, form, model, mode, knots, method, levels or [], x_max, seed, draws, name, out, independent, as_json
        )
    )


@archive_app.command("profiles")
def archive_profiles(as_json: JsonOpt = False) -> None:
    """The built-in profiles, with date and source.

    Example: assay archive profiles
    """
    from assay.cli.archiving import list_profiles

    raise typer.Exit(list_profiles(as_json))


@archive_app.command("fileset")
def archive_fileset(
    directory: Annotated[Path, typer.Argument(help="Existing directory that the files go into.")],
    profile: Annotated[str, typer.Option("--profile", "-p", help="A profile.json, or a built-in profile's name.")],
    curve: Annotated[
        str, typer.Option(help="median, lower95, upper95, lower99, upper99, or an archive's name.")
    ] = "median",
    volume: Annotated[str | None, typer.Option(help="Bytes of all files, e.g. 120GiB; exact.")] = None,
    count: Annotated[int | None, typer.Option(min=1, help="Number of files; exact.")] = None,
    utilisation: Annotated[str | None, typer.Option(help="Fill the file system to this share, e.g. 5%.")] = None,
    sizes: Annotated[str, typer.Option(help="pow2 (as in the paper), bucket-mean or log-uniform.")] = "pow2",
    leftover: Annotated[str, typer.Option(help="Files above x_max: clamp, renormalise or drop.")] = "clamp",
    x_max: Annotated[str | None, typer.Option(help="Leave out larger files and renormalise, e.g. 64MiB.")] = None,
    scale_down: Annotated[
        int, typer.Option(min=0, max=20, help="Divide all sizes by 2^N: same shape, less volume.")
    ] = 0,
    content: Annotated[str, typer.Option(help="random, tagged, compressible:SHARE or zero.")] = "tagged",
    directories: Annotated[str, typer.Option(help="Files per directory, flat, or scan (see --shape).")] = "1000",
    shape: Annotated[Path | None, typer.Option(help="Scan CSV whose files per directory are used.")] = None,
    age: Annotated[Path | None, typer.Option(help="Scan CSV whose ages become the files' times.")] = None,
    seed: Annotated[int, typer.Option(min=0, help="Of sizes, places, order and content.")] = 1,
    share: Annotated[str | None, typer.Option(help="Write only part K/N: N hosts share one fileset.")] = None,
    manifest: Annotated[Path | None, typer.Option(help="Default: DIRECTORY.manifest beside the directory.")] = None,
    threads: ThreadsOpt = 16,
    direct: Annotated[str, typer.Option(help="O_DIRECT: auto (files from 256 KiB), always or never.")] = "auto",
    fsync: Annotated[bool, typer.Option("--fsync", help="fsync every file.")] = False,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Plan only.")] = False,
    as_json: JsonOpt = False,
) -> None:
    """Write a fileset with exactly this count or volume, and its manifest.

    Example: assay archive fileset /mnt/tier -p nersc-hpss-2020 --utilisation 5%
    """
    from assay.cli.archiving import Request, write_fileset

    request = Request(
        directory, profile, curve, volume, count, utilisation, sizes, leftover, x_max, scale_down, content, directories,
        shape, age, seed, share,
    )  # fmt: skip
    raise typer.Exit(write_fileset(request, manifest, threads, direct, fsync, dry_run, as_json))


@archive_app.command("verify")
def archive_verify(
    manifest: ManifestArg, threads: ThreadsOpt = 16, root: RootOpt = None, as_json: JsonOpt = False
) -> None:
    """Read a fileset back and compare every byte; exit code 1 when one differs.

    Example: assay archive verify tier.manifest
    """
    from assay.cli.archiving import verify_fileset

    raise typer.Exit(verify_fileset(manifest, threads, root, as_json))


@archive_app.command("remove")
def archive_remove(
    manifest: ManifestArg, threads: ThreadsOpt = 16, root: RootOpt = None, as_json: JsonOpt = False
) -> None:
    """Remove exactly the files of a fileset, and its directories once they are empty.

    Example: assay archive remove tier.manifest
    """
    from assay.cli.archiving import remove_fileset

    raise typer.Exit(remove_fileset(manifest, threads, root, as_json))


@archive_app.command("run")
def archive_run(
    directory: Annotated[Path, typer.Argument(help="Empty directory, best a fresh file system of its own.")],
    profile: Annotated[str, typer.Option("--profile", "-p", help="A profile.json, or a built-in profile's name.")],
    curves: Annotated[
        list[str] | None,
        typer.Option(
            "--curve", help="Repeat; default median, lower95 and upper95 if there are. archives: all of them."
        ),
    ] = None,
    fixed: Annotated[
        list[str] | None, typer.Option(help="Fixed sizes of the paper's Table 2, e.g. 32MB; repeat.")
    ] = None,
    utilisation: Annotated[list[str] | None, typer.Option(help="Share of the file system; repeat. Default 1%.")] = None,
    volume: Annotated[str | None, typer.Option(help="Bytes instead of a utilisation.")] = None,
    threads: Annotated[list[int] | None, typer.Option(help="Reading threads; repeat. Default 128.")] = None,
    mode: Annotated[
        str, typer.Option(help="scaled: read until the interval is narrow; paper: all, 30 minutes.")
    ] = "scaled",
    minimum: Annotated[
        str | None, typer.Option(help="Least reading time; default 10min (scaled), 30min (paper).")
    ] = None,
    half_width: Annotated[str, typer.Option(help="Scaled: wanted half-width of the rate.")] = "3%",
    x_max: Annotated[str | None, typer.Option(help="Leave out larger files and renormalise.")] = None,
    content: Annotated[str, typer.Option(help="random, tagged, compressible:SHARE or zero.")] = "tagged",
    repeats: Annotated[int, typer.Option(min=1, help="Blocks; the order of cells is drawn anew in each.")] = 1,
    verify: Annotated[bool, typer.Option("--verify", help="Compare every byte after reading.")] = False,
    seed: Annotated[int, typer.Option(min=0, help="Of filesets, orders and blocks.")] = 1,
    out: Annotated[
        Path | None, typer.Option("--out", "-o", metavar="DIR", help="result.json, report.md, plots.")
    ] = None,
    as_json: JsonOpt = False,
) -> None:
    """Benchmark a mounted archive tier: write, sync, go cold, read at random, for several profiles and utilisations.

    Example: assay archive run /mnt/tier -p reconstruction-2008 --utilisation 1% --utilisation 5% -o tier-report
    """
    from assay.cli.archive_run import RunRequest, run_protocol

    request = RunRequest(
        directory, profile, curves or [], fixed or [], utilisation or [], volume, threads or [128], mode, minimum, half_width,
        x_max, content, repeats, verify, seed,
    )  # fmt: skip
    raise typer.Exit(run_protocol(request, out, as_json))


@archive_app.command("export")
def archive_export(
    manifest: ManifestArg,
    form: Annotated[str, typer.Option("--format", "-f", help="elbencho, fio or ffsb.")],
    directory: Annotated[
        str | None, typer.Option(help="Directory named in the export; default: the fileset's.")
    ] = None,
    out: OutFile = None,
) -> None:
    """Describe a fileset for another tool: elbencho treefile, fio job, FFSB profile.

    Example: assay archive export tier.manifest --format elbencho -o tier.treefile
    """
    from assay.cli.archiving import export_fileset

    raise typer.Exit(export_fileset(manifest, form, directory, out))
