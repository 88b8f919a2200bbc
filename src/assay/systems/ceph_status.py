"""What Ceph says of itself, understood: pure parsers of its JSON (16.2; field names in shared samples of every command)."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from assay.model.layout import Layout
from assay.systems.base import AdapterError

#: Of a cluster that is whole but slow: a result, and no illness.
SLOW = frozenset(
    {"SLOW_OPS", "MDS_SLOW_METADATA_IO", "MDS_SLOW_REQUEST", "OSD_SLOW_PING_TIME_BACK", "OSD_SLOW_PING_TIME_FRONT"}
)
WORK = ("unknown", "creating", "peering", "activating", "recover", "backfill")  # beginnings of states that do not last
CLEAN = "active+clean"  # and more words while it is scrubbed or trimmed


@dataclass(frozen=True)
class Status:
    """``ceph status``. Keys that are absent when zero are zero here."""

    health: str  # HEALTH_OK, HEALTH_WARN, HEALTH_ERR
    checks: dict[str, str]  # health checks that are raised -> one line
    osds: int
    up: int
    in_: int
    remapped: int  # placement groups whose data are not yet where they belong
    groups: dict[str, int]  # state -> placement groups
    degraded: int  # copies and shards of objects that are missing
    misplaced: int
    moving: int  # bytes per second of recovery and backfill
    filesystem: str  # state of the file system's only rank, e.g. up:active; empty without one
    manager: bool  # whether a manager is available

    @property
    def clean(self) -> bool:
        """Whether every placement group is whole, in its place, and served."""
        whole = all(state.startswith(CLEAN) for state in self.groups)
        return bool(self.groups) and whole and not self.remapped and not self.degraded and not self.misplaced

    @property
    def working(self) -> bool:
        """Whether placement groups are being made, found, moved or repaired."""
        return any(w.startswith(WORK) for state in self.groups for w in state.split("+"))

    @property
    def inactive(self) -> int:
        """Placement groups that serve nobody."""
        return sum(count for state, count in self.groups.items() if "active" not in state.split("+"))

    def __str__(self) -> str:
        text = f"{self.up} of {self.osds} OSDs up, placement groups " + (
            ", ".join(f"{count} {state}" for state, count in sorted(self.groups.items())) or "none"
        )
        text += f", {self.remapped} remapped" if self.remapped else ""
        text += f", {self.degraded} copies or shards missing" if self.degraded else ""
        text += f", {self.misplaced} misplaced" if self.misplaced else ""
        return text + (f", {self.moving / 1e6:.1f} MB/s" if self.moving else "")


def parse_status(found: Mapping[str, Any]) -> Status:
    """Raises AdapterError when it is not the answer to ``ceph status``."""
    try:
        osds, groups, ranks = found["osdmap"], found["pgmap"], found["fsmap"]["by_rank"]
        states = {str(s["state_name"]): int(s["count"]) for s in groups.get("pgs_by_state", [])}
        unknown = int(groups["num_pgs"]) - sum(states.values())
        return Status(
            health=found["health"]["status"],
            checks={
                name: str(check["summary"]["message"])
                for name, check in found["health"].get("checks", {}).items()
                if not check.get("muted")
            },
            osds=osds["num_osds"],
            up=osds["num_up_osds"],
            in_=osds["num_in_osds"],
            remapped=osds["num_remapped_pgs"],
            groups=states | ({"unknown": states.get("unknown", 0) + unknown} if unknown > 0 else {}),
            degraded=groups.get("degraded_objects", 0),
            misplaced=groups.get("misplaced_objects", 0),
            moving=groups.get("recovering_bytes_per_sec", 0),
            filesystem=ranks[0]["status"] if ranks else "",
            manager=bool(found["mgrmap"]["available"]),
        )
    except (KeyError, TypeError, AttributeError) as error:
        raise AdapterError(f"ceph status: an answer that is not understood: {error!r}") from None


def health(status: Status) -> tuple[bool, str]:
    """Whether the cluster is healthy, in words; slowness alone is none of its illnesses."""
    ill = {name: text for name, text in status.checks.items() if name not in SLOW}
    told = "; ".join(f"{name}: {text}" for name, text in (ill or status.checks).items())
    if ill:
        return False, told
    return True, f"{status.health}, {status.up} OSDs up" + (f" ({told})" if told else "")


def map_age_seconds(dump: Mapping[str, Any], now: float) -> float:
    """How long ago the OSD map of ``ceph osd dump`` has changed; ``now`` in Unix seconds."""
    return now - datetime.strptime(str(dump["modified"]), "%Y-%m-%dT%H:%M:%S.%f%z").timestamp()


def pool_of(dump: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A pool of ``ceph osd dump`` by name. Raises AdapterError."""
    for pool in dump["pools"]:
        if pool["pool_name"] == name:
            return dict(pool)
    raise AdapterError(f"ceph has no pool {name!r}; there are {', '.join(p['pool_name'] for p in dump['pools'])}")


def layout_of_pool(pool: Mapping[str, Any], profiles: Mapping[str, Mapping[str, str]]) -> Layout:
    """The layout of a pool of ``ceph osd dump``, given the dump's erasure code profiles. Raises AdapterError."""
    if pool["type"] == 3:
        profile = profiles.get(pool["erasure_code_profile"])
        if profile is None:
            raise AdapterError(f"pool {pool['pool_name']}: no erasure code profile {pool['erasure_code_profile']!r}")
        return Layout("rain", int(profile["k"]), int(profile["m"]))
    size = int(pool["size"])
    return Layout("distributed") if size == 1 else Layout("replicated", 1, size - 1)


def parse_directory_layout(text: str) -> dict[str, str]:
    """``ceph.dir.layout``: ``stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=data``."""
    return dict(part.split("=", 1) for part in text.split() if "=" in part)
