"""Outlier flags: hyperfine's own cases, zero MAD, and the slow first run."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.stats import OUTLIER_THRESHOLD, modified_z, outliers, slow_first

NORMAL = [2.33269488, 1.42195907, -0.57527698, -0.31293437, 2.2948158]
NORMAL += [0.75813273, -1.0712388, -0.96394741, -1.15897446, 1.10976285]


# The cases of hyperfine's src/outlier_detection.rs.
@pytest.mark.parametrize(
    ("x", "count"),
    [
        ([], 0),
        ([50.0], 0),
        ([1000.0, 0.0], 0),
        ([-0.2, 0.0, 0.2], 0),
        ([-0.2, 0.0, 0.2, 4.0], 1),
        ([0.5, 0.30, 0.29, 0.31, 0.30], 1),
        (NORMAL, 0),
        ([*NORMAL, 20.0, -500.0], 2),
        ([10.0] * 7 + [100.0], 1),
        ([10.0] * 7 + [100.0, 100.0], 2),
    ],
)
def test_agrees_with_hyperfine(x: list[float], count: int) -> None:
    assert outliers(x).sum() == count
    assert outliers(x).shape == (len(x),)


def test_modified_z_by_hand() -> None:
    # Median 3, absolute deviations 2 1 0 1 7, hence MAD 1.
    assert modified_z([1.0, 2.0, 3.0, 4.0, 10.0]).tolist() == [-2, -1, 0, 1, 7]
    assert pytest.approx(14.826) == OUTLIER_THRESHOLD


def test_the_outlier_itself_is_marked() -> None:
    assert outliers([100.0, 101.0, 99.0, 3.0, 100.5]).tolist() == [False, False, False, True, False]


def test_zero_mad_ignores_rounding_noise() -> None:
    assert not outliers([1e9, 1e9, 1e9, 1e9 + 1]).any()
    assert outliers([1e9, 1e9, 1e9, 1.001e9]).tolist() == [False, False, False, True]
    assert outliers([0.0, 0.0, 0.0, 1.0]).tolist() == [False, False, False, True]
    assert not outliers([5.0] * 6).any()


def test_slow_first() -> None:
    fast = [100.0, 101.0, 99.0, 100.5]
    assert slow_first([20.0, *fast])
    assert not slow_first([500.0, *fast]), "a fast first run is not a slow one"
    assert not slow_first([*fast, 20.0]), "the slow one is not the first"
    assert slow_first([500.0, *fast], larger_is_better=False)
    assert not slow_first([20.0, *fast], larger_is_better=False)
    assert not slow_first([])
    assert not slow_first([20.0, 100.0])
    assert not slow_first([20.0, *fast], threshold=1000)


@pytest.mark.parametrize("function", [modified_z, outliers, slow_first])
def test_not_finite_is_refused(function) -> None:
    with pytest.raises(ValueError, match="finite"):
        function([1.0, np.nan])


# Halves and quarters of integers, scaled by a power of two: exact in floating point, so flags must be equal.
@given(st.lists(st.integers(1, 10**6), min_size=1, max_size=30), st.sampled_from([2.0**-20, 0.5, 1024.0]))
def test_the_unit_does_not_matter(values: list[int], factor: float) -> None:
    x = np.asarray(values, dtype=float)
    assert outliers(x * factor).tolist() == outliers(x).tolist()
    assert slow_first(x * factor) == slow_first(x)


@given(st.lists(st.floats(-1e300, 1e300), max_size=20))
def test_at_most_half_can_be_odd(values: list[float]) -> None:
    assert outliers(values).sum() <= len(values) / 2
