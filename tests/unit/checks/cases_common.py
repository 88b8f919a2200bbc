"""What the cases of all families share."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import builders as b

from assay.checks import AttemptSubject, CellSubject, StudySubject

Subject = AttemptSubject | CellSubject | StudySubject


@dataclass(frozen=True)
class Case:
    """What one rule must say. ``invalid`` also holds a part of the message that must name the fault."""

    valid: dict[str, Subject]
    invalid: dict[str, tuple[Subject, str]]
    unknown: dict[str, Subject]
    exempt: dict[str, Subject] = field(default_factory=dict)


DEVICE = "after/devices/0"
READ, WRITTEN = f"{DEVICE}/read_bytes", f"{DEVICE}/written_bytes"
BEFORE_READ, BEFORE_WRITTEN = 5 * b.GIB, 7 * b.GIB
DELIVERED = b.CLIENTS * b.OPERATIONS * b.BLOCK
VERIFYING: dict[str, Any] = {"pattern": "randwrite", "direct": True, "verify": "md5"}
WRITING: dict[str, Any] = {"pattern": "randwrite", "direct": True}
BUFFERED: dict[str, Any] = {"pattern": "write", "cache": "any"}
