"""Validation of numeric input, shared by every module of this package.

A statistic that silently accepts a NaN or a negative throughput turns a broken attempt into a number, so each
public function states what it accepts and passes its input through here.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

FloatArray = NDArray[np.float64]

#: Log values whose spread is below this are rounding noise of equal numbers (a few ulp of ln(1e12) is 1e-14).
LOG_RESOLUTION = 1e-12


def finite(x: ArrayLike, name: str = "x") -> FloatArray:
    """Return x as a one-dimensional float array; ValueError when it is not one or holds NaN or infinity."""
    array = np.asarray(x, dtype=np.float64)
    if array.ndim != 1:
        raise ValueError(f"{name} must be one-dimensional, not {array.ndim}-dimensional")
    if not np.isfinite(array).all():
        raise ValueError(f"{name} holds values that are not finite")
    return array


def non_negative(x: ArrayLike, name: str = "x") -> FloatArray:
    """Like finite(); ValueError when a value is below zero."""
    array = finite(x, name)
    if (array < 0).any():
        raise ValueError(f"{name} holds negative values")
    return array


def positive(x: ArrayLike, name: str = "x") -> FloatArray:
    """Like finite(); ValueError when a value is zero or below (its logarithm does not exist)."""
    array = finite(x, name)
    if (array <= 0).any():
        raise ValueError(f"{name} holds values that are not positive")
    return array


def check_fraction(value: float, name: str) -> float:
    """Return value; ValueError unless it lies strictly between 0 and 1."""
    if not 0.0 < value < 1.0:
        raise ValueError(f"{name} must lie strictly between 0 and 1, not {value}")
    return value
