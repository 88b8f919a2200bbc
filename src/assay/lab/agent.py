"""A helper process on a host that carries out functions for Assay, so that a hung mount hangs the helper and not Assay.

A system call on a file system whose servers are gone may never return, and no signal but SIGKILL gets a process out of
it, if that. Everything that touches a file system under test therefore runs here: with a deadline, and with a process
that can be given up. The protocol is one length-prefixed pickle per request and answer over the helper's own pipes; both
ends are the same installation of Assay, run by the same user.
"""

from __future__ import annotations

import os
import pickle
import select
import signal
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import IO, Any

_LENGTH = struct.Struct("!Q")


class AgentError(Exception):
    """The helper did not answer in time or died; the message says which."""


class Agent:
    """One helper process. Calls from several threads wait for each other."""

    def __init__(
        self, prefix: Sequence[str], environment: Mapping[str, str], command: Sequence[str] | None = None
    ) -> None:
        """``prefix`` is what enters the host (empty: this machine); ``command`` runs this module, by default under the
        Python that runs Assay."""
        self._prefix, self._environment = list(prefix), dict(environment)
        self._command = list(command or [sys.executable, "-m", "assay.lab.agent"])
        self._lock = threading.Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], timeout_seconds: float) -> Any:
        """The function's result, or its exception raised here. Raises AgentError past the deadline; the helper is then
        given up and the next call starts another."""
        request = pickle.dumps((function, args))
        end = time.monotonic() + timeout_seconds
        with self._lock:
            process = self._running()
            assert process.stdin is not None and process.stdout is not None
            try:
                process.stdin.write(_LENGTH.pack(len(request)) + request)
                process.stdin.flush()
                answer = _receive(process.stdout, end)
            except TimeoutError:
                self._give_up()
                raise AgentError(f"no answer within {timeout_seconds:g} s, the file system hangs") from None
            except (OSError, EOFError):
                self._give_up()
                raise AgentError("the helper process on the host has died") from None
            except BaseException:  # Ctrl-C: an answer that comes later must not be taken for the next one's
                self._give_up()
                raise
        failed, value = pickle.loads(answer)
        if failed:
            raise value
        return value

    def close(self) -> None:
        """End the helper."""
        with self._lock:
            self._give_up()

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None or self._process.poll() is not None:
            try:
                self._process = subprocess.Popen(
                    [*self._prefix, *self._command],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    env={**os.environ, **self._environment},
                    start_new_session=True,  # Ctrl-C is for Assay to handle
                )
            except OSError as error:
                raise AgentError(f"the helper process cannot be started: {error}") from None
        return self._process

    def _give_up(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        for pipe in (process.stdin, process.stdout):
            if pipe is not None:
                try:
                    pipe.close()
                except OSError:
                    continue
        try:
            process.wait(timeout=0.1)  # the end of its requests ends it
        except subprocess.TimeoutExpired:
            kill_tree(process)


class Agents:
    """Helper processes of one host, as many as there are calls at once; calls one after the other have the same one."""

    def __init__(self, prefix: Sequence[str], environment: Mapping[str, str]) -> None:
        """See :class:`Agent`."""
        self._prefix, self._environment = list(prefix), dict(environment)
        self._lock = threading.Lock()
        self._all: list[Agent] = []
        self._idle: list[Agent] = []

    def call(self, function: Callable[..., Any], args: tuple[Any, ...], timeout_seconds: float) -> Any:
        """See :meth:`Agent.call`."""
        with self._lock:
            if not self._idle:
                self._idle.append(Agent(self._prefix, self._environment))
                self._all.append(self._idle[-1])
            agent = self._idle.pop()
        try:
            return agent.call(function, args, timeout_seconds)
        finally:
            with self._lock:
                self._idle.append(agent)

    def close(self) -> None:
        """End the helpers, each when its call has ended."""
        for agent in self._all:
            agent.close()


def kill_tree(process: subprocess.Popen[bytes], grace_seconds: float = 0.2) -> None:
    """Kill what a process has started, then it. In this order: the child of a dead nsenter would be nobody's to reap, and a
    zombie keeps its namespaces alive. What hangs in the kernel is left to hang."""
    for pid in _descendants(process.pid):
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue
    try:
        process.wait(timeout=grace_seconds)
    except subprocess.TimeoutExpired:
        process.kill()
        try:
            process.wait(timeout=grace_seconds)
        except subprocess.TimeoutExpired:
            return


def _descendants(pid: int) -> list[int]:
    """Processes that a process has started and theirs, deepest first (proc_pid_task(5), ``children``)."""
    found: list[int] = []
    try:
        children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    except OSError:
        return found
    for child in children:
        found += [*_descendants(int(child)), int(child)]
    return found


def _receive(stream: IO[bytes], end: float) -> bytes:
    length = _LENGTH.unpack(_read(stream, _LENGTH.size, end))[0]
    return _read(stream, length, end)


def _read(stream: IO[bytes], size: int, end: float) -> bytes:
    parts = bytearray()
    while len(parts) < size:
        if not select.select([stream], [], [], max(0.0, end - time.monotonic()))[0]:
            raise TimeoutError
        got = os.read(stream.fileno(), size - len(parts))
        if not got:
            raise EOFError
        parts += got
    return bytes(parts)


def _serve(requests: IO[bytes], answers: IO[bytes]) -> None:
    while len(header := requests.read(_LENGTH.size)) == _LENGTH.size:
        body = requests.read(_LENGTH.unpack(header)[0])
        try:
            function, args = pickle.loads(body)
            answer = pickle.dumps((False, function(*args)))
        except Exception as error:  # noqa: BLE001 (whatever it is, it is the caller's)
            try:
                answer = pickle.dumps((True, error))
                pickle.loads(answer)
            except Exception:  # noqa: BLE001
                answer = pickle.dumps((True, RuntimeError(f"{type(error).__name__}: {error}")))
        answers.write(_LENGTH.pack(len(answer)) + answer)
        answers.flush()


if __name__ == "__main__":
    own = os.fdopen(os.dup(1), "wb")
    os.dup2(2, 1)  # whatever a function prints must not get into the answers
    _serve(sys.stdin.buffer, own)
