"""The three answers a check can give (model: Jepsen's ``:valid? true | false | :unknown``)."""

from __future__ import annotations

from collections.abc import Iterable
from enum import StrEnum


class Verdict(StrEnum):
    """Valid, invalid or unknown; there is no fourth answer and silence is not an answer."""

    VALID = "valid"
    INVALID = "invalid"
    UNKNOWN = "unknown"


def worst(verdicts: Iterable[Verdict]) -> Verdict:
    """Invalid beats unknown beats valid; of nothing, unknown (nothing was shown)."""
    seen = set(verdicts)
    for verdict in (Verdict.INVALID, Verdict.UNKNOWN, Verdict.VALID):
        if verdict in seen:
            return verdict
    return Verdict.UNKNOWN
