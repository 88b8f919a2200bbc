"""Envelopes: how much the typical CDF may differ from the centre, given that only A archives were seen.

``lower`` curves lie below the centre (more large files), ``upper`` ones above it (more small files). Coverage of the
methods on simulated populations is in docs/archive.md; the tests repeat it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import special, stats

from assay.archive import ArchiveError, ar1, curves, models
from assay.archive.panel import Panel

FloatArray = NDArray[np.float64]
Method = Literal["pointwise-t", "gls-t", "predictive", "paper"]
LEVELS = (0.95, 0.99)
DRAWS = 20_000  # with 4,000 the mean size of the paper's lower envelope moves by 3 MiB from seed to seed
_CHUNK = 4_000


@dataclass(frozen=True)
class Envelope:
    """Two CDFs on the grid. ``leftover`` is the probability that the lower one leaves above x_max (0 but in paper mode)."""

    level: float
    lower: FloatArray
    upper: FloatArray
    leftover: float
    method: Method


def logits(panel: Panel) -> FloatArray:
    """logit F at i = 1..I-1, clipped to half a file: F(x_I) = 1 by definition."""
    half = (0.5 / panel.files)[:, None]
    return special.logit(np.clip(panel.cdf[:, :-1], half, 1 - half))


def closed(z: FloatArray) -> FloatArray:
    """Logits at i = 1..I-1 as a CDF with F(x_I) = 1."""
    f = special.expit(z)
    return np.concatenate([f, np.ones((*f.shape[:-1], 1))], axis=-1)


def pointwise_t(panel: Panel, level: float, centre: FloatArray | None = None) -> Envelope:
    """Student's t interval of the mean logit at each size, A - 1 degrees of freedom, made monotone.

    No model of the curve or of its errors enters, hence coverage close to nominal in populations of any form. The
    envelope is widened where needed to contain ``centre``. Raises ArchiveError for one archive: its spread is unknown.
    """
    need_archives(panel)
    z = logits(panel)
    mean, spread = z.mean(axis=0), z.std(axis=0, ddof=1)
    half = stats.t.isf((1 - level) / 2, panel.archives - 1) * spread / math.sqrt(panel.archives)
    lower, upper = closed(mean - half), closed(mean + half)
    if centre is not None:
        lower, upper = np.minimum(lower, centre), np.maximum(upper, centre)
    return Envelope(level, curves.lower_monotone(lower), curves.upper_monotone(upper), 0.0, "pointwise-t")


def gls_t(
    panel: Panel, fit: ar1.Fit, interior: int, levels: tuple[float, ...], *, seed: int, draws: int = DRAWS,
    predictive: bool = False,
) -> list[Envelope]:  # fmt: skip
    """Quantiles of spline curves on the logit scale whose coefficients are drawn from a multivariate t with A - 1
    degrees of freedom (only A independent curves exist) and projected on non-decreasing ones. ``predictive`` adds one
    draw of the CAR(1) errors: an envelope for the next archive instead of the typical one."""
    need_archives(panel)
    rng = np.random.default_rng(seed)
    t = panel.t[:-1]
    basis = models.design(t, interior)
    root = _root(fit.covariance)
    noise = _car1_root(fit, t) if predictive else None
    df = panel.archives - 1
    parts = []
    for count in _chunks(draws):
        scale = np.sqrt(df / rng.chisquare(df, count))[:, None]
        c = fit.parameters + rng.standard_normal((count, root.shape[1])) @ root.T * scale
        z = curves.pava(c) @ basis.T
        if noise is not None:
            z = z + rng.standard_normal((count, t.size)) @ noise.T * scale
        parts.append(special.expit(z).astype(np.float32))
    f = np.concatenate(parts)
    out = []
    for level in levels:
        low, high = _quantiles(f, level)
        one = np.ones(1)
        out.append(
            Envelope(
                level, curves.lower_monotone(np.concatenate([low, one])),
                curves.upper_monotone(np.concatenate([high, one])), 0.0, "predictive" if predictive else "gls-t",
            )
        )  # fmt: skip
    return out


@dataclass(frozen=True)
class PaperEnvelopes:
    """Envelopes as the paper makes them, and the share of draws that were no distribution at all."""

    envelopes: list[Envelope]
    rejected: float
    without_cdf: float


def paper(
    panel: Panel, fit: ar1.Fit, model: models.Parametric | int, levels: tuple[float, ...], *, seed: int,
    draws: int = DRAWS,
) -> PaperEnvelopes:  # fmt: skip
    """The paper's bootstrap on the F scale: parameters ~ normal, pointwise quantiles, then the monotone correction with
    its misprints mended. ``model`` is a parametric model (normal in its natural parameters, as gnls reports them;
    draws that are not positive are rejected) or a spline's number of knots (coefficients drawn without constraint)."""
    need_archives(panel)
    rng = np.random.default_rng(seed)
    if isinstance(model, int):
        basis = models.design(panel.t, model)
        root = _root(fit.covariance)
        parts = [
            (fit.parameters + rng.standard_normal((count, root.shape[1])) @ root.T) @ basis.T
            for count in _chunks(draws)
        ]
        f, rejected = np.concatenate(parts), 0.0
    else:
        f, rejected = _natural_draws(panel, fit, model, rng, draws)
    without = float((np.diff(f, axis=1) < -1e-9).any(axis=1).mean())
    out = []
    for level in levels:
        low, high = _quantiles(f, level)
        lower, upper = curves.lower_monotone(low), curves.upper_monotone(high)
        out.append(Envelope(level, lower, upper, curves.leftover(lower), "paper"))
    return PaperEnvelopes(out, rejected, without)


def _natural_draws(
    panel: Panel, fit: ar1.Fit, model: models.Parametric, rng: np.random.Generator, draws: int
) -> tuple[FloatArray, float]:
    """Curves of parameters drawn on the natural scale by the delta method."""
    logs = np.array([name.startswith("ln ") for name in model.parameters])
    if float(np.abs(fit.parameters[logs]).max()) > 500:
        raise ArchiveError(f"{model.name}: the parameters are beyond all bounds, so no envelope can be drawn")
    natural = np.where(logs, np.exp(fit.parameters), fit.parameters)
    slope = np.where(logs, natural, 1.0)
    root = _root(fit.covariance * np.outer(slope, slope))
    drawn = natural + rng.standard_normal((draws, root.shape[1])) @ root.T
    good = (drawn[:, logs] > 0).all(axis=1)
    if good.mean() < 0.05:
        raise ArchiveError(
            f"{model.name}: {100 * (1 - good.mean()):.0f} % of the draws have negative parameters: the data do not "
            "determine them; use --mode robust"
        )
    x = 2.0**panel.t
    with np.errstate(all="ignore"):
        usable = drawn[good]
        usable[:, logs] = np.log(usable[:, logs])
        f = np.array([model.cdf(x, p) for p in usable])
    return np.clip(np.nan_to_num(f, nan=1.0), 0.0, 1.0), float(1 - good.mean())


def need_archives(panel: Panel) -> None:
    """Raises ArchiveError for a single archive."""
    if panel.archives < 2:
        raise ArchiveError(
            "one archive alone has no envelope: how far another one would lie from it cannot be seen in it; "
            "give histograms of at least two archives (three or more keep the envelope usefully narrow)"
        )


def _quantiles(f: NDArray[np.floating], level: float) -> tuple[FloatArray, FloatArray]:
    low, high = np.quantile(f, [(1 - level) / 2, (1 + level) / 2], axis=0)
    return low.astype(float), high.astype(float)


def _chunks(draws: int) -> list[int]:
    return [min(_CHUNK, draws - done) for done in range(0, draws, _CHUNK)]


def _root(covariance: FloatArray) -> FloatArray:
    """A matrix whose square is the covariance, also when that is barely positive."""
    values, vectors = np.linalg.eigh(covariance)
    root: FloatArray = np.zeros(covariance.shape)
    root[:] = vectors * np.sqrt(np.maximum(values, 0.0))
    return root


def _car1_root(fit: ar1.Fit, t: FloatArray) -> FloatArray:
    correlation = fit.phi ** np.abs(t[:, None] - t[None, :]) + 1e-12 * np.eye(t.size)
    root: FloatArray = np.zeros(correlation.shape)
    root[:] = fit.sigma * np.linalg.cholesky(correlation)
    return root
