"""Layouts as they are written, and what follows from them."""

from __future__ import annotations

import pytest

from assay.model.layout import Layout, layout_matches, parse_layout


@pytest.mark.parametrize(
    ("text", "kind", "width", "copies", "overhead", "tolerates"),
    [
        ("distributed", "distributed", 1, 1, 1.0, 0),
        ("replicated-3", "replicated", 3, 3, 3.0, 2),
        ("replicated-1", "replicated", 1, 1, 1.0, 0),
        ("rain-4-2", "rain", 6, 1, 1.5, 2),
        ("rain-8-4", "rain", 12, 1, 1.5, 4),
    ],
)
def test_what_follows(text: str, kind: str, width: int, copies: int, overhead: float, tolerates: int) -> None:
    layout = parse_layout(text)
    assert (layout.kind, layout.width, layout.copies, layout.overhead, layout.tolerates) == (
        kind, width, copies, overhead, tolerates,
    )  # fmt: skip
    assert str(layout) == text


@pytest.mark.parametrize(
    "text", ["", "rain", "rain-4", "rain-0-2", "rain-4-0", "replicated", "replicated-0", "raid-6", "Rain-4-2"]
)
def test_anything_else_is_refused_with_what_would_be_right(text: str) -> None:
    with pytest.raises(ValueError, match="rain-K-M"):
        parse_layout(text)


def test_patterns_of_the_catalogue() -> None:
    assert layout_matches("rain-K-M", "rain-4-2")
    assert layout_matches("replicated-N", "replicated-12")
    assert layout_matches("ext4", "ext4")
    for pattern, layout in (
        ("rain-K-M", "rain-4"),
        ("rain-K-M", "rain-K-M"),
        ("replicated-N", "replicated-3x"),
        ("", "x"),
    ):
        assert not layout_matches(pattern, layout)


def test_distributed_is_one_host_wide() -> None:
    assert Layout("distributed").width == 1
