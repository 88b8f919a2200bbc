"""When a percentile is backed by samples."""

from __future__ import annotations

import pytest

from assay.stats import percentile_supported


@pytest.mark.parametrize(
    ("n", "q", "supported"),
    [
        (64, 0.99, False),
        (999, 0.99, False),
        (1000, 0.99, True),
        (9_999, 0.999, False),
        (10_000, 0.999, True),
        (100_000, 0.9999, True),
        (99_999, 0.9999, False),
        (20, 0.5, True),
        (19, 0.5, False),
        (1000, 0.01, True),
        (999, 0.01, False),
        (10**9, 1.0, False),
        (10**9, 0.0, False),
        (0, 0.5, False),
    ],
)
def test_ten_samples_beyond(n: int, q: float, supported: bool) -> None:
    assert percentile_supported(n, q) is supported


def test_other_tails() -> None:
    assert percentile_supported(100, 0.99, tail=1)
    assert not percentile_supported(1000, 0.99, tail=11)


@pytest.mark.parametrize(("n", "q", "tail"), [(10, 1.1, 10), (10, -0.1, 10), (-1, 0.5, 10), (10, 0.5, 0)])
def test_nonsense_is_refused(n: int, q: float, tail: int) -> None:
    with pytest.raises(ValueError):
        percentile_supported(n, q, tail)
