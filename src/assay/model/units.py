"""Quantities as people write them: ``6GiB``, ``180s``, ``10Gbit``, ``5 %``.

MB = 10^6 bytes and MiB = 2^20 bytes, never mixed. A bare ``K``, ``M`` or ``G`` is refused for byte counts because
fio, dd and humans disagree on what it means.
"""

from __future__ import annotations

import re
from decimal import Decimal, InvalidOperation
from fractions import Fraction

_LARGEST = (1 << 63) - 1  # what databases, fio and the kernel count bytes in
_NUMBER = re.compile(r"^\s*([0-9]*\.?[0-9]+(?:[eE][+-]?[0-9]+)?)\s*([A-Za-zµ%/]*)\s*$")

_BYTES = {"": 1, "B": 1}
for _power, _prefix in enumerate(("k", "M", "G", "T", "P"), start=1):
    _BYTES[f"{_prefix.upper()}B"] = 1000**_power
    _BYTES[f"{_prefix}B"] = 1000**_power
    _BYTES[f"{_prefix.upper()}iB"] = 1024**_power
_SECONDS = {
    "": Fraction(1),
    "s": Fraction(1),
    "ms": Fraction(1, 1000),
    "us": Fraction(1, 10**6),
    "µs": Fraction(1, 10**6),
    "min": Fraction(60),
    "m": Fraction(60),
    "h": Fraction(3600),
    "d": Fraction(86400),
}
_BITS = {"bit": 1, "kbit": 10**3, "Kbit": 10**3, "Mbit": 10**6, "Gbit": 10**9, "Tbit": 10**12}


def _split(text: object, what: str, example: str) -> tuple[Fraction, str]:
    """Number and unit. The number is exact: 2^53 + 1 bytes are not 2^53."""
    shown = str(text) if isinstance(text, float | str) or (isinstance(text, int) and abs(text) <= _LARGEST) else ""
    match = _NUMBER.match(shown) if len(shown) <= 64 and not isinstance(text, bool) else None
    try:
        number = Decimal(match[1]) if match else Decimal("nan")
    except InvalidOperation:  # an exponent beyond all bounds
        number = Decimal("nan")
    if match is None or not number.is_finite() or (number and not -30 < number.adjusted() < 30):
        said = repr(text)[:60] if shown or not isinstance(text, int) else "a number beyond 2^63"
        raise ValueError(f"{said} is not {what}; write for example {example}")
    return Fraction(number), match[2]


def _whole(value: Fraction, text: object) -> int:
    if value > _LARGEST:
        raise ValueError(f"{text!r} is more than 2^63 bytes")
    return int(value)


def parse_bytes(text: object) -> int:
    """Bytes from ``6GiB``, ``1 GB``, ``4096``; raises ValueError on an unknown unit or a fraction of a byte."""
    number, unit = _split(text, "a size", "6GiB or 1GB")
    if unit not in _BYTES:
        hint = f"; write {text}iB (2^n) or {text}B (10^n)" if unit in ("k", "K", "M", "G", "T", "P") else ""
        raise ValueError(
            f"unknown size unit {unit!r} in {text!r}{hint or '; known: B, kB, KiB, MB, MiB, GB, GiB, TB, TiB'}"
        )
    value = number * _BYTES[unit]
    if value.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of bytes")
    return _whole(value, text)


def parse_seconds(text: object) -> float:
    """Seconds from ``180s``, ``5min``, ``1.5h``, ``20ms`` or a bare number; raises ValueError."""
    number, unit = _split(text, "a duration", "180s or 5min")
    if unit not in _SECONDS:
        raise ValueError(f"unknown time unit {unit!r} in {text!r}; known: us, ms, s, min, h, d")
    return float(number * _SECONDS[unit])


def parse_fraction(text: object) -> float:
    """A fraction from ``5%``, ``5 %`` or ``0.05``; raises ValueError outside [0, 1]."""
    number, unit = _split(text, "a share", "5% or 0.05")
    if unit not in ("", "%"):
        raise ValueError(f"unknown unit {unit!r} in {text!r}; write for example 5% or 0.05")
    value = number / 100 if unit == "%" else number
    if not 0 <= value <= 1:
        raise ValueError(f"{text!r} is not a share between 0% and 100%")
    return float(value)


def parse_rate(text: object) -> int:
    """Bytes per second from ``100MB/s``, ``1Gbit`` or ``1Gbit/s``; raises ValueError."""
    number, unit = _split(text, "a rate", "100MB/s or 1Gbit")
    unit = unit.removesuffix("/s")
    if unit in _BITS:
        return _whole(number * _BITS[unit] / 8, text)
    if unit and unit in _BYTES:
        return _whole(number * _BYTES[unit], text)
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
