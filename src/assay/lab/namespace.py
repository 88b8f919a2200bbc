"""A host that is a set of namespaces of this machine, entered through its first process."""

from __future__ import annotations

import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TypeVar

from assay.lab.agent import Agents, kill_tree
from assay.lab.host import CALL_SECONDS, ChildProcess, Completed, HostError, call_agent, search_path
from assay.lab.kernel import start_time
from assay.lab.limits import join

T = TypeVar("T")
START_SECONDS = 20.0
_NAMESPACES = ("--mount", "--net", "--pid", "--uts", "--ipc")

#: Zombies of daemons that have lost their parents are reaped by the kernel when the first process ignores SIGCHLD.
SLEEP_FOREVER = "exec env --ignore-signal=CHLD sleep infinity </dev/null >/dev/null 2>&1"


def enter_namespaces(pid: int, *only: str) -> list[str]:
    """Prefix of a command that is to run in the namespaces of a process; ``only`` names single ones, e.g. ``--net``."""
    return ["nsenter", "--target", str(pid), *(only or _NAMESPACES), "--"]


class Namespaces:
    """A first process in new namespaces. When it dies, the kernel kills every process in them, and with the last one go
    the mounts, links and addresses: nothing of it has a name anywhere else."""

    def __init__(self, process: subprocess.Popen[bytes] | None, pid: int) -> None:
        self._process = process  # what waits for the first process; None when another command made it
        self.pid = pid  # of the first process, as this machine counts
        self.started = start_time(pid)

    @classmethod
    def make(
        cls, script: str, arguments: Sequence[str], *, inside: Namespaces | None, environment: Mapping[str, str],
        die_with_assay: bool, groups: Sequence[str] = (),
    ) -> Namespaces:  # fmt: skip
        """Run a shell script as first process of new namespaces (nested ``inside`` others); it must print ``up PID``, its
        process id as this machine counts, and then run SLEEP_FOREVER. Raises HostError with the script's last words.

        With ``die_with_assay`` everything goes when the calling thread ends: call it from the main thread. ``groups`` are
        directories of control groups that hold it and all that comes of it.
        """
        command = ["setpriv", "--pdeathsig", "KILL"] if die_with_assay else []
        command += join(list(groups))
        command += inside.enter() if inside is not None else []
        command += [
            "unshare",
            *_NAMESPACES,
            "--fork",
            "--kill-child=SIGKILL",
            "--",
            "sh",
            "-c",
            script,
            "sh",
            *arguments,
        ]
        try:
            process = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                env={**os.environ, "PATH": search_path(), **environment},
                start_new_session=True,
            )
        except OSError as error:
            raise HostError(f"cannot start {command[0]}: {error}") from error
        assert process.stdout is not None and process.stderr is not None
        try:
            line = _first_line(process, START_SECONDS).split()
            if len(line) != 2 or line[0] != b"up":
                os.killpg(process.pid, signal.SIGKILL)
                words = process.stderr.read().decode(errors="replace").strip()
                raise HostError(f"namespaces could not be set up: {words[-300:] or '(no output)'}")
            return cls(process, int(line[1]))
        finally:
            process.stdout.close()
            process.stderr.close()

    @property
    def alive(self) -> bool:
        """Whether the first process is there, and is still the same one."""
        return self.started != 0 and start_time(self.pid) == self.started

    def enter(self, *only: str) -> list[str]:
        """Prefix of a command that is to run inside; ``only`` names single namespaces, e.g. ``--net``."""
        return enter_namespaces(self.pid, *only)

    def kill(self) -> None:
        """Kill the first process and with it everything inside; returns when it is gone, at most 10 s later."""
        if self.alive:
            os.kill(self.pid, signal.SIGKILL)
        if self._process is not None:
            try:
                self._process.wait(timeout=10)
            except subprocess.TimeoutExpired:
                self._process.kill()
        end = time.monotonic() + 10
        while self.alive and time.monotonic() < end:
            time.sleep(0.005)


def _first_line(process: subprocess.Popen[bytes], seconds: float) -> bytes:
    assert process.stdout is not None
    if not select.select([process.stdout], [], [], seconds)[0]:
        return b""
    return process.stdout.readline()


class NamespaceProcess(ChildProcess):
    """A process inside, seen through the nsenter that waits for it."""

    def kill(self) -> None:
        """See :class:`assay.lab.host.Process`."""
        kill_tree(self._popen)


class NamespaceHost:
    """A host of a lab on this machine. Implements :class:`assay.lab.host.Host`."""

    def __init__(self, name: str, address: str, environment: Mapping[str, str], groups: Sequence[str] = ()) -> None:
        self.name, self.address = name, address
        self.groups = list(groups)  # directories of control groups, which hold every process of the host
        self._environment = dict(environment)
        self._namespaces: Namespaces | None = None
        self._agent: Agents | None = None

    @property
    def namespaces(self) -> Namespaces:
        """Those of the running host. Raises HostError when it is down."""
        if self._namespaces is None or not self._namespaces.alive:
            raise HostError(f"host {self.name} is down")
        return self._namespaces

    @property
    def is_up(self) -> bool:
        """Whether the host runs."""
        return self._namespaces is not None and self._namespaces.alive

    def enter(self) -> list[str]:
        """Prefix of a command that is to run on the host, within its limits. Raises HostError when it is down."""
        return [*join(self.groups), *self.namespaces.enter()]

    def started(self, namespaces: Namespaces) -> None:
        """It runs, in these namespaces."""
        self.close()
        self._namespaces = namespaces
        self._agent = Agents(self.enter(), self._environment)

    def kill(self) -> None:
        """Pull the plug: every process of the host is killed, its mounts and links go. No power cut: the kernel of this
        machine lives on and writes back what it holds."""
        if self._namespaces is not None:
            self._namespaces.kill()
        self.close()

    def run(self, argv: Sequence[str], *, timeout_seconds: float = 60.0) -> Completed:
        """See :class:`Host`."""
        return self.child(argv).wait(timeout_seconds)

    def spawn(
        self, argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> NamespaceProcess:
        """See :class:`Host`. It dies with nsenter, which dies with Assay."""
        inside = [*(["env", f"--chdir={cwd}"] if cwd is not None else []), "setpriv", "--pdeathsig", "KILL", *argv]
        command = ["setpriv", "--pdeathsig", "KILL", *self.enter(), *inside]
        return NamespaceProcess(argv, command, None, {**self._environment, **(env or {})})

    def child(self, argv: Sequence[str]) -> NamespaceProcess:
        """A child that does not die with Assay, only with the host: daemons are started so."""
        return NamespaceProcess(argv, [*self.enter(), *argv], None, self._environment)

    def call(self, function: Callable[..., T], *args: object, timeout_seconds: float = CALL_SECONDS) -> T:
        """See :class:`Host`."""
        if self._agent is None or not self.is_up:
            raise HostError(f"host {self.name} is down")
        return call_agent(self._agent, self.name, function, args, timeout_seconds)

    def close(self) -> None:
        """End the helper process."""
        if self._agent is not None:
            self._agent.close()
            self._agent = None
