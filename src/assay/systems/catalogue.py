"""All systems by name."""

from __future__ import annotations

import difflib
from fnmatch import fnmatchcase
from typing import Any

from assay.model.lab import Lab
from assay.model.layout import layout_matches
from assay.systems.base import AdapterError, ChecksTuning, Deployment, SystemAdapter
from assay.systems.ceph import CephSystem
from assay.systems.eos import EosSystem
from assay.systems.existing import ExistingSystem, check_existing
from assay.systems.floor import NullSystem, TmpfsSystem
from assay.systems.gluster import GlusterSystem
from assay.systems.hdfs import HdfsSystem
from assay.systems.local import LocalSystem
from assay.systems.lustre import LustreSystem
from assay.systems.moosefs import MooseSystem
from assay.systems.nfs import NfsSystem
from assay.systems.path import PathSystem
from assay.systems.tahoe import TahoeSystem
from assay.systems.xtreemfs import XtreemSystem

_ADAPTERS: tuple[type[SystemAdapter], ...] = (
    LocalSystem,
    GlusterSystem,
    CephSystem,
    MooseSystem,
    NfsSystem,
    EosSystem,
    LustreSystem,
    TahoeSystem,
    HdfsSystem,
    XtreemSystem,
    PathSystem,
    TmpfsSystem,
    NullSystem,
)
SYSTEMS: dict[str, type[SystemAdapter]] = {adapter.system: adapter for adapter in _ADAPTERS}


def find_system(candidate: str) -> tuple[type[SystemAdapter], str]:
    """Adapter and layout of ``system/layout`` or ``path:DIR``. Raises AdapterError with the nearest known name."""
    if candidate.startswith("path:"):
        return SYSTEMS["path"], candidate.removeprefix("path:")
    name, _, layout = candidate.partition("/")
    known = [f"{s}/{layout}" if layout else s for s, a in SYSTEMS.items() if s != "path" for layout in a.layouts]
    adapter = SYSTEMS.get(name)
    if adapter is None or name == "path" or not any(layout_matches(p, layout) for p in adapter.layouts):
        near = difflib.get_close_matches(candidate, known, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(known)}, path:DIR"
        raise AdapterError(f"unknown candidate {candidate!r}; {hint}")
    return adapter, layout


def make_adapter(candidate: str, deployment: Deployment) -> SystemAdapter:
    """The adapter of one deployment; for a candidate with an existing mount one that works inside of it. Raises
    AdapterError."""
    adapter, _ = find_system(candidate)
    if deployment.mount is None:
        return adapter(deployment)
    return ExistingSystem.of(adapter, deployment)


def check_candidate(candidate: str, mount: str | None, lab: Lab, dataset_bytes: int) -> None:
    """All that can be told of a candidate before anything is touched. Raises AdapterError with one clear line."""
    adapter, layout = find_system(candidate)
    if mount is None:
        adapter.preflight(layout, lab, dataset_bytes)
    else:
        check_existing(adapter, layout, mount, dataset_bytes)


def check_tuning(candidate: str, tuning: dict[str, Any]) -> None:
    """Raises AdapterError for a tuning key that the system does not know, with the known ones, or a value that it refuses."""
    adapter, _ = find_system(candidate)
    for key in tuning:
        if not any(fnmatchcase(key, known) for known in adapter.tunables):
            known = ", ".join(adapter.tunables) or "none"
            raise AdapterError(f"{candidate} has no tuning {key!r}; known: {known}")
    if isinstance(adapter, ChecksTuning):
        adapter.check_tuning(tuning)
