"""What systems share that are deployed on hosts of a lab: all hosts at once, their disks and directories, waiting."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import TypeVar

from assay.lab.fabric import Fabric
from assay.lab.hostdisk import HostDisk
from assay.lab.namespace import NamespaceHost
from assay.model.evidence import DeviceCounters

T = TypeVar("T")
R = TypeVar("R")
POLL_SECONDS = 0.03
_AT_ONCE = 16
# two losetup --find at once meet at the same free device, and the loser sleeps 0.2 s before it looks again
_attaching = threading.Lock()


def each(items: Iterable[T], function: Callable[[T], R]) -> list[R]:
    """The function's results for all items, worked on at once; the first exception is raised when all have ended."""
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
        futures = [pool.submit(function, item) for item in items]
    return [future.result() for future in futures]


def wait_until(what: Callable[[], bool], timeout_seconds: float, poll_seconds: float = POLL_SECONDS) -> bool:
    """Whether it became true in time; asked at least once."""
    end = time.monotonic() + timeout_seconds
    while not what():
        if time.monotonic() > end:
            return False
        time.sleep(poll_seconds)
    return True


def bind(host: NamespaceHost, places: Mapping[Path, str]) -> None:
    """Bind directories (made when missing) and files of this machine over paths of a host, where services look for them.
    Raises HostError."""
    script = ["set -e"]
    arguments: list[str] = []
    for number, (source, target) in enumerate(places.items()):
        if not source.exists():
            source.mkdir(parents=True)
        make = f'mkdir -p "${{{2 * number + 2}}}"' if source.is_dir() else ":"
        script.append(f'{make}; mount --bind "${{{2 * number + 1}}}" "${{{2 * number + 2}}}"')
        arguments += [str(source), target]
    host.run(["sh", "-c", "\n".join(script), "sh", *arguments]).must(f"{host.name}: directories")


class HostDisks:
    """The disks of one storage host, each with a file system, mounted at ``/run/b/1``, ``/run/b/2``, ..."""

    def __init__(self, fabric: Fabric, host: NamespaceHost, filesystem: str) -> None:
        self.filesystem = filesystem
        self._disks = {n: HostDisk(fabric, host, n) for n in range(1, fabric.shape.disk.per_host + 1)}

    def make(self) -> None:
        """Make, attach, format and mount them. Raises LabError or HostError."""
        for number, disk in self._disks.items():
            disk.create()
            with _attaching:
                disk.attach()
            disk.make_filesystem(self.filesystem)
            disk.mount(self.filesystem, f"/run/b/{number}")

    def mount_again(self) -> None:
        """After the host was started again, with the data that are on them. Raises LabError or HostError."""
        for number, disk in self._disks.items():
            with _attaching:
                disk.attach()
            disk.mount(self.filesystem, f"/run/b/{number}")

    def counters(self) -> list[DeviceCounters]:
        """Bytes moved by each. Raises LabError."""
        return [disk.counters() for disk in self._disks.values()]

    def remove(self) -> None:
        """Remove their files; no error when they were never made."""
        for disk in self._disks.values():
            disk.remove()


def log_tail(file: Path, wanted: str = "", lines: int = 1) -> str:
    """The last lines of a log that contain ``wanted``, as one line of at most 300 characters; empty without any."""
    try:
        text = file.read_text(errors="replace")
    except OSError:
        return ""
    found = [line.strip() for line in text.splitlines() if wanted in line]
    return " | ".join(found[-lines:])[-300:]
