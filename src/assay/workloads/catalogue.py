"""All workloads by the kind of their point."""

from __future__ import annotations

from assay.model.point import DdPoint, FioPoint, IozonePoint, MetadataPoint
from assay.workloads.base import Workload
from assay.workloads.dd import DdWorkload
from assay.workloads.fio import FioWorkload
from assay.workloads.iozone import IozoneWorkload
from assay.workloads.metadata import MetadataWorkload


def make_workload(point: FioPoint | DdPoint | IozonePoint | MetadataPoint) -> Workload:
    """The workload that carries a point out."""
    match point:
        case FioPoint():
            return FioWorkload(point)
        case DdPoint():
            return DdWorkload(point)
        case IozonePoint():
            return IozoneWorkload(point)
        case MetadataPoint():
            return MetadataWorkload(point)
