"""The plan: the full product, each cell once, names that tell points apart, and block orders nobody could have picked."""

from __future__ import annotations

import itertools
import math
from collections import Counter

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy.stats import chi2

from assay.model.plan import (
    MIB,
    Plan,
    PlanError,
    block_order,
    dataset_bytes,
    declaration_hash,
    disk_for,
    estimate,
    make_plan,
)
from assay.model.point import FioPoint
from assay.model.study import Study

GIB = 1 << 30


def fio(p: Plan) -> list[FioPoint]:
    """The points of a plan that has fio's only."""
    return [x.point for x in p.points if isinstance(x.point, FioPoint)]


def study(*fio: dict[str, object], candidates: object = ("local/xfs", "local/ext4"), **measure: object) -> Study:
    base = {"pattern": "read", "block_size": "4KiB", "size": "16MiB", "runtime": "2s"}
    workloads = [{"fio": {**base, **f}} for f in (fio or ({},))]
    return Study.model_validate(
        {"study": "s", "candidates": list(candidates), "workloads": workloads, "measure": measure}  # type: ignore[call-overload]
    )


def plan(declared: Study, *, scale: float = 1.0, seed: int = 7, study_id: str = "abc", memory: int = 8 * GIB) -> Plan:
    return make_plan(declared, study_id=study_id, seed=seed, scale=scale, memory_bytes=memory)


def test_cells_are_the_product_of_candidates_and_axes() -> None:
    p = plan(study({"pattern": ["read", "write"], "block_size": ["4KiB", "1MiB"], "threads": [1, 2, 4]}))
    assert [c.label for c in p.candidates] == ["local/xfs", "local/ext4", "local/xfs (A/A)", "null"]
    wanted = set(itertools.product(["read", "write"], [4096, MIB], [1, 2, 4]))
    assert {(x.pattern, x.block_size, x.threads) for x in fio(p)} == wanted
    assert len(p.points) == 12
    assert set(p.cells.values()) == {(c.label, x.id) for c in p.candidates for x in p.points}
    assert len(p.cells) == 48


def test_the_same_study_gives_the_same_plan_and_another_id_other_cells() -> None:
    declared = study({"threads": [1, 2]})
    assert plan(declared) == plan(declared)
    assert not set(plan(declared).cells) & set(plan(declared, study_id="abd").cells)
    assert [x.id for x in plan(declared).points] == [x.id for x in plan(declared, study_id="abd", seed=8).points]


def test_twin_shares_or_owns_its_deployment_and_never_is_first() -> None:
    shared, own, none = (plan(study(aa=aa)).candidates for aa in ("shared", "own", "none"))
    twin = shared[2]
    assert (twin.role, twin.twin_of, twin.deployment, twin.system) == ("twin", "local/xfs", "local/xfs", "local/xfs")
    assert own[2].deployment == "local/xfs (A/A)"
    assert [c.role for c in none] == ["subject", "subject", "null"]


def test_floors_are_no_subjects_and_get_no_twin() -> None:
    p = plan(study(candidates=["tmpfs", "null", "local/ext4"]))
    assert [(c.label, c.role) for c in p.candidates] == [
        ("tmpfs", "floor"), ("null", "null"), ("local/ext4", "subject"), ("local/ext4 (A/A)", "twin"),
    ]  # fmt: skip
    assert p.candidate("local/ext4 (A/A)").twin_of == "local/ext4"
    assert [c.role for c in plan(study(candidates=["tmpfs"], null_target=False)).candidates] == ["floor"]


def test_tuning_is_an_axis_and_only_what_varies_is_in_the_label() -> None:
    tuned = {"system": "local/xfs", "tuning": {"mount": ["noatime", "relatime"], "mkfs": "-m reflink=0"}}
    p = plan(study(candidates=[tuned], aa="none", null_target=False))
    assert [c.label for c in p.candidates] == ["local/xfs mount=noatime", "local/xfs mount=relatime"]
    assert [c.tuning for c in p.candidates] == [{"mount": m, "mkfs": "-m reflink=0"} for m in ("noatime", "relatime")]


@pytest.mark.parametrize(
    "candidates", [["local/xfs", "local/xfs"], ["local/xfs", {"system": "local/ext4", "label": "local/xfs (A/A)"}], [{"system": "local/xfs", "label": "null"}]]
)  # fmt: skip
def test_two_candidates_of_one_name_are_refused(candidates: list[object]) -> None:
    with pytest.raises(PlanError, match=r"two candidates are called .*another label"):
        plan(study(candidates=candidates))


def test_names_fit_the_columns_of_the_ledger() -> None:
    for candidates in (
        [{"system": "local/xfs", "tuning": {"mkfs": ["x" * 150, "y"]}}],
        ["path:/" + "d" * 130],
    ):
        with pytest.raises(PlanError, match=r"longer than 120 characters.*label"):
            plan(study(candidates=candidates))
    with pytest.raises(PlanError, match="longer than 200 characters"):
        plan(study({"options": {"filename_format": ["x" * 250, "y"]}}))


def test_no_two_points_share_a_name() -> None:
    p = plan(
        study(
            {},
            {"runtime": "3s"},
            {"runtime": "3s", "size": "32MiB"},
            {"engine": "psync"},
            {"ramp": "1s"},
            {"time_based": False},
            {"options": {"sync": 1}},
            {"options": {"sync": 2}},
            {"threads": 2},
            {"pattern": "write"},
            {"pattern": "write", "end_fsync": False},
            {"pattern": "write", "rate": "1MB/s"},
        )
    )
    assert len(p.points) == 12
    assert len({x.name for x in p.points}) == 12
    alone = plan(study({"runtime": ["2s", "3s"]}))
    assert [x.name for x in alone.points] == ["read 4KiB 1 thr 2 s", "read 4KiB 1 thr 3 s"]


def test_what_means_nothing_to_a_pattern_makes_no_second_point() -> None:
    p = plan(study({"fsync": [0, 1], "fdatasync": [0, 1], "read_share": [0.3, 0.7]}))
    assert len(p.points) == 1
    assert not fio(p)[0].end_fsync
    assert len(plan(study({"fsync": [0, 1], "pattern": "write"})).points) == 2
    assert len(plan(study({"read_share": [0.3, 0.7], "pattern": "randrw"})).points) == 2
    with pytest.raises(PlanError, match=r"verify.*pattern that writes"):
        plan(study({"verify": "md5"}))


def test_two_workloads_naming_the_same_point_run_it_once() -> None:
    assert len(plan(study({}, {"threads": [1, 2]})).points) == 2


def test_scale_shrinks_sizes_and_times_but_not_below_use() -> None:
    declared = study({"size": "1GiB", "runtime": "180s", "ramp": "10s", "block_size": ["4KiB", "1MiB"]})
    whole, tenth, tiny = (plan(declared, scale=s) for s in (1, 0.1, 1e-6))
    assert {(x.size, x.runtime, x.ramp) for x in fio(whole)} == {(GIB, 180.0, 10.0)}
    assert {(x.size, x.runtime, x.ramp) for x in fio(tenth)} == {(102 * MIB, 18.0, 1.0)}
    for x in fio(tiny):
        assert x.size >= 16 * x.block_size
        assert x.runtime == 0.5
    assert declaration_hash(declared, 1) != declaration_hash(declared, 0.1)
    for bad in (0, -1, math.nan, math.inf):
        with pytest.raises(PlanError, match="scale"):
            plan(declared, scale=bad)


def test_the_papers_gigabyte_is_not_rounded() -> None:
    assert fio(plan(study({"size": "1GB"})))[0].size == 10**9


@given(st.integers(1, 64), st.integers(1, 16), st.integers(1 << 28, 1 << 42), st.sampled_from([0.5, 1.5, 2.0]))
def test_multiples_of_memory_are_never_a_byte_short(threads: int, clients: int, memory: int, factor: float) -> None:
    declared = study({"size": f"{factor}xRAM", "threads": threads, "clients": clients}, null_target=False, aa="none")
    point = fio(plan(declared, memory=memory))[0]
    assert 0 <= point.dataset_bytes - factor * memory <= threads * clients * MIB
    assert point.size % MIB == 0


def test_a_file_shorter_than_a_block_is_refused() -> None:
    with pytest.raises(PlanError, match="size 16MiB is smaller than block_size 32MiB"):
        plan(study({"block_size": "32MiB"}))


def test_a_plan_of_millions_of_cells_is_refused_before_it_is_made() -> None:
    many: dict[str, object] = {
        "threads": list(range(1, 1001)),
        "iodepth": list(range(1, 1001)),
        "fsync": list(range(100)),
    }
    with pytest.raises(PlanError, match=r"100000000 workload points.*at most 100000"):
        plan(study(many))


def test_seed_and_budget_are_no_part_of_the_identity_but_all_else_is() -> None:
    base = declaration_hash(study(), 1)
    assert declaration_hash(study(budget="10min"), 1) == base
    for other in (study(half_width=0.1), study({"threads": 2}), study(aa="own"), study(candidates=["local/xfs"])):
        assert declaration_hash(other, 1) != base


@settings(max_examples=60)
@given(st.integers(0, 2**63 - 1), st.integers(1, 10**6), st.integers(1, 60))
def test_a_block_is_a_permutation_that_ignores_the_order_given(seed: int, number: int, n: int) -> None:
    p = Plan([], [], {}, seed, 1.0)
    cells = [f"c{i:02}" for i in range(n)]
    order = block_order(p, number, cells)
    assert sorted(order) == cells
    assert order == block_order(p, number, cells[::-1])


def test_the_order_of_a_stored_study_never_changes() -> None:
    """A study that is resumed by a later Assay must get the same blocks: this list may never be edited."""
    p = Plan([], [], {}, 42, 1.0)
    assert "".join(block_order(p, 1, list("abcdefgh"))) == "abfhgdec"
    assert "".join(block_order(p, 2, list("abcdefgh"))) == "gchdbaef"


@pytest.mark.parametrize("seed", [0, 1, 2**62])
def test_block_orders_are_uniform(seed: int) -> None:
    """Chi-square of position by cell and of successor by cell over 5,000 blocks, each at a level of 1e-4."""
    n, blocks = 6, 5000
    cells = [f"c{i}" for i in range(n)]
    p = Plan([], [], {}, seed, 1.0)
    positions: Counter[tuple[str, int]] = Counter()
    successors: Counter[tuple[str, str]] = Counter()
    for number in range(1, blocks + 1):
        order = block_order(p, number, cells)
        positions.update((cell, i) for i, cell in enumerate(order))
        successors.update(itertools.pairwise(order))
    expected = blocks / n
    statistic = sum((positions[c, i] - expected) ** 2 / expected for c in cells for i in range(n))
    assert statistic * (n - 1) / n < chi2.ppf(1 - 1e-4, (n - 1) ** 2)
    expected = blocks * (n - 1) / (n * (n - 1))
    statistic = sum((successors[a, b] - expected) ** 2 / expected for a in cells for b in cells if a != b)
    assert statistic < chi2.ppf(1 - 1e-4, n * (n - 1) - 1) * 1.2  # successors in one block are not independent


def test_data_sets_are_shared_by_points_and_counted_once() -> None:
    p = plan(study({"threads": [1, 4], "size": ["16MiB", "64MiB"]}, {"clients": 2, "size": "32MiB"}))
    # client 0: threads 0-3 of 64 MiB; client 1: one thread of 32 MiB
    assert dataset_bytes(p) == 4 * 64 * MIB + 32 * MIB
    disk = disk_for(study({"threads": [1, 4], "size": ["16MiB", "64MiB"]}), p)
    assert disk.size is not None
    assert disk.size >= dataset_bytes(p) * 1.5 + 512 * MIB


def test_estimate_adds_up() -> None:
    declared = study({"runtime": "10s", "ramp": "2s"}, blocks={"pilot": 3, "minimum": 3, "maximum": 10})
    cost = estimate(plan(declared), declared, per_attempt_seconds=0.5)
    # three cells on file systems at 12.5 s and the null target cut to a second
    assert cost["attempts_per_block"] == 4
    assert cost["block_seconds"] == pytest.approx(3 * 12.5 + 1.5)
    assert cost["pilot_seconds"] == pytest.approx(3 * cost["block_seconds"])
    assert cost["maximum_seconds"] == pytest.approx(10 * cost["block_seconds"])
    assert cost["dataset_bytes"] == 2 * 16 * MIB  # the twin shares its deployment


def test_degraded_is_an_axis_and_is_told_in_the_name() -> None:
    both = plan(study({"degraded": {"hosts": [0, 2]}}))
    assert [p.name for p in both.points] == ["read 4KiB 1 thr all hosts up", "read 4KiB 1 thr 2 hosts down"]
    assert [p.point.degraded_hosts for p in both.points] == [0, 2]
    assert plan(study({"degraded": {"hosts": 2}})).points[0].name == "read 4KiB 1 thr 2 hosts down"
    assert plan(study()).points[0].name == "read 4KiB 1 thr"


def test_somebody_must_be_left() -> None:
    with pytest.raises(PlanError, match="degraded: hosts: 6 leaves none of the lab's 6 storage hosts"):
        plan(study({"degraded": {"hosts": 6}}))


def test_an_existing_mount_goes_with_the_candidate_and_its_twin() -> None:
    planned = plan(study(candidates=({"system": "glusterfs/distributed", "mount": "/mnt/x"}, "local/xfs")))
    assert [c.mount for c in planned.candidates] == ["/mnt/x", None, "/mnt/x", None]
