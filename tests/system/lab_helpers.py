"""What the tests of labs and local systems share: the kernel's own view, and processes that die."""

from __future__ import annotations

import os
import pickle
import signal
import subprocess
import time
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import Any

from assay.lab.host import LocalHost
from assay.lab.registry import Lab
from assay.model.lab import Disk
from assay.systems.base import Deployment
from assay.systems.local import LocalSystem

MIB = 1 << 20


def make_local(lab: Lab, layout: str = "ext4", name: str | None = None, **disk: object) -> LocalSystem:
    given = Disk.model_validate({"size": 320 * MIB, "fill": "sparse", **disk})
    tuning = given.model_extra or {}
    return LocalSystem(
        Deployment(name or f"local/{layout}", layout, lab, LocalHost(environment=lab.environment), given, tuning)
    )


def traces(directory: Path) -> list[str]:
    """Mounts and loop devices below a directory, as util-linux sees them."""
    mounts = subprocess.run(["findmnt", "-rno", "TARGET"], capture_output=True, text=True, check=True).stdout
    loops = subprocess.run(["/usr/sbin/losetup", "-nO", "BACK-FILE"], capture_output=True, text=True, check=True).stdout
    decoded = [line.replace("\\x20", " ") for line in mounts.splitlines()]
    # findmnt writes other bytes as \xNN too
    decoded = [
        line.encode("latin-1", "ignore").decode("unicode_escape").encode("latin-1", "ignore").decode()
        if "\\x" in line
        else line
        for line in decoded
    ]
    real = os.path.realpath(directory)
    return [line for line in [*decoded, *loops.splitlines()] if line.strip().startswith(real)]


def eventually(what: Callable[[], bool], seconds: float = 5.0) -> bool:
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        if what():
            return True
        time.sleep(0.02)
    return what()


def nothing_left(directory: Path) -> bool:
    """A loop device goes a moment after its last user."""
    return eventually(lambda: not traces(directory))


class Forked:
    """A child that runs ``action`` and then waits to be killed, holding all that it holds."""

    def __init__(self, action: Callable[[], object]) -> None:
        reader, writer = os.pipe()
        self.pid = os.fork()
        if self.pid == 0:
            os.close(reader)
            try:
                kept = action()
                os.write(writer, b"ready")
                signal.pause()
                del kept
            except BaseException:  # noqa: BLE001
                os.write(writer, traceback.format_exc().encode())
            finally:
                os._exit(1)
        os.close(writer)
        said = os.read(reader, 65536)
        os.close(reader)
        if said != b"ready":
            self.kill()
            raise AssertionError(said.decode())

    def kill(self) -> None:
        os.kill(self.pid, signal.SIGKILL)
        os.waitpid(self.pid, 0)


def as_nobody(action: Callable[[], Any]) -> Any:
    """What ``action`` returns or raises for an ordinary user."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        os.close(reader)
        try:
            os.setgroups([])
            os.setresgid(65534, 65534, 65534)
            os.setresuid(65534, 65534, 65534)
            try:
                result = (True, action())
            except Exception as error:  # noqa: BLE001
                result = (False, error)
            os.write(writer, pickle.dumps(result))
        finally:
            os._exit(0)
    os.close(writer)
    with os.fdopen(reader, "rb") as file:
        good, value = pickle.loads(file.read())
    os.waitpid(pid, 0)
    if good:
        return value
    raise value
