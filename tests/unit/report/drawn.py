"""Reading drawn charts back: marks of an SVG with what they say of themselves, pixels of a PNG."""

from __future__ import annotations

import re
import struct
import xml.etree.ElementTree as ET
import zlib
from dataclasses import dataclass

import numpy as np

_NUMBERS = re.compile(r"-?\d+\.?\d*(?:e-?\d+)?")


@dataclass(frozen=True)
class Mark:
    """One mark: its kind, its description taken apart, its box in pixels of its panel, its colour."""

    kind: str
    says: dict[str, str]
    left: float
    top: float
    width: float
    height: float
    colour: str
    text: str

    def number(self, name: str) -> float:
        return float(self.says[name].replace(",", "").replace("−", "-"))


def marks(svg: str, kind: str) -> list[Mark]:
    """Marks of a kind, as Vega calls them: bar, tick, point, rule mark, line mark, text mark, rect mark."""
    found = []
    for element in ET.fromstring(svg).iter():
        if element.get("aria-roledescription") == kind and element.get("aria-label"):
            says = dict(part.split(": ", 1) for part in (element.get("aria-label") or "").split("; ") if ": " in part)
            box = _box(element)
            colour = element.get("fill") or ""
            colour = element.get("stroke") or "" if colour in ("", "none") else colour
            found.append(Mark(kind, says, *box, colour, "".join(element.itertext()).strip()))
    return found


def _box(element: ET.Element) -> tuple[float, float, float, float]:
    moved = [float(n) for n in _NUMBERS.findall(element.get("transform") or "")] or [0.0, 0.0]
    x, y = moved[0], moved[1]
    if element.tag.endswith("line"):
        dx, dy = float(element.get("x2") or 0), float(element.get("y2") or 0)
        return min(x, x + dx), min(y, y + dy), abs(dx), abs(dy)
    xs, ys = _path(element.get("d") or "M0,0")
    return x + min(xs), y + min(ys), max(xs) - min(xs), max(ys) - min(ys)


def _path(commands: str) -> tuple[list[float], list[float]]:
    """Corners of a path of the commands that Vega writes: M L H V h v C A Z."""
    xs, ys = [], []
    x = y = 0.0
    for command, given in re.findall(r"([MLHVhvCAZ])([^MLHVhvCAZ]*)", commands):
        n = [float(v) for v in _NUMBERS.findall(given)]
        match command:
            case "M" | "L" | "C" | "A":
                x, y = n[-2], n[-1]
            case "H":
                x = n[-1]
            case "V":
                y = n[-1]
            case "h":
                x += n[-1]
            case "v":
                y += n[-1]
            case _:
                continue
        xs.append(x)
        ys.append(y)
        if command == "L":  # further corners of the same line
            xs += n[0:-2:2]
            ys += n[1:-2:2]
    return xs, ys


def pixels(png: bytes) -> np.ndarray:
    """Height x width x channels of an 8-bit RGB or RGBA image."""
    at, data, head = 8, b"", b""
    while at < len(png):
        size, kind = struct.unpack(">I4s", png[at : at + 8])
        body = png[at + 8 : at + 8 + size]
        head = body if kind == b"IHDR" else head
        data += body if kind == b"IDAT" else b""
        at += 12 + size
    width, height, depth, colour = struct.unpack(">IIBB", head[:10])
    assert depth == 8
    channels = {2: 3, 6: 4}[colour]
    raw = np.frombuffer(zlib.decompress(data), np.uint8).reshape(height, 1 + width * channels)
    rows = np.zeros((height, width * channels), np.uint8)
    above = np.zeros(width * channels, np.uint8)
    for i in range(height):
        above = rows[i] = _unfiltered(int(raw[i, 0]), raw[i, 1:], above, channels)
    return rows.reshape(height, width, channels)


def _unfiltered(kind: int, row: np.ndarray, above: np.ndarray, step: int) -> np.ndarray:
    """One row of a PNG without its filter (section 9 of the PNG specification)."""
    if kind == 0:
        return row
    if kind == 1:
        return np.cumsum(row.reshape(-1, step), axis=0, dtype=np.uint8).reshape(-1)
    if kind == 2:
        return row + above
    out, up = row.tolist(), above.tolist()
    for i in range(len(out)):
        left, corner = (out[i - step], up[i - step]) if i >= step else (0, 0)
        if kind == 3:
            guess = (left + up[i]) // 2
        else:
            estimate = left + up[i] - corner
            guess = min((left, up[i], corner), key=lambda value: abs(estimate - value))
        out[i] = (out[i] + guess) & 255
    return np.array(out, np.uint8)


def area(image: np.ndarray, colour: str) -> int:
    """Pixels of nearly that colour, ``#RRGGBB``."""
    wanted = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)])
    return int((np.abs(image[:, :, :3].astype(int) - wanted).max(axis=2) <= 12).sum())
