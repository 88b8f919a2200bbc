"""``assay systems``: adapters, their layouts, tuning and capabilities."""

from __future__ import annotations

import json
from dataclasses import asdict

from assay.cli.errors import BadInput
from assay.systems.reference import SystemEntry, candidate, capability_meanings, entries


def show_systems(name: str | None, as_json: bool) -> int:
    """Print all systems, or one with its layouts and tuning. Raises BadInput for a name that is none."""
    every = entries()
    if name is not None:
        every = [entry for entry in every if entry.system == name]
        if not every:
            raise BadInput(f"unknown system {name!r}; known: {', '.join(e.system for e in entries())}")
    if as_json:
        print(json.dumps([asdict(entry) for entry in every]))
    elif name is not None:
        _print_one(every[0])
    else:
        _print_all(every)
    return 0


def _print_all(every: list[SystemEntry]) -> None:
    from rich.table import Table

    from assay.cli.console import stdout

    table = Table("system", "runs on", "mount: DIR", "layouts", "capabilities", box=None, pad_edge=False)
    for e in every:
        layouts = ", ".join(e.layouts) if any(e.layouts) else ""
        table.add_row(e.system, e.runs_on, "yes" if e.existing_mounts else "", layouts, ", ".join(e.capabilities))
    stdout().print(table)
    print("\nlayouts and tuning of one: assay systems NAME; what is missing on this machine: assay doctor")


def _print_one(entry: SystemEntry) -> None:
    from rich.markup import escape
    from rich.table import Table

    from assay.cli.console import stdout

    meanings = capability_meanings()
    for title, rows in (
        ("layout", {candidate(entry.system, layout): text for layout, text in entry.layouts.items()}),
        ("tuning", entry.tuning),
        ("capability", {name: meanings[name] for name in entry.capabilities}),
    ):
        if rows:
            table = Table(title, "meaning", box=None, pad_edge=False)
            for key, text in rows.items():
                table.add_row(escape(key), escape(text))
            stdout().print(table)
            print()
    if entry.requirements:
        print(f"needs: {', '.join(entry.requirements)} (assay doctor {entry.system})")
