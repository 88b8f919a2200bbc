"""``assay doctor``: what this machine can run, what is missing, and the command that gets it."""

from __future__ import annotations

import difflib
import json
import os
import re
import shutil
import sys
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import asdict, dataclass
from pathlib import Path

from assay.cli.errors import BadInput
from assay.lab.host import HostError, LocalHost, search_path
from assay.lab.remote import can_drop_caches
from assay.ledger.migrate import LedgerError
from assay.ledger.store import Ledger, default_url
from assay.systems.base import AdapterError, HasRequirements, SystemAdapter
from assay.systems.catalogue import SYSTEMS, find_system
from assay.systems.existing import ExternalSystem
from assay.systems.requirements import Requirement, program

#: without these nothing can be measured
_NEEDED = (
    (program("fio", "fio"), "the block load generator"),
    (program("setpriv", "util-linux"), "processes that die with Assay"),
)
_LAB = (
    (program("unshare", "util-linux"), "hosts of a lab"),
    (program("nsenter", "util-linux"), "hosts of a lab"),
    (program("ip", "iproute2", "-V"), "the network of a lab"),
    (program("tc", "iproute2", "-V"), "the bandwidth of a lab's links"),
    (program("losetup", "mount"), "the disks of a lab"),
    (program("iperf3", "iperf3"), "baselines of a lab"),
)
_VERSION_SECONDS = 20.0
_AT_ONCE = 4
_NOT_RUNNABLE = (126, 127)  # exit codes of sh(1) and ld.so(8)
_TO_FILL_IN = re.compile(r"(?:^|\s)[A-Z][A-Z_]{2,}(?:\s|$)")  # a word in capitals: no command as it stands
_APT = re.compile(r"apt-get install -y((?: [a-z0-9][a-z0-9.+-]*)+)")


@dataclass(frozen=True)
class Finding:
    """One line of the doctor: ``ok`` is None for what merely limits what can be run."""

    what: str
    ok: bool | None
    found: str
    remedy: str = ""  # what helps, for people
    system: str = ""  # the system that needs it; empty: Assay itself
    command: str = ""  # the shell command that gets it; empty when no command does


@dataclass(frozen=True)
class _Question:
    """A requirement to be looked for; ``vital`` when nothing of what was asked for runs without it."""

    requirement: Requirement
    purpose: str
    vital: bool
    system: str = ""


def examine(systems: Iterable[str] = ()) -> list[Finding]:
    """Look at tools, systems, privileges, kernel and ledger; touches nothing but the ledger, which it opens. ``systems``
    (``ceph``, ``local/xfs``) restricts it to what those need. Raises BadInput for one that is not known."""
    chosen = [_find(name) for name in systems]
    questions = list(_questions(chosen))
    with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:  # some systems take a second to tell their version
        findings = list(pool.map(_answer, questions))
    findings += _external(chosen)
    on_lab = any(adapter.needs_hosts or adapter.system == "local" for adapter, _ in chosen)
    findings += _machine(vital=on_lab)
    return findings


def commands(findings: Iterable[Finding]) -> list[str]:
    """Shell commands that get what is missing, each once; packages of apt in one, which comes first: others need them."""
    packages: set[str] = set()
    others: dict[str, None] = {}
    for finding in findings:
        if match := _APT.fullmatch(finding.command):
            packages |= set(match[1].split())
        elif finding.command:
            others[finding.command] = None
    return [*([f"apt-get install -y {' '.join(sorted(packages))}"] if packages else []), *others]


def version_in(text: str, name: str) -> str:
    """The line of a program's output that tells its version: the first that has a number with a dot and the program's name,
    else the first with such a number that is not of the FUSE library; empty when there is none."""
    lines = [line.strip() for line in text.splitlines() if re.search(r"\d\.\d", line)]
    named = [line for line in lines if name.lower() in line.lower()]
    own = [line for line in lines if "fuse" not in line.lower()]
    return next(iter([*named, *own]), "")


def run_doctor(systems: list[str], as_json: bool, only_commands: bool) -> int:
    """Print the findings, or just the commands; 3 when something is missing that is needed, else 0. Raises BadInput."""
    findings = examine(systems)
    code = 3 if any(f.ok is False for f in findings) else 0
    if only_commands:
        print("".join(f"{command}\n" for command in commands(findings)), end="")
        return 0
    if as_json:
        found = [asdict(f) for f in findings]
        print(json.dumps({"findings": found, "commands": commands(findings), "exit_code": code}))
        return code
    from rich.markup import escape
    from rich.table import Table

    from assay.cli.console import stdout

    marks = {True: "[green]ok[/green]", None: "[yellow]limited[/yellow]", False: "[red]missing[/red]"}
    table = Table("", "system", "what", box=None, pad_edge=False)
    for column in ("found", "what helps"):
        table.add_column(column, overflow="fold")
    for f in findings:
        table.add_row(marks[f.ok], f.system, f.what, escape(f.found), escape(f.remedy))
    stdout().print(table)
    return code


def _find(name: str) -> tuple[type[SystemAdapter], str]:
    """Adapter and layout; an empty layout for the whole system."""
    if name in SYSTEMS:
        return SYSTEMS[name], ""
    system = name.partition("/")[0]
    if system not in SYSTEMS:
        near = difflib.get_close_matches(system, SYSTEMS, n=1)
        hint = f"did you mean {near[0]!r}?" if near else f"known: {', '.join(SYSTEMS)}"
        raise BadInput(f"unknown system {system!r}; {hint}")
    try:
        return find_system(name)
    except AdapterError as error:
        raise BadInput(str(error)) from None


def _questions(chosen: list[tuple[type[SystemAdapter], str]]) -> Iterator[_Question]:
    named = bool(chosen)
    for requirement, purpose in _NEEDED:
        yield _Question(requirement, purpose, vital=True)
    if not named or any(adapter.needs_hosts for adapter, _ in chosen):
        for requirement, purpose in _LAB:
            yield _Question(requirement, purpose, vital=named)
    for adapter, layout in chosen or [(adapter, "") for adapter in SYSTEMS.values()]:
        if not isinstance(adapter, HasRequirements):
            continue
        for requirement in adapter.requirements:
            # what only one layout or access path needs does not keep the others from running
            vital = named and requirement.only in ("", layout)
            if requirement.only in ("", layout) or not layout or "=" in requirement.only:
                yield _Question(requirement, requirement.only or "all of it", vital, adapter.system)


def _answer(question: _Question) -> Finding:
    requirement = question.requirement
    path = requirement.find()
    problem = f"missing; needed for {question.purpose}" if path is None else ""
    words = str(path)
    if path is not None and requirement.version:
        try:
            done = LocalHost().run([str(path), *requirement.version], timeout_seconds=_VERSION_SECONDS)
            text = (done.stdout + done.stderr).decode(errors="replace").strip()
            if done.exit_code is None or done.exit_code in _NOT_RUNNABLE:  # others just do not know the option
                problem = f"does not run: {' '.join(text.split())[-200:] or words}"
            else:
                words = version_in(text, requirement.name) or words
        except HostError as error:
            problem = str(error)
    if not problem:
        return Finding(requirement.name, True, words, system=question.system)
    ok = False if question.vital else None
    command = "" if _TO_FILL_IN.search(requirement.remedy) else requirement.remedy
    return Finding(requirement.name, ok, problem, requirement.remedy, question.system, command)


def _external(chosen: list[tuple[type[SystemAdapter], str]]) -> Iterator[Finding]:
    """Systems that are not deployed: whether the programs of their clients are here."""
    for adapter in [adapter for adapter, _ in chosen] or SYSTEMS.values():
        if not issubclass(adapter, ExternalSystem):
            continue
        for name in adapter.programs:
            found = shutil.which(name, path=search_path())
            words = found or "missing; only existing mounts (mount: DIR) are used, its client brings it"
            yield Finding(name, found is not None or None, words, system=adapter.system)


def _machine(*, vital: bool) -> Iterator[Finding]:
    """Privileges, kernel, ledger, Python."""
    lacking = False if vital else None
    root = os.geteuid() == 0
    yield Finding(
        "root", root or lacking, "yes" if root else "no: only path:DIR and quick", "" if root else "run as root"
    )
    caches = can_drop_caches()
    yield Finding("drop caches", caches or None, "of the whole host" if caches else "of own files only (posix_fadvise)")
    for device, module, without in (("/dev/loop-control", "loop", lacking), ("/dev/fuse", "fuse", None)):
        there = Path(device).exists()
        remedy = "" if there else f"modprobe {module} (in a container: --device {device})"
        yield Finding(module, there or without, device if there else f"{device} is missing", remedy)
    known = Path("/proc/filesystems").read_text().split()
    for kind in ("ext4", "xfs", "btrfs", "tmpfs"):
        there = kind in known
        found, remedy = ("yes", "") if there else ("not loaded", f"modprobe {kind}")
        yield Finding(f"kernel {kind}", there or None, found, remedy)
    try:
        with Ledger() as ledger:
            yield Finding("ledger", True, f"{ledger.url}, {len(ledger.studies())} studies")
    except LedgerError as error:
        yield Finding("ledger", False, str(error), f"set ASSAY_LEDGER; now {default_url()}")
    yield Finding("Python", sys.version_info >= (3, 11), sys.version.split()[0])
