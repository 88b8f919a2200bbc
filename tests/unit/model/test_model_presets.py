"""The presets are the papers' tables: numbers typed from the papers, not from the presets."""

from __future__ import annotations

from importlib.resources import files

import pytest

from assay.model.plan import Plan, make_plan
from assay.model.point import DdPoint, FioPoint
from assay.model.source import load_study
from assay.model.study import Study

K = 1024  # fio 3.7 with its default kb_base reads "4k" as 4096 bytes
PAPERS = {
    # Lee et al. 2021, Table 7 and section 4: "180 s using the libaio I/O engine"
    "kisti-2021": {
        "block_size": [4, 128, 1024],
        "size": 1 * 10**9,
        "threads": [1, 2, 4, 8],
    },
    # Kim et al. 2023, Table 4
    "kisti-2023": {
        "block_size": [4, 16, 32, 64, 128, 256, 512, 1024],
        "size": 6 * 10**9,
        "threads": [1, 2, 4, 8, 16, 32, 64, 128],
    },
}


QUICK = ["local-quick", "glusterfs-quick"]
FILES = ["dss-2012"]


def preset(name: str) -> Study:
    return load_study(files("assay").joinpath("presets", f"{name}.yaml").read_text(), name)


def plan(name: str, scale: float = 1.0) -> Plan:
    return make_plan(preset(name), study_id="s", seed=1, scale=scale, memory_bytes=1 << 33)


@pytest.mark.parametrize("name", PAPERS)
def test_points_are_the_table_of_the_paper(name: str) -> None:
    paper = PAPERS[name]
    points = [p.point for p in plan(name).points if isinstance(p.point, FioPoint)]
    patterns = ["read", "write", "randread", "randwrite"]
    wanted = {(p, b * K, t) for p in patterns for b in paper["block_size"] for t in paper["threads"]}
    assert len(points) == len(wanted)
    assert {(p.pattern, p.block_size, p.threads) for p in points} == wanted
    for p in points:
        assert (p.iodepth, p.engine, p.size, p.runtime, p.ramp) == (32, "libaio", paper["size"], 180.0, 0.0)
        # fio's defaults wherever the paper says nothing
        assert (p.direct, p.cache, p.fsync, p.fdatasync, p.end_fsync) == (False, "any", 0, 0, False)
        assert (p.rate, p.clients, p.verify, p.options) == (None, 1, "none", {})
        assert p.time_based, "180 s is a runtime, not a limit"


@pytest.mark.parametrize("name", [*PAPERS, *QUICK, *FILES])
def test_every_preset_has_its_controls_and_can_be_scaled(name: str) -> None:
    roles = [c.role for c in plan(name).candidates]
    assert "twin" in roles
    assert "null" in roles
    small, whole = plan(name, 0.01), plan(name)
    assert small.scale == 0.01
    if name in FILES:  # files of 1 MiB are not made smaller, and scaled ones may meet
        return
    assert len(small.points) == len(whole.points)
    for s, w in zip(small.points, whole.points, strict=True):
        assert s.point.dataset_bytes < w.point.dataset_bytes
        assert s.point.expected_seconds < w.point.expected_seconds


def test_dss_2012_is_the_papers_dd_experiment() -> None:
    points = [p.point for p in plan("dss-2012").points if isinstance(p.point, DdPoint)]
    mib, gib = 1 << 20, 1 << 30
    sizes = [mib, 10 * mib, 100 * mib, gib, 2 * gib, 3 * gib]  # Tables III and IV
    assert {(p.size, p.content) for p in points if p.writes} == {(s, c) for s in sizes for c in ("random", "zeros")}
    assert {(p.size, p.content) for p in points if p.reads} == {(s, c) for s in sizes[:3] for c in ("random", "zeros")}
    assert {p.block_size for p in points} == {1024}


def test_no_preset_is_forgotten_here() -> None:
    there = {f.name.removesuffix(".yaml") for f in files("assay").joinpath("presets").iterdir() if ".yaml" in f.name}
    assert there == {*PAPERS, *QUICK, *FILES}


@pytest.mark.parametrize(("name", "gigabits"), [("kisti-2021", 1), ("kisti-2023", 10), ("glusterfs-quick", 1)])
def test_labs_stand_for_those_of_the_papers(name: str, gigabits: int) -> None:
    lab = preset(name).lab
    # three servers with two volumes each, one host per volume here; link of each server in Tables 3 (2021) and 1 (2023)
    assert (lab.hosts, lab.disk.per_host) == (6, 1)
    assert lab.network.bandwidth == gigabits * 10**9 // 8


@pytest.mark.parametrize("name", PAPERS)
def test_the_papers_studies_take_candidates_of_a_lab(name: str) -> None:
    from assay.cli.running import _with_candidates

    names = "glusterfs/distributed,glusterfs/replicated-3,glusterfs/rain-4-2,local/xfs"
    study = _with_candidates(preset(name), [names])
    assert [c.system for c in study.candidates] == names.split(",")
    assert study.lab == preset(name).lab
    assert study.workloads == preset(name).workloads
    scaled = make_plan(study, study_id="s", seed=1, scale=0.01, memory_bytes=1 << 33)
    assert len(scaled.points) == len(plan(name).points)


def test_the_demonstration_fits_its_time_and_uses_all_hosts() -> None:
    study = preset("glusterfs-quick")
    made = plan("glusterfs-quick")
    assert [c.system for c in study.candidates if c.system.startswith("glusterfs/")] == [
        "glusterfs/distributed",
        "glusterfs/replicated-3",
        "glusterfs/rain-4-2",
    ]
    assert max(p.point.threads for p in made.points) > study.lab.hosts  # a file lies on one brick
    assert all(p.point.cache == "cold" for p in made.points)
    assert max(p.point.dataset_bytes for p in made.points) <= 256 << 20
    assert study.measure.budget is not None
    assert study.measure.budget <= 360  # and a minute for baselines and deployments, seconds for the report
