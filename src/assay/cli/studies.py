"""Finding a study by file, preset or ledger; presets and the schema."""

from __future__ import annotations

import difflib
import json
from dataclasses import dataclass
from importlib import resources
from pathlib import Path

from assay.cli.errors import BadInput
from assay.ledger.schema import StudyRow
from assay.ledger.store import Ledger
from assay.model.source import load_study
from assay.model.study import Study


@dataclass(frozen=True)
class FoundStudy:
    """A study to run: validated, with the text it came from and the row when it is in the ledger."""

    study: Study
    text: str
    row: StudyRow | None = None


def preset_names() -> list[str]:
    """Names of the built-in studies."""
    folder = resources.files("assay") / "presets"
    return sorted(entry.name.removesuffix(".yaml") for entry in folder.iterdir() if entry.name.endswith(".yaml"))


def preset_text(name: str) -> str:
    """A preset's YAML. Raises BadInput with the nearest known name."""
    if name not in preset_names():
        near = difflib.get_close_matches(name, preset_names(), n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(preset_names())}"
        raise BadInput(f"no preset is called {name!r}; {hint}")
    return (resources.files("assay") / "presets" / f"{name}.yaml").read_text()


def list_presets(as_json: bool) -> None:
    """Print the presets with what each asks."""
    studies = [load_study(preset_text(name), name) for name in preset_names()]
    if as_json:
        print(json.dumps([{"name": s.study, "question": s.question, "source": s.source} for s in studies]))
        return
    from rich.table import Table

    from assay.cli.console import stdout

    table = Table("preset", "question", "source", box=None, pad_edge=False)
    for study in studies:
        table.add_row(study.study, study.question, study.source)
    stdout().print(table)


def json_schema() -> str:
    """JSON Schema of a study."""
    return json.dumps(Study.model_json_schema(), indent=2)


def find_study(key: str, ledger: Ledger | None = None) -> FoundStudy:
    """A study by file name, preset name, or id or name in the ledger. Raises BadInput, StudyError."""
    path = Path(key)
    if path.suffix in (".yaml", ".yml") or "/" in key:
        try:
            text = path.read_text()
        except UnicodeDecodeError:
            raise BadInput(f"{key} is not a text file") from None
        except OSError as error:
            raise BadInput(f"{key}: {error.strerror}") from None
        return FoundStudy(load_study(text, key), text)
    if key in preset_names():
        text = preset_text(key)
        return FoundStudy(load_study(text, f"preset {key}"), text)
    if ledger is not None and (row := ledger.find_study(key)) is not None:
        return FoundStudy(Study.model_validate(row.declaration), row.text, row)
    names = [*preset_names(), *({s.name for s in ledger.studies()} if ledger is not None else ())]
    near = difflib.get_close_matches(key, names, n=1)
    hint = f"did you mean {near[0]!r}?" if near else f"known presets: {', '.join(preset_names())}"
    raise BadInput(f"{key!r} is no file, no preset and no study in the ledger; {hint}")


def find_row(key: str | None, ledger: Ledger) -> StudyRow:
    """A study of the ledger by id, name, preset or file; None means the newest. Raises BadInput."""
    if key is None:
        studies = ledger.studies()
        if not studies:
            raise BadInput("the ledger holds no study yet; run one: assay run local-quick")
        return studies[0]
    row = ledger.find_study(key)
    if row is None:
        found = find_study(key, ledger)
        row = found.row or ledger.find_study(found.study.study)
    if row is None:
        raise BadInput(f"{key!r} has not been run with this ledger; run it: assay run {key}")
    return row
