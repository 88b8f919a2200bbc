"""What the placement simulator needs to know of a GlusterFS volume: subvolumes, their sizes, and who has which hashes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from assay.lab import remote
from assay.lab.host import Host
from assay.systems import gluster_probe
from assay.systems.base import AdapterError
from assay.systems.gluster_cluster import GlusterCluster
from assay.systems.gluster_volume import Graph, parse_range
from assay.systems.hosts import each

WALK_SECONDS = 600.0
SHARDS = "/.shard"  # clients do not see it; shards beyond the first of each file are spread by its layout


def export(cluster: GlusterCluster, client: Host, mount: Path, graph: Graph, version: str) -> dict[str, Any]:
    """The map as plain values, hash values as eight hexadecimal digits. Of each set the first brick on a host that is up is
    asked: all have the same layout. Raises AdapterError when a set has none."""
    directories = client.call(gluster_probe.directories_below, mount, timeout_seconds=WALK_SECONDS)
    directories.append(SHARDS)
    up = {host.name: host for host in cluster.up}
    asked: list[str] = []
    for name, members in zip(graph.subvolumes, graph.sets, strict=True):
        brick = next((b for b in members if b.partition(":")[0] in up), None)
        if brick is None:
            raise AdapterError(f"every host of {name} is down; its layout cannot be read")
        asked.append(brick)

    def of_brick(brick: str) -> tuple[dict[str, str], int]:
        host, _, place = brick.partition(":")
        layouts = up[host].call(gluster_probe.layouts, Path(place), directories, timeout_seconds=WALK_SECONDS)
        return layouts, up[host].call(remote.statvfs, Path(place))["total_bytes"]

    found = each(asked, of_brick)
    subvolumes = [
        {"index": index, "name": name, "bricks": list(members), "brick_bytes": size}
        for index, (name, members, (_, size)) in enumerate(zip(graph.subvolumes, graph.sets, found, strict=True))
    ]
    ranges = []
    for directory in directories:
        for index, (layouts, _) in enumerate(found):
            if directory in layouts:
                r = parse_range(layouts[directory])
                ranges.append(
                    {
                        "path": directory,
                        "subvolume": index,
                        "start": f"{r.start:08x}",
                        "stop": f"{r.stop:08x}",
                        "type": r.kind,
                    }
                )
    return {
        "system": "glusterfs",
        "version": version,
        "layout": str(graph.layout),
        "subvolumes": subvolumes,
        "directories": ranges,
        "options": {
            k: v for k, v in sorted(cluster.info().options.items()) if k.startswith(("cluster.", "features.shard"))
        },
    }
