"""Asking GlusterFS' command line, and understanding its XML.

With ``--xml`` several errors exit with 0, so the answer's ``opRet`` decides. The parsers are pure; what they read is GlusterFS
10's output (cli/src/cli-xml-output.c).
"""

from __future__ import annotations

import xml.etree.ElementTree as ElementTree
from collections.abc import Sequence
from dataclasses import dataclass
from xml.etree.ElementTree import Element

from assay.lab.host import Completed, Host
from assay.systems.base import AdapterError, NoAnswerError

CLI_SECONDS = 60.0  # the slowest answers take 3 s; a server that is cut off delays them by its ping-timeout, 42 s


def ask(host: Host, *words: str, timeout_seconds: float = CLI_SECONDS) -> Element:
    """Root of the answer to ``gluster WORDS`` on a host. Raises AdapterError with gluster's own words, HostError when the
    host is down."""
    done = host.run(["gluster", "--mode=script", "--xml", *words], timeout_seconds=timeout_seconds)
    return parse_answer(done, words)


def tell(host: Host, *words: str, timeout_seconds: float = CLI_SECONDS) -> None:
    """Run a command that answers in words even with ``--xml``. Raises as :func:`ask` does."""
    done = host.run(["gluster", "--mode=script", *words], timeout_seconds=timeout_seconds)
    if done.exit_code is None:
        raise NoAnswerError(_no_answer(done, words))
    if not done.ok:
        said = " ".join((done.stderr + b" " + done.stdout).decode(errors="replace").split())
        raise AdapterError(f"{_short(words)}: {said[-300:] or f'exit code {done.exit_code} and no output'}")


def _short(words: Sequence[str]) -> str:
    return " ".join(["gluster", *words[:2]])


def _no_answer(done: Completed, words: Sequence[str]) -> str:
    took = done.ended_at - done.started_at
    return f"{_short(words)}: no answer within {took:.0f} s; a server may be cut off or hang"


def parse_answer(done: Completed, asked: Sequence[str]) -> Element:
    """Root of the answer to what was asked. Raises AdapterError, one line that begins with the command."""
    what = _short(asked)
    if done.exit_code is None:
        raise NoAnswerError(_no_answer(done, asked))
    words = " ".join((done.stdout + b" " + done.stderr).decode(errors="replace").split())
    try:
        root = ElementTree.fromstring(done.stdout)
    except ElementTree.ParseError:
        raise AdapterError(f"{what}: {words[-300:] or f'exit code {done.exit_code} and no output'}") from None
    if _text(root, "opRet") != "0":
        reason = " ".join((_text(root, "opErrstr") or _text(root, "output")).split()) or words[-300:]
        raise AdapterError(f"{what}: {reason}")
    return root


# --- peers --------------------------------------------------------------------------------------------------------------

IN_CLUSTER = "3"  # GD_FRIEND_STATE_BEFRIENDED; before that, volumes are refused


def connected_peers(root: Element) -> int:
    """Peers that are connected and in the cluster, from ``peer status`` (the host that answers does not count itself)."""
    return sum(_text(p, "connected") == "1" and _text(p, "state") == IN_CLUSTER for p in root.iter("peer"))


# --- volumes ------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class VolumeInfo:
    """What ``volume info`` says of one volume; bricks as ``host:/directory`` in the volume's order."""

    name: str
    status: str  # Created, Started, Stopped
    kind: str  # Distribute, Distributed-Replicate, Disperse, ...
    bricks: tuple[str, ...]
    replicas: int
    shards: int  # data and parity; 0 unless dispersed
    parity: int
    options: dict[str, str]  # set on this volume: all others have their defaults


def volume_info(root: Element) -> VolumeInfo:
    """The only volume of the answer. Raises AdapterError when there is none."""
    volume = root.find(".//volume")
    if volume is None:
        raise AdapterError("gluster volume info: no such volume")
    return VolumeInfo(
        name=_text(volume, "name"),
        status=_text(volume, "statusStr"),
        kind=_text(volume, "typeStr"),
        bricks=tuple(_text(b, "name") for b in volume.iter("brick")),
        replicas=int(_text(volume, "replicaCount") or 1),
        shards=int(_text(volume, "disperseCount") or 0),
        parity=int(_text(volume, "redundancyCount") or 0),
        options={_text(o, "name"): _text(o, "value") for o in volume.iter("option")},
    )


@dataclass(frozen=True)
class BrickState:
    """One brick process as its host's glusterd sees it."""

    brick: str  # host:/directory
    online: bool
    pid: int | None  # inside the host


def brick_states(root: Element) -> list[BrickState]:
    """Bricks of ``volume status``; those of hosts that are down are missing."""
    states = []
    for node in root.iter("node"):
        host, path = _text(node, "hostname"), _text(node, "path")
        if path.startswith("/"):  # self-heal daemons are nodes too
            pid = _text(node, "pid")
            states.append(
                BrickState(f"{host}:{path}", _text(node, "status") == "1", int(pid) if pid.isdigit() else None)
            )
    return states


@dataclass(frozen=True)
class HealState:
    """What ``heal info summary`` says of all bricks together."""

    pending: int
    split_brain: int
    unreachable: tuple[str, ...]  # bricks that did not answer: what they miss is not known

    @property
    def healed(self) -> bool:
        """Whether every brick answered and nothing is left to do."""
        return not self.pending and not self.unreachable

    def __str__(self) -> str:
        text = f"{self.pending} entries in the bricks' heal indices"
        text += f", {self.split_brain} of them in split-brain" if self.split_brain else ""
        return text + (f", {len(self.unreachable)} bricks do not answer" if self.unreachable else "")


def heal_state(root: Element) -> HealState:
    """Sums over the bricks of ``volume heal VOLUME info summary``."""
    pending = split_brain = 0
    unreachable = []
    for brick in root.iter("brick"):
        entries = _text(brick, "totalNumberOfEntries")
        if _text(brick, "status") != "Connected" or not entries.isdigit():
            unreachable.append(_text(brick, "name"))
            continue
        pending += int(entries)
        split_brain += int(_text(brick, "numberOfEntriesInSplitBrain") or 0)
    return HealState(pending, split_brain, tuple(unreachable))


@dataclass(frozen=True)
class RebalanceState:
    """What ``rebalance status`` or ``remove-brick status`` says, summed over the hosts that take part."""

    status: str  # of the slowest host: not started, in progress, completed, stopped, failed
    files: int  # moved so far
    bytes: int
    scanned: int
    failures: int
    skipped: int
    seconds: float  # of the host that took longest

    @property
    def ended(self) -> bool:
        """Whether nothing moves any more, whatever the outcome."""
        return self.status not in ("in progress", "not started")

    def __str__(self) -> str:
        text = f"{self.status}: {self.files} files, {self.bytes / 1e6:.1f} MB moved, {self.scanned} looked at"
        text += f", {self.skipped} skipped" if self.skipped else ""
        return text + (f", {self.failures} failures" if self.failures else "")


_SLOWEST_FIRST = ("in progress", "failed", "stopped", "not started", "completed")


def rebalance_state(root: Element) -> RebalanceState:
    """Sums over the nodes: the aggregate that gluster gives leaves out hosts that have not answered. Raises AdapterError."""
    nodes = list(root.iter("node"))
    if not nodes:
        raise AdapterError("gluster rebalance status: no host takes part")
    statuses = [_text(n, "statusStr") for n in nodes]
    # a host without files to move is "not started" for ever when others are done; all of them: it begins
    status = next(
        (s for s in _SLOWEST_FIRST if s in statuses and (s != "not started" or set(statuses) == {s})), "completed"
    )

    def total(name: str) -> int:
        return sum(int(_text(n, name) or 0) for n in nodes)

    return RebalanceState(
        status=status,
        files=total("files"),
        bytes=total("size"),
        scanned=total("lookups"),
        failures=total("failures"),
        skipped=total("skipped"),
        seconds=max(float(_text(n, "runtime") or 0) for n in nodes),
    )


def _text(element: Element, name: str) -> str:
    return (element.findtext(name) or "").strip()
