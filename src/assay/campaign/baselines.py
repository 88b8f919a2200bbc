"""Baselines of a study's lab, measured once before its candidates are deployed, and the bounds that follow for its cells."""

from __future__ import annotations

from collections.abc import Callable

from assay.lab.baseline import check_tools, measure
from assay.lab.errors import LabError
from assay.lab.fabric import Fabric
from assay.lab.host import HostError
from assay.lab.registry import Lab
from assay.model.baseline import Baselines, Bound
from assay.model.bounds import bound_for, payload_bytes_per_second
from assay.model.lab import Lab as LabDeclaration
from assay.model.layout import parse_layout
from assay.model.plan import Plan, PlannedCandidate
from assay.model.point import Point
from assay.systems.catalogue import find_system

NAME = "baselines"  # of the fabric


def on_hosts(candidate: PlannedCandidate) -> bool:
    """Whether a candidate is deployed on hosts of the lab. Raises AdapterError for a system that is not known."""
    return candidate.mount is None and find_system(candidate.system)[0].needs_hosts


def wanted(lab: LabDeclaration, plan: Plan) -> bool:
    """Whether baselines are to be measured: asked for, and there are hosts."""
    return lab.baselines and any(on_hosts(candidate) for candidate in plan.candidates)


def check(lab: LabDeclaration, plan: Plan) -> None:
    """Whether what is to be measured can be; touches nothing. Raises LabError with one clear line."""
    if wanted(lab, plan):
        check_tools()


def measured(lab: Lab, shape: LabDeclaration, said: Callable[[str], None]) -> Baselines:
    """Make a fabric of the study's shape, measure it, remove it. Call it from the main thread, which the fabric dies with.
    What fails is among the problems."""
    fabric = Fabric(lab, NAME, shape)
    try:
        fabric.up()
        found = measure(fabric, said)
    except (LabError, HostError) as error:
        found = Baselines(measured_at=0.0, seconds=0.0, problems=[str(error).splitlines()[0]])
    finally:
        fabric.down()
    for problem in found.problems:
        said(f"baselines: {problem}")
    return found


def bound_of(
    candidate: PlannedCandidate, lab: LabDeclaration, point: Point, baselines: Baselines | None
) -> Bound | None:
    """The bound of a cell. None: no network of the lab between its clients and its data, or one of unknown speed. On
    shaped links a system whose messages are not known gets a bound without limits: rule A10 says so then."""
    if not on_hosts(candidate):
        return None
    system, _, layout = candidate.system.partition("/")
    link = baselines.best_link_bytes_per_second if baselines is not None else None
    try:
        found = bound_for(system, parse_layout(layout), lab, point, link)
    except ValueError:
        found = None
    if found is None and point.moves_data and lab.network.bandwidth is not None:
        return Bound(link_bytes_per_second=payload_bytes_per_second(lab.network.bandwidth), enforced=True)
    if found is not None and any(key.startswith("network.compression") for key in candidate.tuning):
        return found.model_copy(update={"enforced": False})  # what crosses the network is smaller than the data
    return found
