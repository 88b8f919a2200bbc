"""``assay archive``: scan, import, fit, fileset, verify, remove, export. What it prints; the work is elsewhere."""

from __future__ import annotations

import csv
import io
import json
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assay.archive import ArchiveError, allocation, curves, envelope, export, fileset, fit, histogram, importers, panel
from assay.archive import presets as archive_presets
from assay.archive.fit import Profile
from assay.archive.histogram import Histogram, show
from assay.archive.scanning import from_scan
from assay.cli.errors import BadInput
from assay.model import units


@dataclass
class _Ticker:
    """One line on stderr, twice a second on a terminal, every ten seconds elsewhere."""

    what: str
    began: float = 0.0
    last: float = 0.0

    def __post_init__(self) -> None:
        self.began = self.last = time.monotonic()

    def say(self, text: str) -> None:
        now = time.monotonic()
        live = sys.stderr.isatty()
        if now - self.last < (0.5 if live else 10.0):
            return
        self.last = now
        print(f"{self.what}: {text}, {now - self.began:.0f} s", end="\r" if live else "\n", file=sys.stderr, flush=True)

    def files(self, total: int, volume: int) -> Callable[[int, int], None]:
        """A callback for the fileset engine."""

        def tick(files: int, done: int) -> None:
            spent = time.monotonic() - self.began
            share = done / volume if volume else files / max(1, total)
            left = f", {units.format_seconds(spent / share - spent)} left" if share > 0.01 else ""
            self.say(f"{files} of {total} files, {done / 1e9:.2f} of {volume / 1e9:.2f} GB{left}")

        return tick


def _emit(text: str, out: Path | None) -> None:
    if out is None:
        print(text, end="")
    else:
        out.write_text(text)


def scan(
    directory: Path, out: Path | None, threads: int, sample: float, seed: int, all_mounts: bool, rate: int, name: str | None,
    as_json: bool,
) -> int:  # fmt: skip
    """Scan a tree and write its CSV."""
    from assay import _core

    ticker = _Ticker("scan")
    began = time.time()
    if not directory.is_dir():
        raise BadInput(f"{directory} is no directory")
    if not 0 < sample <= 1:
        raise BadInput(f"--sample {sample}: a share above 0 and up to 1")
    seen = _core.scan_tree(
        directory, threads=threads, one_file_system=not all_mounts, sample=sample, seed=seed, now=int(began),
        names_per_second=rate, remembered_inodes=4_000_000,
        progress=lambda names, directories: ticker.say(f"{names} files in {directories} directories"),
    )  # fmt: skip
    seconds = time.time() - began
    facts = {
        "date": time.strftime("%Y-%m-%d", time.gmtime(began)),
        "source": "assay archive scan" + (f", sample {sample:g}, seed {seed}" if sample < 1 else ""),
    }
    found = from_scan(seen, name or directory.resolve().name or "root", facts)
    _emit(histogram.to_csv(found), out)
    rate_text = f"{seen['names'] / max(seconds, 1e-9):,.0f} files/s"
    if as_json:
        print(json.dumps({"files": seen["names"], "seconds": seconds, "out": str(out) if out else None, **found.facts}))
    elif out is not None:
        print(f"{out}: {_summary(found)}; {seconds:.2f} s, {rate_text}")
    if seen["errors"]:
        print(f"assay: {seen['errors']} names could not be read, first: {'; '.join(seen['examples'])}", file=sys.stderr)
    return 0


def _summary(h: Histogram) -> str:
    volume = h.volume
    mean = "" if volume is None else f", {volume / 1e9:,.2f} GB, mean {show(volume / h.files)}"
    return f"{h.files:,.0f} files{mean}"


def read_histograms(files: list[Path], form: str | None) -> list[Histogram]:
    """Histograms from files of any known format."""
    out = []
    for file in files:
        try:
            text = file.read_text(errors="replace")
        except IsADirectoryError:
            raise BadInput(
                f"{file} is a directory; scan it first: assay archive scan {file} -o {file.name}.csv"
            ) from None
        out.append(importers.read(text, file.stem, form))
    return out


def import_file(file: Path, form: str | None, out: Path | None, name: str | None) -> int:
    """Another tool's histogram or size list as Assay's CSV; long lists are read line by line."""
    with file.open(errors="replace") as lines:
        head = lines.read(20000)
        found = form or importers.recognise(head)
        if found in ("sizes", "s3"):
            lines.seek(0)
            reader = importers.size_list if found == "sizes" else importers.s3_inventory
            result = reader(lines, name or file.stem)
        else:
            result = importers.read(head + lines.read(), name or file.stem, found)
    _emit(histogram.to_csv(result), out)
    if out is not None:
        print(f"{out}: {_summary(result)} from {found}")
    return 0


def load_profile(name: str) -> Profile:
    """A profile by file or by the name of a built-in one."""
    file = Path(name)
    if file.suffix == ".json" or file.is_file():
        try:
            return fit.from_dict(json.loads(file.read_text()))
        except json.JSONDecodeError as error:
            raise BadInput(f"{file} is not JSON: {error}") from None
    return archive_presets.load(name)


def list_profiles(as_json: bool) -> int:
    """The built-in profiles."""
    rows = archive_presets.catalogue()
    if as_json:
        print(json.dumps(rows))
        return 0
    from rich.table import Table

    from assay.cli.console import stdout

    table = Table("profile", "date", "archives", "mean size (MiB)", "source", box=None, pad_edge=False)
    for row in rows:
        table.add_row(row["name"], row["date"], str(row["archives"]), f"{row['mean_size_mib']:.3g}", row["source"])
    stdout().print(table)
    return 0


def fit_files(
    files: list[Path], form: str | None, model: str, mode: str, knots: int | None, method: str, levels: list[float],
    x_max: str | None, seed: int, draws: int, name: str | None, out: Path | None, independent: bool, as_json: bool,
) -> int:  # fmt: skip
    """Fit histograms and write profile, curves and plots."""
    histograms = read_histograms(files, form)
    p = panel.make_panel(histograms, units.parse_bytes(x_max) if x_max else None)
    profile = fit.fit(
        p, name=name or "profile", source=", ".join(h.name for h in histograms), model=model, mode=_mode(mode), knots=knots,
        errors="independent" if independent else "car1", envelope_method=method, levels=tuple(levels) or envelope.LEVELS,
        seed=seed, draws=draws,
    )  # fmt: skip
    if out is not None:
        write_profile(profile, out)
    if as_json:
        print(json.dumps(fit.to_dict(profile)))
    else:
        show_profile(profile)
        if out is not None:
            print(f"written: {', '.join(sorted(str(f) for f in out.iterdir()))}")
    return 0


def _mode(text: str) -> fit.Mode:
    if text == "paper":
        return "paper"
    if text == "robust":
        return "robust"
    raise BadInput(f"--mode {text}: paper or robust")


def write_profile(profile: Profile, out: Path) -> None:
    """profile.json, curves.csv and the plots."""
    from assay.report.archive import fit_plots

    out.mkdir(parents=True, exist_ok=True)
    (out / "profile.json").write_text(json.dumps(fit.to_dict(profile), indent=1))
    text = io.StringIO()
    writer = csv.writer(text)
    names = profile.curve_names
    writer.writerow(["i", "x_kib", *names])
    for i in range(profile.cut):
        writer.writerow([i + 1, 2 ** (i + 1), *(f"{profile.curve(n)[i]:.12g}" for n in names)])
    (out / "curves.csv").write_text(text.getvalue())
    for file, content in fit_plots(profile).items():
        (out / file).write_bytes(content)


def show_profile(profile: Profile) -> None:
    """The table of a fit."""
    from rich.table import Table

    from assay.cli.console import stdout

    console = stdout()
    knots = f", {profile.knots} knots" if profile.knots else ""
    console.print(
        f"{profile.name}: {profile.model}{knots}, {profile.mode} mode, {len(profile.archives)} archives, "
        f"x_max {show(2.0**profile.cut * 1024)}, log-likelihood {profile.log_likelihood:.3f}, BIC {profile.bic:.3f}, "
        f"phi {profile.phi:.6f}, sigma {profile.sigma:.6f}, max |dF| {profile.max_deviation:.4f}",
        highlight=False,
    )
    means = profile.means()
    rules = list(next(iter(means.values())))
    table = Table("curve", *(f"E[X] {r} (MiB)" if r != "leftover" else r for r in rules), box=None, pad_edge=False)
    for name, row in means.items():
        table.add_row(name, *(f"{row[r]:.4g}" for r in rules))
    console.print(table)
    for note in profile.notes:
        console.print(f"note: {note}", highlight=False)


@dataclass(frozen=True)
class Request:
    """What ``assay archive fileset`` was asked for."""

    directory: Path
    profile: str
    curve: str
    volume: str | None
    count: int | None
    utilisation: str | None
    sizes: str
    leftover: str
    x_max: str | None
    scale_down: int
    content: str
    directories: str
    shape_from: Path | None
    age_from: Path | None
    seed: int
    share: str | None


def make_request(request: Request) -> tuple[fileset.Plan, dict[str, Any], list[str]]:
    """Plan, facts for the manifest, and notes of a request."""
    from assay.workloads import fileset as on_disk

    profile = load_profile(request.profile)
    cdf = profile.curve(request.curve)
    cut = profile.cut if request.x_max is None else _cut(units.parse_bytes(request.x_max))
    rule = _one_of(request.leftover, curves.LEFTOVER_RULES, "--leftover")
    p = allocation.cap(cdf, cut, rule if cut == profile.cut else "renormalise")
    asked = [v for v in (request.volume, request.count, request.utilisation) if v is not None]
    if not asked or (request.utilisation is not None and request.volume is not None):
        raise BadInput("say how much: one of --volume, --count, --utilisation (--count may go with --volume)")
    volume = None
    if request.volume is not None:
        volume = units.parse_bytes(request.volume)
    elif request.utilisation is not None:
        volume = on_disk.volume_for(_existing(request.directory), units.parse_fraction(request.utilisation))
    sizes = _one_of(request.sizes, allocation.SIZES, "--sizes")
    factor = 2**request.scale_down
    made = allocation.allocate(
        p, volume=None if volume is None else volume * factor, files=request.count, sizes=sizes,
        bucket_means=profile.bucket_means[:cut],
    )  # fmt: skip
    notes = list(made.notes)
    if request.scale_down:
        # shape-preserving: all sizes / 2^k; below one byte nothing is left of a file
        made = allocation.Allocation(
            made.counts, np.maximum(made.sizes // np.uint64(factor), 1), made.expected, made.moved
        )
        notes.append(f"all sizes divided by {factor}: a fileset of the same shape, not of the same sizes")
    plan = fileset.make_plan(
        made, content=fileset.parse_content(request.content), seed=request.seed, directories=request.directories,
        per_directory=_table(request.shape_from, "directories by"), ages=_table(request.age_from, "days since"),
        now=int(time.time()),
    )  # fmt: skip
    facts = {
        "profile": profile.name, "profile_source": profile.source, "curve": request.curve, "sizes": sizes,
        "leftover_rule": rule, "leftover": curves.leftover(cdf), "x_max_bytes": 2**cut * 1024, "scaled_by": factor,
        "probabilities": p.tolist(), "counts": made.counts.tolist(), "ks_to_profile": made.ks_to(p / p.sum()),
        "files": plan.files, "bytes": plan.volume, "moved": made.moved, "share": request.share, "notes": notes,
    }  # fmt: skip
    if request.share is not None:
        number, _, of = request.share.partition("/")
        if not (number.isdecimal() and of.isdecimal()):
            raise BadInput(f"--share {request.share}: write for example 2/4, the second of four hosts")
        plan = plan.share(int(number), int(of))
    return plan, facts, notes


def _existing(directory: Path) -> Path:
    if not directory.is_dir():
        raise BadInput(f"{directory} is no directory; make it first")
    return directory


def _cut(x_max: int) -> int:
    if x_max < 2048 or x_max & (x_max - 1):
        raise BadInput(f"--x-max {x_max}: a power of two of at least 2 KiB")
    return x_max.bit_length() - 11


def _one_of(text: str, known: tuple[Any, ...], option: str) -> Any:
    if text not in known:
        raise BadInput(f"{option} {text}: one of {', '.join(known)}")
    return text


def _table(file: Path | None, title: str) -> histogram.SideTable | None:
    if file is None:
        return None
    for table in histogram.side_tables(file.read_text()):
        if title in table.title:
            return table
    raise BadInput(f"{file} has no table '{title} ...'; it must be a CSV of assay archive scan")


def write_fileset(request: Request, manifest: Path | None, threads: int, direct: str, fsync: bool, dry_run: bool,
                  as_json: bool) -> int:  # fmt: skip
    """Plan, write and record a fileset."""
    from assay.workloads import fileset as on_disk

    plan, facts, notes = make_request(request)
    for note in notes:
        print(f"assay: note: {note}", file=sys.stderr)
    volume = int(plan.sizes[plan.order.astype(np.int64)].sum(dtype=np.uint64))
    told = {**facts, "files_here": int(plan.order.size), "bytes_here": volume, "digest": plan.digest}
    if dry_run:
        _show_plan(told, as_json)
        return 0
    root = _existing(request.directory)
    default = (
        root.resolve().parent
        / f"{root.resolve().name}{'.' + request.share.replace('/', 'of') if request.share else ''}.manifest"
    )
    place = manifest or default
    if place.exists():
        raise BadInput(f"{place} is there already; remove that fileset first, or name another with --manifest")
    ticker = _Ticker("fileset")
    direct_from = {"auto": on_disk.DIRECT_FROM, "always": 1, "never": on_disk.NEVER}.get(direct)
    if direct_from is None:
        raise BadInput(f"--direct {direct}: auto, always or never")
    done = on_disk.write(
        plan, root, threads=threads, direct_from=direct_from, fsync=fsync,
        progress=ticker.files(int(plan.order.size), volume),
    )  # fmt: skip
    on_disk.save(on_disk.Manifest(root, plan, done.checksums, facts), place)
    if as_json:
        times = {"write_seconds": done.write_seconds, "sync_seconds": done.sync_seconds, "seconds": done.seconds}
        print(json.dumps({**told, **times, "manifest": str(place), "direct_files": done.direct_files}))
        return 0
    _show_plan(told, False)
    print(
        f"written in {done.write_seconds:.2f} s, synced in {done.sync_seconds:.2f} s: {done.bytes / 1e6 / done.seconds:,.0f} MB/s, "
        f"{done.files / done.seconds:,.0f} files/s\nmanifest: {place}"
    )
    return 0


def _show_plan(told: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(told))
        return
    print(
        f"{told['files_here']:,} files, {told['bytes_here']:,} bytes of profile {told['profile']} ({told['curve']}), sizes "
        f"{told['sizes']}, KS to profile {told['ks_to_profile']:.5f}, leftover {100 * told['leftover']:.3g} %"
    )


def verify_fileset(file: Path, threads: int, root: Path | None, as_json: bool) -> int:
    """Exit code 0 when every byte is as written."""
    from assay.workloads import fileset as on_disk

    manifest = _manifest(file, root)
    ticker = _Ticker("verify")
    seen = on_disk.verify(
        manifest, threads=threads, progress=ticker.files(len(manifest.plan.order), manifest.plan.volume)
    )
    if as_json:
        print(json.dumps({"files": seen.files, "bytes": seen.bytes, "faulty": seen.faulty, "faults": seen.faults}))
    else:
        for path, said in seen.faults:
            print(f"{path}: {said}")
        print(f"{seen.files:,} files, {seen.bytes:,} bytes read, {seen.faulty} faulty")
    return 1 if seen.faulty else 0


def _manifest(file: Path, root: Path | None) -> Any:
    from assay.workloads import fileset as on_disk

    manifest = on_disk.load(file)
    if root is None:
        return manifest
    return on_disk.Manifest(root, manifest.plan, manifest.checksums, manifest.facts)


def remove_fileset(file: Path, threads: int, root: Path | None, as_json: bool) -> int:
    """Remove the files of a manifest, then the manifest."""
    from assay.workloads import fileset as on_disk

    manifest = _manifest(file, root)
    ticker = _Ticker("remove")
    gone = on_disk.remove(manifest, threads=threads, progress=ticker.files(len(manifest.plan.order), 0))
    file.unlink()
    if as_json:
        print(json.dumps(gone))
    else:
        kept = f"; kept, not empty: {', '.join(gone['kept'][:5])}" if gone["kept"] else ""
        print(
            f"removed {gone['files']:,} files and {gone['directories']:,} directories; {gone['missing']} were missing{kept}"
        )
    return 0


def export_fileset(file: Path, form: str, directory: str | None, out: Path | None) -> int:
    """A manifest's files for another tool."""
    from assay.workloads import fileset as on_disk

    manifest = on_disk.load(file)
    made = on_disk.engine(manifest.plan, manifest.root)
    lines = export.export(manifest.plan, form, directory or str(manifest.root), made.name)
    if out is None:
        sys.stdout.writelines(lines)
    else:
        with out.open("w") as text:
            text.writelines(lines)
    return 0


__all__ = ["ArchiveError", "Request"]
