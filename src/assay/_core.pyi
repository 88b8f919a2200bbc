"""Rust hot paths (rust/assay-core through rust/assay-py). All functions release the GIL while they compute.

A histogram is a pair (values, counts) of equal length. ``Integers`` is a list of ints or a contiguous buffer of 64-bit
integers such as a numpy array. ValueError: lengths differ, values do not ascend, nothing to compute on, percentile
outside (0, 100]. OverflowError: a negative number, one above 64 bits, or counts that exceed 64 bits together.
"""

from collections.abc import Sequence
from typing import Any, TypeAlias

from numpy.typing import NDArray

Integers: TypeAlias = Sequence[int] | NDArray[Any]

__version__: str

def merge(histograms: Sequence[tuple[Integers, Integers]], /) -> tuple[list[int], list[int]]:
    """All histograms as one: values ascend strictly, equal values are added up, empty bins are dropped."""

def percentiles(values: Integers, counts: Integers, qs: Sequence[float], /) -> list[int]:
    """Values at the percentiles ``qs`` (each in (0, 100], any order) by the rule of fio's calc_clat_percentiles."""

def mean(values: Integers, counts: Integers, /) -> float:
    """Mean of the values weighted by their counts."""

def total(counts: Integers, /) -> int:
    """Sum of the counts."""
