"""What the tests of fabrics share: small fabrics, who reaches whom, and what a killed one has left."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from lab_helpers import traces

from assay.lab.fabric import Fabric
from assay.lab.hostdisk import HostDisk
from assay.lab.kernel import processes_of, start_time
from assay.lab.limits import groups_of
from assay.lab.namespace import NamespaceHost
from assay.lab.registry import Lab
from assay.model.lab import Lab as LabDeclaration

_CONNECT = "import socket, sys; socket.create_connection((sys.argv[1], 7777), 1).recv(99)"
_ANSWER = """
import socket, sys
server = socket.create_server(("", 7777))
while True:
    connection, _ = server.accept()
    connection.sendall(sys.argv[1].encode())
    connection.close()
"""


def shape(**given: object) -> LabDeclaration:
    return LabDeclaration.model_validate({"hosts": 2, "disk": {"size": "300MiB"}, **given})


@contextmanager
def fabric_of(lab_id: str, **given: object) -> Iterator[Fabric]:
    lab = Lab(lab_id, "s")
    fabric = Fabric(lab, "f", shape(**given))
    try:
        fabric.up()
        yield fabric
    finally:
        fabric.down()
        lab.remove()


def answer(host: NamespaceHost, text: str) -> None:
    """Let a host answer whoever connects to it."""
    host.child(["setsid", "--fork", "python3", "-c", _ANSWER, text])
    end = time.monotonic() + 10
    while not reaches(host, host.address):
        assert time.monotonic() < end


def reaches(host: NamespaceHost, address: str) -> bool:
    """Whether a host gets through to another that answers."""
    return host.run(["python3", "-c", _CONNECT, address], timeout_seconds=10).ok


def add_disks(fabric: Fabric, kind: str = "xfs") -> list[HostDisk]:
    """A mounted disk for each storage host, with a file on it."""
    disks = []
    for host in fabric.storage:
        disk = HostDisk(fabric, host, 1)
        disks.append(disk)
        disk.create()
        disk.attach()
        disk.make_filesystem(kind)
        disk.mount(kind, "/run/b")
        host.run(["sh", "-c", "echo precious > /run/b/file && sync /run/b/file"]).must("writing")
    return disks


def namespaces_of(pids: list[int]) -> set[str]:
    """Network and PID namespaces of processes, this one's excepted."""
    found = set()
    for pid in pids:
        for kind in ("net", "pid"):
            try:
                found.add(str(Path(f"/proc/{pid}/ns/{kind}").readlink()))
            except OSError:
                continue
    return found - {str(Path(f"/proc/self/ns/{kind}").readlink()) for kind in ("net", "pid")}


def now_in_ticks() -> int:
    """Time since boot as start times of processes have it."""
    return int(float(Path("/proc/uptime").read_text().split()[0]) * os.sysconf("SC_CLK_TCK"))


def all_namespaces(before_ticks: int | None = None) -> set[str]:
    """Every network and PID namespace that a process of this machine is in, if it was started before that time: the
    kernel gives the numbers of namespaces that are gone to new ones."""
    pids = [int(entry.name) for entry in Path("/proc").iterdir() if entry.name.isdigit()]
    return namespaces_of([pid for pid in pids if before_ticks is None or start_time(pid) <= before_ticks])


def left_of(lab_id: str, home: Path) -> dict[str, object]:
    """All that a lab has left on this machine; empty values when there is nothing."""
    return {
        "mounts and loops": traces(home),
        "processes": processes_of(lab_id),
        "control groups": groups_of(lab_id),
        "files": [str(p) for p in (home / "assay" / "labs").rglob("*")],
    }


class Running:
    """A child process that does something and is killed at any moment."""

    def __init__(self, action: Callable[[], object]) -> None:
        self.pid = os.fork()
        if self.pid == 0:
            try:
                with Path("/dev/null").open("wb") as null:
                    os.dup2(null.fileno(), 1)
                    os.dup2(null.fileno(), 2)
                    action()
                    while True:
                        signal.pause()
            finally:
                os._exit(1)

    def kill(self) -> int:
        """Kill -9; returns the status that wait(2) tells."""
        os.kill(self.pid, signal.SIGKILL)
        return os.waitpid(self.pid, 0)[1]


@contextmanager
def loop_device(file: Path, size: int) -> Iterator[str]:
    """A real block device, to be handed over."""
    with file.open("wb") as made:
        made.truncate(size)
    command = ["losetup", "--find", "--show", "--partscan", str(file)]
    device = subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    try:
        yield device
    finally:
        subprocess.run(["losetup", "--detach", device], check=False)
        file.unlink()
