"""All workloads by the kind of their point."""

from __future__ import annotations

from assay.model.study import FioPoint
from assay.workloads.base import Workload
from assay.workloads.fio import FioWorkload


def make_workload(point: FioPoint) -> Workload:
    """The workload that carries a point out."""
    return FioWorkload(point)
