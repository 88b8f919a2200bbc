"""Entering a host of a lab that stands, from a terminal or a script."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from assay.lab.agent import kill_tree
from assay.lab.host import HostError, search_path
from assay.lab.kernel import ENVIRONMENT_MARK
from assay.lab.limits import join
from assay.lab.namespace import enter_namespaces
from assay.lab.standing import StandingHost

#: $1: where the command was given; a host sees this machine's directories, but not what is mounted elsewhere.
_IN_DIRECTORY = 'cd "$1" 2>/dev/null || cd /; shift; exec "$@"'
_FROM_TERMINAL = ("INT", "QUIT")


@dataclass(frozen=True)
class Ended:
    """A command that has ended; 128 + N when signal N ended it. Output only when it was captured."""

    exit_code: int
    stdout: bytes = b""
    stderr: bytes = b""


def run_here(lab_id: str, host: StandingHost, argv: Sequence[str], *, captured: bool = False) -> Ended:
    """Run a command on a host with this process' terminal, standard streams and working directory. What the terminal
    says (Ctrl-C) reaches the command alone; it dies with this process. Raises HostError when the host is down."""
    if not host.first.alive:
        raise HostError(f"host {host.name} of lab {lab_id} is down; start again: assay lab down {lab_id}")
    if os.geteuid() != 0:
        raise HostError("entering a host needs root; run as root")
    names = ",".join(_FROM_TERMINAL)
    inside = ["env", f"--default-signal={names}", "setpriv", "--pdeathsig", "KILL", "--"]
    inside += ["sh", "-c", _IN_DIRECTORY, "sh", str(Path.cwd()), *argv]
    command = ["setpriv", "--pdeathsig", "KILL", "env", f"--ignore-signal={names}"]
    command += [*join(host.groups), *enter_namespaces(host.first.pid), *inside]
    process: subprocess.Popen[bytes] | None = None

    def stop(number: int, _frame: FrameType | None) -> None:
        if process is not None:
            kill_tree(process)
        os._exit(128 + number)

    ignored = [signal.signal(getattr(signal, f"SIG{name}"), signal.SIG_IGN) for name in _FROM_TERMINAL]
    handled = [signal.signal(number, stop) for number in (signal.SIGTERM, signal.SIGHUP)]
    try:
        pipe = subprocess.PIPE if captured else None
        environment = {**os.environ, "PATH": search_path(), ENVIRONMENT_MARK: lab_id}
        process = subprocess.Popen(command, stdout=pipe, stderr=pipe, env=environment)
        out, err = process.communicate()
    except OSError as error:
        raise HostError(f"cannot enter {host.name}: {error}") from error
    finally:
        for name, before in zip(_FROM_TERMINAL, ignored, strict=True):
            signal.signal(getattr(signal, f"SIG{name}"), before)
        for number, before in zip((signal.SIGTERM, signal.SIGHUP), handled, strict=True):
            signal.signal(number, before)
    code = process.returncode
    return Ended(128 - code if code < 0 else code, out or b"", err or b"")
