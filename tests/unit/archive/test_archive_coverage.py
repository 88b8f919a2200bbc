"""Coverage of the envelopes on simulated populations: what "95 %" is worth."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from scipy import special, stats

from assay.archive import curves, envelope, fit, models, panel

VECTORS = json.loads((Path(__file__).parents[2] / "data/archive/test-vectors.json").read_text())
BASE = np.array(VECTORS["reconstruction (NOT data), x_max 4 GB"]["panel"]).mean(axis=0)
REPLICATES = 150
FILES = 1e7


def logit_gaussian(rng: np.random.Generator, archives: int) -> np.ndarray:
    """CDFs whose logits are Gaussian around the reconstruction: a common shift and a smooth CAR(1) part."""
    t = np.arange(BASE.size - 1)
    r = 0.48**2 * 0.995 ** np.abs(t[:, None] - t[None, :])
    z = special.logit(BASE[:-1]) + rng.multivariate_normal(np.zeros(t.size), r, archives)
    return envelope.closed(np.maximum.accumulate(z, axis=1))


def mixtures(rng: np.random.Generator, archives: int) -> np.ndarray:
    """CDFs of another form: Dirichlet mixtures of three normals of log2 size, with jitter of centres and widths."""
    t = np.arange(1, BASE.size + 1)
    weights = rng.dirichlet([8, 10, 4], archives)
    f = np.zeros((archives, t.size))
    for k, (centre, width) in enumerate(((2.0, 1.8), (10.5, 2.6), (15.0, 2.0))):
        m = centre + rng.normal(0, 0.35, (archives, 1))
        s = width * np.exp(rng.normal(0, 0.08, (archives, 1)))
        f += weights[:, k : k + 1] * stats.norm.cdf((t - m) / s)
    f[:, -1] = 1.0
    return f


POPULATIONS = {"logit-gaussian": logit_gaussian, "mixtures": mixtures}


def estimand(name: str) -> np.ndarray:
    """The typical CDF: the mean on the logit scale, of very many archives."""
    many = POPULATIONS[name](np.random.default_rng(99), 40_000)
    z = special.logit(np.clip(many[:, :-1], 0.5 / FILES, 1 - 0.5 / FILES))
    return envelope.closed(z.mean(axis=0))


def coverage(name: str, archives: int) -> tuple[float, float]:
    """Share of grid points inside, and share of mean sizes inside, of the default envelope at 95 %."""
    rng = np.random.default_rng([archives, len(name)])
    truth = estimand(name)
    inside, means = [], []
    for _ in range(REPLICATES):
        p = panel.from_cdf(POPULATIONS[name](rng, archives), files=np.full(archives, FILES))
        e = fit.fit(p, name="t", source="t", levels=(0.95,), knots=7).envelopes[0]
        inside.append(((e.lower[:-1] <= truth[:-1]) & (truth[:-1] <= e.upper[:-1])).mean())
        means.append(curves.expected(e.upper) <= curves.expected(truth) <= curves.expected(e.lower))
    return float(np.mean(inside)), float(np.mean(means))


@pytest.mark.slow
@pytest.mark.parametrize("archives", [4, 8, 16])
@pytest.mark.parametrize("name", POPULATIONS)
def test_the_default_envelope_covers_95_percent(name: str, archives: int) -> None:
    points, means = coverage(name, archives)
    print(f"{name}, A = {archives}: pointwise {points:.3f}, mean size {means:.3f}")
    assert 0.93 <= points <= 0.97
    assert 0.91 <= means <= 0.99  # 150 replicates: its own standard error is 0.018


@pytest.mark.slow
def test_the_papers_envelope_covers_about_80_percent() -> None:
    """Judged against its own estimand, the mean on the F scale. docs/archive.md shows the figure beside the default's."""
    rng = np.random.default_rng(5)
    truth = mixtures(np.random.default_rng(99), 40_000).mean(axis=0)
    inside = []
    for _ in range(60):
        p = panel.from_cdf(mixtures(rng, 4))
        fitted, knots = models.fit_spline(p.cdf, p.t, 7)
        e = envelope.paper(p, fitted, knots, (0.95,), seed=1, draws=4000).envelopes[0]
        inside.append(((e.lower[:-1] <= truth[:-1]) & (truth[:-1] <= e.upper[:-1])).mean())
    found = float(np.mean(inside))
    print(f"paper mode, mixtures, A = 4: {found:.3f}")
    assert 0.68 <= found <= 0.88
