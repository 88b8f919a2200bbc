"""Configuration of MooseFS' daemons, layouts and room: pure."""

from __future__ import annotations

import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assay.model import units
from assay.model.lab import Disk
from assay.model.layout import Layout, parse_layout
from assay.systems.base import AdapterError

MOST_COPIES = 9  # goals of MooseFS 3
CHUNK_BYTES = 64 << 20
#: What a server's file system takes for itself when it is empty: journal, inodes, metadata.
FILESYSTEM_BYTES = {"xfs": 112 << 20, "ext4": 64 << 20, "btrfs": 128 << 20}
LEAVE_BYTES = 64 << 20  # HDD_LEAVE_SPACE_DEFAULT in a lab
DAEMONS = {"master": "mfsmaster", "chunkserver": "mfschunkserver"}
#: What differs from MooseFS' defaults in every lab; a candidate's tuning may say otherwise.
DEFAULTS: dict[str, dict[str, str]] = {
    "master": {
        "NICE_LEVEL": "0",  # -19 would take the processor from the clients of the same machine
        "REPLICATIONS_DELAY_INIT": "0",  # a minute after the start in which lost copies would not be made again
        "CHUNKS_LOOP_MIN_TIME": "60",  # the least: what was deleted or has too many copies goes sooner
        # the third, 0 instead of 1: chunks moved to and fro between servers that are equally full disturb measurements
        "CHUNKS_WRITE_REP_LIMIT": "2,1,0,4",
        "ACCEPTABLE_PERCENTAGE_DIFFERENCE": "10",  # the most: a chunk may be a tenth of a small disk
    },
    "chunkserver": {
        "NICE_LEVEL": "0",
        "HDD_LEAVE_SPACE_DEFAULT": "64MiB",  # of the small disks of labs
        "MASTER_RECONNECTION_DELAY": "1",
    },
}
_OWN = ("_PATH", "_FILENAME", "WORKING_", "_LISTEN_", "MASTER_HOST", "MASTER_PORT", "AUTH_CODE", "BIND_HOST")
_KEY = re.compile(r"[A-Z][A-Z0-9_]*")


def layout_of(text: str) -> Layout:
    """The layout, refused when MooseFS cannot do it. Raises AdapterError."""
    try:
        layout = parse_layout(text)
    except ValueError as error:
        raise AdapterError(f"moosefs/{text}: {error}") from None
    if layout.kind == "rain":
        raise AdapterError(
            f"moosefs/{text}: MooseFS 3 has no erasure code; write moosefs/replicated-{layout.parity + 1}"
        )
    if layout.kind == "replicated" and layout.width < 2:
        raise AdapterError(f"moosefs/{text}: one copy is no replication; write moosefs/distributed")
    if layout.width > MOST_COPIES:
        raise AdapterError(f"moosefs/{text}: MooseFS keeps at most {MOST_COPIES} copies")
    return layout


def layout_of_goal(goal: int) -> Layout:
    """The layout of a directory with that goal."""
    return Layout("distributed") if goal == 1 else Layout("replicated", 1, goal - 1)


def check_hosts(layout: Layout, hosts: int) -> None:
    """Raises AdapterError unless every copy of a chunk gets a host of its own."""
    if hosts < layout.width:
        raise AdapterError(
            f"moosefs/{layout} needs {layout.width} hosts, one for each copy of a chunk, and the lab has {hosts}; set "
            f"lab.hosts to {layout.width}"
        )


def check_room(layout: Layout, hosts: int, disk: Disk, filesystem: str, dataset_bytes: int) -> None:
    """Raises AdapterError, with the size that would do, unless the data set fits on the disks. ``disk.size`` is resolved.

    A server whose free space is less than a chunk gets no new ones, and chunks are laid out one by one, so that servers may
    differ by one.
    """
    if disk.size is None:
        return
    disks = hosts * disk.per_host
    own = FILESYSTEM_BYTES[filesystem] + LEAVE_BYTES + 2 * CHUNK_BYTES
    needed = dataset_bytes * layout.width / disks / 0.95 + own
    if needed <= disk.size:
        return
    raise AdapterError(
        f"moosefs/{layout}: the data set of {units.format_bytes(dataset_bytes)} takes {layout.width} times its size on "
        f"{disks} disks; lab.disk.size must be at least {-(-int(needed) // (1 << 20))}MiB, it is {units.format_bytes(disk.size)}"
    )


def settings(daemon: str, tuning: Mapping[str, Any]) -> dict[str, str]:
    """What a daemon (``master`` or ``chunkserver``) is told beyond its paths, from a candidate's tuning."""
    given = {
        key.removeprefix(f"{daemon}."): str(int(value) if isinstance(value, bool) else value)
        for key, value in tuning.items()
        if key.startswith(f"{daemon}.")
    }
    return DEFAULTS[daemon] | given


def accepted_difference(tuning: Mapping[str, Any]) -> float:
    """How much fuller, 0 to 1, one server may be than another before the master moves chunks. Raises AdapterError."""
    given = settings("master", tuning)["ACCEPTABLE_PERCENTAGE_DIFFERENCE"]
    try:
        return float(given) / 100
    except ValueError:
        raise AdapterError(f"master.ACCEPTABLE_PERCENTAGE_DIFFERENCE: {given!r} is no number") from None


def check_setting(key: str, program: Path) -> None:
    """Raises AdapterError for a tuning key such as ``master.ATIME_MODE`` that is Assay's own or that the daemon does not know:
    it would take no notice of it, without a word."""
    daemon, _, name = key.partition(".")
    if not _KEY.fullmatch(name):
        raise AdapterError(f"{key!r} is no setting of MooseFS; write for example {daemon}.ATIME_MODE")
    if any(own in name for own in _OWN):
        raise AdapterError(f"{key} is set by the lab")
    if b"\0" + name.encode() + b"\0" not in program.read_bytes():  # the names are constants of the program
        raise AdapterError(f"{DAEMONS[daemon]} knows no {name}; see: man {DAEMONS[daemon]}.cfg")


def config_text(values: Mapping[str, object]) -> str:
    """A configuration file."""
    return "".join(f"{key} = {value}\n" for key, value in values.items())
