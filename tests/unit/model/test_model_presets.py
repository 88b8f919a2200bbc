"""The presets are the papers' tables: numbers typed from the papers, not from the presets."""

from __future__ import annotations

from importlib.resources import files

import pytest

from assay.model.plan import Plan, make_plan
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


def preset(name: str) -> Study:
    return load_study(files("assay").joinpath("presets", f"{name}.yaml").read_text(), name)


def plan(name: str, scale: float = 1.0) -> Plan:
    return make_plan(preset(name), study_id="s", seed=1, scale=scale, memory_bytes=1 << 33)


@pytest.mark.parametrize("name", PAPERS)
def test_points_are_the_table_of_the_paper(name: str) -> None:
    paper = PAPERS[name]
    points = [p.point for p in plan(name).points]
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


@pytest.mark.parametrize("name", [*PAPERS, "local-quick"])
def test_every_preset_has_its_controls_and_can_be_scaled(name: str) -> None:
    roles = [c.role for c in plan(name).candidates]
    assert "twin" in roles
    assert "null" in roles
    small, whole = plan(name, 0.01), plan(name)
    assert len(small.points) == len(whole.points)
    assert small.scale == 0.01
    for s, w in zip(small.points, whole.points, strict=True):
        assert s.point.size < w.point.size
        assert s.point.runtime < w.point.runtime


def test_no_preset_is_forgotten_here() -> None:
    there = {f.name.removesuffix(".yaml") for f in files("assay").joinpath("presets").iterdir() if ".yaml" in f.name}
    assert there == {*PAPERS, "local-quick"}
