"""What a system needs on the machine, where it is found, and the command that gets it."""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path

from assay.lab.host import search_path


@dataclass(frozen=True)
class Requirement:
    """A program, file or directory that a system cannot do without."""

    name: str
    find: Callable[[], Path | None]  # where it is; None when it is missing
    remedy: str  # the exact command that gets it; a word in capitals is for people to fill in
    version: tuple[str, ...] = ()  # arguments that make the program tell its version; empty: none to ask
    only: str = ""  # what alone needs it: a layout ("ext4") or a tuning value ("access=sshfs"); empty: every candidate


def program(name: str, package: str, *version: str, only: str = "") -> Requirement:
    """A program of a distribution's package, looked for where root finds programs."""

    def find() -> Path | None:
        found = shutil.which(name, path=search_path())
        return Path(found) if found else None

    return Requirement(name, find, f"apt-get install -y {package}", version or ("--version",), only)


def programs_directory() -> Path:
    """Where systems lie that no distribution packages: ``ASSAY_SYSTEMS``, else below the data directory."""
    data = os.environ.get("XDG_DATA_HOME") or Path.home() / ".local" / "share"
    return Path(os.environ.get("ASSAY_SYSTEMS") or Path(data) / "assay" / "systems")


def missing(requirements: Iterable[Requirement], *parts: str) -> list[Requirement]:
    """Those that are not there, of what every candidate needs and what ``parts`` need (see ``Requirement.only``)."""
    return [r for r in requirements if r.only in ("", *parts) and r.find() is None]


def first_missing(requirements: Iterable[Requirement], *parts: str) -> str | None:
    """One line that names the first that is not there, and the command that gets it; None when nothing is missing."""
    for requirement in missing(requirements, *parts):
        return f"{requirement.name} is missing; install it with: {requirement.remedy}"
    return None
