"""Lustre, where it is mounted already: its servers are kernel modules that no lab of namespaces can run.

Formats of ``lfs`` and ``lctl``: Lustre Operations Manual, chapters Managing File Layout (Striping) and Lustre Parameters.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, ClassVar

from assay.lab.caches import Step
from assay.lab.host import Host, HostError
from assay.lab.mounts import ANSWER_SECONDS
from assay.model import units
from assay.model.evidence import DeviceCounters
from assay.model.lab import Lab as LabDeclaration
from assay.systems.base import AdapterError
from assay.systems.existing import ExternalSystem, MountKind, ask
from assay.systems.hosts import each

MAGIC = 0x0BD00BD0  # LL_SUPER_MAGIC in lustre/include/uapi/linux/lustre/lustre_idl.h
STRIPE_BYTES = 1 << 20  # default of a file system without settings of its own
_STRIPE_UNIT = 64 << 10  # LOV_MIN_STRIPE_SIZE: stripe sizes are multiples of it
_NUMBER = r"\s*(-?\d+)"


@dataclass(frozen=True)
class Striping:
    """The layout of a file or of a directory's new files. ``count`` -1: over all OSTs; 0: the file system's default."""

    count: int
    size: int  # bytes
    pool: str = ""
    components: int = 1  # more than one: progressive, mirrored or erasure coded


@dataclass(frozen=True)
class Targets:
    """What ``lfs df`` tells: names of the targets that answer, and what is said of the others."""

    mdts: tuple[str, ...]
    osts: tuple[str, ...]
    silent: dict[str, str]


class LustreSystem(ExternalSystem):
    """``lustre/distributed``, ``lustre/striped-W``, on a Lustre that is mounted (``mount: DIR``)."""

    system: ClassVar[str] = "lustre"
    # no replicated or rain: a write makes all mirrors but one, and all parity, stale until lfs mirror resync
    layouts: ClassVar[dict[str, str]] = {
        "distributed": "each file on one OST",
        "striped-N": "each file striped over N OSTs",
    }
    tunables: ClassVar[dict[str, str]] = {
        "stripe-size": "bytes on one OST before the next, a multiple of 64KiB (default 1MiB)",
        "pool": "pool of OSTs to be used, e.g. flash",
    }

    programs: ClassVar[tuple[str, ...]] = ("lfs", "lctl")

    @staticmethod
    def preflight(layout: str, lab: LabDeclaration, dataset_bytes: int) -> None:  # noqa: ARG004 (nothing is deployed)
        """See SystemAdapter."""
        LustreSystem.refuse_to_deploy(layout)

    @staticmethod
    def check_tuning(tuning: dict[str, Any]) -> None:
        """See ChecksTuning."""
        stripe_bytes(tuning)

    @staticmethod
    def mount_kind() -> MountKind:
        """See KnowsMounts."""
        return MountKind(("lustre",), MAGIC, _inspect, _health)

    def lay_out(self, directory: Path) -> None:
        """See ExternalSystem."""
        wanted = self._wanted()
        argv = ["lfs", "setstripe", "-c", str(wanted.count), "-S", str(wanted.size)]
        self.ask(*argv, *(["-p", wanted.pool] if wanted.pool else []), str(directory))
        found = self._striping(directory)
        if found != wanted:
            raise AdapterError(f"{directory} has {found} after lfs setstripe, not {wanted}")

    def layout_facts(self, directory: Path) -> dict[str, Any]:
        """See ExternalSystem."""
        found = self._striping(directory)
        return {"stripe_count": found.count, "stripe_bytes": found.size, "pool": found.pool}

    def counters(self) -> list[DeviceCounters] | None:
        """Bytes that went between this machine and each OST (``osc.*.stats``): what the client's cache has answered is not
        in them. None without the right to read them."""
        client = self.client
        try:
            text = ask(client, "lctl", "get_param", f"osc.{self._filesystem()}-OST*.stats")
        except AdapterError:
            return None
        return parse_osc_stats(text) or None

    def _servers_cold(self) -> list[Step]:
        """Cancel the client's locks, and with them all that it caches (the manual's way). The servers' caches are out of
        reach from here."""
        argv = ["lctl", "set_param", "-n", f"ldlm.namespaces.{self._filesystem()}-*.lru_size=clear"]

        def clear(client: Host) -> list[Step]:
            done = client.run(argv, timeout_seconds=ANSWER_SECONDS)
            return [(f"{client.name}: locks cancelled", 1 if done.exit_code is None else done.exit_code)]

        return [step for steps in each(self.deployment.clients, clear) for step in steps]

    def _wanted(self) -> Striping:
        pool = str(self.deployment.tuning.get("pool", ""))
        return Striping(stripe_count(self.deployment.layout), stripe_bytes(self.deployment.tuning), pool)

    def _striping(self, directory: Path) -> Striping:
        return parse_getstripe(self.ask("lfs", "getstripe", "-d", str(directory)))

    def _filesystem(self) -> str:
        return filesystem_of(self._entry()["source"])


# --- pure ------------------------------------------------------------------------------------------------------------


def stripe_count(layout: str) -> int:
    """OSTs that hold a file of a layout."""
    return 1 if layout == "distributed" else int(layout.removeprefix("striped-"))


def stripe_bytes(tuning: dict[str, Any]) -> int:
    """Size of a stripe. Raises AdapterError."""
    try:
        size = units.parse_bytes(tuning.get("stripe-size", STRIPE_BYTES))
    except ValueError as error:
        raise AdapterError(f"stripe-size: {error}") from None
    if size < _STRIPE_UNIT or size % _STRIPE_UNIT:
        raise AdapterError(f"stripe-size: {tuning['stripe-size']!r} is no multiple of 64KiB")
    return size


def filesystem_of(source: str) -> str:
    """Name of the file system in a mount's source: ``10.77.0.1@tcp:10.77.0.2@tcp:/lfs/sub`` is ``lfs``. Raises
    AdapterError."""
    servers, _, path = source.rpartition(":/")
    name = path.split("/")[0]
    if not servers or not re.fullmatch(r"[A-Za-z0-9_-]{1,8}", name):  # longest name that mkfs.lustre takes
        raise AdapterError(f"{source!r} is no source of a Lustre mount (MGSNODE:/FSNAME)")
    return name


def parse_getstripe(text: str) -> Striping:
    """Of ``lfs getstripe [-d] [-y]``, of files (lines ``lmm_stripe_count: 2``) and directories (one line without ``lmm_``);
    of several components the first. Raises AdapterError when it is none."""
    counts = re.findall(rf"stripe_count:{_NUMBER}", text)
    sizes = re.findall(rf"stripe_size:{_NUMBER}", text)
    pools = re.findall(r"(?:lmm_)?pool:\s*(\S+)", text)
    if not counts or len(counts) != len(sizes):
        raise AdapterError(f"lfs getstripe told no striping: {' '.join(text.split())[:200] or '(no output)'}")
    return Striping(int(counts[0]), int(sizes[0]), pools[0] if pools else "", len(counts))


def parse_df(text: str) -> Targets:
    """Of ``lfs df``: ``lfs-OST0000_UUID 94181368 ... /mnt[OST:0]``, and ``OST0002 : inactive device``."""
    found: dict[str, list[str]] = {"MDT": [], "OST": []}
    silent: dict[str, str] = {}
    for line in text.splitlines():
        if match := re.match(r"(\S+?)(?:_UUID)?\s.*\[(MDT|OST):\d+\]", line):
            found[match[2]].append(match[1])
        elif match := re.match(r"(\S*(?:MDT|OST)[0-9a-f]{4})(?:_UUID)?\s*:\s*(.+)", line):
            silent[match[1]] = match[2].strip()
    return Targets(tuple(found["MDT"]), tuple(found["OST"]), silent)


def parse_osc_stats(text: str) -> list[DeviceCounters]:
    """Of ``lctl get_param osc.*.stats``: after each ``osc.lfs-OST0000-osc-ffff8800.stats=`` lines such as ``read_bytes 7
    samples [bytes] 4096 1048576 7340032 ...``, whose sum comes third after the unit. No such line: nothing was moved."""
    found = []
    for part in re.split(r"^osc\.", text, flags=re.MULTILINE)[1:]:
        name, _, lines = part.partition(".stats=")
        moved = {
            match[1]: int(match[2])
            for match in re.finditer(
                r"^\s*(read|write)_bytes\s+\d+ samples \[bytes\] \d+ \d+ (\d+)", lines, re.MULTILINE
            )
        }
        target = name.partition("-osc-")[0]
        found.append(
            DeviceCounters(device=target, read_bytes=moved.get("read", 0), written_bytes=moved.get("write", 0))
        )
    return found


def healthy(targets: Targets, health_check: Iterable[str]) -> tuple[bool, str]:
    """Whether every target answers and the client's modules say that they are healthy."""
    if targets.silent:
        return False, "; ".join(f"{name}: {words}" for name, words in targets.silent.items())
    if not targets.osts:
        return False, "lfs df tells of no OST"
    said = sorted(set(health_check))
    if said not in ([], ["healthy"]):
        return False, f"health_check: {', '.join(said)}"
    return True, f"{len(targets.mdts)} MDTs and {len(targets.osts)} OSTs answer"


# --- an existing mount -------------------------------------------------------------------------------------------------


def _inspect(host: Host, mount: Path, layout: str) -> dict[str, Any]:
    targets = parse_df(ask(host, "lfs", "df", str(mount)))
    wanted = stripe_count(layout)
    if wanted > len(targets.osts):
        raise AdapterError(f"lustre/{layout} needs {wanted} OSTs, {mount} has {len(targets.osts)}")
    version = ask(host, "lctl", "get_param", "-n", "version").split("\n")[0].removeprefix("lustre: ").strip()
    return {
        "version": f"Lustre {version}, Linux {os.uname().release}",
        "targets": {"mdts": len(targets.mdts), "osts": len(targets.osts)},
    }


def _health(host: Host, mount: Path) -> tuple[bool | None, str]:
    try:
        targets = parse_df(ask(host, "lfs", "df", str(mount)))
    except AdapterError as error:
        return None, str(error)
    try:
        said = ask(host, "lctl", "get_param", "-n", "health_check").split()
    except (AdapterError, HostError):  # only root may ask, in some versions
        said = []
    return healthy(targets, said)
