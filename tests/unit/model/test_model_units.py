"""Quantities: exact, never mixing 2^n with 10^n, and one clear ValueError for anything else."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.model.units import (
    format_bytes,
    format_seconds,
    parse_bytes,
    parse_fraction,
    parse_rate,
    parse_seconds,
)

LARGEST = (1 << 63) - 1
UNITS = {
    "": 1, "B": 1, "kB": 10**3, "KB": 10**3, "MB": 10**6, "GB": 10**9, "TB": 10**12, "PB": 10**15,
    "KiB": 2**10, "MiB": 2**20, "GiB": 2**30, "TiB": 2**40, "PiB": 2**50,
}  # fmt: skip


@given(st.integers(0, LARGEST))
def test_every_size_survives_being_written_and_read(value: int) -> None:
    assert parse_bytes(format_bytes(value)) == value


@given(st.integers(0, 1 << 40), st.sampled_from(["kB", "MB", "KiB", "MiB", "GB", "GiB"]))
def test_multiples_of_a_unit_survive_and_get_short(count: int, unit: str) -> None:
    value = count * UNITS[unit]
    if value <= LARGEST:
        text = format_bytes(value)
        assert parse_bytes(text) == value
        assert len(text) <= max(len(f"{count}{unit}"), len("0B"))


@pytest.mark.parametrize(("unit", "factor"), UNITS.items())
def test_units_are_what_they_say(unit: str, factor: int) -> None:
    assert parse_bytes(f"3{unit}") == parse_bytes(f" 3 {unit} ") == 3 * factor


def test_mb_is_not_mib() -> None:
    assert (parse_bytes("1MB"), parse_bytes("1MiB")) == (1_000_000, 1_048_576)
    assert (format_bytes(1_000_000), format_bytes(1_048_576)) == ("1MB", "1MiB")


def test_sizes_beyond_doubles_are_exact() -> None:
    assert parse_bytes("9007199254740993") == 2**53 + 1
    assert parse_bytes("4503599627370496.5KiB") == 2**62 + 512
    assert parse_bytes(2**53 + 1) == 2**53 + 1
    assert parse_bytes("0.1kB") == 100  # 0.1 is no double, 100 bytes are whole


@pytest.mark.parametrize("letter", ["k", "K", "M", "G", "T", "P"])
def test_a_bare_letter_is_refused_with_both_readings(letter: str) -> None:
    with pytest.raises(ValueError, match=f"4{letter}iB.*4{letter}B"):
        parse_bytes(f"4{letter}")


@pytest.mark.parametrize(
    "bad",
    [
        "", " ", "GiB", "4 X", "4Gib", "4gb", "-4KiB", "+4KiB", "1,5GiB", "1.2.3GiB", "½GB",
        "nan", "inf", "1e400", "1e99999999999999999999", "1e308PiB", "9" * 100_000, True, None, [4096], {"a": 1}, b"4KiB",
        float("nan"), float("inf"), 4.5, -1, 1 << 63, 10**5000,
    ],
    ids=lambda v: repr(v)[:20] if not isinstance(v, int) or v < 2**64 else "huge",
)  # fmt: skip
def test_bad_sizes_raise_one_line(bad: object) -> None:
    for parse in (parse_bytes, parse_rate):
        with pytest.raises(ValueError, match=r"size|rate|bytes") as caught:
            parse(bad)
        assert len(str(caught.value)) < 150
        assert "\n" not in str(caught.value)


def test_a_rate_is_no_size_and_half_a_byte_is_none() -> None:
    for bad in ("4KiB/s", "0.5B"):
        with pytest.raises(ValueError, match=r"size unit|whole number"):
            parse_bytes(bad)


@given(st.text(max_size=30) | st.floats() | st.integers() | st.booleans())
def test_parsers_return_or_raise_value_error(value: object) -> None:
    for parse in (parse_bytes, parse_seconds, parse_fraction, parse_rate):
        try:
            result = parse(value)
        except ValueError:
            continue
        assert result >= 0
        assert result != float("inf")


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("180s", 180), ("180", 180), (180, 180), ("5min", 300), ("5m", 300), ("1.5h", 5400), ("2d", 172_800), ("20ms", 0.02),
     ("7us", 7e-6), ("7µs", 7e-6), ("0.3", 0.3)],
)  # fmt: skip
def test_durations(text: object, seconds: float) -> None:
    assert parse_seconds(text) == seconds


@pytest.mark.parametrize("bad", ["5 minutes", "-1s", "soon", "1:30", "1h30m", "5M", True, None, "1e999s"])
def test_bad_durations(bad: object) -> None:
    with pytest.raises(ValueError, match=r"write for example|known"):
        parse_seconds(bad)


def test_shares() -> None:
    assert parse_fraction("5%") == parse_fraction("5 %") == parse_fraction(0.05) == 0.05
    assert (parse_fraction("0%"), parse_fraction("100%")) == (0.0, 1.0)
    for bad in ("5", "101%", "-1%", "5 percent", True):
        with pytest.raises(ValueError, match=r"share|unit"):
            parse_fraction(bad)


def test_rates_count_bits_and_bytes() -> None:
    assert parse_rate("10Gbit") == parse_rate("10Gbit/s") == 1_250_000_000
    assert (parse_rate("100MB/s"), parse_rate("100MiB/s")) == (100_000_000, 104_857_600)
    for bad in ("100", "100M", "100Mb/s", "100MB/h"):
        with pytest.raises(ValueError, match="unknown rate unit"):
            parse_rate(bad)


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.25, "250 ms"), (12, "12 s"), (59.99, "60 s"), (60, "1 min 00 s"), (245, "4 min 05 s"), (3599.7, "1 h 00 min"), (7800, "2 h 10 min")],
)  # fmt: skip
def test_durations_for_people(value: float, text: str) -> None:
    assert format_seconds(value) == text
