"""Monte Carlo experiments with known truth, shared by the tests and by the tables in docs/methodology.md.

Every experiment is a function of nothing (fixed seed) that returns a Rate: how often the event happened. Print the
table of the documentation with

    .venv/bin/python tests/unit/stats/stats_simulations.py
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, partial
from math import exp, log

import numpy as np
from numpy.typing import NDArray
from scipy import signal, stats

from assay.stats import (
    Decision,
    blocks_needed,
    compare_family,
    decide,
    log_t_interval,
    mann_kendall,
    median_interval,
    paired_ratio,
    pettitt,
    steady_window,
    stein_interval,
)

Floats = NDArray[np.float64]
Sampler = Callable[[np.random.Generator, int, int], Floats]

#: Two-sided chance that a correct implementation fails one of the assertions. Seeds are fixed, so a test that
#: passes keeps passing; the bound says how far from the nominal rate a lucky seed could have carried it.
RISK = 1e-4


@dataclass(frozen=True)
class Rate:
    """Successes of an experiment out of its trials (a sum of shares for mean shares)."""

    hits: float
    trials: int

    @property
    def value(self) -> float:
        return self.hits / self.trials

    def agrees_with(self, nominal: float) -> bool:
        """Whether the count is one that a true rate of `nominal` produces (all but RISK of the time)."""
        low, high = stats.binom.interval(1 - RISK, self.trials, nominal)
        return bool(low <= self.hits <= high)

    def at_most(self, nominal: float) -> bool:
        """Whether the count contradicts no rate up to `nominal`."""
        return bool(self.hits <= stats.binom.ppf(1 - RISK, self.trials, nominal))

    def at_least(self, nominal: float) -> bool:
        """Whether the count contradicts no rate from `nominal` up."""
        return bool(self.hits >= stats.binom.ppf(RISK, self.trials, nominal))


def ar1(rng: np.random.Generator, phi: float, trials: int, n: int, burn: int = 200) -> Floats:
    """First-order autoregressive noise of variance 1, shape (trials, n)."""
    noise = rng.standard_normal((trials, n + burn))
    return np.asarray(signal.lfilter([np.sqrt(1 - phi**2)], [1, -phi], noise, axis=1))[:, burn:]


# ------------------------------------------------------------------------------------------------ distributions
# Each has geometric mean and median (where they differ, see GEOMETRIC_MEAN and MEDIAN) that are known exactly.

_MODES = (80.0, 120.0)


def lognormal(rng: np.random.Generator, trials: int, n: int) -> Floats:
    return 100 * np.exp(0.2 * rng.standard_normal((trials, n)))


def normal(rng: np.random.Generator, trials: int, n: int) -> Floats:
    return 100 + 10 * rng.standard_normal((trials, n))


def bimodal(rng: np.random.Generator, trials: int, n: int) -> Floats:
    """Two modes of equal weight 1.5 to 1, as from a cluster that lands on one of two placements."""
    return np.array(_MODES)[rng.integers(0, 2, (trials, n))] * np.exp(0.01 * rng.standard_normal((trials, n)))


def rare_slow(rng: np.random.Generator, trials: int, n: int) -> Floats:
    """One attempt in ten is half as fast, as from a background job."""
    slow = rng.random((trials, n)) < 0.1
    return np.where(slow, 50.0, 100.0) * np.exp(0.02 * rng.standard_normal((trials, n)))


def autocorrelated(rng: np.random.Generator, trials: int, n: int) -> Floats:
    """Attempts that remember the one before (phi = 0.6): what block randomisation is there to prevent."""
    return 100 * np.exp(0.1 * ar1(rng, 0.6, trials, n))


GEOMETRIC_MEAN: dict[Sampler, float] = {
    lognormal: 100.0,
    # E ln(100 + 10 z), by quadrature over the normal density.
    normal: exp(stats.norm.expect(lambda z: np.log(100 + 10 * z), lb=-8, ub=8)),
    bimodal: exp((log(_MODES[0]) + log(_MODES[1])) / 2),
    rare_slow: exp(0.1 * log(50) + 0.9 * log(100)),
    autocorrelated: 100.0,
}

# The median of rare_slow: the quantile of the fast mode (sd 0.02) with 0.4 of the 0.9 below it.
MEDIAN: dict[Sampler, float] = {
    lognormal: 100.0,
    normal: 100.0,
    rare_slow: 100 * exp(0.02 * float(stats.norm.ppf(0.4 / 0.9))),
    autocorrelated: 100.0,
}


# -------------------------------------------------------------------------------------------------- experiments


@cache
def t_coverage(trials: int, sampler: Sampler, n: int, confidence: float = 0.95) -> Rate:
    """How often log_t_interval() contains the true geometric mean."""
    rng = np.random.default_rng(101)
    truth = GEOMETRIC_MEAN[sampler]
    intervals = (log_t_interval(x, confidence) for x in sampler(rng, trials, n))
    return Rate(sum(i.low <= truth <= i.high for i in intervals), trials)


@cache
def median_coverage(trials: int, sampler: Sampler, n: int) -> Rate:
    """How often the finite median_interval() contains the true median."""
    rng = np.random.default_rng(102)
    truth = MEDIAN[sampler]
    intervals = (median_interval(x) for x in sampler(rng, trials, n))
    return Rate(sum(i.low <= truth <= i.high for i in intervals), trials)


@cache
def stein(trials: int, sigma: float, pilot: int = 6, half_width: float = 0.05) -> tuple[Rate, Rate, float]:
    """Coverage of Stein's interval, how often its width keeps the promise, and the mean number of blocks."""
    rng = np.random.default_rng(103)
    covered, kept, blocks = 0, 0, 0
    for _ in range(trials):
        x = 100 * np.exp(sigma * rng.standard_normal(pilot))
        n = blocks_needed(x, half_width, 0.95, minimum=pilot, maximum=100_000)
        x = np.concatenate([x, 100 * np.exp(sigma * rng.standard_normal(n - pilot))])
        interval = stein_interval(x, pilot, 0.95)
        covered += interval.low <= 100 <= interval.high
        kept += interval.relative_half_width <= half_width * (1 + 1e-9)
        blocks += n
    return Rate(covered, trials), Rate(kept, trials), blocks / trials


@cache
def lucky_streak_coverage(trials: int, sigma: float = 0.2) -> Rate:
    """Coverage of an ordinary interval when runs stop as soon as its half width is below 5 % (or after 200)."""
    rng = np.random.default_rng(104)
    covered = 0
    z = sigma * rng.standard_normal((trials, 200))
    counts = np.arange(1, 201)
    mean = np.cumsum(z, axis=1) / counts
    spread = np.sqrt(np.maximum(np.cumsum(z**2, axis=1) - counts * mean**2, 0)[:, 2:] / (counts[2:] - 1))
    half = stats.t.isf(0.025, counts[2:] - 1) * spread / np.sqrt(counts[2:])
    done = half <= log(1.05)
    done[:, -1] = True
    stop = done.argmax(axis=1)
    rows = np.arange(trials)
    covered = int((np.abs(mean[rows, stop + 2]) <= half[rows, stop]).sum())
    return Rate(covered, trials)


def _blocks(rng: np.random.Generator, cells: int, n: int, ratio: Floats | float, noise: float) -> list[tuple]:
    """Pairs (a, b) of cells that share a block effect of 20 % which within-block ratios must cancel."""
    shared = np.exp(0.2 * rng.standard_normal((cells, n)))
    a = 100 * shared * np.reshape(ratio, (-1, 1)) * np.exp(noise * rng.standard_normal((cells, n)))
    b = 100 * shared * np.exp(noise * rng.standard_normal((cells, n)))
    return list(zip(a, b, strict=True))


@cache
def family_false_alarms(trials: int, method: str | None, cells: int = 20, n: int = 6) -> Rate:
    """Families without any difference in which at least one cell is called faster or slower."""
    rng = np.random.default_rng(105)
    alarms = 0
    for _ in range(trials):
        pairs = _blocks(rng, cells, n, 1.0, 0.05)
        if method is None:
            made = [decide(paired_ratio(a, b), margin=1e-9) for a, b in pairs]
        else:
            made = compare_family(pairs, margin=1e-9, method=method)  # pyright: ignore[reportArgumentType]
        alarms += any(c.decision in (Decision.FASTER, Decision.SLOWER) for c in made)
    return Rate(alarms, trials)


@cache
def false_discoveries(trials: int, method: str) -> tuple[Rate, Rate]:
    """Mean share of false among reported differences, and of true ones found; 5 of 20 cells differ by 10 %."""
    rng = np.random.default_rng(106)
    ratio = np.where(np.arange(20) < 5, 0.9, 1.0)
    shares, found = [], []
    for _ in range(trials):
        made = compare_family(_blocks(rng, 20, 6, ratio, 0.03), margin=1e-9, method=method)  # pyright: ignore[reportArgumentType]
        reported = np.array([c.decision in (Decision.FASTER, Decision.SLOWER) for c in made])
        shares.append(reported[5:].sum() / max(reported.sum(), 1))
        found.append(reported[:5].mean())
    return Rate(float(np.sum(shares)), trials), Rate(float(np.sum(found)), trials)


@cache
def decisions(trials: int, ratio: float, noise: float, n: int, margin: float = 0.05) -> dict[Decision, Rate]:
    """How a single pair of the given true ratio is decided; noise is the log sd of one attempt."""
    rng = np.random.default_rng(107)
    made = [decide(paired_ratio(a, b), margin).decision for a, b in _blocks(rng, trials, n, ratio, noise)]
    return {d: Rate(made.count(d), trials) for d in Decision}


@cache
def trend_alarms(trials: int, correction: str | None, phi: float, n: int, drift: float = 0.0) -> Rate:
    """How often mann_kendall() is significant at 5 %; drift is the total change in standard deviations."""
    rng = np.random.default_rng(108)
    series = ar1(rng, phi, trials, n) + drift * np.linspace(0, 1, n)
    tests = (mann_kendall(x, correction) for x in series)  # pyright: ignore[reportArgumentType]
    return Rate(sum(t.p < 0.05 for t in tests), trials)


@cache
def shift_alarms(trials: int, phi: float, n: int, step: float = 0.0) -> Rate:
    """How often pettitt() is significant at 5 %; step is a level shift at one third, in standard deviations."""
    rng = np.random.default_rng(109)
    series = ar1(rng, phi, trials, n) + step * (np.arange(n) >= n // 3)
    return Rate(sum(pettitt(x).p < 0.05 for x in series), trials)


@cache
def steady_found(trials: int, kind: str, phi: float = 0.6, n: int = 300, noise: float = 0.05) -> Rate:
    """How often steady_window() finds a steady state in a series of the named kind."""
    rng = np.random.default_rng(110)
    t = np.arange(n) / n
    level = {
        "steady": np.ones(n),
        "warm-up, then steady": 1 - 0.8 * np.exp(-t * 30),
        "drift of 2 %": 1 - 0.02 * t,
        "drift of 20 %": 1 - 0.2 * t,
        "drop of 20 % at one third": np.where(t < 1 / 3, 1.0, 0.8),
        "drop of 20 % at half": np.where(t < 1 / 2, 1.0, 0.8),
        "drop of 20 % at two thirds": np.where(t < 2 / 3, 1.0, 0.8),
    }[kind]
    series = 100 * level * np.exp(noise * ar1(rng, phi, trials, n))
    return Rate(sum(steady_window(x, 1.0).found for x in series), trials)


# ------------------------------------------------------------------------------------------ what is documented

STEADY_KINDS = (
    "steady",
    "warm-up, then steady",
    "drift of 2 %",
    "drift of 20 %",
    "drop of 20 % at one third",
    "drop of 20 % at half",
    "drop of 20 % at two thirds",
)
Experiment = Callable[[int], Rate]


def _experiments() -> dict[str, tuple[Experiment, int]]:
    """Label in docs/methodology.md -> experiment and the trials behind the documented figure."""
    made: dict[str, tuple[Experiment, int]] = {}
    for sampler in (lognormal, normal, bimodal, rare_slow, autocorrelated):
        for n in (5, 10, 30):
            made[f"t on logs, {sampler.__name__}, n = {n}"] = (partial(_t, sampler, n), 4000)
    for sampler in (lognormal, normal, rare_slow, autocorrelated):
        for n in (6, 9, 20):
            made[f"median, {sampler.__name__}, n = {n}"] = (partial(_median, sampler, n), 3000)
    for sigma in (0.02, 0.1, 0.2):
        made[f"Stein, log sd {sigma}, coverage"] = (partial(_stein, sigma, 0), 3000)
        made[f"Stein, log sd {sigma}, width kept"] = (partial(_stein, sigma, 1), 3000)
    made["stopping when the interval looks narrow, coverage"] = (lucky_streak_coverage, 10_000)
    for label, method in (("unadjusted", None), ("holm", "holm"), ("benjamini-hochberg", "benjamini-hochberg")):
        made[f"20 equal cells, {label}, any false alarm"] = (partial(_family, method), 2000)
    for method in ("holm", "benjamini-hochberg"):
        made[f"5 of 20 cells slower, {method}, false among reported"] = (partial(_discoveries, method, 0), 2000)
        made[f"5 of 20 cells slower, {method}, true ones found"] = (partial(_discoveries, method, 1), 2000)
    for ratio, noise, n in ((0.9, 0.03, 6), (0.9, 0.05, 6), (0.9, 0.05, 12), (1.0, 0.02, 6), (1.05, 0.02, 6)):
        for decision in Decision:
            label = f"ratio {ratio}, noise {noise:.0%}, n = {n}: {decision}"
            made[label] = (partial(_decision, ratio, noise, n, decision), 5000)
    for phi in (0.0, 0.6, 0.9):
        for n in (30, 120, 300):
            for correction in (None, "hamed-rao", "hamed-rao+ar1"):
                label = f"trend, {correction or 'uncorrected'}, phi = {phi}, n = {n}"
                made[label] = (partial(_trend, correction, phi, n, 0.0), 1000)
            made[f"shift, phi = {phi}, n = {n}"] = (partial(_shift, phi, n, 0.0), 1000)
    for n in (30, 120, 300):
        label = f"real trend of 2 sd found, hamed-rao+ar1, phi = 0.6, n = {n}"
        made[label] = (partial(_trend, "hamed-rao+ar1", 0.6, n, 2.0), 500)
        made[f"real shift of 2 sd found, phi = 0.6, n = {n}"] = (partial(_shift, 0.6, n, 2.0), 500)
    for kind in STEADY_KINDS:
        made[f"steady window, {kind}"] = (partial(_steady, kind, 300), 400)
    made["steady window, drift of 20 %, only 30 samples"] = (partial(_steady, "drift of 20 %", 30), 400)
    return made


# The experiments take the number of trials first so that they can be cached; these put it last.


def _t(sampler: Sampler, n: int, trials: int) -> Rate:
    return t_coverage(trials, sampler, n)


def _median(sampler: Sampler, n: int, trials: int) -> Rate:
    return median_coverage(trials, sampler, n)


def _stein(sigma: float, which: int, trials: int) -> Rate:
    coverage, kept, _ = stein(trials, sigma)
    return kept if which else coverage


def _family(method: str | None, trials: int) -> Rate:
    return family_false_alarms(trials, method)


def _discoveries(method: str, which: int, trials: int) -> Rate:
    return false_discoveries(trials, method)[which]


def _decision(ratio: float, noise: float, n: int, decision: Decision, trials: int) -> Rate:
    return decisions(trials, ratio, noise, n)[decision]


def _trend(correction: str | None, phi: float, n: int, drift: float, trials: int) -> Rate:
    return trend_alarms(trials, correction, phi, n, drift)


def _shift(phi: float, n: int, step: float, trials: int) -> Rate:
    return shift_alarms(trials, phi, n, step)


def _steady(kind: str, n: int, trials: int) -> Rate:
    return steady_found(trials, kind, n=n)


EXPERIMENTS = _experiments()

#: The tests run this share of the documented trials, to stay within a minute, but at least so many.
TEST_SHARE, TEST_TRIALS = 0.15, 250


def measured(label: str) -> Rate:
    """The rate behind a documented figure, from fewer trials (cached, since tests share experiments)."""
    experiment, trials = EXPERIMENTS[label]
    return experiment(max(TEST_TRIALS, round(trials * TEST_SHARE)))


if __name__ == "__main__":
    for name, (run, full) in EXPERIMENTS.items():
        print(f"| {name} | {run(full).value:.1%} | {full} |", flush=True)
