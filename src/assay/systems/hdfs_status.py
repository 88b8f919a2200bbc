"""What a NameNode says of its cluster, pure (the beans of its /jmx; MXBeans only: what the metrics beside them hold is up to
ten seconds old)."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any

from assay.systems.base import AdapterError

SILENT_SECONDS = 5  # several heartbeats: a DataNode that was not heard of for longer counts as gone


@dataclass(frozen=True)
class DataNode:
    """One DataNode as the NameNode knows it."""

    silent_seconds: int  # since its last heartbeat
    state: str  # In Service, Decommission In Progress, Decommissioned


@dataclass(frozen=True)
class ClusterState:
    """The whole cluster at one moment. Blocks of erasure-coded files count as groups."""

    version: str
    safe_mode: bool
    live: dict[str, DataNode]  # by name of the host
    dead: frozenset[str]
    low: int  # blocks with fewer copies or parts than they should have
    rebuilding: int
    deleting: int
    missing: int  # blocks that cannot be read
    unreported: int  # storages whose blocks the NameNode does not know yet

    def gone(self, names: Iterable[str]) -> list[str]:
        """Those of the hosts that are dead or silent, sorted by name."""
        return sorted(n for n in names if n not in self.live or self.live[n].silent_seconds > SILENT_SECONDS)

    def ready(self, names: Iterable[str]) -> bool:
        """Whether every one of these hosts serves and all that they hold is known."""
        return not self.safe_mode and not self.unreported and not self.gone(names)

    @property
    def whole(self) -> bool:
        """Whether every block has all its copies and parts."""
        return not (self.low or self.rebuilding or self.missing or self.unreported or self.safe_mode)

    @property
    def busy(self) -> bool:
        """Whether something can still be rebuilt, deleted or learnt; blocks of which too little is left wait for hosts."""
        return bool(self.low > self.missing or self.rebuilding or self.deleting or self.unreported)

    def __str__(self) -> str:
        said = f"{self.low} blocks low, {self.rebuilding} being rebuilt, {self.deleting} to be deleted"
        return f"{said}, {self.missing} missing" if self.missing else said


def beans(text: str) -> dict[str, dict[str, Any]]:
    """Beans by the last part of their name. Raises AdapterError when it is not what /jmx says."""
    try:
        found = json.loads(text)["beans"]
        return {str(bean["name"]).rpartition("name=")[2]: bean for bean in found}
    except (ValueError, KeyError, TypeError):
        raise AdapterError(f"the NameNode's /jmx is not what was expected: {' '.join(text.split())[:120]}") from None


def cluster_state(system: str, information: str) -> ClusterState:
    """From the beans FSNamesystemState and NameNodeInfo. Raises AdapterError."""
    blocks = beans(system).get("FSNamesystemState")
    info = beans(information).get("NameNodeInfo")
    if blocks is None or info is None:  # the web server answers before the NameNode has begun to
        raise AdapterError("the NameNode has not started yet")
    try:
        return ClusterState(
            version=str(info["SoftwareVersion"]),
            safe_mode=bool(info["Safemode"]),
            live={
                _host(name): DataNode(int(node["lastContact"]), str(node["adminState"]))
                for name, node in json.loads(info["LiveNodes"]).items()
            },
            dead=frozenset(_host(name) for name in json.loads(info["DeadNodes"])),
            low=int(blocks["LowRedundancyBlocks"]),
            rebuilding=int(blocks["PendingReconstructionBlocks"]),
            deleting=int(blocks["PendingDeletionBlocks"]),
            missing=int(info["NumberOfMissingBlocks"]),
            unreported=int(blocks["NumStaleStorages"]),
        )
    except (ValueError, KeyError, TypeError) as error:
        raise AdapterError(f"the NameNode's /jmx lacks {error}") from None


def actor_running(text: str) -> bool:
    """Whether a DataNode has registered with its NameNode, from its bean DataNodeInfo."""
    info = beans(text).get("DataNodeInfo", {})
    actors = json.loads(info.get("BPServiceActorInfo") or "[]")
    return bool(actors) and all(actor.get("ActorState") == "RUNNING" for actor in actors)


def policy_name(text: str) -> str | None:
    """The erasure-coding policy in an answer of WebHDFS to GETECPOLICY or GETFILESTATUS; None without one."""
    try:
        found = json.loads(text)
    except ValueError:
        return None
    for key in ("ECPolicy", "ecPolicy"):
        if isinstance(found.get(key), dict):
            return found[key].get("name")
    status = found.get("FileStatus") or {}
    return status.get("ecPolicy") or found.get("name")


def _host(name: str) -> str:
    return name.partition(":")[0].partition(".")[0]
