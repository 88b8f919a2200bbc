"""What a study writes into the ledger before its first attempt: itself, its lab and its plan."""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import Any

import assay
from assay.campaign.baselines import on_hosts
from assay.campaign.deploy import Fleet
from assay.lab.environment import environment
from assay.ledger.schema import CandidateRow, CellRow, HostRow, LabRow, StudyRow, WorkloadRow
from assay.model.baseline import Baselines
from assay.model.plan import Plan, digest
from assay.model.study import Study


def study_row(study_id: str, study: Study, plan: Plan, declaration_hash: str, text: str) -> StudyRow:
    """The study; ``text`` is what the user wrote."""
    return StudyRow(
        id=study_id,
        name=study.study,
        declaration_hash=declaration_hash,
        declaration=study.model_dump(mode="json"),
        text=text,
        seed=plan.seed,
        scale=plan.scale,
        assay_version=assay.__version__,
        created_at=time.time(),
        state="running",
    )


def lab_row(study_id: str, study: Study, baselines: Baselines | None) -> LabRow:
    """The lab; it has the study's id."""
    return LabRow(
        id=study_id,
        study_id=study_id,
        kind=study.lab.kind,
        shape=study.lab.model_dump(mode="json"),
        baselines=baselines.model_dump(mode="json") if baselines is not None else None,
    )


def host_rows(study_id: str, plan: Plan, fleet: Fleet) -> list[HostRow]:
    """The hosts: those of a fabric when a candidate is deployed on one (every candidate has its own, all alike), and this
    machine when one is not. Hosts that are namespaces are this machine, whose facts are kept once."""
    used = [c for c in plan.candidates if c.role != "null"]
    facts = environment()
    rows = []
    if not used or not all(on_hosts(c) for c in used):
        rows.append(HostRow(lab_id=study_id, name="localhost", roles=["client", "storage"], facts=facts))
    fabrics = [f for c in used if (f := fleet.of(c).adapter.deployment.fabric) is not None and f.hosts]
    for fabric in fabrics[:1]:
        for role, hosts in (("storage", fabric.storage), ("client", fabric.clients)):
            for host in hosts:
                known = {"address": host.address, **({} if rows else facts)}
                rows.append(HostRow(lab_id=study_id, name=host.name, roles=[role], facts=known))
    return rows


def candidate_rows(study_id: str, plan: Plan, fleet: Fleet) -> list[CandidateRow]:
    """The candidates with what was found out of them."""
    rows = []
    for position, candidate in enumerate(plan.candidates):
        running = fleet.of(candidate)
        facts = {**running.facts, "prepare_seconds": running.prepare_seconds, "failure": running.failure}
        rows.append(
            CandidateRow(
                study_id=study_id,
                label=candidate.label,
                system=candidate.system,
                role=candidate.role,
                twin_of=candidate.twin_of,
                position=position,
                tuning=candidate.tuning,
                facts=facts,
            )
        )
    return rows


def workload_rows(study_id: str, plan: Plan) -> list[WorkloadRow]:
    """The workload points."""
    return [
        WorkloadRow(
            study_id=study_id,
            id=p.id,
            name=p.name,
            kind=p.point.kind,
            position=i,
            point=p.point.model_dump(mode="json"),
        )
        for i, p in enumerate(plan.points)
    ]


def cell_rows(
    study_id: str, plan: Plan, closures: Mapping[str, dict[str, Any]], not_applicable: Mapping[str, str | None]
) -> list[CellRow]:
    """The cells; ``closures`` and ``not_applicable`` (the capability that is missing, in words) by cell id."""
    return [
        CellRow(
            id=cell,
            study_id=study_id,
            candidate=label,
            workload_id=point_id,
            closure=closures[cell],
            closure_hash=digest(closures[cell]),
            not_applicable=not_applicable[cell],
        )
        for cell, (label, point_id) in plan.cells.items()
    ]
