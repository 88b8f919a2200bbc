"""Imports point downwards only (docs/architecture.md), and no file grows beyond what can be read in one go."""

from __future__ import annotations

import ast
import importlib.util
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCE = ROOT / "src" / "assay"
LARGEST_FILE = 500  # lines
# the same order as [tool.importlinter] in pyproject.toml; siblings share a row and may not import one another
LAYERS = [
    {"cli", "report"},
    {"campaign"},
    {"systems", "workloads"},
    {"checks"},
    {"lab"},
    {"ledger"},
    {"stats", "placement", "archive", "trace", "model"},
    {"_core"},
]
HEIGHT = {name: len(LAYERS) - i for i, row in enumerate(LAYERS) for name in row}
# cli is the entry point and shows reports
ALLOWED_SIDEWAYS = {("cli", "report")}


def _imported(path: Path) -> set[str]:
    found: set[str] = set()
    package = ["assay", *path.relative_to(SOURCE).parts[:-1]]
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names}
        elif isinstance(node, ast.ImportFrom):
            base = ".".join(package[: len(package) - node.level + 1]) + "." if node.level else ""
            module = f"{base}{node.module or ''}".rstrip(".")
            found |= {module} | {f"{module}.{alias.name}" for alias in node.names}
    return {name.split(".")[1] for name in found if name.startswith("assay.") and name.split(".")[1] in HEIGHT}


def _modules() -> list[Path]:
    return sorted(p for p in SOURCE.rglob("*.py") if p.parent != SOURCE)


def test_imports_point_downwards() -> None:
    wrong = []
    for path in _modules():
        layer = path.relative_to(SOURCE).parts[0]
        if layer not in HEIGHT:
            continue
        wrong += [
            f"{path.relative_to(ROOT)} ({layer}) imports {other}"
            for other in _imported(path) - {layer}
            if HEIGHT[other] >= HEIGHT[layer] and (layer, other) not in ALLOWED_SIDEWAYS
        ]
    assert not wrong, "\n".join(wrong)


def test_every_package_has_a_layer() -> None:
    packages = {p.parent.name for p in SOURCE.glob("*/__init__.py")} - {"presets"}
    assert packages <= set(HEIGHT)
    assert {"ledger", "campaign", "checks", "lab"} <= packages, "this test looks in the wrong place"


def test_the_linter_agrees() -> None:
    """import-linter follows chains of imports as well: checks -> helper -> cli."""
    if importlib.util.find_spec("importlinter") is None:
        pytest.skip("import-linter is not installed")
    done = subprocess.run(
        [str(Path(sys.executable).with_name("lint-imports")), "--no-cache", "--config", "pyproject.toml"],
        cwd=ROOT, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert done.returncode == 0, done.stdout + done.stderr
    assert "1 kept, 0 broken" in done.stdout


def test_an_import_upwards_would_be_seen(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    planted = tmp_path / "src" / "assay" / "model" / "planted.py"
    planted.parent.mkdir(parents=True)
    planted.write_text(
        "def f():\n    from assay import campaign\n    from ..checks import registry\n    import assay.cli.main\n"
    )
    monkeypatch.setattr(sys.modules[__name__], "SOURCE", tmp_path / "src" / "assay")
    assert _imported(planted) == {"campaign", "checks", "cli"}


def test_no_file_is_larger_than_can_be_read_in_one_go() -> None:
    sizes = {p: len(p.read_text().splitlines()) for p in (ROOT / "src").rglob("*.py")}
    assert len(sizes) > 40
    too_long = {str(p.relative_to(ROOT)): n for p, n in sizes.items() if n > LARGEST_FILE}
    assert not too_long
