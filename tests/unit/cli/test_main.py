"""The command line itself: names, help, JSON, exit codes; what a command does is tested where it is done."""

from __future__ import annotations

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import typer.main
from typer.testing import CliRunner

from assay.cli.main import app
from assay.model.reference import reference
from assay.model.study import Study

ROOT = Path(__file__).parents[3]
HEAVY = ("scipy", "numpy", "polars", "sqlalchemy", "pydantic", "altair", "ruamel", "alembic")
GROUP = typer.main.get_command(app)


def _commands() -> list[tuple[str, ...]]:
    found: list[tuple[str, ...]] = []
    for name, command in sorted(GROUP.commands.items()):  # type: ignore[attr-defined]
        inner = getattr(command, "commands", None)
        found += [(name, sub) for sub in sorted(inner)] if inner else [(name,)]
    return found


def test_every_command_of_the_contract_is_there() -> None:
    assert {
        "doctor", "presets", "plan", "run", "quick", "status", "report", "compare", "check", "export", "import", "lab",
    } <= {c[0] for c in _commands()}  # fmt: skip
    assert {("lab", "list"), ("lab", "clean")} <= set(_commands())


@pytest.mark.parametrize("command", _commands(), ids=" ".join)
def test_help_has_an_example_that_is_this_command(command: tuple[str, ...]) -> None:
    result = CliRunner().invoke(app, [*command, "--help"])
    assert result.exit_code == 0
    assert f"Example: assay {' '.join(command)}" in re.sub(r"\s+", " ", result.output)


def test_help_loads_nothing_heavy() -> None:
    """Why `assay --help` is fast; benchmarks/startup.py has the figure."""
    program = (
        "import sys\nfrom typer.testing import CliRunner\nfrom assay.cli.main import app\n"
        "assert CliRunner().invoke(app, ['--help']).exit_code == 0\n"
        "print(' '.join(sys.modules))"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = {name.split(".")[0] for name in done.stdout.split()}
    assert not loaded & set(HEAVY)


def test_unknown_option_is_bad_input() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "assay", "run", "x", "--bogus"], capture_output=True, text=True, check=False
    )
    assert done.returncode == 2
    assert "Traceback" not in done.stderr


def test_doctor_json() -> None:
    done = subprocess.run(
        [sys.executable, "-m", "assay", "doctor", "--json"], capture_output=True, text=True, check=False
    )
    found = json.loads(done.stdout)
    assert done.returncode == found["exit_code"]
    assert {"fio", "ledger", "root"} <= {f["what"] for f in found["findings"]}


def test_schema_is_json_schema_of_the_study() -> None:
    schema = json.loads(CliRunner().invoke(app, ["schema"]).output)
    assert set(schema["properties"]) == set(Study.model_fields)


def test_study_reference_is_the_schema() -> None:
    assert (ROOT / "docs" / "study.md").read_text() == reference(), (
        "run: python -m assay.model.reference > docs/study.md"
    )


def test_reference_names_every_field_with_a_meaning() -> None:
    rows = re.findall(r"^\| `(\w+)` \| .* \| .* \| (.*) \|$", reference(), re.M)
    assert len(rows) > 40
    assert all(meaning for _, meaning in rows)


def test_documents_link_only_to_what_is_there() -> None:
    for page in [ROOT / "README.md", *(ROOT / "docs").glob("*.md")]:
        for target in re.findall(r"\]\(([^)#]+)\)", page.read_text()):
            if not target.startswith("http"):
                assert (page.parent / target).exists(), f"{page.name} links to {target}"
