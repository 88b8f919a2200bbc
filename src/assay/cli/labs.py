"""``assay lab``."""

from __future__ import annotations

import json
import re
import sys
from contextlib import suppress
from dataclasses import asdict
from typing import Any

from pydantic import ValidationError

from assay.cli.errors import BadInput
from assay.lab.enter import run_here
from assay.lab.errors import LabError
from assay.lab.registry import LabState, clean, find_lab, find_labs, labs_root
from assay.lab.standing import Standing, StandingHost
from assay.model.lab import Lab as LabDeclaration

_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]{0,31}")
_STUDY_ID = re.compile(r"[0-9a-f]{12}")
_FILESYSTEMS = ("xfs", "ext4", "btrfs", "none")


def up_lab(name: str | None, shape: dict[str, Any], candidate: str | None, filesystem: str, as_json: bool) -> int:
    """Make a lab that stays; raises BadInput, LabError, HostError or AdapterError."""
    from assay.campaign.standing import bring_up

    name = _free_name() if name is None else _checked_name(name)
    if filesystem not in _FILESYSTEMS:
        raise BadInput(f"--filesystem {filesystem!r} is none of {', '.join(_FILESYSTEMS)}")
    kind = None if filesystem == "none" else filesystem
    standing = bring_up(name, _declaration(shape), candidate, kind, lambda line: print(line, file=sys.stderr))
    if as_json:
        print(json.dumps({"lab": name, **_described(standing)}))
        return 0
    print(f"{name} is up: {_hosts_line(standing)}")
    if standing.mounts:
        print(f"mounted: {', '.join(standing.mounts)}")
    first = standing.hosts[0].name
    print(f"use it: assay lab exec {name} {first} -- COMMAND; take it down: assay lab down {name}")
    return 0


def list_labs(as_json: bool) -> int:
    """Print every lab that stands or has left anything on this machine."""
    labs = find_labs()
    if as_json:
        print(json.dumps([_as_document(s) for s in labs]))
        return 0
    if not labs:
        print("no labs")
        return 0
    from rich.table import Table

    from assay.cli.console import stdout

    table = Table(
        *("lab", "study", "state", "hosts", "mounts", "loop devices", "processes", "disk (MB)"),
        box=None,
        pad_edge=False,
    )
    for s in labs:
        table.add_row(
            s.note.id,
            (s.standing.candidate if s.standing else None) or s.note.study,
            "left over: assay lab clean" if s.state == "left over" else s.state,
            str(len(s.standing.hosts)) if s.standing else "",
            str(len(s.mounts)),
            ", ".join(s.loops),
            str(len(s.processes)),
            f"{s.bytes / 1e6:.1f}",
        )
    stdout().print(table)
    for s in labs:
        if s.standing is not None:
            print(f"\n{s.note.id}: {_hosts_line(s.standing)}")
            if s.standing.mounts:
                print(f"  mounted: {', '.join(s.standing.mounts)}")
    return 0


def exec_in_lab(lab: str, host: str, command: list[str], as_json: bool) -> int:
    """Run a command on a host of a lab that stands; returns its exit code. Raises BadInput or HostError."""
    standing = _known(lab).standing
    if standing is None:
        raise BadInput(f"lab {lab} is not up; what there is: assay lab list")
    found = {h.name: h for h in standing.hosts}.get(host)
    if found is None:
        raise BadInput(f"lab {lab} has no host {host!r}; it has: {', '.join(h.name for h in standing.hosts)}")
    done = run_here(lab, found, command, captured=as_json)
    if as_json:
        out, err = (text.decode(errors="replace") for text in (done.stdout, done.stderr))
        print(json.dumps({"lab": lab, "host": host, "exit_code": done.exit_code, "stdout": out, "stderr": err}))
    return done.exit_code


def take_down(lab: str, as_json: bool) -> int:
    """Remove a lab whether it stands or is left over. Raises BadInput, or LabError when something would not go."""
    _known(lab)
    removed, _ = clean(lab)
    if not removed:
        raise LabError(f"lab {lab} is in use by another assay process; wait for it or stop it first")
    print(json.dumps({"removed": removed}) if as_json else f"{lab} is down, nothing of it is left")
    return 0


def clean_labs(lab: str | None, as_json: bool) -> int:
    """Remove what labs have left; raises BadInput, or LabError when something would not go."""
    if lab is not None:
        _known(lab)
    removed, kept = clean(lab)
    up = [s.note.id for s in find_labs() if s.state == "up" and s.note.id in kept]
    in_use = [name for name in kept if name not in up]
    if as_json:
        print(json.dumps({"removed": removed, "in_use": in_use, "up": up}))
        return 0
    print(f"removed: {', '.join(removed) or 'nothing was left'}")
    for name in up:
        print(f"kept: {name} (alive: assay lab down {name})")
    if in_use:
        print(f"kept, in use: {', '.join(in_use)}")
    return 0


def _known(lab: str) -> LabState:
    try:
        return find_lab(lab)
    except LabError as error:
        raise BadInput(str(error)) from None


def _checked_name(name: str) -> str:
    if not _NAME.fullmatch(name) or _STUDY_ID.fullmatch(name):
        raise BadInput(
            f"{name!r} cannot be a lab's name: letters, digits, - and _, at most 32, and not like a study's id; "
            "for example: assay lab up mine"
        )
    with suppress(LabError):
        there = find_lab(name)
        helps = "assay lab down" if there.state == "up" else "assay lab clean"
        raise BadInput(f"the name {name} is taken by a lab that is {there.state}; another name, or: {helps} {name}")
    return name


def _free_name() -> str:
    number = 1
    while (labs_root() / f"lab{number}").exists():
        number += 1
    return f"lab{number}"


def _declaration(shape: dict[str, Any]) -> LabDeclaration:
    try:
        return LabDeclaration.model_validate(shape)
    except ValidationError as error:
        first = error.errors()[0]
        where = ".".join(str(part) for part in first["loc"])
        message = first["msg"].removeprefix("Value error, ")
        raise BadInput(f"{'lab.' + where + ': ' if where else ''}{message}") from None


def _as_document(s: LabState) -> dict[str, Any]:
    return {
        **asdict(s.note),
        "state": s.state,
        "in_use": s.in_use,
        "mounts": s.mounts,
        "loops": s.loops,
        "processes": s.processes,
        "control_groups": s.groups,
        "bytes": s.bytes,
        **(_described(s.standing) if s.standing is not None else {}),
    }


def _described(standing: Standing) -> dict[str, Any]:
    return {
        "hosts": [
            {"name": h.name, "address": h.address, "state": _state(h), "pid": h.first.pid} for h in standing.hosts
        ],
        "candidate": standing.candidate,
        "mounted": standing.mounts,
        "shape": standing.shape,
    }


def _hosts_line(standing: Standing) -> str:
    return ", ".join(f"{h.name} {h.address}{'' if _state(h) == 'up' else ' (down)'}" for h in standing.hosts)


def _state(host: StandingHost) -> str:
    return "up" if host.first.alive else "down"
