"""Bounds of cells: from the evidence, per direction, and nothing where nothing is known."""

from __future__ import annotations

import dataclasses
import math
import sys
from pathlib import Path
from typing import Any

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "report"))

from synthetic import LINK, lab_spec, study_data  # pyright: ignore[reportMissingImports]

from assay.campaign.analysis import analyse
from assay.campaign.bounds import bounds_of, cell_bound, layout_of
from assay.model.baseline import Bound

BOUND = Bound(total_bytes_per_second=80.0, read_limit="client in", write_limit="client out", enforced=True)


def test_layouts_are_read_from_the_candidate() -> None:
    assert str(layout_of("glusterfs/rain-4-2")) == "rain-4-2"
    assert str(layout_of("glusterfs/replicated-3/shard")) == "replicated-3"
    for none in ("local/xfs", "null", "tmpfs", "path:/mnt/distributed", "path:a/distributed"):
        assert layout_of(none) is None


@pytest.mark.parametrize(
    ("pattern", "reason"),
    [("randread", "client in"), ("write", "client out"), ("rw", "client in; client out")],
)
def test_the_reason_is_that_of_the_direction(pattern: str, reason: str) -> None:
    found = cell_bound(BOUND, {"pattern": pattern})
    assert found is not None
    assert found.bytes_per_second == 80.0
    assert (found.reason, found.enforced) == (reason, True)
    assert found.share(40.0) == pytest.approx(0.5)
    assert found.share(math.nan) is None


def test_no_bound_without_a_figure() -> None:
    assert cell_bound(None, {"pattern": "read"}) is None
    assert cell_bound(Bound(), {"pattern": "write"}) is None


def test_bounds_of_a_study_and_its_sentence() -> None:
    data = study_data(lab_spec())
    bounds = bounds_of(data)
    points = {w.id: w.point for w in data.workloads}
    # bytes through the client's link per byte written; Ceph's primary sends the fragments
    overhead = {"glusterfs/distributed": 1, "glusterfs/replicated-3": 3, "glusterfs/rain-4-2": 1.5, "ceph/rain-4-2": 1}
    for cell in data.cells:
        label = cell.candidate.removesuffix(" (A/A)")
        if label not in overhead:
            assert cell.id not in bounds
            continue
        if label != "ceph/rain-4-2" or points[cell.workload_id]["threads"] > 1:
            wanted = LINK / (overhead[label] if points[cell.workload_id]["pattern"] == "write" else 1)
            assert bounds[cell.id].bytes_per_second == pytest.approx(wanted)
    analysis = analyse(data)
    assert dict(analysis.bounds) == bounds
    (sentence,) = [s for s in analysis.sentences if s.startswith("Limited by the network")]
    for label in overhead:
        cells = [c for c in analysis.cells if c.candidate == label]
        near = sum(c.interval.estimate >= 0.9 * bounds[c.cell_id].bytes_per_second for c in cells)
        assert near > 0
        assert f"{label} on {near} of 8 points" in sentence


def test_a_study_without_layouts_reads_no_evidence() -> None:
    def never(attempt: str) -> Any:
        raise AssertionError(attempt)

    data = dataclasses.replace(study_data(lab_spec(candidates=("local/xfs",))), evidence=never)
    assert bounds_of(data) == {}
