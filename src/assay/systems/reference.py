"""What every system offers, from the code: ``python -m assay.systems.reference > docs/systems.md``."""

from __future__ import annotations

import inspect
import re
from dataclasses import dataclass

from assay.systems.base import CAPABILITIES, HasRequirements, SystemAdapter, capabilities
from assay.systems.catalogue import SYSTEMS
from assay.systems.existing import ExistingSystem, KnowsMounts

ON_LAB = "hosts of a lab"
ON_THIS_MACHINE = "this machine"
ON_EXISTING = "existing mounts only"
_MARKUP = re.compile(r"``([^`]*)``")


@dataclass(frozen=True)
class SystemEntry:
    """One system as users see it."""

    system: str
    runs_on: str  # ON_LAB, ON_THIS_MACHINE or ON_EXISTING
    existing_mounts: bool  # whether a candidate may name a mount: DIR
    summary: str
    layouts: dict[str, str]
    tuning: dict[str, str]
    capabilities: list[str]
    requirements: list[str]


def entries() -> list[SystemEntry]:
    """All systems, in the order of the catalogue."""
    return [_entry(adapter) for adapter in SYSTEMS.values()]


def capability_meanings() -> dict[str, str]:
    """One line for each capability, from its protocol."""
    return {name: _first_sentence(inspect.getdoc(protocol) or "") for name, protocol in CAPABILITIES.items()}


def reference() -> str:
    """The whole page as Markdown."""
    every = entries()
    names = list(CAPABILITIES)
    lines = [
        "# Systems",
        "",
        "Generated from the code by `python -m assay.systems.reference`; `assay systems` prints the same, `assay systems --json` for",
        "machines. What is missing on a machine, and the command that gets it: `assay doctor SYSTEM`.",
        "",
        "A candidate is written `system/layout`. A cell that needs a capability which its system lacks is *not applicable*: never",
        "failed, never silently weaker. [Add a file system in a day](guide-add-a-file-system.md).",
        "",
        f"| system | runs on | `mount: DIR` | {' | '.join(names)} |",
        f"|---|---|---|{'---|' * len(names)}",
    ]
    for entry in every:
        marks = " | ".join("yes" if name in entry.capabilities else "" for name in names)
        mount = "yes" if entry.existing_mounts else ""
        lines.append(f"| [{entry.system}](#{entry.system}) | {entry.runs_on} | {mount} | {marks} |")
    lines += ["", "| capability | meaning |", "|---|---|"]
    lines += [f"| {name} | {meaning} |" for name, meaning in capability_meanings().items()]
    for entry in every:
        lines += ["", *_section(entry)]
    return "\n".join([*lines, ""])


def _section(entry: SystemEntry) -> list[str]:
    lines = [f"## {entry.system}", "", entry.summary, "", "| layout | meaning |", "|---|---|"]
    for layout, meaning in entry.layouts.items():
        lines.append(f"| `{candidate(entry.system, layout)}` | {_cell(meaning)} |")
    if entry.tuning:
        lines += ["", "| tuning | meaning |", "|---|---|"]
        lines += [f"| `{key}` | {_cell(meaning)} |" for key, meaning in entry.tuning.items()]
    if entry.requirements:
        lines += ["", f"Needs: {', '.join(entry.requirements)}."]
    return lines


def candidate(system: str, layout: str) -> str:
    """As it is written in a study."""
    if system == "path":
        return f"path:{layout}"
    return f"{system}/{layout}" if layout else system


def _entry(adapter: type[SystemAdapter]) -> SystemEntry:
    external = issubclass(adapter, ExistingSystem)
    declared = adapter.requirements if isinstance(adapter, HasRequirements) else ()
    return SystemEntry(
        system=adapter.system,
        runs_on=ON_EXISTING if external else ON_LAB if adapter.needs_hosts else ON_THIS_MACHINE,
        existing_mounts=external or isinstance(adapter, KnowsMounts),
        summary=_MARKUP.sub(r"`\1`", _first_paragraph(inspect.getdoc(adapter) or "")),
        layouts=dict(adapter.layouts),
        tuning=dict(adapter.tunables),
        capabilities=capabilities(adapter),
        requirements=[f"{r.name} ({r.only})" if r.only else r.name for r in declared],
    )


def _first_paragraph(text: str) -> str:
    return " ".join(text.split("\n\n")[0].split())


def _first_sentence(text: str) -> str:
    return _MARKUP.sub(r"`\1`", re.split(r"(?<=[.;])\s", _first_paragraph(text))[0].rstrip(";."))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


if __name__ == "__main__":
    print(reference(), end="")
