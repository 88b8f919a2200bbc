"""The thin executor: gives the state machine its events and carries its instructions out.

Resuming needs no code of its own: a new state machine is fed what the ledger holds until it asks for an attempt that the
ledger does not hold.
"""

from __future__ import annotations

import secrets
import time
from collections.abc import Collection
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Protocol

from sqlalchemy import select

import assay
from assay.campaign import baselines, rows, state
from assay.campaign.attempt import Order, execute, metric_value, unusable
from assay.campaign.conclude import check_rows, conclude
from assay.campaign.deploy import Fleet, Running, preflight, tool_facts, unsuited
from assay.checks.registry import Finding, Scope, attempt_verdict, run_rules
from assay.checks.subjects import AttemptSubject
from assay.lab.environment import host_facts, memory_bytes
from assay.lab.host import Host, LocalHost
from assay.lab.registry import Lab, LabError, clean
from assay.ledger.queries import load_baselines
from assay.ledger.schema import AttemptRow, CellRow
from assay.ledger.store import Ledger
from assay.model.baseline import Baselines, Bound
from assay.model.evidence import AttemptEvidence, AttemptStatus, Samples
from assay.model.plan import (
    Plan,
    PlanError,
    PlannedCandidate,
    PlannedPoint,
    block_order,
    dataset_bytes,
    declaration_hash,
    digest,
    disk_for,
    estimate,
    make_plan,
)
from assay.model.study import Study
from assay.model.units import format_seconds
from assay.model.verdict import Verdict
from assay.stats.stein import blocks_needed
from assay.systems.base import GoesCold, KillsHosts
from assay.workloads.base import Artefact


class CampaignError(Exception):
    """The study cannot be run or resumed; the message is one clear line."""


class ClosureChangedError(CampaignError):
    """What the results depend on is not what it was when the study began."""


class Progress(Protocol):
    """Who is told how it goes. All methods return at once."""

    def note(self, text: str) -> None:
        """Something that takes a while begins, or something worth knowing happened."""
        ...

    def block(self, number: int, stage: str, cells: int) -> None:
        """A block begins."""
        ...

    def attempt(
        self, evidence: AttemptEvidence, name: str, verdict: str, broken: list[str], left_seconds: float
    ) -> None:
        """An attempt has been written to the ledger; ``left_seconds`` estimates what is left of the study."""
        ...


@dataclass(frozen=True)
class Ended:
    """How a run ended."""

    study_id: str
    reason: str
    complete: bool
    already: bool = False  # the study had ended before; nothing was run


@dataclass(frozen=True)
class _Recorded:
    outcome: state.Outcome
    seconds: float
    value: float | None


Key = tuple[str, int, int]  # cell, block, try


@dataclass
class _Session:
    """What one run of a study works with, from the first deployment to the last clean-up."""

    machine: state.Campaign
    fleet: Fleet
    host: Host
    tools: dict[str, Any]  # versions of the load generators
    failures: dict[str, str] = field(default_factory=dict)  # candidate -> why it cannot be used
    recorded: dict[Key, _Recorded] = field(default_factory=dict)  # ended attempts in the ledger
    started: dict[Key, float] = field(default_factory=dict)  # when attempts were started, ended or not


class Runner:
    """Runs or resumes one study."""

    def __init__(
        self, ledger: Ledger, study: Study, text: str, *, scale: float = 1.0, new: bool = False, progress: Progress
    ) -> None:
        """Find out whether to resume and make the plan; touches nothing. Raises PlanError."""
        self.ledger, self.study, self.text, self.progress = ledger, study, text, progress
        self.hash = declaration_hash(study, scale)
        self.row = None if new else ledger.find_declared(self.hash)
        self.study_id = self.row.id if self.row is not None else secrets.token_hex(6)
        seed = self.row.seed if self.row is not None else study.measure.seed
        self.seed = secrets.randbits(62) if seed is None else seed
        self.plan = make_plan(study, study_id=self.study_id, seed=self.seed, scale=scale, memory_bytes=memory_bytes())
        self.points: dict[str, PlannedPoint] = {p.id: p for p in self.plan.points}
        self.baselines: Baselines | None = None  # of the lab; None: not measured
        self._closures: dict[str, dict[str, Any]] = {}
        self._bounds: dict[str, Bound | None] = {}  # by cell

    def run(self) -> Ended:
        """Run to the end, to the budget or to an interruption (KeyboardInterrupt is handled here).

        Raises AdapterError or WorkloadError when it cannot begin (nothing is written then), CampaignError, LabError,
        LedgerError.
        """
        if self.row is not None and (over := self._over_already()) is not None:
            return Ended(self.study_id, over, complete=True, already=True)
        self._check_budget()
        clean(self.study_id)  # what a killed run of this study has left; devices are free again after it
        preflight(self.study, self.plan)
        baselines.check(self.study.lab, self.plan)
        tools = tool_facts(self.plan, LocalHost())
        self.ledger.files.warm_up()
        lab = Lab(self.study_id, self.study.study)
        host = LocalHost(environment=lab.environment)
        fleet = Fleet(self.study, self.plan, lab, host)
        try:
            ended = self._campaign(_Session(self._machine(), fleet, host, tools))
        finally:
            for problem in fleet.destroy():
                self.progress.note(f"clean-up: {problem}")
            try:
                lab.remove()
            except LabError as problem:  # where a mount hangs, something is left; the results are there all the same
                self.progress.note(f"clean-up: {problem}")
        conclude(self.ledger, self.study_id)
        self.ledger.set_state(self.study_id, "ended" if ended.complete else "interrupted", ended.reason)
        return ended

    def _machine(self) -> state.Campaign:
        return state.Campaign(_campaign_cells(self.plan), _rules(self.study, self.plan))

    def _over_already(self) -> str | None:
        """Why nothing is left to run, None when something is (for instance because the budget has been raised)."""
        assert self.row is not None
        machine = self._machine()
        recorded, _ = self._history()
        instructions = machine.handle(state.Begin())
        while True:
            match instructions[-1]:
                case state.RunAttempt(cell, block, try_number) if (key := (cell, block, try_number)) in recorded:
                    known = recorded[key]
                    instructions = machine.handle(state.AttemptEnded(*key, known.outcome, known.seconds, known.value))
                case state.Finish(reason):
                    # killed between the last attempt and the conclusions: only these are missing
                    if self.row.state != "ended":
                        conclude(self.ledger, self.study_id)
                        self.ledger.set_state(self.study_id, "ended", reason)
                    return reason
                case _:
                    return None

    def _check_budget(self) -> None:
        """A budget that cannot hold one block would be overrun many times over: refuse it while nothing is begun."""
        budget = self.study.measure.budget
        block = estimate(self.plan, self.study)["block_seconds"]
        if budget is not None and block > budget:
            raise PlanError(
                f"one block of {len(self.plan.cells)} cells takes about {format_seconds(block)}, the budget is "
                f"{format_seconds(budget)}; raise it, declare fewer points or candidates, or use --scale"
            )

    # --- before the first attempt ---------------------------------------------------------------------------------

    def _deploy(self, fleet: Fleet, tools: dict[str, Any]) -> dict[str, str]:
        """Deploy everything, then write the study or prove that it is still the same one. Returns the candidates that
        cannot be used, with the reason: their attempts are kept as failed ones."""
        failures: dict[str, str] = {}
        self._measure_lab(fleet)
        for candidate in self.plan.candidates:
            if candidate.deployment not in fleet.running and candidate.role != "null":
                self.progress.note(f"preparing {candidate.deployment}")
            running = fleet.deploy(candidate)
            if running.failure:
                failures[candidate.label] = running.failure
        subjects = [c for c in self.plan.candidates if c.role == "subject"] or self.plan.candidates
        if all(c.label in failures for c in subjects):
            raise CampaignError(f"no candidate could be deployed: {next(iter(failures.values()))}")
        for cell, (label, point_id) in self.plan.cells.items():
            running = fleet.of(self.plan.candidate(label))
            self._closures[cell] = self._closure(running, self.points[point_id], tools)
        if self.row is None:
            self._write_study(fleet)
            self.ledger.add_event(self.study_id, "begun", {"assay": assay.__version__})
        else:
            self._prove_same(failures)
            self.ledger.set_state(self.study_id, "running")
            self.ledger.add_event(self.study_id, "resumed", {"assay": assay.__version__})
        return failures

    def _measure_lab(self, fleet: Fleet) -> None:
        """Baselines, measured before the first deployment and only once for a study, and the bounds that follow."""
        if self.row is not None:
            self.baselines = load_baselines(self.ledger, self.study_id)
        elif baselines.wanted(self.study.lab, self.plan):
            self.baselines = baselines.measured(fleet.lab, fleet.shape, self.progress.note)
        for cell, (label, point_id) in self.plan.cells.items():
            candidate, point = self.plan.candidate(label), self.points[point_id].point
            self._bounds[cell] = baselines.bound_of(candidate, self.study.lab, point, self.baselines)

    def _closure(self, running: Running, planned: PlannedPoint, tools: dict[str, Any]) -> dict[str, Any]:
        return {
            **_world(running, tools),
            "point": planned.point.model_dump(mode="json"),
            "dataset": {"bytes": dataset_bytes(self.plan), "seed": self.seed},
            "lab": {
                **self.study.lab.model_dump(mode="json", exclude={"disk", "baselines"}),
                "disk": disk_for(self.study, self.plan).model_dump(mode="json", exclude={"directory", "devices"}),
            },
        }

    def _write_study(self, fleet: Fleet) -> None:
        sid, plan = self.study_id, self.plan
        missing: dict[str, str | None] = {}
        for cell, (label, point_id) in plan.cells.items():
            candidate = plan.candidate(label)
            missing[cell] = _missing_capability(candidate, self.points[point_id], fleet.of(candidate))
        self.ledger.add_study(
            rows.study_row(sid, self.study, plan, self.hash, self.text),
            rows.lab_row(sid, self.study, self.baselines),
            rows.host_rows(sid, plan, fleet),
            rows.candidate_rows(sid, plan, fleet),
            rows.workload_rows(sid, plan),
            rows.cell_rows(sid, plan, self._closures, missing),
        )

    def _prove_same(self, failed: Collection[str]) -> None:
        with self.ledger.reading() as session:
            stored = {c.id: c for c in session.scalars(select(CellRow).where(CellRow.study_id == self.study_id))}
        for cell, closure in self._closures.items():
            if self.plan.cells[cell][0] in failed or not stored[cell].closure.get("system"):
                continue
            if digest(closure) != stored[cell].closure_hash:
                changed = _first_difference(stored[cell].closure, closure)
                raise ClosureChangedError(
                    f"study {self.study_id} cannot be resumed: {changed}; attempts from before and after must not be "
                    "mixed. Start it anew with --new"
                )

    # --- the campaign -----------------------------------------------------------------------------------------------

    def _campaign(self, session: _Session) -> Ended:
        machine = session.machine
        try:
            session.failures = self._deploy(session.fleet, session.tools)
            for candidate, reason in session.failures.items():
                self.ledger.add_event(self.study_id, "candidate-lost", {"candidate": candidate, "reason": reason})
                self.progress.note(f"{candidate} cannot be used: {reason}")
            session.recorded, session.started = self._history()
            instructions = machine.handle(state.Begin())
            while True:
                follow_up: state.Event | None = None
                for instruction in instructions:
                    match instruction:
                        case state.StartBlock(number, stage, cells):
                            self.ledger.add_block(self.study_id, number, stage, cells)
                            self.progress.block(number, stage, len(cells))
                        case state.RunAttempt():
                            follow_up = self._attempt(instruction, session)
                        case state.GiveUp(cell, reason):
                            label, point_id = self.plan.cells[cell]
                            self.ledger.add_event(self.study_id, "gave-up", {"cell": cell, "reason": reason})
                            self.progress.note(f"{label}, {self.points[point_id].name}: not run any more: {reason}")
                        case state.Finish(reason, complete):
                            self.ledger.add_event(self.study_id, "finished", {"reason": reason})
                            return Ended(self.study_id, reason, complete)
                assert follow_up is not None
                instructions = machine.handle(follow_up)
        except KeyboardInterrupt:
            if not self._closures or self.ledger.find_study(self.study_id) is None:
                raise  # before the study was written there is nothing to resume
            machine.handle(state.Interrupted())
            self.ledger.add_event(self.study_id, "interrupted", {})
            return Ended(self.study_id, "interrupted; the same command resumes it", complete=False)

    def _history(self) -> tuple[dict[Key, _Recorded], dict[Key, float]]:
        """What the ledger holds: ended attempts, and when attempts were started."""
        metric = self.study.measure.metric
        column = getattr(AttemptRow, metric.replace("-", "_"))
        with self.ledger.reading() as session:
            rows = session.execute(
                select(
                    AttemptRow.cell_id, AttemptRow.block, AttemptRow.try_number, AttemptRow.status, AttemptRow.verdict,
                    AttemptRow.started_at, AttemptRow.ended_at, column,
                ).where(AttemptRow.study_id == self.study_id)
            ).all()  # fmt: skip
        recorded = {
            (cell, block, try_number): _Recorded(
                _outcome(AttemptStatus(status), Verdict(verdict), value), end - begin, value
            )
            for cell, block, try_number, status, verdict, begin, end, value in rows
        }
        started = {
            (e.data["cell"], e.data["block"], e.data["try"]): e.at
            for e in self.ledger.events(self.study_id)
            if e.kind == "attempt-started"
        }
        return recorded, started

    def _attempt(self, asked: state.RunAttempt, session: _Session) -> state.AttemptEnded:
        key: Key = (asked.cell, asked.block, asked.try_number)
        if key in session.recorded:
            known = session.recorded[key]
            return state.AttemptEnded(*key, known.outcome, known.seconds, known.value)
        label, point_id = self.plan.cells[asked.cell]
        running = session.fleet.of(self.plan.candidate(label))
        order = Order(
            attempt_id=digest([self.study_id, *key])[:24],
            study_id=self.study_id,
            cell_id=asked.cell,
            candidate=self.plan.candidate(label),
            planned=self.points[point_id],
            block=asked.block,
            try_number=asked.try_number,
            seed=int(digest([self.seed, asked.block, point_id])[:15], 16),
            expected={**_world(running, session.tools), "ram_factor": self.study.measure.ram_factor},
            deadline_seconds=self.study.measure.deadline,
        )
        samples: Samples | None = None
        artefacts: list[Artefact] = []
        if key in session.started:
            evidence = unusable(
                order, AttemptStatus.LOST, session.started[key], "Assay was killed while this attempt ran"
            )
        elif label in session.failures:
            evidence = unusable(order, AttemptStatus.FAILED, time.time(), session.failures[label])
        elif (missing := _missing_capability(order.candidate, order.planned, running)) is not None:
            evidence = unusable(order, AttemptStatus.NOT_APPLICABLE, time.time(), missing)
        else:
            self.ledger.add_event(
                self.study_id, "attempt-started", {"cell": asked.cell, "block": asked.block, "try": asked.try_number}
            )
            observe = partial(_world, running, session.tools, fresh=True)
            evidence, samples, artefacts = execute(order, running, observe)
        return self._record(evidence, samples, artefacts, session.machine)

    def _record(
        self, evidence: AttemptEvidence, samples: Samples | None, artefacts: list[Artefact], machine: state.Campaign
    ) -> state.AttemptEnded:
        if artefacts:
            names = {a.name: self.ledger.files.put_artefact(a.content) for a in artefacts}
            evidence = evidence.model_copy(update={"artefacts": names})
        evidence = evidence.model_copy(update={"bound": self._bounds[evidence.cell_id]})
        findings: list[Finding] = []
        verdict, broken = Verdict.UNKNOWN, list[str]()
        if evidence.status in (AttemptStatus.FINISHED, AttemptStatus.FAILED):
            findings = run_rules(Scope.ATTEMPT, AttemptSubject(evidence, samples))
            verdict, broken = attempt_verdict(findings)
        rows = check_rows(self.study_id, evidence.attempt_id, findings)
        self.ledger.add_attempt(evidence, verdict, broken, rows, samples)
        value = metric_value(evidence.summary, self.study.measure.metric) if evidence.summary is not None else None
        outcome = _outcome(evidence.status, verdict, value)
        name = self.points[self.plan.cells[evidence.cell_id][1]].name
        self.progress.attempt(evidence, name, verdict, broken, machine.remaining_seconds())
        return state.AttemptEnded(
            evidence.cell_id,
            evidence.block,
            evidence.try_number,
            outcome,
            evidence.ended_at - evidence.started_at,
            value if outcome is state.Outcome.USABLE else None,
        )


def _world(running: Running, tools: dict[str, Any], *, fresh: bool = False) -> dict[str, Any]:
    """What a result depends on besides its point; ``fresh`` asks the system again."""
    system = running.facts
    if fresh and not running.failure:
        system = running.adapter.facts()
    return {"machine": host_facts(), "tools": tools, "system": system}


def _outcome(status: AttemptStatus, verdict: Verdict, value: float | None) -> state.Outcome:
    if status is AttemptStatus.LOST:
        return state.Outcome.LOST
    if status is AttemptStatus.NOT_APPLICABLE:
        return state.Outcome.NOT_APPLICABLE
    if status is AttemptStatus.FAILED:
        return state.Outcome.FAILED
    # NaN and zero have no logarithm: nothing was delivered, so nothing was measured
    if verdict is Verdict.INVALID or value is None or not value > 0:
        return state.Outcome.VOID
    return state.Outcome.USABLE


def _missing_capability(candidate: PlannedCandidate, planned: PlannedPoint, running: Running) -> str | None:
    """What the cell needs and the adapter lacks, in words; None when nothing."""
    if (why := unsuited(planned, running.target)) is not None:
        return f"{candidate.system}: {why}"
    cold = planned.point.cache == "cold" and candidate.role in ("subject", "twin")
    if cold and not isinstance(running.adapter, GoesCold):
        return f"{candidate.system} cannot go cold"
    degraded = planned.point.degraded_hosts and candidate.role in ("subject", "twin")
    if degraded and not (isinstance(running.adapter, KillsHosts) and running.adapter.deployment.fabric is not None):
        return f"{candidate.system} has no hosts of its own that could be killed"
    return None


def _campaign_cells(plan: Plan) -> list[state.CampaignCell]:
    return [
        state.CampaignCell(cell, label, point, compared=plan.candidate(label).role in ("subject", "twin"))
        for cell, (label, point) in plan.cells.items()
    ]


def _rules(study: Study, plan: Plan) -> state.Rules:
    measure = study.measure
    return state.Rules(
        pilot=measure.blocks.pilot,
        minimum=measure.blocks.minimum,
        maximum=measure.blocks.maximum,
        retries=measure.retries,
        budget_seconds=measure.budget,
        order=partial(block_order, plan),
        needed=lambda values: blocks_needed(
            list(values), measure.half_width, measure.confidence, measure.blocks.minimum, measure.blocks.maximum
        ),
    )


def _first_difference(old: Any, new: Any, path: str = "") -> str:
    if isinstance(old, dict) and isinstance(new, dict):
        for key in sorted({*old, *new}):
            if old.get(key) != new.get(key):
                return _first_difference(old.get(key), new.get(key), f"{path}.{key}" if path else str(key))
    return f"{path} was {old!r} and is {new!r}"
