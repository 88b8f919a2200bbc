"""What MooseFS' tools say, read: ``mfscli``, ``mfsfileinfo``, ``mfsgetgoal`` and the client's ``.masterinfo``. Pure, but for
:func:`ask`.

``mfscli -p -s '|'`` prints one record per line, the table's name first. Formats as of 3.0.117 (tests: answers of real masters).
"""

from __future__ import annotations

import re
import struct
from dataclasses import dataclass

from assay.lab.host import Host, HostError
from assay.systems.base import AdapterError, NoAnswerError

ANSWER_SECONDS = 20.0
CHUNK_PORT = 9422
_SEPARATOR = "|"
_CLASS = re.compile(r"chunkclass (.+):")
_CHUNK = re.compile(r"\tchunk (\d+): ([0-9A-F]{16})_[0-9A-F]{8}\b")
_COPY = re.compile(r"\t\tcopy \d+: ([0-9.]+):\d+ .*\(status:([A-Z]+)")
_MASTERINFO = struct.Struct(">4sHII")  # address and port of the client's proxy, session, version


def ask(host: Host, master: str, *sets: str) -> list[tuple[str, ...]]:
    """Records of data sets such as ``-SCS``, or the answer to a command such as ``-CRC/ip/port``. Raises AdapterError,
    NoAnswerError when the master says nothing."""
    argv = ["mfscli", "-H", master, "-n", "-s", _SEPARATOR, *sets]
    try:
        done = host.run(argv, timeout_seconds=ANSWER_SECONDS)
    except HostError as error:
        raise NoAnswerError(f"mfscli: {error}") from None
    said = done.stdout.decode(errors="replace")
    if done.exit_code is None:
        raise NoAnswerError(f"the master {master} gave no answer within {ANSWER_SECONDS:g} s")
    if not done.ok or "Can't connect" in said:
        words = " ".join((said + done.stderr.decode(errors="replace")).split())
        raise NoAnswerError(f"mfscli {' '.join(sets)}: {words[-300:] or f'exit code {done.exit_code}'}")
    return records(said)


def records(text: str) -> list[tuple[str, ...]]:
    """Fields of every line that has any."""
    return [tuple(line.split(_SEPARATOR)) for line in text.splitlines() if _SEPARATOR in line]


# --- chunk servers ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChunkServer:
    """One connected chunk server, as the master sees it. Bytes and chunks are of its disks in use; ``leaving_chunks`` are on
    disks that are marked for removal, and ``may_leave`` is whether the master needs none of them any more."""

    address: str
    port: int
    version: str
    chunks: int
    used_bytes: int
    total_bytes: int
    may_leave: bool
    leaving_chunks: int
    leaving_total_bytes: int

    @property
    def share(self) -> float:
        """How full it is, 0 to 1."""
        return self.used_bytes / self.total_bytes if self.total_bytes else 0.0


def chunk_servers(answer: list[tuple[str, ...]]) -> list[ChunkServer]:
    """Those that are connected, from ``-SCS``. Raises AdapterError for another format."""
    found = []
    for fields in answer:
        if fields[0] != "chunk servers:":
            continue
        try:
            _, address, port, _, _, version, _, _, chunks, used, total, leaving, chunks2, _, total2 = fields
            # a server from which the master has deleted the last superfluous copy is no longer called ready, it is empty
            empty = not (int(total) or int(chunks2)) and int(total2) > 0
            found.append(
                ChunkServer(
                    address, int(port), version, int(chunks), int(used), int(total), leaving == "READY" or empty,
                    int(chunks2), int(total2),
                )
            )  # fmt: skip
        except ValueError:
            raise AdapterError(f"mfscli -SCS: {_SEPARATOR.join(fields)!r} is of no known format") from None
    return found


# --- chunks ---------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ChunkState:
    """Numbers of chunks by what is wrong with them, from ``-SIC``."""

    missing: int  # no copy left
    endangered: int  # one copy left of several
    undergoal: int  # some copies are missing
    stable: int
    overgoal: int  # copies more than wanted; the master deletes them in time
    deleting: int  # of files that were deleted

    @property
    def whole(self) -> bool:
        """Whether every chunk has all its copies."""
        return not (self.missing or self.endangered or self.undergoal)

    def __str__(self) -> str:
        if self.whole:
            return f"all {self.stable + self.overgoal} chunks have their copies"
        return f"chunks: {self.missing} missing, {self.endangered} endangered, {self.undergoal} undergoal"


def chunk_state(answer: list[tuple[str, ...]]) -> ChunkState:
    """Raises AdapterError when the table is not there."""
    classes = {m[1]: int(fields[2]) for fields in answer if len(fields) == 3 and (m := _CLASS.fullmatch(fields[1]))}
    try:
        return ChunkState(
            missing=classes["missing"],
            endangered=classes["endangered"],
            undergoal=classes["undergoal"],
            stable=classes["stable"],
            overgoal=classes["overgoal"],
            deleting=classes["pending deletion"] + classes["to be removed"],
        )
    except KeyError as error:
        raise AdapterError(f"mfscli -SIC: no number of {error.args[0]} chunks") from None


@dataclass
class Chunk:
    """One chunk of a file."""

    index: int  # in the file
    identifier: str  # sixteen hexadecimal digits
    servers: list[str]  # addresses of those that have a valid copy


def files_of_chunks(text: str) -> dict[str, list[Chunk]]:
    """Chunks of each file, from ``mfsfileinfo``."""
    found: dict[str, list[Chunk]] = {}
    chunks: list[Chunk] = []
    for line in text.splitlines():
        if match := _CHUNK.match(line):
            chunks.append(Chunk(int(match[1]), match[2], []))
        elif match := _COPY.match(line):
            if match[2] == "VALID":
                chunks[-1].servers.append(match[1])
        elif not line.startswith("\t") and line.endswith(":"):
            chunks = found.setdefault(line[:-1], [])
    return found


# --- clients --------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ClientInfo:
    """What a client's ``.masterinfo`` says: the master gives every process that mounts a session of its own."""

    session: int
    version: str


def client_info(content: bytes) -> ClientInfo:
    """Raises AdapterError when it is of another format."""
    try:
        _, _, session, number = _MASTERINFO.unpack(content)
    except struct.error:
        raise AdapterError(f".masterinfo has {len(content)} bytes; it is no MooseFS 3 or 4") from None
    # the last part counts in halves: even for releases of the community edition, odd for the other (MFSCommunication.h)
    return ClientInfo(session, f"{number >> 16}.{number >> 8 & 255}.{(number & 255) // 2}")


def goal(text: str) -> int:
    """Copies of a directory's new files, from ``mfsgetgoal``. Raises AdapterError."""
    match = re.search(r": (\d+)\s*$", text)
    if match is None:
        first = next((line.strip() for line in text.splitlines() if line.strip()), "no answer")
        raise AdapterError(f"mfsgetgoal: {first[:200]}")
    return int(match[1])
