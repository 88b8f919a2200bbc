"""What can be known of a GlusterFS volume from one of its mounts alone, through the client's ``.meta`` directory."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

from assay.lab.host import Host
from assay.lab.mounts import ANSWER_SECONDS
from assay.systems import gluster_probe
from assay.systems.base import AdapterError, NoAnswerError
from assay.systems.existing import MountKind
from assay.systems.gluster_probe import ClientState
from assay.systems.gluster_volume import Graph, graph_of

FSTYPE = "fuse.glusterfs"
FUSE_MAGIC = 0x65735546  # FUSE_SUPER_MAGIC in linux/magic.h
_DIFFERING = ("debug/io-stats.volume-id", "debug/io-stats.unique-id")  # between two volumes of the same kind


def client_graph(host: Host, mount: Path) -> tuple[Graph, ClientState, list[str]]:
    """The volume as its client sees it, the client's state, and the bricks to which it is not connected. Raises
    NoAnswerError when no GlusterFS client answers there, or one that has lost too many bricks to serve anything."""
    try:
        state = host.call(gluster_probe.client_state, mount, timeout_seconds=ANSWER_SECONDS)
    except OSError as error:
        raise NoAnswerError(f"{mount}: no GlusterFS client answers: {error.strerror}") from None
    graph = graph_of(state.volfile)
    return graph, state, [b for b, name in zip(graph.bricks, graph.clients, strict=True) if name not in state.connected]


def health(host: Host, mount: Path) -> tuple[bool | None, str]:
    """Whether the client is connected to every brick."""
    try:
        graph, _, missing = client_graph(host, mount)
    except AdapterError as error:
        return False, str(error)
    bricks = len(graph.bricks)
    if missing:
        return False, f"{bricks - len(missing)} of {bricks} bricks connected; missing: {', '.join(missing)}"
    return True, f"all {bricks} bricks connected"


def _inspect(host: Host, mount: Path, layout: str) -> dict[str, Any]:
    graph, state, _ = client_graph(host, mount)
    if str(graph.layout) != layout:
        raise AdapterError(f"{mount} is glusterfs/{graph.layout}, not glusterfs/{layout}")
    return {
        "version": f"glusterfs {state.version}, Linux {os.uname().release}",
        "volume": {"bricks": len(graph.bricks), "sets": len(graph.sets)},
        "translators": list(graph.translators),
        "options": {k: v for k, v in sorted(graph.options.items()) if k not in _DIFFERING},
    }


MOUNT_KIND = MountKind((FSTYPE,), FUSE_MAGIC, _inspect, health)
