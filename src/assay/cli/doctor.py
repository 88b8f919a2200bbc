"""``assay doctor``: what this machine can run, what is missing, and the command that gets it."""

from __future__ import annotations

import json
import os
import shutil
import sys
from dataclasses import asdict, dataclass
from pathlib import Path

from assay.lab.host import HostError, LocalHost
from assay.lab.remote import can_drop_caches
from assay.ledger.migrate import LedgerError
from assay.ledger.store import Ledger, default_url

_TOOLS = (
    ("fio", ["fio", "--version"], "fio", "the block load generator"),
    ("mkfs.ext4", ["mkfs.ext4", "-V"], "e2fsprogs", "local/ext4"),
    ("mkfs.xfs", ["mkfs.xfs", "-V"], "xfsprogs", "local/xfs"),
    ("mkfs.btrfs", ["mkfs.btrfs", "--version"], "btrfs-progs", "local/btrfs"),
    ("losetup", ["losetup", "--version"], "util-linux", "loop-backed disks"),
    ("setpriv", ["setpriv", "--version"], "util-linux", "processes that die with Assay"),
    ("mount", ["mount", "--version"], "mount", "local candidates"),
    ("nsenter", ["nsenter", "--version"], "util-linux", "hosts of a lab"),
    ("ip", ["ip", "-V"], "iproute2", "the network of a lab"),
    ("tc", ["tc", "-V"], "iproute2", "the bandwidth of a lab's links"),
    ("iperf3", ["iperf3", "--version"], "iperf3", "baselines of a lab"),
    ("glusterd", ["glusterd", "--version"], "glusterfs-server", "glusterfs/*"),
    ("glusterfs", ["glusterfs", "--version"], "glusterfs-client", "glusterfs/*"),
)


@dataclass(frozen=True)
class Finding:
    """One line of the doctor: ``ok`` is None for what merely limits."""

    what: str
    ok: bool | None
    found: str
    remedy: str = ""


def examine() -> list[Finding]:
    """Look at tools, privileges, kernel and ledger; touches nothing but the ledger, which it opens."""
    host = LocalHost()
    findings = []
    for name, argv, package, purpose in _TOOLS:
        path = shutil.which(name, path=f"{os.environ.get('PATH', '')}:/usr/sbin:/sbin")
        remedy = f"apt-get install -y {package}"
        if path is None:
            findings.append(Finding(name, False, f"missing; needed for {purpose}", remedy))
            continue
        try:
            done = host.run([path, *argv[1:]], timeout_seconds=10)
            text = (done.stdout + done.stderr).decode(errors="replace").strip()
            findings.append(
                Finding(name, done.ok, text.splitlines()[0] if text else "no version", "" if done.ok else remedy)
            )
        except HostError as error:
            findings.append(Finding(name, False, str(error), remedy))
    root = os.geteuid() == 0
    findings.append(
        Finding(
            "root",
            root or None,
            "yes" if root else "no: only path:DIR and quick",
            "" if root else "run as root for local/*",
        )
    )
    findings.append(
        Finding(
            "drop caches",
            can_drop_caches() or None,
            "of the whole host" if can_drop_caches() else "of own files only (posix_fadvise)",
        )
    )
    loop = Path("/dev/loop-control").exists()
    findings.append(
        Finding("loop devices", loop, "/dev/loop-control" if loop else "missing", "" if loop else "modprobe loop")
    )
    known = Path("/proc/filesystems").read_text().split()
    for kind in ("ext4", "xfs", "btrfs", "tmpfs", "fuse"):
        there = kind in known
        findings.append(
            Finding(
                f"kernel {kind}", there or None, "yes" if there else "not loaded", "" if there else f"modprobe {kind}"
            )
        )
    try:
        with Ledger() as ledger:
            findings.append(Finding("ledger", True, f"{ledger.url}, {len(ledger.studies())} studies"))
    except LedgerError as error:
        findings.append(Finding("ledger", False, str(error), f"set ASSAY_LEDGER; now {default_url()}"))
    findings.append(Finding("Python", sys.version_info >= (3, 11), sys.version.split()[0]))
    return findings


def run_doctor(as_json: bool) -> int:
    """Print the findings; 3 when something that is needed is missing, else 0."""
    findings = examine()
    code = 3 if any(f.ok is False for f in findings) else 0
    if as_json:
        print(json.dumps({"findings": [asdict(f) for f in findings], "exit_code": code}))
        return code
    from rich.markup import escape
    from rich.table import Table

    from assay.cli.console import stdout

    marks = {True: "[green]ok[/green]", None: "[yellow]limited[/yellow]", False: "[red]missing[/red]"}
    table = Table("", "what", "found", "what helps", box=None, pad_edge=False)
    for f in findings:
        table.add_row(marks[f.ok], f.what, escape(f.found), escape(f.remedy))
    stdout().print(table)
    return code
