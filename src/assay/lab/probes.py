"""What hosts find out for baselines, by :meth:`assay.lab.host.Host.call`. Standard library only: see ``remote``."""

from __future__ import annotations

import socket
import time
from contextlib import suppress
from pathlib import Path

CLOSED_PORT = 9  # discard: nobody serves it any more, and the refusal is an answer
_LISTENS = "0A"  # TCP_LISTEN in /proc/net/tcp


def now() -> float:
    """This host's clock, Unix seconds."""
    return time.time()


def listens(port: int) -> bool:
    """Whether some process of this host waits for connections to a TCP port."""
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for fields in map(str.split, lines):
            if fields[3] == _LISTENS and int(fields[1].rpartition(":")[2], 16) == port:
                return True
    return False


def round_trip_seconds(address: str, count: int) -> float:
    """The shortest of ``count`` round trips to another host: from the first packet of a TCP connection to its answer,
    which may be a refusal. Raises OSError when none comes within 2 s."""
    best = float("inf")
    for _ in range(count):
        with socket.socket(socket.AF_INET, socket.SOCK_STREAM) as connection:
            connection.settimeout(2.0)
            begun = time.perf_counter()
            with suppress(ConnectionRefusedError):
                connection.connect((address, CLOSED_PORT))
            best = min(best, time.perf_counter() - begun)
    return best
