"""Operations on names on a real directory."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assay.lab.host import LocalHost
from assay.model import histogram
from assay.model.point import MetadataPoint
from assay.workloads.base import Target, WorkloadError
from assay.workloads.metadata import MetadataWorkload


@pytest.fixture
def host() -> Iterator[LocalHost]:
    host = LocalHost()
    yield host
    host.close()


def point(operation: str, **given: Any) -> MetadataPoint:
    return MetadataPoint.model_validate({"operation": operation, "files": 40, "threads": 2, "clients": 2} | given)


@pytest.mark.parametrize(("operation", "direction", "operations", "names"), [
    ("create", "write", 80, "f"),
    ("stat", "read", 80, "f"),
    ("rename", "write", 80, "r"),
    ("readdir", "read", 200, "f"),
    ("unlink", "write", 80, ""),
])  # fmt: skip
def test_every_operation(
    operation: str, direction: Any, operations: int, names: str, tmp_path: Path, host: LocalHost
) -> None:
    target, workload = Target(tmp_path), MetadataWorkload(point(operation))
    assert workload.prepare(target, [host, host], 1, 60.0) == 0
    workload.stage(target, [host, host], 1, 60.0)
    workload.run(target, [host, host], seed=1, scratch=tmp_path, deadline_seconds=60.0)
    workload.stage(target, [host, host], 1, 60.0)  # an attempt does not see the one before
    result = workload.run(target, [host, host], seed=1, scratch=tmp_path, deadline_seconds=60.0)
    files = [file.name for client in range(2) for file in (tmp_path / "assay-names" / f"c{client}").glob("t*/*")]
    assert len(files) == (160 if names else 0)
    assert {name[0] for name in files} == set(names)
    for client, samples, artefact in zip(result.clients, result.samples, result.artefacts, strict=True):
        total = client.totals[direction]
        assert (client.exit_code, total.bytes, total.operations) == (0, 0, operations)
        latencies = np.frombuffer(artefact.content, "<u8")
        assert histogram.count(samples.histograms[direction]) == latencies.size == operations
        assert total.latency_mean_seconds == pytest.approx(latencies.mean() * 1e-9)
        assert len(client.job_runtimes_seconds) == 2
        assert total.runtime_seconds == max(client.job_runtimes_seconds)
        assert 0 < client.system_cpu_share <= 1.01


def test_what_fails_is_named(tmp_path: Path, host: LocalHost) -> None:
    workload = MetadataWorkload(point("unlink", clients=1))
    workload.stage(Target(tmp_path), [host], 1, 60.0)
    (tmp_path / "assay-names" / "c0" / "t1" / "f00000007").unlink()
    (client,) = workload.run(Target(tmp_path), [host], seed=1, scratch=tmp_path, deadline_seconds=60.0).clients
    assert (client.exit_code, client.errors) == (1, {"ENOENT": 1})
    assert client.message == "unlink: ENOENT"
    assert client.totals["write"].operations == 47


def test_without_a_file_system(host: LocalHost) -> None:
    with pytest.raises(WorkloadError, match="need a mounted file system"):
        MetadataWorkload(point("stat")).prepare(Target(None), [host], 1, 60.0)
