"""``assay archive run``: the archival protocol over profiles, utilisations and threads, and its report."""

from __future__ import annotations

import json
import random
import statistics
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay.archive import ArchiveError, allocation, curves, fileset, protocol
from assay.archive.fit import Profile
from assay.cli.archiving import load_profile
from assay.cli.errors import BadInput
from assay.model import units
from assay.workloads import archive as on_host
from assay.workloads import fileset as on_disk


@dataclass(frozen=True)
class RunRequest:
    """What was asked for."""

    directory: Path
    profile: str
    curves: list[str]
    fixed: list[str]
    utilisation: list[str]
    volume: str | None
    threads: list[int]
    mode: str
    minimum: str | None
    half_width: str
    x_max: str | None
    content: str
    repeats: int
    verify: bool
    seed: int


@dataclass(frozen=True)
class _Cell:
    """One fileset at one volume."""

    name: str
    kind: str  # curve, archive or fixed
    volume: int
    share: str


def run_protocol(request: RunRequest, out: Path | None, as_json: bool) -> int:
    """Carry all cells out in an order drawn per block, write the report. Exit code 1 when a file was faulty."""
    if not request.directory.is_dir():
        raise BadInput(f"{request.directory} is no directory; make it first")
    if request.mode not in ("paper", "scaled"):
        raise BadInput(f"--mode {request.mode}: paper or scaled")
    profile = load_profile(request.profile)
    cells = _cells(request, profile)
    results: list[dict[str, Any]] = []
    began = time.monotonic()
    for block in range(request.repeats):
        order = list(cells)
        random.Random(f"{request.seed}:{block}").shuffle(order)
        for cell in order:
            plan, distance = _plan(cell, request, profile, block)
            results.append(
                {
                    "cell": cell.name, "kind": cell.kind, "share": cell.share, "block": block, "ks_to_target": distance,
                    **on_host.run_cell(plan, request.directory, _readings(request), verify=request.verify,
                                       say=lambda text, c=cell: _say(began, f"{c.name} at {c.share}: {text}")),
                }
            )  # fmt: skip
    told = _result(request, profile, results)
    if out is not None:
        out.mkdir(parents=True, exist_ok=True)
        (out / "result.json").write_text(json.dumps(told, indent=1))
        (out / "report.md").write_text(report(told))
        from assay.report.archive import difference_plots

        for file, content in difference_plots(told["comparison"]).items():
            (out / file).write_bytes(content)
    print(json.dumps(told) if as_json else report(told), end="\n" if as_json else "")
    return 1 if any(r.get("faulty_files") for r in results) else 0


def _say(began: float, text: str) -> None:
    print(f"[{time.monotonic() - began:7.1f} s] {text}", file=sys.stderr, flush=True)


def _cells(request: RunRequest, profile: Profile) -> list[_Cell]:
    names = [c for c in request.curves if c != "archives"]
    if not request.curves:
        names = [n for n in ("median", "lower95", "upper95") if n in profile.curve_names]
    if "archives" in request.curves:
        names += list(profile.archives)
    for name in names:
        profile.curve(name)  # an unknown one is refused before anything is written
    unknown = [f for f in request.fixed if f not in protocol.FIXED_SIZES]
    if unknown:
        raise BadInput(f"--fixed {unknown[0]}: one of {', '.join(protocol.FIXED_SIZES)}")
    if request.volume is not None and request.utilisation:
        raise BadInput("either --volume or --utilisation")
    if request.volume is not None:
        volumes = [(request.volume, units.parse_bytes(request.volume))]
    else:
        volumes = [
            (u, on_disk.volume_for(request.directory, units.parse_fraction(u))) for u in request.utilisation or ["1%"]
        ]
    kinds = [(n, "archive" if n in profile.archives else "curve") for n in names] + [
        (f, "fixed") for f in request.fixed
    ]
    return [_Cell(name, kind, volume - volume % 2048, share) for share, volume in volumes for name, kind in kinds]


def _plan(cell: _Cell, request: RunRequest, profile: Profile, block: int) -> tuple[fileset.Plan, float]:
    """The fileset of a cell, and the KS distance of its counts from the target."""
    if cell.kind == "fixed":
        sizes, shares = zip(*protocol.FIXED_SIZES[cell.name], strict=True)
        files = round(cell.volume / float(np.dot(sizes, shares)))
        if files < 1:
            raise ArchiveError(f"{cell.volume} bytes do not hold one file of {cell.name}; ask for more")
        target = np.array(shares)
        counts = allocation.largest_remainder(target, files)
        made = allocation.Allocation(counts, np.repeat(np.array(sizes, dtype=np.uint64), counts), target * files, 0)
    else:
        cut = profile.cut if request.x_max is None else units.parse_bytes(request.x_max).bit_length() - 11
        rule: curves.LeftoverRule = "clamp" if cut == profile.cut else "renormalise"
        target = allocation.cap(profile.curve(cell.name), cut, rule)
        made = allocation.allocate(target, volume=cell.volume)
        for note in made.notes:
            print(f"assay: note: {cell.name} at {cell.share}: {note}", file=sys.stderr)
    plan = fileset.make_plan(made, content=fileset.parse_content(request.content), seed=request.seed + 1000 * block)
    return plan, made.ks_to(target)


def _readings(request: RunRequest) -> list[on_host.Reading]:
    default = protocol.PAPER_SECONDS if request.mode == "paper" else protocol.SCALED_SECONDS
    minimum = default if request.minimum is None else units.parse_seconds(request.minimum)
    width = units.parse_fraction(request.half_width)
    return [
        on_host.Reading(
            threads=n, mode="paper" if request.mode == "paper" else "scaled", minimum_seconds=minimum, half_width=width
        )
        for n in request.threads
    ]


def _result(request: RunRequest, profile: Profile, results: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        "assay_archive_run": 1, "directory": str(request.directory), "profile": profile.name, "source": profile.source,
        "archives": list(profile.archives), "mode": request.mode, "seed": request.seed, "content": request.content,
        "x_max_bytes": 2**profile.cut * 1024 if request.x_max is None else units.parse_bytes(request.x_max),
        "leftover": {n: curves.leftover(profile.curve(n)) for n in profile.curve_names},
        "results": results, "comparison": comparison(results),
    }  # fmt: skip


def comparison(results: Sequence[dict[str, Any]]) -> list[dict[str, Any]]:
    """Mean rate per cell and threads over the blocks, and its difference from the empirical archives that were run too."""
    rates: dict[tuple[str, str, str, int], list[float]] = {}
    for r in results:
        for read in r["reads"]:
            key = (r["share"], r["cell"], r["kind"], read["threads"])
            rates.setdefault(key, []).append(read["rate"]["bytes_per_second"])
    out = []
    for (share, cell, kind, threads), values in rates.items():
        empirical = [
            statistics.fmean(v) for (s, _, k, t), v in rates.items() if (s, k, t) == (share, "archive", threads)
        ]
        row: dict[str, Any] = {
            "share": share, "cell": cell, "kind": kind, "threads": threads, "blocks": len(values),
            "MB_per_s": statistics.fmean(values) / 1e6, "percent": None, "z": None, "inside": None,
        }  # fmt: skip
        if empirical and kind != "archive":
            d = protocol.difference(statistics.fmean(values), empirical)
            row |= {"percent": d.percent, "z": d.z, "inside": d.inside}
        out.append(row)
    return out


def report(told: dict[str, Any]) -> str:
    """Markdown: what was done, the rates, the comparison, per-bucket service times."""
    lines = [f"# Archive run on {told['directory']}", "", f"Profile {told['profile']}: {told['source']}.", ""]
    lines += ["| fileset | of capacity | files | GB | KS | write MB/s | sync share | threads | read MB/s | ± % | files/s | of a pass | cold |",
              "|---|---|---|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for r in told["results"]:
        for read in r["reads"]:
            rate = read["rate"]
            half = rate["half_width"]
            width = "not known" if half is None else f"{100 * half / rate['bytes_per_second']:.1f}"
            lines.append(
                f"| {r['cell']} | {r['share']} | {r['fileset']['files']} | {r['fileset']['bytes'] / 1e9:.3f} | {r['ks_to_target']:.4f} "
                f"| {r['write']['bytes_per_second'] / 1e6:.1f} | {r['write']['sync_share']:.2f} | {read['threads']} "
                f"| {rate['bytes_per_second'] / 1e6:.1f} | {width} | {read['files_per_second']:.0f} "
                f"| {read['share_of_pass']:.2f} | {'proven' if read['cold'] else 'not proven'} |"
            )
    lines += ["", "## Against the empirical archives", ""]
    compared = [row for row in told["comparison"] if row["percent"] is not None]
    if compared:
        lines += [
            "| fileset | of capacity | threads | difference % | z | within one more archive's 95 % |",
            "|---|---|---|---|---|---|",
        ]
        for row in compared:
            z = "–" if row["z"] is None else f"{row['z']:.2f}"
            inside = {True: "yes", False: "no", None: "–"}[row["inside"]]
            lines.append(
                f"| {row['cell']} | {row['share']} | {row['threads']} | {row['percent']:+.1f} | {z} | {inside} |"
            )
    else:
        lines.append("None was run; add `--curve archives` to see how far the archives themselves scatter.")
    lines += ["", "## Service time by size", "", "| fileset | of capacity | threads | size | files | bytes % | median ms | p95 ms | p99 ms | first byte ms |",
              "|---|---|---|---|---|---|---|---|---|---|"]  # fmt: skip
    for r in told["results"]:
        for read in r["reads"]:
            for b in read["by_bucket"]:
                lines.append(
                    f"| {r['cell']} | {r['share']} | {read['threads']} | {b['bucket_min_bytes']:.0f}–{b['bucket_max_bytes']:.0f} B "
                    f"| {b['files']:.0f} | {100 * b['bytes_share']:.1f} | {1e3 * b['service_median']:.2f} "
                    f"| {1e3 * b['service_p95']:.2f} | {1e3 * b['service_p99']:.2f} | {1e3 * b['first_byte_median']:.2f} |"
                )
    notes = sorted(
        {f"{r['cell']} at {r['share']}: {n}" for r in told["results"] for read in r["reads"] for n in read["notes"]}
    )
    leftovers = {n: v for n, v in told["leftover"].items() if v > 1e-9}
    lines += [
        "",
        "## Notes",
        "",
        f"* x_max {told['x_max_bytes']} bytes, seed {told['seed']}, content {told['content']}, mode {told['mode']}",
    ]
    lines += [f"* {name} leaves {100 * v:.3g} % of the files above x_max (clamped)" for name, v in leftovers.items()]
    return "\n".join([*lines, *(f"* {n}" for n in notes), ""])
