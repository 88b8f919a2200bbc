"""What hosts carry out for the GlusterFS adapter through :meth:`assay.lab.host.Host.call`.

Standard library and plain values only, as in :mod:`assay.lab.remote`.
"""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

GRAPH = ".meta/graphs/active"  # GlusterFS' virtual directory: the client's graph and the state of its translators
LAYOUT_ATTRIBUTE = "trusted.glusterfs.dht"


class ClientState(NamedTuple):
    """What a client process says of itself."""

    volfile: str  # its graph
    connected: list[str]  # protocol/client translators that are connected to their bricks
    process: str  # unique for each process
    version: str  # of GlusterFS


def client_state(mount: Path) -> ClientState:
    """Of the GlusterFS client behind a mount. Raises OSError when it is none."""
    graph = mount / GRAPH
    connected = []
    for translator in sorted(os.listdir(graph)):  # noqa: PTH208 (plain names are wanted)
        try:
            state = (graph / translator / "private").read_text()
        except OSError:  # most translators have none
            continue
        if "[xlator.protocol.client." in state and "connected = 1\n" in state:
            connected.append(translator)
    return ClientState(
        volfile=(graph / "volfile").read_text(),
        connected=connected,
        process=(mount / ".meta" / "process_uuid").read_text().strip(),
        version=str(json.loads((mount / ".meta" / "version").read_text())["Package Version"]),
    )


def open_transactions(bricks: list[Path]) -> int:
    """Entries in the indices of bricks: files that are being changed, or to be healed. A file's entry is a link to a base
    file, which stays."""
    found = 0
    for brick in bricks:
        for kind in ("dirty", "xattrop"):
            index = brick / ".glusterfs" / "indices" / kind
            if index.is_dir():
                found += sum(not name.startswith(f"{kind}-") for name in os.listdir(index))  # noqa: PTH208
    return found


def names_below(directory: Path) -> dict[str, int]:
    """Files below a directory, as paths relative to it, with their sizes in bytes. Raises OSError."""
    found = {}
    for root, _, names in os.walk(directory, onerror=_raise):
        for name in names:
            path = Path(root) / name
            found[str(path.relative_to(directory))] = path.lstat().st_size
    return found


def missing_names(directory: Path, names: list[str]) -> list[str]:
    """Those of the names that cannot be found, asked one by one: a listing would put a client's memory right."""
    missing = []
    for name in names:
        try:
            (directory / name).lstat()
        except FileNotFoundError:
            missing.append(name)
    return missing


def directories_below(directory: Path) -> list[str]:
    """Directories below a directory, itself included, as ``/``, ``/a``, ``/a/b``. Raises OSError."""
    found = ["/"]
    for root, names, _ in os.walk(directory, onerror=_raise):
        found += [f"/{(Path(root) / name).relative_to(directory)}" for name in names]
    return sorted(found)


def layouts(brick: Path, directories: list[str]) -> dict[str, str]:
    """The hash range that a brick has of each directory, as hexadecimal digits; directories without one are left out."""
    found = {}
    for directory in directories:
        try:
            found[directory] = os.getxattr(brick / directory.lstrip("/"), LAYOUT_ATTRIBUTE).hex()
        except OSError:
            continue
    return found


def _raise(error: OSError) -> None:
    raise error
