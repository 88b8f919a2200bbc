"""The models of a file-size CDF, at x_i = 2^i KiB; parameters that must be positive are given by their logarithms."""

from __future__ import annotations

from abc import ABC, abstractmethod
from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import special
from scipy.interpolate import BSpline

from assay.archive import ArchiveError, ar1

FloatArray = NDArray[np.float64]
DEGREE = 3
KNOTS = range(3, 10)  # numbers of interior knots that BIC chooses from
_LOGNORMAL_LIMIT = -3.0  # ln p of a generalized gamma below which it is on its way to the lognormal, without an optimum


@dataclass(frozen=True)
class Parametric(ABC):
    """A parametric CDF of x in KiB."""

    name: str
    parameters: tuple[str, ...]

    @abstractmethod
    def cdf(self, x: FloatArray, p: ArrayLike) -> FloatArray:
        """F(x) for parameters as :attr:`parameters` names them."""

    @abstractmethod
    def starts(self, t: FloatArray, mean: FloatArray) -> list[FloatArray]:
        """Where to begin."""

    def accept(self, p: FloatArray) -> None:  # noqa: B027 (most models take any)
        """Raises ArchiveError when parameters are on their way to infinity instead of at an optimum."""


class Gamma(Parametric):
    """F = P(k, x / theta), P the regularised lower incomplete gamma function."""

    def __init__(self) -> None:
        super().__init__("gamma", ("ln theta", "ln k"))

    def cdf(self, x: FloatArray, p: ArrayLike) -> FloatArray:
        """See Parametric."""
        theta, k = np.exp(np.clip(np.asarray(p, dtype=float), -700, 700))
        return special.gammainc(k, x / theta)

    def starts(self, t: FloatArray, mean: FloatArray) -> list[FloatArray]:
        """See Parametric."""
        return [np.array([10.5, -1.85]), np.array([_ln_quantile(t, mean, 0.9), -1.5])]


class GeneralizedGamma(Parametric):
    """F = P(k / p, (x / theta)^p): the integral of the paper's density (Stacy and Mihram 1965)."""

    def __init__(self) -> None:
        super().__init__("generalized-gamma", ("ln theta", "ln k", "ln p"))

    def cdf(self, x: FloatArray, p: ArrayLike) -> FloatArray:
        """See Parametric."""
        ln_theta, ln_k, ln_p = np.asarray(p, dtype=float)
        power = np.exp(np.clip(ln_p, -30, 6))
        return special.gammainc(
            np.exp(np.clip(ln_k - ln_p, -700, 700)), np.exp(np.clip(power * (np.log(x) - ln_theta), -700, 700))
        )

    def starts(self, t: FloatArray, mean: FloatArray) -> list[FloatArray]:  # noqa: ARG002 (these suit all panels tried)
        """See Parametric."""
        return [np.array([10.5, -1.85, 0.0]), np.array([11.0, -1.85, 0.1]), np.array([8.0, -1.5, -0.5])]

    def accept(self, p: FloatArray) -> None:
        """See Parametric."""
        if p[2] < _LOGNORMAL_LIMIT:
            raise ArchiveError(
                f"generalized-gamma has no optimum here: ln p = {p[2]:.1f} runs towards the lognormal limit "
                "p -> 0; use --model lognormal-pareto or spline, or independent errors"
            )


class LognormalPareto(Parametric):
    """Lognormal up to x_m, above it a Pareto tail: 1 - (1 - F(x_m)) (x / x_m)^-a (the hybrid of Agrawal et al., FAST'09)."""

    def __init__(self) -> None:
        super().__init__("lognormal-pareto", ("mu", "ln s", "ln x_m", "ln a"))

    def cdf(self, x: FloatArray, p: ArrayLike) -> FloatArray:
        """See Parametric."""
        mu, ln_s, ln_xm, ln_a = np.asarray(p, dtype=float)
        s, ln_x = np.exp(np.clip(ln_s, -50, 50)), np.log(x)
        body = special.ndtr((ln_x - mu) / s)
        tail_mass = special.ndtr(-(ln_xm - mu) / s)
        tail = 1 - tail_mass * np.exp(-np.exp(np.clip(ln_a, -50, 50)) * np.maximum(ln_x - ln_xm, 0))
        return np.where(ln_x <= ln_xm, body, tail)

    def starts(self, t: FloatArray, mean: FloatArray) -> list[FloatArray]:
        """See Parametric."""
        middle = _ln_quantile(t, mean, 0.5)
        spread = max(0.5, _ln_quantile(t, mean, 0.84) - middle)
        # the likelihood is only piecewise smooth in ln x_m: begin between all pairs of grid points of the upper half
        ends = np.log(2.0) * (t[t.size // 2 : -1 : 2] + 0.5)
        return [np.array([middle, np.log(spread), end, 0.0]) for end in ends]


MODELS: dict[str, Parametric] = {m.name: m for m in (Gamma(), GeneralizedGamma(), LognormalPareto())}


def _ln_quantile(t: FloatArray, cdf: FloatArray, q: float) -> float:
    return float(np.interp(q, cdf, t * np.log(2.0)))


def knots(t: FloatArray, interior: int) -> FloatArray:
    """Knots of the cubic B-spline: boundary knots four times, interior ones at the type-7 quantiles of t."""
    inner = np.quantile(t, np.arange(1, interior + 1) / (interior + 1))
    return np.concatenate([np.full(DEGREE + 1, t[0]), inner, np.full(DEGREE + 1, t[-1])])


def design(t: FloatArray, interior: int) -> FloatArray:
    """Design matrix (grid x (interior + 4)). Non-decreasing coefficients make a non-decreasing curve."""
    if interior < 1 or interior + DEGREE + 1 > t.size - 1:
        raise ArchiveError(
            f"{interior} knots do not fit on {t.size} grid points; use at most {max(1, t.size - DEGREE - 2)}"
        )
    return BSpline.design_matrix(t, knots(t, interior), DEGREE).toarray()


def fit_parametric(model: Parametric, y: FloatArray, t: FloatArray, errors: ar1.Errors = "car1") -> ar1.Fit:
    """Fit a parametric CDF on the F scale. Raises ArchiveError when there is no optimum."""
    x = 2.0**t
    accept = model.accept if errors == "car1" else None  # independent errors have an optimum there, of no use
    return ar1.nonlinear(lambda p: model.cdf(x, p), model.starts(t, y.mean(axis=0)), y, t, errors, accept)


def fit_spline(y: FloatArray, t: FloatArray, interior: int | None, errors: ar1.Errors = "car1") -> tuple[ar1.Fit, int]:
    """Fit the cubic B-spline; without a number of knots BIC chooses it. Returns the fit and the number."""
    if interior is not None:
        return ar1.linear(design(t, interior), y, t, errors), interior
    possible = [m for m in KNOTS if m + DEGREE + 1 <= t.size - 3]
    if not possible:
        raise ArchiveError(f"{t.size} buckets are too few for a spline; raise x_max or use --model gamma")
    fits = [(ar1.linear(design(t, m), y, t, errors), m) for m in possible]
    return min(fits, key=lambda pair: pair[0].bic)
