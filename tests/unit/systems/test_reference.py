"""The page of systems is what the code offers, and every adapter says what its layouts and tuning keys mean."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assay.cli.main import app
from assay.systems.base import CAPABILITIES, SystemAdapter
from assay.systems.catalogue import SYSTEMS
from assay.systems.reference import capability_meanings, entries, reference

ROOT = Path(__file__).parents[3]
adapters = pytest.mark.parametrize("adapter", SYSTEMS.values(), ids=SYSTEMS.keys())


def test_the_page_is_the_code() -> None:
    assert (ROOT / "docs" / "systems.md").read_text() == reference(), (
        "run: python -m assay.systems.reference > docs/systems.md"
    )


@adapters
def test_layouts_and_tuning_are_described(adapter: type[SystemAdapter]) -> None:
    assert adapter.layouts
    for described in (adapter.layouts, adapter.tunables):
        for key, meaning in described.items():
            assert meaning.strip() == meaning != "", key
            assert "\n" not in meaning


@adapters
def test_the_core_is_all_there(adapter: type[SystemAdapter]) -> None:
    for name in ("preflight", "deploy", "mount", "unmount", "destroy", "facts"):
        assert callable(getattr(adapter, name)), name
    assert isinstance(adapter.needs_hosts, bool)
    assert adapter.__doc__


def test_capabilities_are_described() -> None:
    meanings = capability_meanings()
    assert list(meanings) == list(CAPABILITIES)
    assert all(meanings.values())


def test_the_command() -> None:
    run = CliRunner().invoke
    found = json.loads(run(app, ["systems", "--json"]).output)
    assert [entry["system"] for entry in found] == list(SYSTEMS)
    assert {entry.system: entry.capabilities for entry in entries()} == {e["system"]: e["capabilities"] for e in found}
    (gluster,) = json.loads(run(app, ["systems", "glusterfs", "--json"]).output)
    assert gluster["runs_on"] == "hosts of a lab"
    assert gluster["existing_mounts"] is True
    assert "rain-K-M" in gluster["layouts"]
    table = run(app, ["systems"], env={"COLUMNS": "300"}).output
    assert all(system in table for system in SYSTEMS)
    one = run(app, ["systems", "glusterfs"], env={"COLUMNS": "300"}).output
    assert "glusterfs/rain-K-M" in one
    assert "split files into shards" in one
    assert run(app, ["systems", "zfs"]).exit_code != 0
