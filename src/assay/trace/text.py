"""Sizes and times for people, at three digits."""

from __future__ import annotations


def bytes_text(value: float) -> str:
    """``512 B``, ``4.00 KiB``, ``2.42 GiB``."""
    for unit in ("B", "KiB", "MiB", "GiB", "TiB"):
        if value < 1024 or unit == "TiB":
            return (
                f"{value:.0f} {unit}"
                if unit == "B"
                else f"{value:.3g} {unit}"
                if value < 1000
                else f"{value:.0f} {unit}"
            )
        value /= 1024
    raise AssertionError


def seconds_text(value: float) -> str:
    """``340 ns``, ``12.5 us``, ``3.1 ms``, ``42 s``."""
    for factor, unit in ((1e9, "ns"), (1e6, "us"), (1e3, "ms")):
        if value * factor < 999.5:
            return f"{value * factor:.3g} {unit}"
    return f"{value:.4g} s"
