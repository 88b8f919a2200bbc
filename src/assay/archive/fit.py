"""From several archives to a profile: a centre, envelopes, and everything that is needed to judge them."""

from __future__ import annotations

import datetime
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from assay.archive import ArchiveError, ar1, curves, envelope, models
from assay.archive.envelope import DRAWS, LEVELS, Envelope
from assay.archive.panel import Panel

FloatArray = NDArray[np.float64]
Mode = Literal["paper", "robust"]
SPLINE = "spline"
MODEL_NAMES = (SPLINE, *models.MODELS)
ENVELOPES = ("pointwise-t", "gls-t", "predictive")


@dataclass(frozen=True)
class Profile:
    """A fitted profile: CDFs at x_i = 2^i KiB, i = 1..I."""

    name: str
    source: str
    date: str
    mode: Mode
    model: str
    errors: ar1.Errors
    median: FloatArray
    envelopes: tuple[Envelope, ...]
    archives: tuple[str, ...]
    empirical: FloatArray  # archives x grid
    bucket_means: FloatArray  # KiB, NaN where unknown
    knots: int | None = None
    parameters: dict[str, float] = field(default_factory=dict)
    standard_errors: dict[str, float] = field(default_factory=dict)
    phi: float = 0.0
    sigma: float = 0.0
    log_likelihood: float = 0.0
    bic: float = 0.0
    seed: int = 0
    draws: int = 0
    notes: tuple[str, ...] = ()

    @property
    def cut(self) -> int:
        """I: x_max = 2^I KiB."""
        return self.median.size

    @property
    def max_deviation(self) -> float:
        """Largest distance of the centre from the archives' mean CDF."""
        return curves.ks_distance(self.median, self.empirical.mean(axis=0))

    def curve(self, name: str) -> FloatArray:
        """``median``, ``lower95``, ``upper99``, or an archive's name: the CDF. Raises ArchiveError for another name."""
        if name == "median":
            return self.median
        for e in self.envelopes:
            if name == f"lower{round(100 * e.level)}" or (name == "lower" and e.level == self.envelopes[0].level):
                return e.lower
            if name == f"upper{round(100 * e.level)}" or (name == "upper" and e.level == self.envelopes[0].level):
                return e.upper
        if name in self.archives:
            return self.empirical[self.archives.index(name)]
        if name.startswith(("lower", "upper")) and not self.envelopes:
            raise ArchiveError(f"profile {self.name} has no envelope: it was fitted to {len(self.archives)} archive")
        raise ArchiveError(f"profile {self.name} has no curve {name!r}; it has {', '.join(self.curve_names)}")

    @property
    def curve_names(self) -> list[str]:
        """All names that :meth:`curve` takes."""
        levels = [f"{side}{round(100 * e.level)}" for e in self.envelopes for side in ("lower", "upper")]
        return ["median", *levels, *self.archives]

    def means(self) -> dict[str, dict[str, float]]:
        """E[X] in MiB of every curve by size rule; the leftover is clamped, and for ``upper`` also dropped (paper)."""
        out: dict[str, dict[str, float]] = {}
        known = bool(np.isfinite(self.bucket_means).any())
        for name in self.curve_names:
            f = self.curve(name)
            row = {"upper": curves.expected(f, "upper"), "log-uniform": curves.expected(f, "log-uniform")}
            if known:
                row["bucket-mean"] = curves.expected(f, "bucket-mean", bucket_means=self.bucket_means)
            row["upper, leftover dropped"] = curves.expected(f, "upper", "drop")
            row["leftover"] = curves.leftover(f)
            out[name] = row
        return out


def fit(
    panel: Panel,
    *,
    name: str,
    source: str,
    model: str = SPLINE,
    mode: Mode = "robust",
    knots: int | None = None,
    errors: ar1.Errors = "car1",
    envelope_method: str = "pointwise-t",
    levels: tuple[float, ...] = LEVELS,
    seed: int = 1,
    draws: int = DRAWS,
    date: str | None = None,
) -> Profile:
    """Fit a model to a panel. ``paper`` reproduces the paper (F scale, normal draws); ``robust`` fits a spline on the logit
    scale (other models stay on the F scale) under a model-free envelope. A panel of one archive gets a centre and no
    envelope. Raises ArchiveError when the fit has no optimum or options do not go together."""
    if model not in MODEL_NAMES:
        raise ArchiveError(f"unknown model {model!r}; known: {', '.join(MODEL_NAMES)}")
    if mode not in ("paper", "robust"):
        raise ArchiveError(f"unknown mode {mode!r}; known: paper, robust")
    if envelope_method not in ENVELOPES:
        raise ArchiveError(f"unknown envelope {envelope_method!r}; known: {', '.join(ENVELOPES)}")
    if mode == "robust" and envelope_method != "pointwise-t" and model != SPLINE:
        raise ArchiveError(f"the envelope {envelope_method} needs the spline; take --envelope pointwise-t")
    if not all(0.5 < level < 1 for level in levels):
        raise ArchiveError("envelope levels are shares between 0.5 and 1, for example 0.95")
    if panel.cut < 8:
        raise ArchiveError(f"{panel.cut} buckets up to x_max are too few to fit; raise x_max")
    notes = list(_panel_notes(panel))
    if mode == "paper":
        fitted, interior, median, envelopes = _paper(panel, model, knots, errors, levels, seed, draws, notes)
    else:
        fitted, interior, median, envelopes = _robust(
            panel, model, knots, errors, envelope_method, levels, seed, draws, notes
        )
    if fitted.phi > 0.995:
        notes.append(
            f"phi = {fitted.phi:.4f}: the fit weighs increments and may miss the level; look at max |dF| and the plot"
        )
    if not all(np.isfinite(c).all() for e in envelopes for c in (e.lower, e.upper)) or not np.isfinite(median).all():
        raise ArchiveError(f"{model}: the fit has no finite curve here; take another model")
    names = models.MODELS[model].parameters if model != SPLINE else [f"c{i + 1}" for i in range(fitted.parameters.size)]
    return Profile(
        name=name, source=source, date=date or datetime.datetime.now(datetime.UTC).date().isoformat(), mode=mode,
        model=model, errors=errors, median=median, envelopes=tuple(envelopes), archives=panel.names,
        empirical=panel.cdf, bucket_means=panel.bucket_means, knots=interior,
        parameters=dict(zip(names, map(float, fitted.parameters), strict=True)),
        standard_errors=dict(zip(names, map(float, fitted.standard_errors), strict=True)),
        phi=fitted.phi, sigma=fitted.sigma, log_likelihood=fitted.log_likelihood, bic=fitted.bic,
        seed=seed, draws=draws, notes=tuple(notes),
    )  # fmt: skip


def _panel_notes(panel: Panel) -> list[str]:
    notes = [
        f"{100 * share:.3g} % of the files of {name} are larger than x_max and were put into the last bucket"
        for name, share in zip(panel.names, panel.folded, strict=True)
        if share > 1e-6
    ]
    if panel.archives == 1:
        notes.append(
            "one archive: no envelope, since how far another one would lie from it cannot be seen in it; "
            "give at least two, better four"
        )
    elif panel.archives < 4:
        notes.append(
            f"{panel.archives} archives: Student's t with {panel.archives - 1} df makes the envelope very wide"
        )
    return notes


_Parts = tuple[ar1.Fit, int | None, FloatArray, list[Envelope]]


def _paper(
    panel: Panel, model: str, knots: int | None, errors: ar1.Errors, levels: tuple[float, ...], seed: int, draws: int,
    notes: list[str],
) -> _Parts:  # fmt: skip
    parametric = models.MODELS.get(model)
    interior: int | None = None
    if parametric is None:
        fitted, interior = models.fit_spline(panel.cdf, panel.t, knots, errors)
        median = models.design(panel.t, interior) @ fitted.parameters
        if not curves.is_cdf(median):
            notes.append("the fitted spline itself is no distribution (F-scale coefficients are not constrained)")
            median = np.clip(np.maximum.accumulate(median), 0.0, 1.0)
    else:
        fitted = models.fit_parametric(parametric, panel.cdf, panel.t, errors)
        median = parametric.cdf(2.0**panel.t, fitted.parameters)
    if panel.archives == 1:
        return fitted, interior, median, []
    found = envelope.paper(panel, fitted, parametric or interior or 0, levels, seed=seed, draws=draws)
    if found.rejected > 0.001:
        notes.append(f"{100 * found.rejected:.0f} % of the draws had negative parameters and were rejected")
    if found.without_cdf > 0.001:
        notes.append(f"{100 * found.without_cdf:.0f} % of the drawn curves are no distributions")
    for e in found.envelopes:
        if e.leftover > 1e-6:
            notes.append(
                f"lower{round(100 * e.level)} leaves {100 * e.leftover:.2f} % of the files above x_max; the paper drops "
                "them, which is why its mean size stays small"
            )
    return fitted, interior, median, found.envelopes


def _robust(
    panel: Panel, model: str, knots: int | None, errors: ar1.Errors, method: str, levels: tuple[float, ...], seed: int,
    draws: int, notes: list[str],
) -> _Parts:  # fmt: skip
    interior: int | None = None
    if model == SPLINE:
        z = envelope.logits(panel)
        fitted, interior = models.fit_spline(z, panel.t[:-1], knots, errors)
        median = envelope.closed(models.design(panel.t[:-1], interior) @ curves.pava(fitted.parameters))
    else:
        parametric = models.MODELS[model]
        fitted = models.fit_parametric(parametric, panel.cdf, panel.t, errors)
        median = parametric.cdf(2.0**panel.t, fitted.parameters)
        if curves.leftover(median) > 1e-6:
            notes.append(f"the centre leaves {100 * curves.leftover(median):.3g} % of the files above x_max: clamped")
            median = np.append(median[:-1], 1.0)
    if panel.archives == 1:
        return fitted, interior, median, []
    if method == "pointwise-t" or interior is None:
        return fitted, interior, median, [envelope.pointwise_t(panel, level, median) for level in levels]
    found = envelope.gls_t(
        panel, fitted, interior, levels, seed=seed, draws=draws, predictive=method == "predictive"
    )  # fmt: skip
    return fitted, interior, median, found


def to_dict(profile: Profile) -> dict[str, Any]:
    """The profile as JSON-able data; unknown bucket means are null."""
    return {
        "assay_profile": 1, "name": profile.name, "source": profile.source, "date": profile.date, "mode": profile.mode,
        "model": profile.model, "errors": profile.errors, "knots": profile.knots, "phi": profile.phi,
        "sigma": profile.sigma, "log_likelihood": profile.log_likelihood, "bic": profile.bic,
        "parameters": profile.parameters, "standard_errors": profile.standard_errors, "seed": profile.seed,
        "draws": profile.draws, "archives": list(profile.archives), "x_kib": [2**i for i in range(1, profile.cut + 1)],
        "median": profile.median.tolist(),
        "envelopes": [
            {"level": e.level, "method": e.method, "leftover": e.leftover, "lower": e.lower.tolist(),
             "upper": e.upper.tolist()}
            for e in profile.envelopes
        ],
        "empirical": profile.empirical.tolist(),
        "bucket_means_kib": [None if not np.isfinite(m) else float(m) for m in profile.bucket_means],
        "mean_size_mib": profile.means(), "max_deviation": profile.max_deviation, "notes": list(profile.notes),
    }  # fmt: skip


def from_dict(data: dict[str, Any]) -> Profile:
    """A profile that :func:`to_dict` wrote. Raises ArchiveError when it is none or its curves are no CDFs."""
    try:
        if data["assay_profile"] != 1:
            raise ArchiveError(f"profile of version {data['assay_profile']}; this Assay reads version 1")
        profile = Profile(
            name=data["name"], source=data["source"], date=data["date"], mode=data["mode"], model=data["model"],
            errors=data["errors"], median=np.array(data["median"], dtype=float),
            envelopes=tuple(
                Envelope(e["level"], np.array(e["lower"], dtype=float), np.array(e["upper"], dtype=float),
                         e["leftover"], e["method"])
                for e in data["envelopes"]
            ),
            archives=tuple(data["archives"]), empirical=np.array(data["empirical"], dtype=float),
            bucket_means=np.array([np.nan if m is None else m for m in data["bucket_means_kib"]], dtype=float),
            knots=data["knots"], parameters=data["parameters"], standard_errors=data["standard_errors"],
            phi=data["phi"], sigma=data["sigma"], log_likelihood=data["log_likelihood"], bic=data["bic"],
            seed=data["seed"], draws=data["draws"], notes=tuple(data["notes"]),
        )  # fmt: skip
    except (KeyError, TypeError, ValueError) as error:
        if isinstance(error, ArchiveError):
            raise
        raise ArchiveError(f"not a profile that assay archive fit wrote: {error!s}") from None
    for name in profile.curve_names:
        f = profile.curve(name)
        if f.size != profile.cut or not curves.is_cdf(f, 1e-9):
            raise ArchiveError(f"curve {name} of profile {profile.name} is no distribution on its grid")
    return profile
