"""Rules about what a study states: clean, broken and incomplete subjects."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import builders as b
from builders import comparison, study
from cases_common import Case

from assay.checks import AggregateView, StudySubject, TableView


def _with(index: int, **changes: Any) -> StudySubject:
    clean = study()
    comparisons = [replace(c, **changes) if i == index else c for i, c in enumerate(clean.comparisons)]
    return replace(clean, comparisons=comparisons)


ALWAYS_FIRST = [b.CELLS if i % 5 else [*b.CELLS[:2], "xfs-p1", "xfs-p0"] for i in range(10)]
# after the pilot one point needs more blocks than the other
FEWER = [*study().blocks[:3], *([c for c in block if c.endswith("p0")] for block in study().blocks[3:])]
NO_COMPARISON = study(comparisons=[])
# a candidate that never came up: nothing is known, and nothing is claimed
DEAD: dict[str, Any] = {
    "n": 0,
    "ratio": None,
    "low": None,
    "high": None,
    "p_value": 1.0,
    "b_absolute": None,
    "b_tier": "",
}

CASES: dict[str, Case] = {
    "C1": Case(
        {
            "alike": study(),
            "one candidate is dead": _with(3, **DEAD),
            "differ and said so": _with(0, a_tier="page-cache", said=("tier",)),
        },
        {
            "tier": (_with(0, a_tier="page-cache"), "ext4 / xfs at p0 differ in tier (page-cache against device)"),
            "data set": (_with(1, b_dataset="1 GiB"), "differ in data set"),
            "hosts": (_with(2, b_hosts=("h0", "h1")), "differ in hosts"),
        },
        {"tier not known": _with(0, a_tier=""), "nothing compared": NO_COMPARISON},
    ),
    "C2": Case(
        {"five pairs": study()},
        {"one pair": (_with(3, n=1), "1 comparisons could never be decided: ext4 / btrfs at p1 (n = 1)")},
        {"nothing compared": NO_COMPARISON},
    ),
    "C3": Case(
        {
            "intervals": study(),
            "infinite and undecided": _with(3, low=0.0, high=float("inf"), p_value=1.0),
            "one candidate is dead": _with(3, **DEAD),
            "no variation": _with(1, ratio=1.3, low=1.3, high=1.3, p_value=0.0),
            "equivalent up to the margin": _with(0, low=1 / 1.05, high=1.05),
        },
        {
            "decided without a pair": (_with(1, **DEAD), "has no interval"),
            "only p": (_with(1, low=None, high=None), "has no interval"),
            "not a number": (_with(1, high=float("nan")), "has no interval"),
            "infinite and decided": (_with(1, low=0.0, high=float("inf")), "called faster with an infinite interval"),
            "ratio outside": (_with(1, ratio=1.5), "outside its interval"),
            "faster, interval includes 1": (_with(1, low=0.9), "is called faster"),
            "slower, interval includes 1": (_with(2, high=1.1), "is called slower"),
            "equivalent beyond the margin": (_with(0, high=1.2), "is called equivalent"),
            "small p, interval includes 1": (_with(3, p_value=0.01), "p = 0.01, which contradicts"),
            "large p, interval excludes 1": (_with(1, p_value=0.2), "p = 0.2, which contradicts"),
        },
        {"nothing compared": NO_COMPARISON, "unheard-of decision": _with(0, decision="better")},
    ),
    "C4": Case(
        {
            "Holm": study(),
            "Benjamini-Hochberg": study(
                correction="benjamini-hochberg",
                comparisons=b.adjusted(study().comparisons, "benjamini-hochberg"),
            ),
            "a family of one": study(comparisons=[comparison()]),
        },
        {
            "not adjusted": (_with(0, p_adjusted=None), "1 of 4 comparisons are not adjusted"),
            "smaller than p": (_with(1, p_adjusted=0.0005), "recomputed 0.004"),
            "of another family": (_with(1, p_adjusted=0.002), "recomputed 0.004"),
            "decided by the raw p": (
                study(
                    comparisons=b.adjusted(
                        [comparison(p_value=0.03, decision="faster", low=1.01), comparison(point_id="p1")]
                    )
                ),
                "is called faster with an adjusted p of 0.06",
            ),
        },
        {
            "no p value": _with(0, p_value=None),
            "unheard-of correction": study(correction="sidak"),
            "nothing compared": NO_COMPARISON,
        },
    ),
    "C5": Case(
        {
            "random": study(),
            "numbers of blocks not given": study(block_numbers=[]),
            "too few blocks to judge balance": study(blocks=[b.CELLS] * 4, executed=[b.CELLS] * 4, block_numbers=[]),
            "too few cells to judge balance": study(
                blocks=[["a", "b"]] * 5, executed=[["a", "b"]] * 5, block_numbers=[], n_cells=2
            ),
            "a point that needs fewer blocks": study(
                blocks=FEWER, executed=FEWER, block_numbers=[], points={c: c[-2:] for c in b.CELLS}
            ),
            "a cell that was given up": study(
                blocks=[*study().blocks[:3], *([c for c in block if c != "xfs-p1"] for block in study().blocks[3:])],
                executed=[*study().blocks[:3], *([c for c in block if c != "xfs-p1"] for block in study().blocks[3:])],
                block_numbers=[],
                points={c: c[-2:] for c in b.CELLS if c != "xfs-p1"},
            ),
            "last block cut short": study(executed=[*study().blocks[:-1], study().blocks[-1][:2]]),
        },
        {
            "system after system": (
                study(blocks=[b.CELLS] * 5, executed=[b.CELLS] * 5, block_numbers=[]),
                "same order",
            ),
            "one cell always first": (
                study(
                    blocks=ALWAYS_FIRST,
                    executed=ALWAYS_FIRST,
                    block_numbers=[],
                ),
                "systematically",
            ),
            "not of this seed": (study(seed=43), "is not the one that seed 43 gives"),
            "a cell is missing": (study(blocks=[study().blocks[0][:3], *study().blocks[1:]]), "block 1"),
            "a cell comes twice": (study(blocks=[b.CELLS[:3] + b.CELLS[:1], *study().blocks[1:]]), "block 1"),
            "half a point left out": (
                study(
                    blocks=[*study().blocks[:4], study().blocks[4][:3]],
                    executed=[*study().blocks[:4], study().blocks[4][:3]],
                    block_numbers=[],
                    points={c: c[-2:] for c in b.CELLS},
                ),
                "block 5 holds some but not all",
            ),
            "a cell comes back": (
                study(
                    blocks=[FEWER[0], FEWER[-1], *FEWER[1:3]],
                    executed=[FEWER[0], FEWER[-1], *FEWER[1:3]],
                    block_numbers=[],
                    points={c: c[-2:] for c in b.CELLS},
                ),
                "left out",
            ),
            "cells left out of all blocks": (study(n_cells=5), "4 cells, the study has 5"),
            "run in another order": (
                study(executed=[study().blocks[0][::-1], *study().blocks[1:]]),
                "block 1 was not run in the planned order",
            ),
            "middle block cut short": (study(executed=[study().blocks[0][:2], *study().blocks[1:]]), "block 1"),
            "a block was not run": (study(executed=study().blocks[:-1]), "5 blocks were planned, 4 were run"),
        },
        {
            "no blocks": study(blocks=[], executed=[]),
            "no seed": study(seed=None),
            "numbers do not fit": study(block_numbers=[1]),
        },
    ),
    "C6": Case(
        {"no alarm": study(), "one of twelve": study(aa_decisions=["faster"] + ["undecided"] * 11)},
        {"three of twelve": (study(aa_decisions=["faster", "slower", "slower"] + ["undecided"] * 9), "3 of 12")},
        {"no pair": study(aa_decisions=[]), "unheard-of decision": study(aa_decisions=["different"])},
    ),
    "C7": Case(
        {"shown": study(), "one candidate is dead": _with(3, **DEAD)},
        {
            "relative only": (_with(1, a_absolute=None), "1 comparisons have no absolute figures"),
            "zero": (_with(1, b_absolute=0.0), "no absolute figures"),
            "no null target": (study(has_null=False, floors={}), "no null target"),
        },
        {"no floor at a point": study(floors={"p0": 1e9}), "nothing compared": NO_COMPARISON},
    ),
    "C8": Case(
        {"geometric": study(), "none": study(aggregates=[]), "none, said": study(aggregates=[AggregateView("none")])},
        {
            "arithmetic": (study(aggregates=[AggregateView("arithmetic-mean", [1.0, 4.0], 2.5)]), "by arithmetic-mean"),
            "called geometric": (
                study(aggregates=[AggregateView("geometric-mean", [1.0, 4.0], 2.5)]),
                "shown as 2.5, recomputed 2",
            ),
        },
        {
            "not recorded": study(aggregates=None),
            "scores not given": study(aggregates=[AggregateView("geometric-mean", [], 2.0)]),
            "a score of zero": study(aggregates=[AggregateView("geometric-mean", [0.0, 1.0], 0.0)]),
        },
    ),
    "C9": Case(
        {
            "all shown": study(),
            "against one candidate": study(
                tables=[
                    TableView("against xfs", {"faster": 1, "equivalent": 1}, "xfs"),
                    TableView("against ext4", {"faster": 1, "slower": 1, "equivalent": 1, "undecided": 1}, "ext4"),
                    TableView("against nobody", {}, "zfs"),
                ]
            ),
        },
        {
            "losses left out": (
                study(tables=[TableView("verdict", {"faster": 1, "equivalent": 1, "undecided": 1})]),
                "0 slower",
            ),
            "second table": (
                study(tables=[*(study().tables or []), TableView("page one", {"faster": 1})]),
                "'page one'",
            ),
            "turned the wrong way": (
                study(tables=[TableView("against btrfs", {"faster": 1, "undecided": 1}, "btrfs")]),
                "shows 1 faster, there are 0",
            ),
            "a word that is no decision": (
                study(tables=[TableView("verdict", {**(study().tables or [])[0].rows, "better": 1})]),
                "1 better, there are 0",
            ),
        },
        {"not counted": study(tables=None), "nothing compared": NO_COMPARISON},
    ),
}
