"""Quantities as people write them: ``6GiB``, ``180s``, ``10Gbit``, ``5 %``.

MB = 10^6 bytes and MiB = 2^20 bytes, never mixed. A bare ``K``, ``M`` or ``G`` is refused for byte counts because
fio, dd and humans disagree on what it means.
"""

from __future__ import annotations

import math
import re

_NUMBER = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµ%/]*)\s*$")

_BYTES = {"": 1, "B": 1}
for _power, _prefix in enumerate(("k", "M", "G", "T", "P"), start=1):
    _BYTES[f"{_prefix.upper()}B"] = 1000**_power
    _BYTES[f"{_prefix}B"] = 1000**_power
    _BYTES[f"{_prefix.upper()}iB"] = 1024**_power
_SECONDS = {
    "": 1.0,
    "s": 1.0,
    "ms": 1e-3,
    "us": 1e-6,
    "µs": 1e-6,
    "min": 60.0,
    "m": 60.0,
    "h": 3600.0,
    "d": 86400.0,
}
_BITS = {"bit": 1, "kbit": 10**3, "Kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12}


def _split(text: object, what: str, example: str) -> tuple[float, str]:
    if isinstance(text, bool) or not isinstance(text, int | float | str):
        raise ValueError(f"{text!r} is not {what}; write for example {example}")
    match = _NUMBER.match(str(text))
    if match is None or not math.isfinite(float(match[1])):
        raise ValueError(f"{text!r} is not {what}; write for example {example}")
    return float(match[1]), match[2]


def parse_bytes(text: object) -> int:
    """Bytes from ``6GiB``, ``1 GB``, ``4096``; raises ValueError on an unknown unit or a fraction of a byte."""
    number, unit = _split(text, "a size", "6GiB or 1GB")
    if unit not in _BYTES:
        hint = f"; write {text}iB (2^n) or {text}B (10^n)" if unit in ("k", "K", "M", "G", "T", "P") else ""
        raise ValueError(
            f"unknown size unit {unit!r} in {text!r}{hint or '; known: B, kB, KiB, MB, MiB, GB, GiB, TB, TiB'}"
        )
    value = number * _BYTES[unit]
    if value != int(value):
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return int(value)


def parse_seconds(text: object) -> float:
    """Seconds from ``180s``, ``5min``, ``1.5h``, ``20ms`` or a bare number; raises ValueError."""
    number, unit = _split(text, "a duration", "180s or 5min")
    if unit not in _SECONDS:
        raise ValueError(f"unknown time unit {unit!r} in {text!r}; known: us, ms, s, min, h, d")
    return number * _SECONDS[unit]


def parse_fraction(text: object) -> float:
    """A fraction from ``5%``, ``5 %`` or ``0.05``; raises ValueError outside [0, 1]."""
    number, unit = _split(text, "a share", "5% or 0.05")
    if unit not in ("", "%"):
        raise ValueError(f"unknown unit {unit!r} in {text!r}; write for example 5% or 0.05")
    value = number / 100 if unit == "%" else number
    if not 0 <= value <= 1:
        raise ValueError(f"{text!r} is not a share between 0% and 100%")
    return value


def parse_rate(text: object) -> int:
    """Bytes per second from ``100MB/s``, ``1Gbit`` or ``1Gbit/s``; raises ValueError."""
    number, unit = _split(text, "a rate", "100MB/s or 1Gbit")
    unit = unit.removesuffix("/s")
    if unit in _BITS:
        return int(number * _BITS[unit] / 8)
    if unit and unit in _BYTES:
        return int(number * _BYTES[unit])
    raise ValueError(f"unknown rate unit {unit!r} in {text!r}; write for example 100MB/s, 100MiB/s or 1Gbit")


def format_bytes(value: int) -> str:
    """The shortest exact binary or decimal spelling that :func:`parse_bytes` reads back to the same number."""
    if value <= 0:
        return f"{value}B"
    best = f"{value}B"
    for unit, factor in _BYTES.items():
        if factor > 1 and value % factor == 0:
            text = f"{value // factor}{unit}"
            if (len(text), unit.islower()) < (len(best), True):
                best = text
    return best


def format_seconds(value: float) -> str:
    """A duration for people: ``250 ms``, ``12 s``, ``4 min 05 s``, ``2 h 10 min``."""
    if value < 1:
        return f"{value * 1000:.0f} ms"
    if value < 60:
        return f"{value:.3g} s"
    minutes, seconds = divmod(round(value), 60)
    if minutes < 60:
        return f"{minutes} min {seconds:02d} s"
    hours, minutes = divmod(minutes, 60)
    return f"{hours} h {minutes:02d} min"
