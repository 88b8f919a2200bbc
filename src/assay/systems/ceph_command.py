"""Commands to a Ceph cluster through librados: a millisecond each, where the ``ceph`` program needs 0.3 to 3 s.

The bindings belong to the system's Python, so a helper process under it, on the monitor's host, sends them.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import assay
from assay.lab.agent import Agent, AgentError
from assay.lab.host import HostError
from assay.lab.namespace import NamespaceHost
from assay.systems import ceph_probe
from assay.systems.base import AdapterError

PYTHON = Path("/usr/bin/python3")  # the bindings are built for it, whatever python3 is in PATH
BINDINGS = (Path("/usr/lib/python3/dist-packages"), Path("/usr/lib64/python3"), Path("/usr/lib/python3"))
COMMAND_SECONDS = 30.0
_SPARE_SECONDS = 5.0  # for the helper, beyond what Ceph is given
_START = "import runpy, sys; sys.path.append(sys.argv[1]); runpy.run_module('assay.lab.agent', run_name='__main__')"


class CephCommands:
    """The connection of one cluster, made at its first command."""

    def __init__(self, host: NamespaceHost, environment: dict[str, str]) -> None:
        self._host = host
        place = str(Path(assay.__file__).parent.parent)
        self._agent = Agent(host.enter(), environment, command=[str(PYTHON), "-IB", "-c", _START, place])

    def mon(self, prefix: str, *, stdin: bytes = b"", timeout_seconds: float = COMMAND_SECONDS, **words: Any) -> Any:
        """Answer of the monitor, from JSON; None when it says nothing. Raises AdapterError in Ceph's own words."""
        return self._json("mon", prefix, words, stdin, timeout_seconds)

    def mgr(self, prefix: str, *, timeout_seconds: float = COMMAND_SECONDS, **words: Any) -> Any:
        """The same of the manager."""
        return self._json("mgr", prefix, words, b"", timeout_seconds)

    def osd(self, number: int, prefix: str, *, timeout_seconds: float = COMMAND_SECONDS, **words: Any) -> Any:
        """The same of an OSD."""
        return self._json(f"osd.{number}", prefix, words, b"", timeout_seconds)

    def call(self, function: Any, *args: object, timeout_seconds: float = COMMAND_SECONDS) -> Any:
        """Run a function of :mod:`assay.systems.ceph_probe` in the helper. Raises AdapterError."""
        try:
            return self._agent.call(function, args, timeout_seconds + _SPARE_SECONDS)
        except AgentError as error:
            raise HostError(f"{self._host.name}: {function.__name__}: {error}") from None
        except (OSError, ImportError) as error:
            raise AdapterError(f"{self._host.name}: {function.__name__}: {error}") from None

    def close(self) -> None:
        """End the helper."""
        self._agent.close()

    def _json(self, target: str, prefix: str, words: dict[str, Any], data: bytes, timeout_seconds: float) -> Any:
        asked = {"prefix": prefix, "format": "json", **words}
        code, out, said = self.call(
            ceph_probe.command, target, asked, data, timeout_seconds, timeout_seconds=timeout_seconds
        )
        if code:
            told = " ".join((said or out.decode(errors="replace")).split())[-300:]
            asked_whom = f"tell {target} " if target.startswith("osd.") else ""
            raise AdapterError(f"ceph {asked_whom}{prefix}: {told or f'errno {code}'}")
        try:
            return json.loads(out) if out.strip() else None
        except ValueError:
            return out.decode(errors="replace")  # some commands answer in words whatever they are asked for
