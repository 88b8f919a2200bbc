"""What rules are made of: outcomes, words for numbers, and readings shared by several rules."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from assay.checks.subjects import AttemptSubject
from assay.model.evidence import AttemptEvidence, DeviceCounters, Direction
from assay.model.point import DdPoint, FioPoint, IozonePoint, MetadataPoint, parse_point
from assay.model.verdict import Verdict

MIB = 1 << 20
DIRECTIONS: tuple[Direction, ...] = ("read", "write")

#: Roles that have no device below them: the null engine, and tmpfs as harness floor.
NULL = frozenset({"null"})
DEVICELESS = frozenset({"null", "floor"})


@dataclass(frozen=True)
class Outcome:
    """What a rule function returns; the registry makes a Finding of it."""

    verdict: Verdict
    message: str
    evidence: dict[str, Any]


def valid(message: str, **evidence: Any) -> Outcome:
    """The rule was applied and holds."""
    return Outcome(Verdict.VALID, message, evidence)


def invalid(message: str, **evidence: Any) -> Outcome:
    """The rule was applied and is broken."""
    return Outcome(Verdict.INVALID, message, evidence)


def unknown(message: str, **evidence: Any) -> Outcome:
    """What the rule needs is missing."""
    return Outcome(Verdict.UNKNOWN, message, evidence)


def not_applicable(why: str) -> Outcome:
    """The rule has nothing to say about this subject. Counts as valid."""
    return Outcome(Verdict.VALID, f"does not apply: {why}", {"applies": False})


def judge(broken: list[str], missing: list[str], fine: str, **evidence: Any) -> Outcome:
    """Invalid if anything is broken, else unknown if anything is missing, else valid with ``fine``."""
    if broken:
        return invalid("; ".join(broken), **evidence)
    if missing:
        return unknown("; ".join(missing), **evidence)
    return valid(fine, **evidence)


def size(value: float) -> str:
    """Bytes for people: ``1.50 GiB``."""
    for unit, factor in (("TiB", 1 << 40), ("GiB", 1 << 30), ("MiB", MIB), ("KiB", 1 << 10)):
        if abs(value) >= factor:
            return f"{value / factor:.2f} {unit}"
    return f"{value:.0f} B"


def percent(share: float) -> str:
    """A share for people: ``12.5 %``."""
    return f"{100 * share:.3g} %"


def point_of(evidence: AttemptEvidence) -> FioPoint | DdPoint | IozonePoint | MetadataPoint:
    """The workload point; ValidationError (hence unknown) when it is of no known kind or incomplete."""
    return parse_point(evidence.point)


def working_set(evidence: AttemptEvidence) -> int:
    """Bytes this cell touches: its own files, not the larger data set that it may share with other cells."""
    own = point_of(evidence).dataset_bytes
    return min(own, evidence.dataset_bytes) if evidence.dataset_bytes else own


def delivered(evidence: AttemptEvidence, direction: Direction) -> int | None:
    """Bytes the load generators moved in that direction over the measured time; None without results."""
    if not evidence.clients:
        return None
    return sum(c.totals[direction].bytes for c in evidence.clients if direction in c.totals)


@dataclass(frozen=True)
class DeviceBytes:
    """Bytes that all devices of the candidate moved between the two snapshots."""

    read: int
    written: int

    def of(self, direction: Direction) -> int:
        """Bytes in one direction."""
        return self.read if direction == "read" else self.written


def device_bytes(evidence: AttemptEvidence) -> DeviceBytes | str:
    """What the devices moved during the attempt, or why that is not known."""
    before = evidence.before.devices
    after = evidence.after.devices if evidence.after else None
    if not before and not after:
        return "the candidate has no byte counters"
    if not before or not after:
        return "the byte counters were read on one side of the attempt only"
    start, end = _by_name(before), _by_name(after)
    if start.keys() != end.keys():
        changed = ", ".join(sorted(start.keys() ^ end.keys()))
        return f"devices came or went during the attempt: {changed}"
    read = {name: end[name].read_bytes - start[name].read_bytes for name in start}
    written = {name: end[name].written_bytes - start[name].written_bytes for name in start}
    if any(n < 0 for n in (*read.values(), *written.values())):
        return "a byte counter went backwards: the device was replaced during the attempt"
    return DeviceBytes(sum(read.values()), sum(written.values()))


def _by_name(devices: list[DeviceCounters]) -> dict[str, DeviceCounters]:
    return {d.device: d for d in devices}


@dataclass(frozen=True)
class ColdProof:
    """What the devices say about a reading attempt."""

    delivered: int  # bytes, over the measured time
    needed: int  # bytes the devices must have read if nothing came from a cache
    device_read: int  # bytes

    @property
    def cold(self) -> bool:
        """Whether the devices read everything that was delivered."""
        return self.device_read >= self.needed

    @property
    def share(self) -> float:
        """Bytes read by devices per byte delivered."""
        return self.device_read / self.delivered


def cold_proof(subject: AttemptSubject, slack: float = 0.01) -> ColdProof | str:
    """Compare bytes read by devices with bytes delivered, or say why that cannot be done.

    The counters span the ramp too, whose bytes the load generator does not report: read from a device in the
    ramp, data could be delivered from memory later and still look cold. So the ramp is charged at half of the
    measured rate, less than a cold ramp reads and more than leaves room for a warm pass.
    """
    evidence = subject.evidence
    total = delivered(evidence, "read")
    if not total:
        return "no delivered bytes are known"
    devices = device_bytes(evidence)
    if isinstance(devices, str):
        return devices
    point = point_of(evidence)
    seconds = max(c.totals["read"].runtime_seconds for c in evidence.clients if "read" in c.totals)
    ramp = 0.5 * total * point.ramp / seconds if point.ramp and seconds > 0 else 0.0
    return ColdProof(total, math.floor((1 - slack) * total + ramp), devices.read)
