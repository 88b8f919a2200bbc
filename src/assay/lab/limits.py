"""CPU and memory limits of hosts, by control groups: version 1 and 2, whichever has the controller (cgroups(7)).

The group of a host is ``assay-LAB/FABRIC-HOST`` below the root of each hierarchy: the name tells whose it is, so clean-up
needs no notes. Its first process is put there, and so is every process that enters the host later.
"""

from __future__ import annotations

import os
import time
from dataclasses import dataclass
from pathlib import Path

from assay.lab.errors import LabError
from assay.lab.kernel import mountinfo
from assay.model import units
from assay.model.lab import Limits

#: Puts itself into the groups named before ``--`` and becomes the command behind it.
_JOIN = 'while [ "$1" != -- ]; do echo $$ >"$1/cgroup.procs" || exit 125; shift; done; shift; exec "$@"'
_SMALLEST_QUOTA_US = 1000  # the kernel's (Documentation/scheduler/sched-bwc.rst)
_REMOVE_SECONDS = 5.0


@dataclass(frozen=True)
class Hierarchy:
    """Where groups of a controller are made."""

    root: Path
    version: int


class Groups:
    """The control groups of one host, one for each hierarchy; none when nothing is limited."""

    def __init__(self, lab_id: str, name: str, limits: Limits) -> None:
        self._limits = limits
        self._places = {c: (h, h.root / f"assay-{lab_id}" / name) for c, h in _needed(limits).items()}

    @property
    def directories(self) -> list[str]:
        """Each once, in a fixed order."""
        return sorted({str(directory) for _, directory in self._places.values()})

    def make(self) -> None:
        """Make them and set the limits; those that exist are set anew. Raises LabError."""
        for controller, (hierarchy, directory) in self._places.items():
            try:
                if hierarchy.version == 2:
                    for above in (hierarchy.root, directory.parent):
                        above.mkdir(exist_ok=True)
                        _enable(above, controller)
                directory.mkdir(parents=True, exist_ok=True)
                for file, value in settings(self._limits, controller, hierarchy.version):
                    if file.endswith(("memsw.limit_in_bytes", "swap.max")) and not (directory / file).exists():
                        continue  # a kernel that does not account for swap
                    (directory / file).write_text(value)
            except OSError as error:
                raise LabError(
                    f"lab.limits are not available here: {directory}: {error.strerror}; leave them out, or run where "
                    "control groups can be made (a container needs --privileged --cgroupns=host)"
                ) from None


def join(directories: list[str]) -> list[str]:
    """Prefix of a command that is to run in these groups; empty without groups."""
    return ["sh", "-c", _JOIN, "sh", *directories, "--"] if directories else []


def settings(limits: Limits, controller: str, version: int) -> list[tuple[str, str]]:
    """Files of a group and what to write there, in order. Memory is that of processes and page cache; swap counts too."""
    if controller == "cpu" and limits.cpus is not None:
        # a short period: with the usual 100 ms a host at its limit would stand still for tens of milliseconds
        period = 10_000 if limits.cpus * 10_000 >= _SMALLEST_QUOTA_US else 100_000
        quota = max(_SMALLEST_QUOTA_US, round(limits.cpus * period))
        if version == 1:
            return [("cpu.cfs_period_us", str(period)), ("cpu.cfs_quota_us", str(quota))]
        return [("cpu.max", f"{quota} {period}")]
    if controller == "memory" and limits.memory is not None:
        if version == 1:
            return [("memory.limit_in_bytes", str(limits.memory)), ("memory.memsw.limit_in_bytes", str(limits.memory))]
        return [("memory.max", str(limits.memory)), ("memory.swap.max", "0")]
    return []


def check_limits(limits: Limits) -> None:
    """Whether hosts can be limited so on this machine; leaves nothing. Raises LabError with one clear line."""
    cores, memory = os.cpu_count() or 1, os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES")
    if limits.cpus is not None and limits.cpus > cores:
        raise LabError(f"lab.limits.cpus is {limits.cpus:g}, this machine has {cores} cores; give at most {cores}")
    if limits.cpus is not None and limits.cpus < 0.01:
        raise LabError(f"lab.limits.cpus is {limits.cpus:g}; the kernel limits to 0.01 cores and more")
    if limits.memory is not None and limits.memory > memory:
        raise LabError(
            f"lab.limits.memory is {units.format_bytes(limits.memory)}, this machine has "
            f"{memory / (1 << 20):.0f} MiB; give less"
        )
    probe = Groups(f"check-{os.getpid()}", "host", limits)
    try:
        probe.make()
    finally:
        remove_groups(f"check-{os.getpid()}")


def groups_of(lab_id: str) -> list[str]:
    """Directories of the control groups that a lab has, deepest first."""
    found = []
    for root in sorted({h.root for h in _hierarchies().values()}):
        top = root / f"assay-{lab_id}"
        if top.is_dir():
            found += [str(child) for child in sorted(top.iterdir()) if child.is_dir()] + [str(top)]
    return found


def remove_groups(lab_id: str, fabric: str | None = None) -> None:
    """Remove a lab's control groups, or those of one fabric; their processes must be dead or dying. Raises LabError."""
    end = time.monotonic() + _REMOVE_SECONDS
    for group in map(Path, groups_of(lab_id)):
        last = group.name == f"assay-{lab_id}"
        if fabric is not None and not last and not group.name.startswith(f"{fabric}-"):
            continue
        while group.is_dir():
            try:
                group.rmdir()
            except FileNotFoundError:
                break
            except OSError as error:
                if last and fabric is not None:
                    break  # other fabrics have theirs in it
                if time.monotonic() > end:
                    raise LabError(f"cannot remove {group}: {error.strerror}; then run: assay lab clean") from None
                time.sleep(0.005)


def _needed(limits: Limits) -> dict[str, Hierarchy]:
    wanted = [c for c, limit in (("cpu", limits.cpus), ("memory", limits.memory)) if limit is not None]
    there = _hierarchies() if wanted else {}
    for controller in wanted:
        if controller not in there:
            what = "lab.limits.cpus" if controller == "cpu" else "lab.limits.memory"
            raise LabError(f"{what} is not available here: no control groups with the {controller} controller")
    return {c: there[c] for c in wanted}


def _hierarchies() -> dict[str, Hierarchy]:
    found: dict[str, Hierarchy] = {}
    for point, _, tail in mountinfo():
        if tail[0] == "cgroup":
            there, version = tail[2].split(","), 1
        elif tail[0] == "cgroup2":
            file = Path(point) / "cgroup.controllers"
            there, version = file.read_text().split() if file.exists() else [], 2
        else:
            continue
        for controller in ("cpu", "memory"):
            if controller in there:
                found[controller] = Hierarchy(Path(point), version)
    return found


def _enable(group: Path, controller: str) -> None:
    """Let the groups below have a controller (version 2)."""
    file = group / "cgroup.subtree_control"
    if controller not in file.read_text().split():
        file.write_text(f"+{controller}")
