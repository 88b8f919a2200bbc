"""``assay lab``."""

from __future__ import annotations

import json
from dataclasses import asdict

from assay.lab.registry import clean, find_labs


def list_labs(as_json: bool) -> int:
    """Print every lab that has left anything on this machine."""
    labs = find_labs()
    if as_json:
        print(
            json.dumps(
                [
                    {**asdict(s.note), "in_use": s.in_use, "mounts": s.mounts, "loops": s.loops,
                     "processes": s.processes, "bytes": s.bytes}
                    for s in labs
                ]
            )
        )  # fmt: skip
        return 0
    if not labs:
        print("no labs")
        return 0
    from rich.table import Table

    from assay.cli.console import stdout

    table = Table("lab", "study", "state", "mounts", "loop devices", "processes", "disk (MB)", box=None, pad_edge=False)
    for s in labs:
        state = "in use" if s.in_use else "left over: assay lab clean"
        table.add_row(
            s.note.id,
            s.note.study,
            state,
            str(len(s.mounts)),
            ", ".join(s.loops),
            str(len(s.processes)),
            f"{s.bytes / 1e6:.1f}",
        )
    stdout().print(table)
    return 0


def clean_labs(lab: str | None, as_json: bool) -> int:
    """Remove what labs have left; raises LabError when something would not go."""
    removed, kept = clean(lab)
    if as_json:
        print(json.dumps({"removed": removed, "in_use": kept}))
        return 0
    print(f"removed: {', '.join(removed) or 'nothing was left'}")
    if kept:
        print(f"kept, in use: {', '.join(kept)}")
    return 0
