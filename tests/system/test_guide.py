"""What the guide "Add a file system in a day" says is done here: its commands, its adapter, its subject, the contract."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType

import contract_helpers
import pytest
import test_contract
from contract_helpers import LAB, Subject
from lab_helpers import nothing_left

from assay.lab.registry import clean
from assay.model.source import load_study
from assay.systems import catalogue
from assay.systems.base import AdapterError
from assay.systems.requirements import missing

ROOT = Path(__file__).parents[2]
GUIDE = (ROOT / "docs" / "guide-add-a-file-system.md").read_text()
pytestmark = [pytest.mark.root, pytest.mark.slow, pytest.mark.skipif(os.geteuid() != 0, reason="needs root")]


def blocks(language: str) -> list[str]:
    """Code blocks of the guide, in order."""
    return re.findall(rf"^```{re.escape(language)}\n(.*?)^```$", GUIDE, re.MULTILINE | re.DOTALL)


@pytest.fixture(scope="module")
def adapter() -> Iterator[ModuleType]:
    """The adapter of the guide, registered as it says."""
    module = ModuleType("assay.systems.samba")
    exec(compile("\n".join(blocks("python")), "docs/guide-add-a-file-system.md", "exec"), module.__dict__)
    sys.modules[module.__name__] = module
    catalogue.SYSTEMS["samba"] = module.SambaSystem
    yield module
    del catalogue.SYSTEMS["samba"], sys.modules[module.__name__]


@pytest.fixture
def subject(adapter: ModuleType) -> Iterator[Subject]:
    """The subject of the guide, in the table as it says."""
    if lacking := missing(adapter.SambaSystem.requirements):
        pytest.skip("; ".join(f"no {r.name} here: {r.remedy}" for r in lacking))
    (line,) = blocks("python subject")
    made: Subject = eval(line, {"Subject": Subject})
    contract_helpers.SUBJECTS.append(made)
    yield made
    contract_helpers.SUBJECTS.remove(made)


@pytest.fixture
def home(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path))
    yield tmp_path
    for lab in (LAB, "try"):
        clean(lab)
    assert nothing_left(tmp_path)


@pytest.mark.usefixtures("home")
def test_the_commands(subject: Subject) -> None:
    install, commands = blocks("bash")
    assert {r.remedy.split()[-1] for r in subject.requirements} <= set(install.split())
    environment = os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    done = subprocess.run(
        ["bash", "-e", "-c", commands], env=environment, capture_output=True, text=True, check=False, timeout=300
    )
    assert done.returncode == 0, done.stderr
    assert re.search(r"^/run/b/1\s+xfs$", done.stdout, re.MULTILINE)
    assert "Version " in done.stdout
    assert re.search(r"^10\.77\.0\.11\s+s1$", done.stdout, re.MULTILINE)


@pytest.mark.parametrize("promise", [
    test_contract.test_cycles_leave_nothing_and_are_alike,
    test_contract.test_nothing_to_undo_is_no_error,
    test_contract.test_kill_9_at_any_moment_leaves_nothing_after_clean,
    test_contract.test_what_it_claims_it_can_works,
], ids=lambda promise: promise.__name__)  # fmt: skip
def test_the_contract(home: Path, subject: Subject, promise: object) -> None:
    assert callable(promise)
    promise(subject, home)


def test_what_is_refused(subject: Subject) -> None:
    test_contract.test_tuning_and_layouts_that_it_does_not_have_are_refused(subject)
    two = subject.shape().model_copy(update={"hosts": 2})
    with pytest.raises(AdapterError, match=r"^samba/single has one server; set lab\.hosts to 1$"):
        catalogue.check_candidate("samba/single", None, two, 1 << 20)
    with pytest.raises(AdapterError, match="the data set does not fit"):
        catalogue.check_candidate("samba/single", None, subject.shape(), 1 << 40)


@pytest.mark.usefixtures("adapter")
def test_the_study() -> None:
    (text,) = blocks("yaml")
    study = load_study(text, "the guide")
    assert {c.system for c in study.candidates} == {"local/xfs", "samba/single"}


@pytest.mark.parametrize("arguments", [["check"], ["format", "--check", "--diff"]], ids=["check", "format"])
def test_the_adapter_is_as_clean_as_the_others(arguments: list[str]) -> None:
    argv = [sys.executable, "-m", "ruff", *arguments, "--stdin-filename", "src/assay/systems/samba.py", "-"]
    code = "\n".join(blocks("python"))
    done = subprocess.run(argv, input=code, capture_output=True, text=True, check=False, cwd=ROOT)
    assert done.returncode == 0, done.stdout + done.stderr


def test_it_names_what_exists() -> None:
    """Classes and files that the guide sends its readers to."""
    source = "\n".join(path.read_text() for path in (ROOT / "src" / "assay").rglob("*.py"))
    for name in re.findall(r"`([A-Z][a-z]+[A-Z][A-Za-z]+)`", GUIDE):
        assert re.search(rf"^class {name}\b", source, re.MULTILINE), name
    for path in re.findall(r"`(?:src/assay/)?((?:systems|model|tests)/[\w/]+\.py)`", GUIDE):
        there = (ROOT / path).exists() or (ROOT / "src" / "assay" / path).exists()
        assert there or path == "systems/samba.py", path
