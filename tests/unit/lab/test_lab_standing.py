"""The note of a lab that stands: what is read is what was written, and damage is no lab."""

from __future__ import annotations

import json
import os
from dataclasses import replace
from pathlib import Path

import pytest

from assay.lab.devices import device_label
from assay.lab.kernel import boot_id, start_time
from assay.lab.standing import FILE, FirstProcess, Standing, StandingHost, read_standing, write_standing
from assay.model.lab import Lab

SELF = FirstProcess(os.getpid(), start_time(os.getpid()))
STANDING = Standing(
    boot_id(), SELF, [StandingHost("s1", "10.77.0.11", SELF, ["/sys/fs/cgroup/cpu/assay-x/lab-s1"])],
    Lab.model_validate({"hosts": 1, "network": {"bandwidth": "1Gbit"}}).model_dump(mode="json"),
    "glusterfs/distributed", ["c1:/run/mnt/assay"],
)  # fmt: skip


def test_what_is_read_is_what_was_written(tmp_path: Path) -> None:
    assert read_standing(tmp_path) is None
    write_standing(tmp_path, STANDING)
    found = read_standing(tmp_path)
    assert found == STANDING
    assert found is not None
    assert found.alive
    assert Lab.model_validate(found.shape).network.bandwidth == 125_000_000, "the shape can be read as a study's"


@pytest.mark.parametrize("text", ["", "{", "[]", "{}", '{"hosts": 1}', '{"hosts": [], "supervisor": {}}'])
def test_damage_is_no_lab(tmp_path: Path, text: str) -> None:
    (tmp_path / FILE).write_text(text)
    assert read_standing(tmp_path) is None


def test_an_unknown_field_is_no_lab(tmp_path: Path) -> None:
    write_standing(tmp_path, STANDING)
    found = json.loads((tmp_path / FILE).read_text())
    (tmp_path / FILE).write_text(json.dumps({**found, "later": 1}))
    assert read_standing(tmp_path) is None


def test_a_reused_process_id_is_another_process() -> None:
    assert not replace(STANDING, supervisor=FirstProcess(SELF.pid, SELF.started + 1)).alive
    assert not replace(STANDING, supervisor=FirstProcess(SELF.pid, 0)).alive
    assert not replace(STANDING, boot="an earlier one").alive


def test_the_label_of_a_labs_file_systems_fits_into_xfs() -> None:
    labels = {device_label(name) for name in ("mine", "yours", "0123456789ab", "é" * 32)}
    assert len(labels) == 4
    assert all(len(label) == 12 and label.startswith("assay") for label in labels)
