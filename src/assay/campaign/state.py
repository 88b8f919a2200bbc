"""The campaign as a state machine: events in, instructions out, no I/O and no clock.

Model: dask.distributed's ``worker_state_machine.py``. Everything the machine knows of time comes with the events, so
feeding it the recorded events of an interrupted campaign brings it to exactly the same state: that is how a run resumes.

Design of the experiment: randomised complete blocks. Every block visits all cells once in an order drawn from the stored
seed; after ``pilot`` blocks the number of blocks each workload point needs is computed once by Stein's two-stage rule
(``stats.stein``), the largest over the compared candidates of that point, so that blocks stay complete.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from enum import StrEnum

GIVE_UP_AFTER = 2  # blocks in a row without one usable attempt


class Outcome(StrEnum):
    """What an ended attempt is worth to the campaign."""

    USABLE = "usable"
    VOID = "void"  # ended, but a check says it is not valid
    FAILED = "failed"
    LOST = "lost"  # Assay died while it ran; costs no try
    NOT_APPLICABLE = "not-applicable"


@dataclass(frozen=True)
class CampaignCell:
    """A cell as the campaign sees it; ``compared`` is false for harness floors, which are run in the pilot only."""

    id: str
    candidate: str
    point: str
    compared: bool


@dataclass(frozen=True)
class Rules:
    """Fixed before the first attempt. ``order`` gives the randomised order of a block, ``needed`` the total number of
    blocks from a cell's pilot values; both are pure."""

    pilot: int
    minimum: int
    maximum: int
    retries: int
    budget_seconds: float | None
    order: Callable[[int, list[str]], list[str]]
    needed: Callable[[Sequence[float]], int]


# --- events ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Begin:
    """The campaign starts (or its replay does)."""


@dataclass(frozen=True)
class AttemptEnded:
    """One attempt is over. ``seconds`` is what it cost in all, ``value`` the metric when it is usable."""

    cell: str
    block: int
    try_number: int
    outcome: Outcome
    seconds: float
    value: float | None = None


@dataclass(frozen=True)
class Interrupted:
    """A person wants it to stop."""


Event = Begin | AttemptEnded | Interrupted


# --- instructions ----------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class StartBlock:
    """Note the planned order of a block."""

    number: int
    stage: str  # pilot | main
    cells: list[str]


@dataclass(frozen=True)
class RunAttempt:
    """Execute one cell now."""

    cell: str
    block: int
    try_number: int


@dataclass(frozen=True)
class GiveUp:
    """A cell will not be run again; its attempts stay."""

    cell: str
    reason: str


@dataclass(frozen=True)
class Finish:
    """The campaign is over."""

    reason: str
    complete: bool  # False: interrupted, may be resumed


Instruction = StartBlock | RunAttempt | GiveUp | Finish


@dataclass
class _CellState:
    values: dict[int, float] = field(default_factory=dict)  # block -> metric
    seconds: list[float] = field(default_factory=list)
    barren_blocks: int = 0  # in a row
    gone: bool = False


class CampaignError(Exception):
    """An event that cannot have happened: a defect of Assay, never of a system under test."""


class Campaign:
    """The state machine. ``log`` holds every event handled, in order."""

    def __init__(self, cells: Sequence[CampaignCell], rules: Rules) -> None:
        self.cells = {c.id: c for c in cells}
        self.rules = rules
        self.block = 0
        self.elapsed_seconds = 0.0
        self.targets: dict[str, int] = {}  # point -> total blocks, known after the pilot
        self.finished: Finish | None = None
        self.log: list[Event] = []
        self._cells = {c.id: _CellState() for c in cells}
        self._queue: list[tuple[str, int]] = []  # (cell, try) still to run in this block
        self._running: RunAttempt | None = None
        self._tries: dict[str, int] = {}  # tries that counted, of cells in this block
        self._usable: set[str] = set()  # cells with a usable attempt in this block

    def handle(self, event: Event) -> list[Instruction]:
        """Take one event, return what is to be done. Raises CampaignError on an impossible event."""
        if self.finished is not None:
            raise CampaignError(f"{event} after the end")
        instructions: list[Instruction]
        match event:
            case Begin():
                if self.block:
                    raise CampaignError("begun twice")
                instructions = self._next()
            case AttemptEnded():
                instructions = [*self._ended(event), *self._next()]
            case Interrupted():
                finish = self.finished = Finish("interrupted", complete=False)
                self._running = None
                instructions = [finish]
        self.validate()
        self.log.append(event)
        return instructions

    def values(self, cell: str) -> dict[int, float]:
        """Usable values of a cell by block."""
        return dict(self._cells[cell].values)

    def remaining_seconds(self) -> float:
        """Estimate of what is left: exact in blocks once the pilot is over, the minimum before."""
        rest = sum(self._cost(cell) for cell, _ in self._queue)
        last = max(self.targets.values(), default=max(self.rules.pilot, self.rules.minimum))
        for number in range(self.block + 1, last + 1):
            rest += sum(self._cost(cell) for cell in self._members(number))
        return rest

    def validate(self) -> None:
        """Invariants that hold between events. Raises CampaignError."""
        if self._running is not None and self._running.cell in {cell for cell, _ in self._queue}:
            raise CampaignError(f"cell {self._running.cell} is running and queued at once")
        if len({cell for cell, _ in self._queue}) != len(self._queue):
            raise CampaignError("a cell is queued twice in one block")
        if self.finished is None and self.block and self._running is None:
            raise CampaignError("neither running nor finished")
        if any(n > self.rules.maximum for n in self.targets.values()):
            raise CampaignError("more blocks planned than the maximum")

    # --- what follows from an ended attempt -----------------------------------------------------------------------

    def _ended(self, event: AttemptEnded) -> list[Instruction]:
        running = self._running
        if running is None or (running.cell, running.block, running.try_number) != (
            event.cell,
            event.block,
            event.try_number,
        ):
            raise CampaignError(f"{event} ended, but {running} was running")
        if event.outcome is Outcome.USABLE and event.value is None:
            raise CampaignError(f"{event} is usable but has no value")
        self._running = None
        self.elapsed_seconds += event.seconds
        state = self._cells[event.cell]
        if event.outcome is Outcome.LOST:
            self._queue.insert(0, (event.cell, event.try_number + 1))
            return []
        state.seconds.append(event.seconds)
        self._tries[event.cell] = self._tries.get(event.cell, 0) + 1
        if event.outcome is Outcome.USABLE and event.value is not None:
            state.values[event.block] = event.value
            state.barren_blocks = 0
            self._usable.add(event.cell)
            return []
        if event.outcome is Outcome.NOT_APPLICABLE:
            return self._give_up(event.cell, "not applicable")
        # a second try helps against accidents; a cell that was barren in the last block has no accident
        allowed = self.rules.retries if state.barren_blocks == 0 else 0
        if self._tries[event.cell] <= allowed and not state.gone:
            self._queue.append((event.cell, event.try_number + 1))
            return []
        state.barren_blocks += 1
        if state.barren_blocks >= GIVE_UP_AFTER:
            return self._give_up(event.cell, f"no usable attempt in {state.barren_blocks} blocks in a row")
        return []

    def _give_up(self, cell: str, reason: str) -> list[Instruction]:
        state = self._cells[cell]
        if state.gone:
            return []
        state.gone = True
        self._queue = [(c, t) for c, t in self._queue if c != cell]
        return [GiveUp(cell, reason)]

    # --- what comes next ----------------------------------------------------------------------------------------

    def _next(self) -> list[Instruction]:
        instructions: list[Instruction] = []
        while not self._queue:
            reason = self._why_stop()
            if reason is not None:
                finish = self.finished = Finish(reason, complete=True)
                return [*instructions, finish]
            self.block += 1
            order = self.rules.order(self.block, self._members(self.block))
            self._queue = [(cell, 1) for cell in order]
            self._tries, self._usable = {}, set()
            stage = "pilot" if self.block <= self.rules.pilot else "main"
            instructions.append(StartBlock(self.block, stage, order))
        cell, try_number = self._queue.pop(0)
        self._running = RunAttempt(cell, self.block, try_number)
        return [*instructions, self._running]

    def _why_stop(self) -> str | None:
        """Why no further block starts, None when one does."""
        following = self.block + 1
        if self.block == self.rules.pilot:
            self._compute_targets()
        members = self._members(following)
        if not members:
            # harness floors end with the pilot: they do not count as something left
            compared = [c for c in self.cells.values() if c.compared] or list(self.cells.values())
            if all(self._cells[c.id].gone for c in compared):
                return "no cell is left that can be run"
            if self.block == self.rules.maximum:
                return f"the maximum of {self.rules.maximum} blocks is reached"
            return "every cell has the blocks that the pilot asked for"
        budget = self.rules.budget_seconds
        if budget is not None and self.block:
            expected = sum(self._cost(cell) for cell in members)
            if self.elapsed_seconds + expected > budget:
                return (
                    f"the budget is spent: {self.elapsed_seconds:.0f} s of {budget:.0f} s used, "
                    f"a further block takes about {expected:.0f} s"
                )
        return None

    def _members(self, number: int) -> list[str]:
        """Cells of a block: all in the pilot, later those whose point asks for it."""
        alive = [c for c in self.cells.values() if not self._cells[c.id].gone]
        if number <= self.rules.pilot:
            return [c.id for c in alive]
        return [c.id for c in alive if c.compared and number <= self.targets.get(c.point, 0)]

    def _compute_targets(self) -> None:
        for cell in self.cells.values():
            values = list(self._cells[cell.id].values.values())
            if not cell.compared or self._cells[cell.id].gone:
                continue
            needed = self.rules.needed(values) if len(values) >= 2 else self.rules.minimum
            clipped = min(self.rules.maximum, max(self.rules.minimum, self.rules.pilot, needed))
            self.targets[cell.point] = max(self.targets.get(cell.point, 0), clipped)

    def _cost(self, cell: str) -> float:
        seconds = self._cells[cell].seconds
        return sum(seconds) / len(seconds) if seconds else 0.0
