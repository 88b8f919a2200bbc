"""Real XtreemFS services on namespaces, where an installation is given: what the contract tests do not ask of every system."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from contract_helpers import LAB, Subject, mounted, write, wrong
from lab_helpers import nothing_left

from assay.lab.mounts import ANSWER_SECONDS
from assay.lab.registry import clean
from assay.systems.requirements import first_missing, programs_directory
from assay.systems.xtreemfs import XtreemSystem
from assay.systems.xtreemfs_config import osds_of
from assay.workloads import integrity

LACKING = first_missing(XtreemSystem.requirements)
pytestmark = [
    pytest.mark.root,
    pytest.mark.slow,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root"),
    pytest.mark.skipif(LACKING is not None, reason=str(LACKING)),
]


@pytest.fixture(autouse=True)
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("ASSAY_SYSTEMS", str(programs_directory()))
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield tmp_path
    clean(LAB)
    assert nothing_left(tmp_path)


@pytest.mark.parametrize(("layout", "hosts", "replicas", "stripes"), [
    ("distributed", 2, 1, 1),
    ("striped-2", 2, 1, 2),
    ("replicated-3", 3, 3, 1),
])  # fmt: skip
def test_files_lie_where_the_layout_says(layout: str, hosts: int, replicas: int, stripes: int, home: Path) -> None:
    with mounted(Subject(f"xtreemfs/{layout}", hosts), home) as system:
        assert isinstance(system, XtreemSystem)
        assert system.directory is not None
        write(system)
        assert wrong(system) == []
        file = str(system.directory / integrity.DIRECTORY / "f0007")
        said = system.client.call(os.getxattr, file, "xtreemfs.locations", timeout_seconds=ANSWER_SECONDS)
        osds = osds_of(said.decode())
        assert [len(each) for each in osds] == [stripes] * replicas
        assert len({osd for each in osds for osd in each}) == stripes * replicas, "each part on a host of its own"
        assert system.health()[0] is True
