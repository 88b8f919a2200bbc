"""Archives on real file systems: scan against find, filesets against the scanner, verification, R's nlme as oracle."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from assay import _core
from assay.archive import ArchiveError, ar1, envelope, fit, models, panel
from assay.archive.fileset import histogram_of
from assay.archive.histogram import from_csv
from assay.workloads import fileset

ASSAY = str(Path(sys.executable).with_name("assay"))
DATA = Path(__file__).parents[1] / "data" / "archive"
VECTORS = json.loads((DATA / "test-vectors.json").read_text())


def assay(*arguments: str | Path, ok: bool = True) -> str:
    done = subprocess.run([ASSAY, "archive", *map(str, arguments)], capture_output=True, text=True, check=False)
    assert (done.returncode == 0) == ok, done.stderr
    return done.stdout if ok else done.stderr


@pytest.fixture
def tier(tmp_path: Path) -> Iterator[Path]:
    place = tmp_path / "tier"
    place.mkdir()
    yield place
    shutil.rmtree(place, ignore_errors=True)


def write(tier: Path, *options: str) -> dict:
    return json.loads(assay("fileset", tier, "-p", "reconstruction-2008", "--json", "--x-max", "4MiB", *options))


def sizes_by_find(tier: Path) -> list[int]:
    out = subprocess.run(["find", tier, "-type", "f", "-printf", "%s\n"], capture_output=True, text=True, check=True)
    return [int(line) for line in out.stdout.split()]


@pytest.mark.parametrize("content", ["random", "tagged", "compressible:0.5", "zero"])
def test_fileset_there_and_back(tier: Path, content: str) -> None:
    told = write(tier, "--volume", "40MiB", "--content", content, "--directories", "20")
    found = sizes_by_find(tier)
    assert sum(found) == 40 * 2**20 == told["bytes_here"]
    assert len(found) == told["files_here"]
    # an independent reader gives the counts that were planned, and the scanner agrees with it
    want = {2 ** (i + 1) * 1024: n for i, n in enumerate(told["counts"]) if n}
    assert dict(zip(*np.unique(found, return_counts=True), strict=True)) == want
    scanned = from_csv(assay("scan", tier), "x")
    assert [b.count for b in scanned.buckets] == histogram_of(found)[: len(scanned.buckets)].tolist()
    assert scanned.volume == sum(found)
    assert "0 faulty" in assay("verify", told["manifest"])
    if content == "zero":
        assert not any(
            (tier / "d0000" / name).read_bytes().strip(b"\0")
            for name in sorted(p.name for p in (tier / "d0000").iterdir())
        )
    removed = assay("remove", told["manifest"])
    assert f"removed {len(found):,} files" in removed
    assert list(tier.iterdir()) == []
    assert not Path(told["manifest"]).exists()


def test_verify_finds_a_single_flipped_bit_a_truncation_and_a_missing_file(tier: Path) -> None:
    manifest = write(tier, "--volume", "30MiB", "--sizes", "log-uniform")["manifest"]
    files = sorted(p for p in tier.rglob("*") if p.is_file())
    rng = np.random.default_rng(3)
    for file in rng.choice(np.array(files, dtype=object), 12, replace=False):
        data = bytearray(file.read_bytes())
        at = int(rng.integers(len(data)))
        data[at] ^= 1 << int(rng.integers(8))
        file.write_bytes(data)
        seen = fileset.verify(fileset.load(Path(manifest)))
        assert [(seen.faulty, path, said) for path, said in seen.faults] == [
            (1, str(file.relative_to(tier)), f"content differs at byte {at}")
        ]
        data[at] ^= 0xFF  # another value, then the right one again
        manifest_of = fileset.load(Path(manifest))
        made = fileset.engine(manifest_of.plan, tier)
        file.unlink()
        index = int(file.name[1:], 16)
        made.write([index], [], threads=1, direct_from=2**63, checksums=False, fsync=False, sync=False)
    assert fileset.verify(fileset.load(Path(manifest))).faulty == 0
    os.truncate(files[0], 0) if files[0].stat().st_size else None
    files[1].unlink()
    said = subprocess.run([ASSAY, "archive", "verify", manifest], capture_output=True, text=True, check=False)
    assert said.returncode == 1
    assert "0 bytes long" in said.stdout
    assert "missing" in said.stdout
    assert "2 faulty" in said.stdout


def test_a_damaged_manifest_is_refused(tier: Path, tmp_path: Path) -> None:
    manifest = Path(write(tier, "--count", "50")["manifest"])
    text = manifest.read_text()
    rows = text.splitlines()
    for damage, said in (
        ("nothing", "not a manifest"),
        (text.replace('"assay_fileset": 1', '"assay_fileset": 9'), "version 9"),
        ("\n".join(rows[:-1]) + "\n" + rows[-2] + "\n", "damaged manifest"),
        (text.replace(",8192,", ",8193,", 1), "differ from its digest"),
        ("\n".join(rows[: len(rows) // 2]) + "\n", "damaged manifest: [0-9]+ of 50 rows"),
    ):
        bad = tmp_path / "bad.manifest"
        bad.write_text(damage)
        with pytest.raises(ArchiveError, match=said):
            fileset.load(bad)


def test_hosts_share_one_fileset(tier: Path, tmp_path: Path) -> None:
    whole = tmp_path / "whole"
    whole.mkdir()
    write(whole, "--volume", "20MiB")
    told = [write(tier, "--volume", "20MiB", "--share", f"{k}/3") for k in (1, 2, 3)]
    assert sum(t["files_here"] for t in told) == told[0]["files"]
    assert {t["digest"] for t in told} == {told[0]["digest"]}
    diff = subprocess.run(["diff", "-r", whole, tier], capture_output=True, text=True, check=False)
    assert diff.returncode == 0, diff.stdout[:500]
    for t in told:
        assert "0 faulty" in assay("verify", t["manifest"])


def test_the_same_seed_makes_the_same_bytes_with_any_threads_and_direct(tier: Path, tmp_path: Path) -> None:
    other = tmp_path / "other"
    other.mkdir()
    write(tier, "--volume", "20MiB", "--direct", "always", "--threads", "7", "--sizes", "log-uniform")
    write(other, "--volume", "20MiB", "--direct", "never", "--threads", "1", "--sizes", "log-uniform")
    assert subprocess.run(["diff", "-r", tier, other], check=False).returncode == 0


def test_compressible_content_compresses_to_its_share(tier: Path) -> None:
    import zlib

    write(tier, "--volume", "8MiB", "--content", "compressible:0.75")
    data = b"".join(p.read_bytes() for p in tier.rglob("*") if p.is_file())
    assert len(zlib.compress(data, 1)) / len(data) == pytest.approx(0.25, abs=0.02)


def test_bad_requests(tier: Path, tmp_path: Path) -> None:
    free = shutil.disk_usage(tier).free
    for options, said in (
        (["--volume", f"{free // 2048 * 4}KiB"], "ask for a smaller --volume"),
        ([], "say how much"),
        (["--volume", "1MiB", "--utilisation", "5%"], "say how much"),
        (["--volume", "20MiB", "--curve", "lower42"], "has no curve 'lower42'; it has median"),
        (["--volume", "20MiB", "--content", "noise"], "unknown content 'noise'"),
        (["--volume", "20MiB", "--share", "5/4"], "share 5/4"),
        (["--utilisation", "0.0001%"], "full already"),
    ):
        assert said in assay("fileset", tier, "-p", "reconstruction-2008", *options, ok=False)
    assert "neither a file nor one of nersc-hpss-2020" in assay("fileset", tier, "-p", "nope", "--count", "5", ok=False)
    assert "make it first" in assay("fileset", tmp_path / "none", "-p", "nersc-hpss-2020", "--count", "5", ok=False)
    assert list(tier.iterdir()) == []


def test_a_full_file_system_is_a_clear_error(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    place = tmp_path / "small"
    place.mkdir()
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=8m,nr_inodes=40", "none", place], check=True)
    try:
        assert "smaller --volume" in assay("fileset", place, "-p", "reconstruction-2008", "--volume", "1GiB", ok=False)
        few = ["fileset", place, "-p", "reconstruction-2008", "--count", "60", "--x-max", "16KiB"]
        assert "inodes" in assay(*few, ok=False)
        (place / "d0000").mkdir()
        made = _core.Fileset(place, [""], [0], [32 << 20], "zero", 0.0, 1)
        with pytest.raises(OSError, match="No space left"):
            made.write([0], [], threads=1, direct_from=2**63, checksums=False, fsync=False, sync=False)
    finally:
        subprocess.run(["umount", place], check=True)


def test_scan_sees_what_find_sees(tmp_path: Path) -> None:
    rng = np.random.default_rng(1)
    for d in range(40):
        directory = tmp_path / "t" / f"d{d % 5}" / f"e{d}"
        directory.mkdir(parents=True)
        for f in range(int(rng.integers(0, 60))):
            (directory / f"f{f}").write_bytes(b"x" * int(2 ** rng.uniform(0, 14)))
    root = tmp_path / "t"
    (root / "empty").touch()
    os.link(root / "empty", root / "again")
    (root / "name\nwith\udce4newline").write_bytes(b"abc")
    (root / "link").symlink_to("empty")
    os.mkfifo(root / "fifo")
    h = from_csv(assay("scan", root), "x")
    found = sizes_by_find(root)
    assert h.files == len(found) - 1  # the second link
    assert h.volume == sum(found)
    assert (h.facts["symlinks"], h.facts["special_files"], h.facts["hard_links_not_counted_again"]) == ("1", "1", "1")


def test_a_sampled_scan_is_within_its_error_bars(tmp_path: Path) -> None:
    root = tmp_path / "t"
    rng = np.random.default_rng(2)
    for d in range(20):
        (root / f"d{d}").mkdir(parents=True)
        for f in range(200):
            os.truncate(os.open(root / f"d{d}" / f"f{f}", os.O_CREAT | os.O_WRONLY), int(2 ** rng.uniform(5, 12)))
    os.closerange(20, 4100)
    whole = from_csv(assay("scan", root), "x")
    inside = total = 0
    for seed in range(20):
        part = from_csv(assay("scan", root, "--sample", "0.2", "--seed", str(seed)), "x")
        assert part.files == pytest.approx(4000)
        for a, b in zip(whole.buckets, part.buckets, strict=False):
            if a.count:
                total += 1
                inside += abs(a.count - b.count) <= 1.96 * b.count_se
    assert inside / total > 0.88


def test_memory_of_a_scan_does_not_grow_with_the_files(tmp_path: Path) -> None:
    """Peak memory of the whole process on 1,000 and 60,000 files of one directory."""
    peaks = []
    for count in (1000, 60_000):
        place = tmp_path / str(count)
        place.mkdir()
        for f in range(count):
            os.close(os.open(place / f"{f:08d}", os.O_CREAT | os.O_WRONLY))
        code = (
            "import resource; from assay import _core; "
            f"_core.scan_tree({str(place)!r}, threads=4, one_file_system=True, sample=1.0, seed=1, now=0, "
            "names_per_second=0, remembered_inodes=1000); print(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss)"
        )
        out = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
        peaks.append(int(out.stdout))
    assert peaks[1] - peaks[0] < 4096, peaks  # KiB


# --- R's nlme as an oracle -------------------------------------------------------------------------------------------

R_SCRIPT = """
suppressMessages(library(nlme)); suppressMessages(library(splines))
d <- read.csv("panel.csv"); x <- read.csv("basis.csv")
out <- function(name, m, sigma) {
  cat(name, "coef", format(coef(m), digits = 12), "\\n")
  phi <- coef(m$modelStruct$corStruct, unconstrained = FALSE)
  cat(name, "rest", format(c(phi, sigma, as.numeric(logLik(m))), digits = 12), "\\n")
}
ctl <- gnlsControl(tolerance = 1e-7, nlsTol = 1e-4, maxIter = 200, nlsMaxIter = 100, returnObject = FALSE)
start <- scan("start.txt", quiet = TRUE)
gg <- function(x, a, b, c) pgamma(exp(exp(c) * (log(x) - a)), exp(b - c))
lp <- function(x, m, s, e, a) ifelse(log(x) <= e, pnorm((log(x) - m) / exp(s)),
      1 - pnorm(-(e - m) / exp(s)) * exp(-exp(a) * pmax(log(x) - e, 0)))
try({ m <- gnls(y ~ pgamma(x / exp(a), exp(b)), d, start = list(a = start[1], b = start[2]),
                correlation = corCAR1(start[11], ~ t | g), control = ctl); out("gamma", m, m$sigma) }, silent = TRUE)
try({ m <- gnls(y ~ gg(x, a, b, c), d, start = list(a = start[3], b = start[4], c = start[5]),
                correlation = corCAR1(start[12], ~ t | g), control = ctl); out("generalized-gamma", m, m$sigma) }, silent = TRUE)
try({ m <- gnls(y ~ lp(x, mu, s, e, a), d, start = list(mu = start[6], s = start[7], e = start[8], a = start[9]),
                correlation = corCAR1(start[13], ~ t | g), control = ctl); out("lognormal-pareto", m, m$sigma) }, silent = TRUE)
ml <- function(y, rows, basis) {
  e <- d[rows, ]; e$y <- y[rows]; e$b <- as.matrix(basis)
  gls(y ~ b - 1, e, correlation = corCAR1(0.9, ~ t | g), method = "ML", control = glsControl(tolerance = 1e-10, msTol = 1e-12))
}
m <- ml(d$y, rep(TRUE, nrow(d)), x); out("spline", m, m$sigma)
z <- read.csv("basisz.csv"); last <- d$t < max(d$t)
m <- ml(qlogis(d$y), last, z); out("logit-spline", m, m$sigma)
"""


def r_has_nlme() -> bool:
    if shutil.which("Rscript") is None:
        return False
    return subprocess.run(["Rscript", "-e", "library(nlme)"], capture_output=True, check=False).returncode == 0


def panels() -> dict[str, panel.Panel]:
    recon, real = (p for p in VECTORS if p != "note")
    larger = [Path(fit.__file__).parent / "data" / f"{n}.csv" for n in VECTORS[recon]["archives"]]
    return {
        "reconstruction, 4 GiB": panel.from_cdf(VECTORS[recon]["panel"]),
        "real, 1 TiB": panel.from_cdf(VECTORS[real]["panel"]),
        "reconstruction, 64 GiB": panel.make_panel([from_csv(f.read_text(), f.stem) for f in larger], 2**36),
    }


@pytest.mark.slow
@pytest.mark.parametrize("name", ["reconstruction, 4 GiB", "real, 1 TiB", "reconstruction, 64 GiB"])
def test_fits_agree_with_r(name: str, tmp_path: Path) -> None:
    if not r_has_nlme():
        pytest.skip("no R with nlme here: apt-get install -y r-base-core r-cran-nlme")
    p = panels()[name]
    ours: dict[str, ar1.Fit] = {}
    for model in models.MODELS.values():
        try:
            ours[model.name] = models.fit_parametric(model, p.cdf, p.t)
        except ArchiveError:
            assert name == "real, 1 TiB"
            assert model.name == "generalized-gamma"
    ours["spline"], knots = models.fit_spline(p.cdf, p.t, 7)
    z = envelope.logits(p)
    ours["logit-spline"], _ = models.fit_spline(z, p.t[:-1], knots)
    _write_r_input(tmp_path, p, ours, knots)
    (tmp_path / "fit.R").write_text(R_SCRIPT)
    done = subprocess.run(["Rscript", "fit.R"], cwd=tmp_path, capture_output=True, text=True, timeout=400, check=True)
    theirs: dict[str, dict[str, list[float]]] = {}
    for line in done.stdout.splitlines():
        model, what, *numbers = line.split()
        theirs.setdefault(model, {})[what] = [float(n) for n in numbers]
    compared = set(theirs) & set(ours)
    assert {"gamma", "spline", "logit-spline"} <= compared, done.stderr
    for model in sorted(compared):
        mine, coef, (phi, sigma, likelihood) = ours[model], theirs[model]["coef"], theirs[model]["rest"]
        worst = float(np.abs(mine.parameters - coef).max())
        print(f"{name}, {model}: largest difference of a coefficient from R {worst:.1e}")
        assert mine.parameters == pytest.approx(coef, abs=1e-3, rel=1e-3), model
        # gls with ML divides by N, gnls by N - p
        mine_sigma = mine.sigma_ml if "spline" in model else mine.sigma
        assert (mine.phi, mine_sigma) == pytest.approx((phi, sigma), rel=1e-3), model
        assert mine.log_likelihood == pytest.approx(likelihood, abs=1e-3 * abs(likelihood)), model


def _write_r_input(place: Path, p: panel.Panel, ours: dict[str, ar1.Fit], knots: int) -> None:
    rows = ["g,t,x,y"]
    clipped = np.clip(p.cdf, (0.5 / p.files)[:, None], (1 - 0.5 / p.files)[:, None])
    for a in range(p.archives):
        for i, t in enumerate(p.t):
            y = p.cdf[a, i] if i == p.cut - 1 else clipped[a, i]
            rows.append(f"{a},{t:.0f},{2**t:.0f},{y:.17g}")
    (place / "panel.csv").write_text("\n".join(rows))
    for file, t in (("basis.csv", p.t), ("basisz.csv", p.t[:-1])):
        np.savetxt(place / file, np.tile(models.design(t, knots), (p.archives, 1)), delimiter=",", comments="",
                   header=",".join(f"v{i}" for i in range(knots + 4)), fmt="%.17g")  # fmt: skip
    # near, not at, our optimum: R has to find it
    start = [
        *(ours["gamma"].parameters + 0.05),
        *(ours["generalized-gamma"].parameters + 0.02 if "generalized-gamma" in ours else np.zeros(3)),
        *(ours["lognormal-pareto"].parameters * 1.002), 0.0,
        *(ours[m].phi - 0.01 if m in ours else 0.9 for m in models.MODELS),
    ]  # fmt: skip
    (place / "start.txt").write_text("\n".join(f"{s:.10g}" for s in start))


def test_the_protocol_on_a_fresh_ext4(tmp_path: Path) -> None:
    """Two curves, four archives and one fixed size at one utilisation; everything is removed again."""
    if os.geteuid() != 0:
        pytest.skip("mounting needs root")
    image, mount, out = tmp_path / "img", tmp_path / "mnt", tmp_path / "out"
    mount.mkdir()
    subprocess.run(["truncate", "-s", "600M", image], check=True)
    subprocess.run(["mkfs.ext4", "-q", "-F", image], check=True)
    subprocess.run(["mount", "-o", "loop", image, mount], check=True)
    try:
        (mount / "lost+found").rmdir()
        options = ["--curve", "median", "--curve", "archives", "--fixed", "1MB", "--utilisation", "8%", "--threads", "16",
                   "--mode", "scaled", "--minimum", "1s", "--x-max", "1MiB", "--verify", "-o", str(out), "--json"]  # fmt: skip
        told = json.loads(assay("run", mount, "-p", "reconstruction-2008", *options))
        assert list(mount.iterdir()) == []
        assert "is not empty" not in str(told)
    finally:
        subprocess.run(["umount", mount], check=True)
    assert len(told["results"]) == 6
    assert {r["faulty_files"] for r in told["results"]} == {0}
    for r in told["results"]:
        (read,) = r["reads"]
        assert read["cold"]
        assert read["cold_evidence"]["resident"] == 0
        assert sum(read["bins"]) == read["bytes"] <= r["fileset"]["bytes"]
        assert r["utilisation"] == pytest.approx(0.08, abs=0.01)
    compared = [row for row in told["comparison"] if row["percent"] is not None]
    assert sorted(row["cell"] for row in compared) == ["1MB", "median"]
    assert all(row["z"] is not None for row in compared)
    assert {p.name for p in out.iterdir()} == {"result.json", "report.md", "difference.svg", "difference.png"}
    assert "| median | 8% |" in (out / "report.md").read_text()
