"""How data are spread over storage hosts: the layouts of architecture.md, as written in ``system/layout``."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Literal

LayoutKind = Literal["distributed", "replicated", "rain"]
_REPLICATED = re.compile(r"replicated-([1-9][0-9]?)")
_RAIN = re.compile(r"rain-([1-9][0-9]?)-([1-9][0-9]?)")


@dataclass(frozen=True)
class Layout:
    """``data`` shards and ``parity`` further ones hold each byte's stripe; replicas are rain(1, n - 1) by count only."""

    kind: LayoutKind
    data: int = 1
    parity: int = 0

    @property
    def width(self) -> int:
        """Hosts that hold a part of one file: 1, n replicas, or data + parity."""
        return self.data + self.parity

    @property
    def copies(self) -> int:
        """Replicas of each byte; 1 unless replicated."""
        return self.width if self.kind == "replicated" else 1

    @property
    def overhead(self) -> float:
        """Bytes stored per byte of user data."""
        return self.width / self.data

    @property
    def tolerates(self) -> int:
        """Hosts that may be lost at once without losing data."""
        return self.parity

    def __str__(self) -> str:
        if self.kind == "rain":
            return f"rain-{self.data}-{self.parity}"
        return f"replicated-{self.width}" if self.kind == "replicated" else self.kind


def parse_layout(text: str) -> Layout:
    """``distributed``, ``replicated-3``, ``rain-4-2``. Raises ValueError with what would be right."""
    if text == "distributed":
        return Layout("distributed")
    if match := _REPLICATED.fullmatch(text):
        return Layout("replicated", 1, int(match[1]) - 1)
    if match := _RAIN.fullmatch(text):
        return Layout("rain", int(match[1]), int(match[2]))
    raise ValueError(f"{text!r} is not a layout; write distributed, replicated-N (copies) or rain-K-M (data, parity)")


def layout_matches(pattern: str, layout: str) -> bool:
    """Whether ``layout`` is one of what ``pattern`` offers: letters N, K and M stand for numbers."""
    return re.fullmatch(re.sub(r"\b[NKM]\b", "[1-9][0-9]?", re.escape(pattern).replace(r"\-", "-")), layout) is not None
