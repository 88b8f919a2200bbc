"""The archival method against its test vectors: two panels, every model, envelopes, a fileset."""

from __future__ import annotations

import json
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.archive import ArchiveError, allocation, curves, envelope, fit, models, panel

VECTORS = json.loads((Path(__file__).parents[2] / "data/archive/test-vectors.json").read_text())
RECON = "reconstruction (NOT data), x_max 4 GB"
REAL = "real HPC panel (NERSC HPSS, Atlas1, Atlas2, project2), x_max 1 TB"
#: the panels are printed to ten digits: a logit at 1 - F = 5e-8 is known to 1e-3 only
CLOSE = {RECON: 1e-5, REAL: 1e-3}
# what 20,000 draws leave of uncertainty: relative, in E[X] of an envelope, at 95 and 99 %
MONTE_CARLO = {"95": 0.06, "99": 0.35}


@cache
def make_panel(name: str) -> panel.Panel:
    return panel.from_cdf(VECTORS[name]["panel"], VECTORS[name]["archives"])


def entries(prefix: str) -> list[tuple[str, str]]:
    return [(p, key) for p in (RECON, REAL) for key in VECTORS[p] if key.startswith(prefix)]


@pytest.mark.parametrize("name", [RECON, REAL])
def test_mean_sizes_by_upper_edges(name: str) -> None:
    means = [curves.expected(row) for row in make_panel(name).cdf]
    assert means == pytest.approx(VECTORS[name]["E_upper_edge_MB"], rel=1e-5)


@pytest.mark.parametrize(("name", "key"), entries("gamma") + entries("gengamma"))
def test_parametric_models(name: str, key: str) -> None:
    model, errors = key.split("/")
    p, want = make_panel(name), VECTORS[name][key]
    found = models.fit_parametric(
        models.MODELS["gamma" if model == "gamma" else "generalized-gamma"], p.cdf, p.t,
        "car1" if errors == "car1" else "independent",
    )  # fmt: skip
    assert found.parameters == pytest.approx(want["ln_params"], abs=1e-4)
    assert found.standard_errors == pytest.approx(want["se"], rel=1e-4)
    assert (found.phi, found.sigma, found.log_likelihood) == pytest.approx(
        (want["phi"], want["sigma"], want["logLik"]), abs=1e-6
    )
    median = models.MODELS["gamma" if model == "gamma" else "generalized-gamma"].cdf(2.0**p.t, found.parameters)
    assert curves.expected(median) == pytest.approx(want["E_MB"], rel=0.02)


def test_generalized_gamma_without_an_optimum_is_refused() -> None:
    p = make_panel(REAL)
    with pytest.raises(ArchiveError, match=r"no optimum here: ln p = -[0-9.]+ runs towards the lognormal limit"):
        models.fit_parametric(models.MODELS["generalized-gamma"], p.cdf, p.t)


def _knots(key: str) -> int:
    return int(key.split(", ")[1].split()[0])


@pytest.mark.parametrize(("name", "key"), entries("paper-mode") + entries("robust-mode"))
def test_splines(name: str, key: str) -> None:
    p, want = make_panel(name), VECTORS[name][key]
    robust = key.startswith("robust")
    y, t = (envelope.logits(p), p.t[:-1]) if robust else (p.cdf, p.t)
    found, _ = models.fit_spline(y, t, _knots(key))
    close = CLOSE[name] if robust else 1e-6
    assert found.parameters == pytest.approx(want["coef"], abs=close)
    assert found.standard_errors == pytest.approx(want["se"], rel=close)
    assert (found.phi, found.sigma) == pytest.approx((want["phi"], want["sigma"]), abs=close)
    assert found.log_likelihood == pytest.approx(want["logLik"], rel=close, abs=close)
    if "BIC choice" in key:
        assert models.fit_spline(y, t, None)[1] == _knots(key)


@pytest.mark.parametrize(("name", "key"), entries("robust-mode"))
def test_robust_curves_and_gls_envelopes(name: str, key: str) -> None:
    want: dict[str, Any] = VECTORS[name][key]
    profile = fit.fit(make_panel(name), name="t", source="t", knots=_knots(key), envelope_method="gls-t")
    assert profile.median == pytest.approx(want["median"], abs=CLOSE[name])
    assert curves.expected(profile.median) == pytest.approx(want["median_E"], rel=1e-4)
    for e in profile.envelopes:
        level = str(round(100 * e.level))
        reference = want["envelope"][level]
        assert np.abs(e.lower - reference["lower"]).max() < (0.02 if level == "95" else 0.07)
        assert np.abs(e.upper - reference["upper"]).max() < (0.02 if level == "95" else 0.03)
        assert curves.expected(e.lower) == pytest.approx(reference["lower_E"], rel=MONTE_CARLO[level])
        assert curves.expected(e.upper) == pytest.approx(reference["upper_E"], rel=MONTE_CARLO[level])


@pytest.mark.parametrize(("name", "key"), entries("paper-mode"))
def test_paper_mode_envelopes(name: str, key: str) -> None:
    """The vectors' lower envelope was corrected by pairs (erratum E2): its clamped mean and leftover agree anyway."""
    want = VECTORS[name][key]
    profile = fit.fit(make_panel(name), name="t", source="t", mode="paper", knots=_knots(key))
    assert curves.expected(profile.median) == pytest.approx(want["median_E"], rel=1e-3)
    for e in profile.envelopes:
        reference = want["envelope"][str(round(100 * e.level))]
        assert e.leftover == pytest.approx(reference["leftover"], rel=0.04)
        assert curves.expected(e.lower) == pytest.approx(reference["lower_E_clamp"], rel=0.05)
        assert curves.expected(e.upper) == pytest.approx(reference["upper_E"], rel=0.05)
        assert curves.is_cdf(e.lower)
        assert curves.is_cdf(e.upper)
        if name == RECON:  # 20,000 draws move the mean of the lower envelope by 3 MiB
            dropped = curves.expected(e.lower, "upper", "drop")
            assert dropped == pytest.approx(reference["lower_E_drop"], abs=7)


@pytest.mark.parametrize("name", [RECON, REAL])
def test_pointwise_t(name: str) -> None:
    p = make_panel(name)
    want = VECTORS[name]["pointwise t on the logit scale (no model)"]
    e = envelope.pointwise_t(p, 0.95)
    centre = envelope.closed(envelope.logits(p).mean(axis=0))
    assert curves.expected(centre) == pytest.approx(want["median_E"], rel=1e-4)
    assert curves.expected(e.lower) == pytest.approx(want["lower_E"], rel=1e-4)
    assert curves.expected(e.upper) == pytest.approx(want["upper_E"], rel=1e-4)


@pytest.mark.parametrize("name", [RECON, REAL])
def test_filesets(name: str) -> None:
    want = VECTORS[name]["fileset 120 GB from robust median"]
    profile = fit.fit(make_panel(name), name="t", source="t", knots=7)
    made = allocation.allocate(np.diff(profile.median, prepend=0.0), volume=120 * 2**30)
    assert made.counts.tolist() == want["counts"]
    assert (made.files, made.volume) == (want["C"], want["volume_kb"] * 1024)


def test_the_bundled_histograms_give_the_vectors_panels() -> None:
    from importlib import resources

    from assay.archive.histogram import from_csv

    data = resources.files("assay.archive") / "data"
    for name, row in zip(VECTORS[REAL]["archives"][:2], VECTORS[REAL]["panel"][:2], strict=True):
        p = panel.make_panel([from_csv((data / f"{name}.csv").read_text(), name)], x_max=2**40)
        # the vectors leave out files above x_max, Assay folds them into the last bucket
        assert p.cdf[0][:-1] / (1 - p.folded[0]) == pytest.approx(row[:-1], abs=1e-7)  # edges that the CSV rounds
    for name, row in zip(VECTORS[RECON]["archives"], VECTORS[RECON]["panel"], strict=True):
        p = panel.make_panel([from_csv((data / f"{name}.csv").read_text(), name)], x_max=2**32)
        # the vectors leave out files above x_max, Assay folds them into the last bucket
        assert p.cdf[0][:-1] / (1 - p.folded[0]) == pytest.approx(row[:-1], abs=1e-7)  # edges that the CSV rounds
