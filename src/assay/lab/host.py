"""The host seam: whatever can run commands. Systems and workloads see nothing but this."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Protocol, TypeVar

from assay.lab.agent import AgentError, Agents

T = TypeVar("T")
CALL_SECONDS = 30.0  # a file system that needs longer than this for a metadata operation counts as hung


class HostError(Exception):
    """A command could not be started, failed where it must not, or passed its deadline."""


def search_path() -> str:
    """PATH with the directories of mkfs and losetup, which an ordinary login shell leaves out."""
    path = os.environ.get("PATH", "")
    more = [d for d in ("/usr/sbin", "/sbin") if d not in path.split(":")]
    return ":".join([*([path] if path else []), *more])


@dataclass(frozen=True)
class Completed:
    """A finished command. ``exit_code`` is None when it was killed at its deadline. Times are Unix seconds."""

    argv: tuple[str, ...]
    exit_code: int | None
    stdout: bytes
    stderr: bytes
    started_at: float
    ended_at: float

    @property
    def ok(self) -> bool:
        """Whether it ended by itself with exit code 0."""
        return self.exit_code == 0

    def must(self, purpose: str) -> Completed:
        """Itself when it succeeded; raises HostError that names the purpose, the command and its last words."""
        if self.ok:
            return self
        how = "passed its deadline" if self.exit_code is None else f"exit code {self.exit_code}"
        words = self.stderr.decode(errors="replace").strip() or self.stdout.decode(errors="replace").strip()
        words = " ".join(words.split())[-400:]
        raise HostError(f"{purpose}: {' '.join(self.argv)}: {how}: {words or '(no output)'}")


class Process(Protocol):
    """A supervised process on a host."""

    def wait(self, timeout_seconds: float | None) -> Completed:
        """Wait for the end; past the timeout the process group is killed and ``exit_code`` is None."""
        ...

    def kill(self) -> None:
        """Kill the process group now; no error when it has ended already."""
        ...


class Host(Protocol):
    """One machine or namespace in a lab."""

    name: str

    @property
    def is_up(self) -> bool:
        """Whether it runs; one that does not has no mounts and answers nothing."""
        ...

    def run(self, argv: Sequence[str], *, timeout_seconds: float = 60.0) -> Completed:
        """Run to the end; never raises for a non-zero exit, raises HostError when the program is missing."""
        ...

    def spawn(self, argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None) -> Process:
        """Start a process that dies with Assay."""
        ...

    def call(self, function: Callable[..., T], *args: object, timeout_seconds: float = CALL_SECONDS) -> T:
        """Run a module-level function on the host, in a process that can be given up; its exceptions come through.
        Whatever touches a file system under test goes this way. Raises HostError past the deadline."""
        ...

    def close(self) -> None:
        """End the helper process that carries out calls."""
        ...


class ChildProcess:
    """A child in its own session whose output is collected; ``argv`` is what is said of it, ``command`` what runs."""

    def __init__(self, argv: Sequence[str], command: Sequence[str], cwd: Path | None, env: Mapping[str, str]) -> None:
        self._argv = tuple(argv)
        self._started_at = time.time()
        try:
            self._popen = subprocess.Popen(
                list(command),
                cwd=cwd,
                env={**os.environ, "PATH": search_path(), **env},
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
                start_new_session=True,
            )
        except OSError as error:
            raise HostError(f"cannot start {argv[0]}: {error}") from error

    @property
    def pid(self) -> int:
        """Process id, also the process group's."""
        return self._popen.pid

    def wait(self, timeout_seconds: float | None) -> Completed:
        """See :class:`Process`."""
        exit_code: int | None
        try:
            stdout, stderr = self._popen.communicate(timeout=timeout_seconds)
            exit_code = self._popen.returncode
        except subprocess.TimeoutExpired:
            self.kill()
            try:
                stdout, stderr = self._popen.communicate(timeout=5)
            except subprocess.TimeoutExpired:  # in uninterruptible sleep: a hung mount must not hang Assay
                stdout, stderr = b"", b"did not die within 5 s of SIGKILL (hung in the kernel)"
            exit_code = None
        except BaseException:
            self.kill()
            raise
        return Completed(self._argv, exit_code, stdout, stderr, self._started_at, time.time())

    def kill(self) -> None:
        """See :class:`Process`."""
        try:
            os.killpg(self._popen.pid, signal.SIGKILL)
        except (ProcessLookupError, PermissionError):
            self._popen.kill()


class LocalProcess(ChildProcess):
    """A child that the kernel kills when Assay dies, more exactly when the thread ends that started it: start processes
    from a thread that lives as long as they may."""

    def __init__(self, argv: Sequence[str], cwd: Path | None, env: Mapping[str, str]) -> None:
        # setpriv is exec'ed away: the pid is the program's own. PR_SET_PDEATHSIG is what survives kill -9 of Assay.
        super().__init__(argv, ["setpriv", "--pdeathsig", "KILL", *argv], cwd, env)


class LocalHost:
    """This machine."""

    def __init__(self, name: str = "localhost", environment: Mapping[str, str] | None = None) -> None:
        self.name = name
        self._environment = dict(environment or {})  # carries the lab's mark to every daemon and load generator
        self._agent = Agents([], self._environment)

    @property
    def is_up(self) -> bool:
        """See :class:`Host`."""
        return True

    def run(self, argv: Sequence[str], *, timeout_seconds: float = 60.0) -> Completed:
        """See :class:`Host`."""
        return ChildProcess(argv, argv, None, self._environment).wait(timeout_seconds)

    def spawn(
        self, argv: Sequence[str], *, cwd: Path | None = None, env: Mapping[str, str] | None = None
    ) -> LocalProcess:
        """See :class:`Host`."""
        return LocalProcess(argv, cwd, {**self._environment, **(env or {})})

    def call(self, function: Callable[..., T], *args: object, timeout_seconds: float = CALL_SECONDS) -> T:
        """See :class:`Host`."""
        return call_agent(self._agent, self.name, function, args, timeout_seconds)

    def close(self) -> None:
        """End the helper process."""
        self._agent.close()


def call_agent(
    agent: Agents, host: str, function: Callable[..., T], args: tuple[object, ...], timeout_seconds: float
) -> T:
    """A call whose failure to answer is a HostError that names the host and what was asked."""
    try:
        return agent.call(function, args, timeout_seconds)
    except AgentError as error:
        what = f"{function.__name__}({', '.join(str(a)[:80] for a in args)})"
        raise HostError(f"{host}: {what}: {error}") from None
