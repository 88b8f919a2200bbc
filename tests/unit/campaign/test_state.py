"""The campaign's state machine, driven by a mock executor: pure, so thousands of campaigns fit into a second."""

from __future__ import annotations

import itertools
import random
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.campaign.state import (
    AttemptEnded,
    Begin,
    Campaign,
    CampaignCell,
    CampaignError,
    Event,
    Finish,
    GiveUp,
    Instruction,
    Interrupted,
    Outcome,
    Rules,
    RunAttempt,
    StartBlock,
)

Behaviour = Callable[[RunAttempt], AttemptEnded]


def order(number: int, cells: list[str]) -> list[str]:
    shuffled = sorted(cells)
    random.Random(f"seed:{number}").shuffle(shuffled)
    return shuffled


def rules(
    pilot: int = 3,
    minimum: int = 3,
    maximum: int = 8,
    retries: int = 1,
    budget: float | None = None,
    needed: Callable[[Sequence[float]], int] = lambda _: 5,
) -> Rules:
    return Rules(pilot, minimum, maximum, retries, budget, order, needed)


def cells(points: int = 2, candidates: Sequence[str] = ("a", "b"), floor: bool = True) -> list[CampaignCell]:
    made = [CampaignCell(f"{c}{p}", c, f"p{p}", compared=True) for c in candidates for p in range(points)]
    return made + [CampaignCell(f"null{p}", "null", f"p{p}", compared=False) for p in range(points) if floor]


def usable(run: RunAttempt, seconds: float = 1.0, value: float = 100.0) -> AttemptEnded:
    return AttemptEnded(run.cell, run.block, run.try_number, Outcome.USABLE, seconds, value)


def ended(run: RunAttempt, outcome: Outcome, seconds: float = 1.0) -> AttemptEnded:
    return AttemptEnded(run.cell, run.block, run.try_number, outcome, seconds)


@dataclass
class Mock:
    """Carries instructions out as the executor does, and notes them."""

    machine: Campaign
    behave: Behaviour = usable
    instructions: list[Instruction] = field(default_factory=list)

    def run(self, stop_after: int = 10_000) -> Mock:
        self.take(Begin())
        for _ in range(stop_after):
            last = self.instructions[-1]
            if not isinstance(last, RunAttempt):
                return self
            self.take(self.behave(last))
        return self

    def take(self, event: Event) -> list[Instruction]:
        new = self.machine.handle(event)
        self.instructions += new
        return new

    @property
    def blocks(self) -> list[StartBlock]:
        return [i for i in self.instructions if isinstance(i, StartBlock)]

    @property
    def attempts(self) -> list[RunAttempt]:
        return [i for i in self.instructions if isinstance(i, RunAttempt)]

    @property
    def given_up(self) -> dict[str, str]:
        return {i.cell: i.reason for i in self.instructions if isinstance(i, GiveUp)}

    @property
    def finish(self) -> Finish:
        last = self.instructions[-1]
        assert isinstance(last, Finish)
        return last


def campaign(behave: Behaviour = usable, of: list[CampaignCell] | None = None, **how: object) -> Mock:
    return Mock(Campaign(of if of is not None else cells(), rules(**how)), behave).run()  # type: ignore[arg-type]


def shape(machine: Campaign) -> object:
    """All of a machine's state."""
    own = {k: v for k, v in vars(machine).items() if k not in ("cells", "rules")}
    return {**own, "_cells": {k: vars(v) for k, v in own["_cells"].items()}}


# --- the design of the experiment ------------------------------------------------------------------------------------


def test_the_pilot_is_complete_then_floors_rest_and_points_get_what_they_asked_for() -> None:
    run = campaign(needed=lambda _: 5)
    assert [b.stage for b in run.blocks] == ["pilot"] * 3 + ["main"] * 2
    assert [b.number for b in run.blocks] == [1, 2, 3, 4, 5]
    assert all(sorted(b.cells) == ["a0", "a1", "b0", "b1", "null0", "null1"] for b in run.blocks[:3])
    assert all(sorted(b.cells) == ["a0", "a1", "b0", "b1"] for b in run.blocks[3:])
    assert run.finish == Finish("every cell has the blocks that the pilot asked for", complete=True)


def test_attempts_follow_the_planned_order() -> None:
    run = campaign()
    for block in run.blocks:
        assert block.cells == order(block.number, block.cells)
        assert [a.cell for a in run.attempts if a.block == block.number] == block.cells
    assert len({tuple(b.cells) for b in run.blocks[:3]}) > 1


def test_a_point_gets_the_blocks_of_its_neediest_candidate_and_blocks_stay_complete() -> None:
    wants = {"a0": 4, "b0": 7, "a1": 3, "b1": 5}
    value = {cell: float(i + 1) for i, cell in enumerate(wants)}
    of_value = {v: wants[cell] for cell, v in value.items()}
    run = campaign(lambda a: usable(a, value=value.get(a.cell, 99.0)), needed=lambda v: of_value[v[0]])
    assert run.machine.targets == {"p0": 7, "p1": 5}
    assert [sorted(b.cells) for b in run.blocks[3:]] == [["a0", "a1", "b0", "b1"]] * 2 + [["a0", "b0"]] * 2


def test_stein_sees_the_pilot_only_and_only_once() -> None:
    seen: list[list[float]] = []

    def needed(values: Sequence[float]) -> int:
        seen.append(list(values))
        return 6

    campaign(lambda a: usable(a, value=float(a.block)), needed=needed)
    assert seen == [[1.0, 2.0, 3.0]] * 4


@pytest.mark.parametrize(("wanted", "got"), [(0, 4), (3, 4), (4, 4), (6, 6), (8, 8), (9, 8), (10**9, 8)])
def test_never_fewer_than_the_minimum_never_more_than_the_maximum(wanted: int, got: int) -> None:
    run = campaign(minimum=4, needed=lambda _: wanted)
    assert len(run.blocks) == got
    assert ("maximum of 8 blocks is reached" in run.finish.reason) == (got == 8)


def test_floors_alone_end_with_the_pilot() -> None:
    run = campaign(of=[CampaignCell("null", "null", "p", compared=False)])
    assert len(run.blocks) == 3
    assert run.finish.complete


def test_no_cells_is_the_end_at_once() -> None:
    assert campaign(of=[]).instructions == [Finish("no cell is left that can be run", complete=True)]


# --- what goes wrong -------------------------------------------------------------------------------------------------


def failing(bad: dict[str, Outcome]) -> Behaviour:
    return lambda a: ended(a, bad[a.cell]) if a.cell in bad else usable(a)


@pytest.mark.parametrize("outcome", [Outcome.VOID, Outcome.FAILED])
@pytest.mark.parametrize("retries", [0, 1, 3])
def test_a_barren_cell_is_retried_at_the_end_of_its_block_then_given_up(outcome: Outcome, retries: int) -> None:
    run = campaign(failing({"a0": outcome}), retries=retries)
    tries = [(a.block, a.try_number) for a in run.attempts if a.cell == "a0"]
    assert tries == [(1, t) for t in range(1, retries + 2)] + [(2, 1)]
    assert run.given_up == {"a0": "no usable attempt in 2 blocks in a row"}
    first = [a.cell for a in run.attempts if a.block == 1]
    assert first[6:] == ["a0"] * retries
    assert all("a0" not in b.cells for b in run.blocks[2:])
    assert len(run.blocks) == 5, "the others go on"


def test_an_accident_costs_no_cell() -> None:
    accidents = iter([Outcome.FAILED, Outcome.VOID])
    run = campaign(
        lambda a: ended(a, next(accidents)) if a.cell == "a0" and a.block == a.try_number == 1 else usable(a)
    )
    assert run.given_up == {}
    assert set(run.machine.values("a0")) == {1, 2, 3, 4, 5}


def test_one_barren_block_is_forgiven_by_a_usable_one() -> None:
    run = campaign(lambda a: ended(a, Outcome.FAILED) if a.cell == "a0" and a.block in (1, 3, 5) else usable(a))
    assert run.given_up == {}
    assert set(run.machine.values("a0")) == {2, 4}


def test_not_applicable_is_given_up_at_once_and_never_retried() -> None:
    run = campaign(failing({"b1": Outcome.NOT_APPLICABLE}))
    assert [(a.block, a.try_number) for a in run.attempts if a.cell == "b1"] == [(1, 1)]
    assert run.given_up == {"b1": "not applicable"}


def test_a_lost_attempt_costs_no_try_and_runs_next() -> None:
    lost = {("a0", 1), ("a0", 2), ("a0", 3)}
    run = campaign(lambda a: ended(a, Outcome.LOST) if (a.cell, a.try_number) in lost and a.block == 1 else usable(a))
    tries = [a.try_number for a in run.attempts if a.cell == "a0" and a.block == 1]
    assert tries == [1, 2, 3, 4]
    where = [a.cell for a in run.attempts if a.block == 1].index("a0")
    assert [a.cell for a in run.attempts if a.block == 1][where : where + 4] == ["a0"] * 4
    assert run.given_up == {}


def test_lost_then_failed_still_has_its_retry() -> None:
    script = iter([Outcome.LOST, Outcome.FAILED])
    run = campaign(
        lambda a: ended(a, next(script)) if a.cell == "a0" and a.block == 1 and a.try_number < 3 else usable(a)
    )
    assert run.machine.values("a0")[1] == 100.0
    assert [a.try_number for a in run.attempts if a.cell == "a0" and a.block == 1] == [1, 2, 3]


def test_when_every_compared_cell_is_gone_the_reason_says_so() -> None:
    bad: dict[str, Outcome] = dict.fromkeys(("a0", "a1", "b0", "b1"), Outcome.FAILED)
    run = campaign(failing(bad))
    assert run.finish == Finish("no cell is left that can be run", complete=True)
    assert len(run.blocks) == 3, "the floors finish their pilot"
    late = campaign(lambda a: ended(a, Outcome.FAILED) if a.block > 3 else usable(a), maximum=8, needed=lambda _: 8)
    assert late.finish.reason == "no cell is left that can be run"
    assert len(late.blocks) == 5


# --- budget, interruption --------------------------------------------------------------------------------------------


def test_the_budget_ends_a_campaign_between_blocks_only() -> None:
    # a block of six costs 6 s: a third would end at 18 s
    run = campaign(budget=17.0)
    assert len(run.blocks) == 2
    assert len(run.attempts) == 12, "every begun block is complete"
    assert run.finish.complete
    assert "the budget is spent: 12 s of 17 s used, a further block takes about 6 s" in run.finish.reason
    assert len(campaign(budget=18.0).blocks) == 3
    assert len(campaign(budget=0.001).blocks) == 1, "one block always runs: there is nothing to estimate from"


def test_an_interrupted_campaign_is_not_complete_and_takes_no_event() -> None:
    run = Mock(Campaign(cells(), rules())).run(stop_after=4)
    assert run.take(Interrupted()) == [Finish("interrupted", complete=False)]
    with pytest.raises(CampaignError, match="after the end"):
        run.take(usable(run.attempts[-1]))


# --- impossible events -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "event",
    [
        Begin(),
        AttemptEnded("a0", 2, 1, Outcome.USABLE, 1.0, 1.0),
        AttemptEnded("a0", 1, 2, Outcome.USABLE, 1.0, 1.0),
        AttemptEnded("nobody", 1, 1, Outcome.USABLE, 1.0, 1.0),
        AttemptEnded("null0", 1, 1, Outcome.LOST, 1.0),
        AttemptEnded("FIRST", 1, 1, Outcome.USABLE, 1.0, None),
    ],
    ids=["begun twice", "other block", "other try", "unknown cell", "not running", "usable without a value"],
)
def test_impossible_events_raise_and_leave_everything_as_it_was(event: Event) -> None:
    run = Mock(Campaign(cells(), rules())).run(stop_after=0)
    first = run.attempts[0].cell
    assert first not in ("a0", "null0"), "the order of the test's seed"
    if isinstance(event, AttemptEnded) and event.cell == "FIRST":
        event = AttemptEnded(first, 1, 1, event.outcome, 1.0, None)
    before = repr(shape(run.machine))
    with pytest.raises(CampaignError):
        run.machine.handle(event)
    assert repr(shape(run.machine)) == before
    assert run.machine.log == [Begin()]


def test_nothing_ends_before_it_begins() -> None:
    with pytest.raises(CampaignError):
        Campaign(cells(), rules()).handle(AttemptEnded("a0", 1, 1, Outcome.USABLE, 1.0, 1.0))


# --- properties over random campaigns --------------------------------------------------------------------------------

OUTCOMES = [Outcome.USABLE] * 6 + [Outcome.VOID, Outcome.FAILED, Outcome.LOST, Outcome.NOT_APPLICABLE]


@st.composite
def campaigns(draw: st.DrawFn) -> tuple[list[CampaignCell], Rules, Behaviour]:
    pilot = draw(st.integers(2, 4))
    minimum = draw(st.integers(1, 6))
    maximum = max(pilot, minimum) + draw(st.integers(0, 3))
    needs = draw(st.integers(0, 12))
    how = rules(
        pilot,
        minimum,
        maximum,
        draw(st.integers(0, 2)),
        draw(st.none() | st.floats(1, 100)),
        lambda v: needs + len(v) % 2,
    )
    some = cells(draw(st.integers(1, 3)), draw(st.sampled_from(["a", "ab", "abc"])), draw(st.booleans()))
    noise = random.Random(draw(st.integers(0, 2**32)))
    quiet = draw(st.booleans())

    def behave(run: RunAttempt) -> AttemptEnded:
        outcome = Outcome.USABLE if quiet else noise.choice(OUTCOMES)
        value = noise.uniform(1, 2) if outcome is Outcome.USABLE else None
        return AttemptEnded(run.cell, run.block, run.try_number, outcome, noise.uniform(0.1, 3), value)

    return some, how, behave


@settings(max_examples=120, deadline=None)
@given(campaigns())
def test_every_campaign_keeps_its_promises(drawn: tuple[list[CampaignCell], Rules, Behaviour]) -> None:
    some, how, behave = drawn
    run = Mock(Campaign(some, how), behave).run()
    events = {(e.cell, e.block, e.try_number): e for e in run.machine.log if isinstance(e, AttemptEnded)}
    keys = [(a.cell, a.block, a.try_number) for a in run.attempts]
    assert run.finish.complete
    assert len(set(keys)) == len(keys) == len(events), "exactly once per cell, block and try"
    assert [b.number for b in run.blocks] == list(range(1, len(run.blocks) + 1))
    assert len(run.blocks) <= how.maximum
    gone: set[str] = set()
    compared = {c.id for c in some if c.compared}
    for block in run.blocks:
        mine = [a for a in run.attempts if a.block == block.number]
        assert [a.cell for a in mine if a.try_number == 1] == block.cells == how.order(block.number, block.cells)
        assert not gone & set(block.cells)
        if block.number <= how.pilot:
            assert set(block.cells) == {c.id for c in some} - gone
        else:
            assert set(block.cells) <= compared
            by_point = {c.point: {x.id for x in some if x.point == c.point and x.compared} - gone for c in some}
            assert all(set(block.cells) & of in (set(), of) for of in by_point.values()), "points are whole"
        for cell in block.cells:
            tries = [events[cell, block.number, a.try_number].outcome for a in mine if a.cell == cell]
            assert [a.try_number for a in mine if a.cell == cell] == list(range(1, len(tries) + 1))
            assert tries[-1] is not Outcome.LOST
            assert sum(o is not Outcome.LOST for o in tries) <= how.retries + 1
            assert all(o in (Outcome.VOID, Outcome.FAILED, Outcome.LOST) for o in tries[:-1])
            if Outcome.NOT_APPLICABLE in tries:
                gone.add(cell)
        start = run.instructions.index(block)
        rest = itertools.takewhile(lambda i: not isinstance(i, StartBlock), run.instructions[start + 1 :])
        gone |= {i.cell for i in rest if isinstance(i, GiveUp)}
    assert set(run.given_up) == gone
    for cell in compared - gone:
        got = {b for (c, b, _), e in events.items() if c == cell and e.outcome is Outcome.USABLE}
        assert set(run.machine.values(cell)) == got
    if how.budget_seconds is None:
        point_of = {c.id: c.point for c in some}
        for cell in compared - gone:
            assert sum(cell in b.cells for b in run.blocks) == run.machine.targets[point_of[cell]] >= how.minimum
    elif len(run.blocks) > 1:
        before_last = sum(e.seconds for e in events.values() if e.block < len(run.blocks))
        assert before_last <= how.budget_seconds


@settings(max_examples=80, deadline=None)
@given(campaigns(), st.data())
def test_replaying_any_prefix_brings_the_machine_to_the_same_state(
    drawn: tuple[list[CampaignCell], Rules, Behaviour], data: st.DataObject
) -> None:
    """What a resumed run does: cut the log anywhere, feed it to a new machine, go on; nothing differs."""
    some, how, behave = drawn
    whole = Mock(Campaign(some, how), behave).run()
    log = whole.machine.log
    cut = data.draw(st.integers(0, len(log)))
    replayed = Mock(Campaign(some, how))
    for event in log[:cut]:
        replayed.take(event)
    partner = Campaign(some, how)
    for event in log[:cut]:
        partner.handle(event)
    assert shape(replayed.machine) == shape(partner)
    assert replayed.instructions == whole.instructions[: len(replayed.instructions)]
    for event in log[cut:]:
        replayed.take(event)
    assert replayed.instructions == whole.instructions
    assert shape(replayed.machine) == shape(whole.machine)


@settings(max_examples=80, deadline=None)
@given(campaigns(), st.data())
def test_a_kill_loses_the_running_attempt_and_nothing_else(
    drawn: tuple[list[CampaignCell], Rules, Behaviour], data: st.DataObject
) -> None:
    some, how, behave = drawn
    first = Mock(Campaign(some, how), behave).run(stop_after=data.draw(st.integers(0, 40)))
    if isinstance(first.instructions[-1], Finish):
        return
    killed = first.attempts[-1]
    resumed = Mock(Campaign(some, how), behave)
    for event in first.machine.log:
        resumed.take(event)
    assert resumed.instructions == first.instructions
    following = resumed.take(ended(killed, Outcome.LOST))
    assert following == [RunAttempt(killed.cell, killed.block, killed.try_number + 1)]
    while isinstance(last := resumed.instructions[-1], RunAttempt):
        resumed.take(behave(last))
    keys = [(a.cell, a.block, a.try_number) for a in resumed.attempts]
    assert len(keys) == len(set(keys))


@settings(max_examples=40, deadline=None)
@given(campaigns())
def test_the_remaining_time_falls_to_nothing(drawn: tuple[list[CampaignCell], Rules, Behaviour]) -> None:
    some, how, _ = drawn
    machine = Campaign(some, rules(how.pilot, how.minimum, how.maximum, needed=how.needed))
    run = Mock(machine).run(stop_after=0)
    seen = []
    while isinstance(last := run.instructions[-1], RunAttempt):
        run.take(usable(last, seconds=2.0))
        if machine.block > how.pilot:
            seen.append(machine.remaining_seconds())
    assert seen == sorted(seen, reverse=True)
    assert machine.remaining_seconds() == 0.0
