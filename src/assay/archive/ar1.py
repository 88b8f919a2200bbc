"""Least squares with continuous AR(1) errors within each archive, by profiled likelihood.

eps_a ~ N(0, sigma^2 R) with R_st = phi^|s-t| within an archive, archives independent: corCAR1 of R's nlme (Pinheiro and
Bates 2000, section 5.3). Whitening: w_1 = r_1, w_k+1 = (r_k+1 - phi^d r_k) / sqrt(1 - phi^2d).
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray
from scipy import optimize

from assay.archive import ArchiveError

FloatArray = NDArray[np.float64]
Errors = Literal["car1", "independent"]
LOGIT_PHI = (-3.0, 12.0)  # where phi is looked for
#: shape (I,) parameters -> curve at the grid
Model = Callable[[FloatArray], FloatArray]


@dataclass(frozen=True)
class Fit:
    """Estimates. ``sigma`` divides by N - p (nlme's gnls); ``sigma_ml`` by N (gls with method ML). ``covariance`` is that
    of the parameters. bic = -2 log_likelihood + ln N (p + 2): sigma and phi count."""

    parameters: FloatArray
    covariance: FloatArray
    phi: float
    sigma: float
    sigma_ml: float
    log_likelihood: float
    bic: float
    residual_sum: float
    observations: int

    @property
    def standard_errors(self) -> FloatArray:
        """Of the parameters."""
        return np.sqrt(np.diag(self.covariance))


def whiten(values: FloatArray, phi: float, t: FloatArray) -> FloatArray:
    """Whiten along axis 0 (the grid) for the correlation phi^|s-t|."""
    powers = phi ** np.diff(t)
    scale = np.sqrt(1 - powers**2)
    shape = (-1,) + (1,) * (values.ndim - 1)
    out = values.copy()
    out[1:] = (values[1:] - powers.reshape(shape) * values[:-1]) / scale.reshape(shape)
    return out


def log_determinant(phi: float, t: FloatArray) -> float:
    """sum ln(1 - phi^2d): the log determinant of R of one archive."""
    return float(np.log1p(-(phi ** (2 * np.diff(t)))).sum())


def log_likelihood(residual_sum: float, phi: float, t: FloatArray, archives: int) -> float:
    """Profiled over sigma."""
    n = archives * t.size
    if residual_sum <= 0 or not math.isfinite(residual_sum):
        return math.inf if residual_sum == 0 else -math.inf
    return -0.5 * (n * math.log(2 * math.pi * residual_sum / n) + n + archives * log_determinant(phi, t))


def _finish(
    parameters: FloatArray, whitened_jacobian: FloatArray, residual_sum: float, phi: float, t: FloatArray, archives: int
) -> Fit:
    n, p = archives * t.size, parameters.size
    if n <= p + 2:
        raise ArchiveError(f"{n} values do not determine {p} parameters; use more archives or fewer knots")
    sigma2 = residual_sum / (n - p)
    information = archives * whitened_jacobian.T @ whitened_jacobian
    try:
        covariance = (sigma2 * np.linalg.inv(information)).astype(np.float64)
    except np.linalg.LinAlgError:
        raise ArchiveError("the data do not determine all parameters of this model; use a simpler one") from None
    if not np.isfinite(covariance).all() or (np.diag(covariance) < 0).any():
        raise ArchiveError("the data do not determine all parameters of this model; use a simpler one")
    value = log_likelihood(residual_sum, phi, t, archives)
    return Fit(
        parameters, covariance, phi, math.sqrt(sigma2), math.sqrt(residual_sum / n), value,
        -2 * value + math.log(n) * (p + 2), residual_sum, n,
    )  # fmt: skip


def _best_phi(profile: Callable[[float], float], errors: Errors, check: Callable[[float], None] | None = None) -> float:
    """phi that maximises a profile log-likelihood; 0 for independent errors. ``check`` may raise at the best of a coarse
    grid, before time goes into a model without an optimum."""
    if errors == "independent":
        return 0.0

    def negative(logit: float) -> float:
        return -profile(1 / (1 + math.exp(-logit)))

    # a coarse grid first: the profile of a non-linear model may have two tops, and Brent finds one
    grid = np.linspace(*LOGIT_PHI, 13)
    values = [negative(x) for x in grid]
    k = int(np.argmin(values))
    if check is not None:
        check(1 / (1 + math.exp(-grid[k])))
    low, high = grid[max(0, k - 1)], grid[min(grid.size - 1, k + 1)]
    found = optimize.minimize_scalar(negative, bounds=(low, high), method="bounded", options={"xatol": 1e-9})
    return 1 / (1 + math.exp(-float(found.x)))


def linear(design: FloatArray, y: FloatArray, t: FloatArray, errors: Errors = "car1") -> Fit:
    """Least squares of every row of ``y`` (archives x grid) on one design (grid x parameters).

    All archives share the design, so the estimates depend on the mean row, phi and sigma on the residuals too.
    """
    archives = y.shape[0]
    mean = y.mean(axis=0)
    spread = y - mean

    def solve(phi: float) -> tuple[FloatArray, FloatArray, float]:
        b = whiten(design, phi, t)
        c = np.asarray(np.linalg.lstsq(b, whiten(mean, phi, t), rcond=None)[0], dtype=float)
        rest = whiten(mean - design @ c, phi, t)
        between = whiten(spread.T, phi, t)
        return c, b, float(archives * (rest**2).sum() + (between**2).sum())

    def profile(phi: float) -> float:
        return log_likelihood(solve(phi)[2], phi, t, archives)

    phi = _best_phi(profile, errors)
    c, b, residual_sum = solve(phi)
    if residual_sum <= 1e-20 * max(1.0, float((y**2).sum())):
        raise ArchiveError("the archives are equal and the model fits them exactly: there is no error to estimate")
    return _finish(c, b, residual_sum, phi, t, archives)


def nonlinear(
    model: Model,
    starts: list[FloatArray],
    y: FloatArray,
    t: FloatArray,
    errors: Errors = "car1",
    accept: Callable[[FloatArray], None] | None = None,
) -> Fit:
    """Least squares of every row of ``y`` on a curve with parameters (Levenberg-Marquardt), from several starts.

    ``accept`` raises ArchiveError for parameters that are no optimum. So does this function when no start converges.
    """
    archives = y.shape[0]
    mean = y.mean(axis=0)
    between_rows = (y - mean).T

    def solve(phi: float, start: FloatArray) -> tuple[FloatArray, float] | None:
        def residuals(p: FloatArray) -> FloatArray:
            return whiten(np.nan_to_num(mean - model(p), nan=1e3, posinf=1e3, neginf=-1e3), phi, t)

        with warnings.catch_warnings(), np.errstate(all="ignore"):
            warnings.simplefilter("ignore")
            found = optimize.least_squares(
                residuals, start, method="lm", xtol=1e-12, ftol=1e-13, gtol=1e-13, max_nfev=600
            )
        if not np.isfinite(found.x).all() or not math.isfinite(found.cost):
            return None
        between = float((whiten(between_rows, phi, t) ** 2).sum())
        return found.x, archives * 2 * float(found.cost) + between

    warm: list[FloatArray] = []
    calls = 0

    def best(phi: float) -> tuple[FloatArray, float] | None:
        nonlocal calls
        calls += 1
        # all starts now and then, the last optimum always: it is near the next one, and a fit costs milliseconds
        tried = [s for s in (solve(phi, x) for x in (warm + starts if calls % 6 == 1 or not warm else warm)) if s]
        if not tried:
            return None
        chosen = min(tried, key=lambda s: s[1])
        warm[:] = [chosen[0]]
        return chosen

    def calls_before_all_starts() -> None:
        nonlocal calls
        calls = 0

    def profile(phi: float) -> float:
        found = best(phi)
        return -1e12 if found is None else log_likelihood(found[1], phi, t, archives)

    def check(phi: float) -> None:
        calls_before_all_starts()
        found = best(phi)
        if found is not None and accept is not None:
            accept(found[0])

    phi = _best_phi(profile, errors, check)
    calls_before_all_starts()
    found = best(phi)
    if found is None:
        raise ArchiveError("the fit does not converge from any start; try another model")
    if accept is not None:
        accept(found[0])
    parameters, residual_sum = found
    jacobian = whiten(_jacobian(model, parameters), phi, t)
    return _finish(parameters, jacobian, residual_sum, phi, t, archives)


def _jacobian(model: Model, p: FloatArray) -> FloatArray:
    """Central differences."""
    columns = []
    for i in range(p.size):
        step = 1e-5 * max(1.0, abs(p[i]))
        up, down = p.copy(), p.copy()
        up[i] += step
        down[i] -= step
        columns.append((model(up) - model(down)) / (2 * step))
    return np.column_stack(columns)
