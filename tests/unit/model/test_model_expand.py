"""Points of every kind: their axes, names, scaling, and what is refused."""

from __future__ import annotations

from typing import Any

import pytest

from assay.model.expand import PlanError
from assay.model.plan import Plan, dataset_bytes, make_plan
from assay.model.point import DdPoint, IozonePoint, MetadataPoint, parse_point
from assay.model.study import Study

MIB = 1 << 20


def plan(workloads: list[dict[str, Any]], scale: float = 1.0, metric: str = "iops") -> Plan:
    study = Study.model_validate(
        {"study": "x", "candidates": ["path:/tmp"], "workloads": workloads, "measure": {"metric": metric}}
    )
    return make_plan(study, study_id="x", seed=1, scale=scale, memory_bytes=1 << 30)


def test_dd_as_in_paper_002() -> None:
    made = plan([{"dd": {"size": ["1MiB", "3GiB"], "content": ["random", "zeros"]}}])
    points = [p.point for p in made.points if isinstance(p.point, DdPoint)]
    assert [(p.direction, p.size, p.content, p.block_size) for p in points] == [
        (d, s, c, 1024) for d in ("write", "read") for s in (MIB, 3 << 30) for c in ("random", "zeros")
    ]
    assert {(p.fsync, p.cache) for p in points if p.writes} == {(True, "any")}
    assert {(p.fsync, p.cache) for p in points if p.reads} == {(False, "cold")}
    assert made.points[0].name == "dd write 1MiB random"
    # four files that are read stay, one that is written passes
    assert dataset_bytes(made) == 2 * (MIB + (3 << 30)) + (3 << 30)


def test_what_has_no_meaning_makes_no_second_point() -> None:
    made = plan([{"dd": {"direction": "read", "size": "1MiB", "fsync": [True, False]}}])
    assert len(made.points) == 1


def test_names_and_iozone() -> None:
    made = plan([
        {"metadata": {"files": [10, 1000], "threads": 4, "clients": 2, "degraded": {"hosts": 1}}},
        {"iozone": {"size": "64MiB", "threads": [1, 2]}, "name": "old friend"},
    ], metric="latency-mean")  # fmt: skip
    names = [p.name for p in made.points]
    assert names[:2] == ["create 10 files 4 thr 1 hosts down", "create 1000 files 4 thr 1 hosts down"]
    assert "old friend iozone randwrite 1MiB 2 thr" in names
    assert len(set(names)) == len(names) == 5 * 2 + 4 * 2
    point = made.points[0].point
    assert isinstance(point, MetadataPoint)
    assert (point.dataset_bytes, point.moves_data, point.writes) == (0, False, True)
    assert isinstance(made.points[-1].point, IozonePoint)


def test_points_survive_json() -> None:
    for planned in plan([{"dd": {"size": "1MiB"}}, {"metadata": {}}, {"iozone": {}}]).points:
        assert parse_point(planned.point.model_dump(mode="json")) == planned.point


def test_scaled() -> None:
    made = plan([{"dd": {"size": ["3GiB", "1MiB"]}}, {"metadata": {"files": 1000}}, {"iozone": {"size": "1GiB"}}], 0.01)
    sizes = {p.point.size for p in made.points if isinstance(p.point, DdPoint)}
    assert sizes == {31 * MIB, MIB}
    assert {p.point.files for p in made.points if isinstance(p.point, MetadataPoint)} == {10}
    assert {p.point.size for p in made.points if isinstance(p.point, IozonePoint)} == {10 * MIB}


@pytest.mark.parametrize(("workload", "metric", "words"), [
    ({"dd": {"size": "1000B"}}, "iops", "size 1kB is no multiple of block_size 1KiB"),
    ({"iozone": {"size": "64KiB", "record": "1MiB"}}, "iops", "is smaller than record"),
    ({"metadata": {}}, "bandwidth", "metadata moves no data, so it has no bandwidth; set measure.metric"),
])  # fmt: skip
def test_refused(workload: dict[str, Any], metric: str, words: str) -> None:
    with pytest.raises(PlanError, match=words):
        plan([workload], metric=metric)


def test_one_kind_each() -> None:
    with pytest.raises(ValueError, match="a workload has one kind, not dd and metadata"):
        plan([{"dd": {"size": "1MiB"}, "metadata": {}}])
    with pytest.raises(ValueError, match="known: fio, dd, iozone, metadata"):
        plan([{"name": "nothing"}])
