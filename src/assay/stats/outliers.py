"""Attempts that lie far from the others: flagged with a reason, never dropped.

Model: hyperfine, `src/outlier_detection.rs` (after Iglewicz & Hoaglin 1993, "How to Detect and Handle
Outliers").
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from assay.stats._input import FloatArray, finite

#: hyperfine's threshold: ten standard deviations, 1.4826 being sigma / MAD of a normal distribution.
OUTLIER_THRESHOLD = 1.4826 * 10

#: With most values equal the MAD is 0 and any other value would be infinitely far; deviations below
#: threshold × this share of the median (15 ppm) are then not worth a flag. hyperfine takes the machine
#: epsilon, which has a unit and so makes the answer depend on whether one counts bytes or mebibytes.
_RELATIVE_MAD_FLOOR = 1e-6


def modified_z(x: ArrayLike) -> FloatArray:
    """(x - median) / MAD, where MAD is the median absolute deviation, without the factor 0.6745.

    x: shape (n,), any unit; returns shape (n,), without unit. n = 0 gives an empty array.
    Raises ValueError when a value is not finite.
    """
    values = finite(x)
    if values.size == 0:
        return values
    centre = np.median(values)
    deviations = values - centre
    scale = max(np.median(np.abs(deviations)), _RELATIVE_MAD_FLOOR * abs(centre), np.finfo(np.float64).tiny)
    with np.errstate(over="ignore"):
        return deviations / scale


def outliers(x: ArrayLike, threshold: float = OUTLIER_THRESHOLD) -> NDArray[np.bool_]:
    """Which values have a modified z beyond the threshold on either side.

    x: shape (n,); returns shape (n,) of bool. With n <= 2 nothing is flagged: two values cannot tell which of
    them is odd. Raises ValueError when a value is not finite.
    """
    return np.abs(modified_z(x)) > threshold


def slow_first(x: ArrayLike, threshold: float = OUTLIER_THRESHOLD, *, larger_is_better: bool = True) -> bool:
    """Whether the first value is an outlier in the slow direction, the mark of a cold cache or a lazy mount.

    x: shape (n,), in the order measured; throughput by default, durations with larger_is_better=False.
    Raises ValueError when a value is not finite. Source: hyperfine, the "first run was slow" warning.
    """
    z = modified_z(x)
    if z.size == 0:
        return False
    return bool(-z[0] > threshold if larger_is_better else z[0] > threshold)
