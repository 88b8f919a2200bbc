"""Rules about the state before the load begins."""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterator
from typing import Any

from assay.checks.common import (
    DEVICELESS,
    NULL,
    Outcome,
    cold_proof,
    judge,
    not_applicable,
    percent,
    point_of,
    size,
    unknown,
    working_set,
)
from assay.checks.registry import Scope, Weight, rule
from assay.checks.subjects import AttemptSubject
from assay.model.evidence import Snapshot

RAM_FACTOR = 2.0
FILL_LIMIT = 0.90
IDLE_LIMIT = 0.20

#: Keys of ``expected`` that instruct rules and are no part of the closure.
POLICY_KEYS = frozenset({"tools", "ram_factor", "error_limit", "floor"})

_ABSENT = "(absent)"


@rule("W1", scope=Scope.ATTEMPT, weight=Weight.FLAG, not_for=DEVICELESS)
def working_set_exceeds_memory(subject: AttemptSubject) -> Outcome:
    """The working set is at least `ram_factor` times the memory of all hosts, client and server, or memory cannot matter.

    Memory cannot matter for direct I/O, for a cell that claims to be warm, and where K3 proves that every byte came
    from a device and was read at most once. The working set is that of the cell, not the larger set of files it may
    share with others.

    Prevents: a data set that fits into memory and measures memory (MLPerf Storage demands 5 times the memory of all
    clients for that reason; its #464 shows "zero storage traffic from epoch 2").
    """
    evidence = subject.evidence
    point = point_of(evidence)
    if point.direct:
        return not_applicable("direct I/O passes by the page cache of the client")
    if point.cache == "warm":
        return not_applicable("the cell claims to be warm")
    if not point.moves_data:
        return not_applicable("the operations move no file data")
    touched = working_set(evidence)
    if point.reads and not point.writes:
        proof = cold_proof(subject)
        if not isinstance(proof, str) and proof.cold and proof.delivered <= touched:
            return not_applicable("the devices read every byte that was delivered, and each at most once")
    memory = {name: host.memory_bytes for name, host in evidence.before.hosts.items()}
    known = {name: value for name, value in memory.items() if value}
    if not known or len(known) < len(memory):
        unmeasured = ", ".join(n for n in memory if n not in known) or "every host"
        return unknown(f"the memory of {unmeasured} was not recorded", memory_bytes=memory)
    total = sum(known.values())
    factor = float(evidence.expected.get("ram_factor", RAM_FACTOR))
    words = f"the working set of {size(touched)} is {touched / total:.3g} times the memory of {size(total)}"
    broken = [f"{words}, below the factor of {factor:g}"] if touched < factor * total else []
    fine = f"{words}, at least the factor of {factor:g}"
    return judge(broken, [], fine, working_set_bytes=touched, memory_bytes=memory, ram_factor=factor)


@rule("W3", scope=Scope.ATTEMPT, weight=Weight.VOID)
def tool_versions_equal(subject: AttemptSubject) -> Outcome:
    """Every host runs the same version of every tool, and it is the version that was planned.

    Compares `expected["tools"]`, `observed["tools"]` and the version that each load generator reported of itself.

    Prevents: a difference between two load generators read as one between two systems. Users ask for the environment
    beside the number in valkey-perf-benchmark #55, elastic/rally #54, NoKV #174 and TechEmpower #4065.
    """
    evidence = subject.evidence
    hosts = set(evidence.before.hosts) | {c.host for c in evidence.clients}
    planned = _versions(evidence.expected.get("tools"), hosts)
    seen = _versions(evidence.observed.get("tools"), hosts)
    clients = {c.client: c.tool_version for c in evidence.clients}
    reported = {_bare(version) for version in clients.values() if version}
    broken = [f"{tool} differs between hosts: {', '.join(sorted(v))}" for tool, v in seen.items() if len(v) > 1]
    if len(reported) > 1:
        broken.append(f"load generators report different versions: {', '.join(sorted(reported))}")
    for tool, versions in planned.items():
        if tool in seen and seen[tool] != versions:
            broken.append(f"{tool} is {' and '.join(sorted(seen[tool]))}, planned {' and '.join(sorted(versions))}")
    strange = sorted(reported - set().union(*planned.values())) if planned else []
    if strange and len(reported) == 1:
        broken.append(f"the load generators report {strange[0]}, which was not planned")
    missing = [] if planned else ["the plan holds no tool versions"]
    missing += [f"the version of {tool} was not observed" for tool in planned if tool not in seen and not reported]
    missing += [f"load generator {name} did not report its version" for name, v in clients.items() if not v]
    fine = "; ".join(f"{tool} {' and '.join(sorted(v))} on all hosts as planned" for tool, v in planned.items())
    return judge(broken, missing, fine, planned=planned, observed=seen, load_generators=clients)


def _versions(tools: Any, hosts: set[str]) -> dict[str, set[str]]:
    """Tool -> versions, from a mapping nested in any order of host and tool."""
    found: dict[str, set[str]] = {}
    for path, version in _leaves(tools or {}):
        tool = ".".join(part for part in path if part not in hosts) or "tool"
        found.setdefault(tool, set()).add(_bare(str(version)))
    return found


def _bare(version: str) -> str:
    """``fio-3.33`` and ``3.33`` are the same version."""
    return re.sub(r"^[A-Za-z_]+[- ]v?(?=\d)", "", version.strip())


def _leaves(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    if not isinstance(value, dict):
        yield path, value
        return
    for key, item in value.items():
        yield from _leaves(item, (*path, str(key)))


@rule("W5", scope=Scope.ATTEMPT, weight=Weight.FLAG, not_for=DEVICELESS)
def fill_level_in_range(subject: AttemptSubject) -> Outcome:
    """With the data set in place the file system is at most 90 % full and has an inode for every file.

    Takes the fuller of the two snapshots. btrfs makes inodes as needed and reports 0, CephFS -1 for no limit, so they are
    not judged there; nor where no figure is reported.

    Prevents: measuring an allocator in its last corner. Geriatrix found up to 80 % lower figures on aged and full file
    systems, and that the ranking of systems changes: the fill level is part of the configuration.
    """
    evidence = subject.evidence
    snapshots = [s for s in (evidence.before, evidence.after) if s is not None]
    levels = [level for s in snapshots if (level := _fill(s)) is not None]
    if not levels:
        return unknown("free and total bytes of the file system were not recorded")
    files = sum(len(c.file_names) for c in evidence.clients)
    inodes = [s.free_inodes for s in snapshots if s.free_inodes is not None and s.free_inodes >= 0]
    if evidence.before.mount.get("fstype") == "btrfs":
        inodes = []
    fill = max(levels)
    broken = []
    if fill > FILL_LIMIT:
        broken.append(f"the file system is {percent(fill)} full, above {percent(FILL_LIMIT)}")
    if inodes and min(inodes) < max(files, 1):
        broken.append(f"only {min(inodes)} free inodes are left for {files} files")
    fine = f"the file system is {percent(fill)} full, at most {percent(FILL_LIMIT)}"
    free_inodes = min(inodes) if inodes else None
    return judge(broken, [], fine, fill=fill, free_bytes=[s.free_bytes for s in snapshots], free_inodes=free_inodes)


def _fill(snapshot: Snapshot) -> float | None:
    if snapshot.free_bytes is None or not snapshot.total_bytes:
        return None
    return 1 - snapshot.free_bytes / snapshot.total_bytes


@rule("W6", scope=Scope.ATTEMPT, weight=Weight.FLAG)
def hosts_were_idle(subject: AttemptSubject) -> Outcome:
    """Before the load every host used at most 20 % of its CPUs and no device had I/O in flight.

    Unknown where the share was not measured over a span of time, or where a storage candidate has no device counters.

    Prevents: blaming a candidate for a neighbour, such as a cron job or the write-back of the attempt before. The noise
    between runs is the noise that matters (sel4bench #82), and dfsbench has its `WaitSettled` for that reason.
    """
    evidence = subject.evidence
    before = evidence.before
    shares = {n: h.cpu_busy_share if h.over_seconds > 0 else None for n, h in before.hosts.items()}
    broken = [
        f"{name} used {percent(share)} of its CPUs before the load, above {percent(IDLE_LIMIT)}"
        for name, share in shares.items()
        if share is not None and share > IDLE_LIMIT
    ]
    missing = [f"the CPU use of {name} was not measured" for name, share in shares.items() if share is None]
    if not shares:
        missing.append("no host was measured")
    flights = None if before.devices is None else {d.device: d.in_flight for d in before.devices}
    if flights is None and evidence.role not in DEVICELESS:
        missing.append("I/O in flight before the load was not measured")
    broken += [f"{device} had {n} operations in flight before the load" for device, n in (flights or {}).items() if n]
    busiest = max((s for s in shares.values() if s is not None), default=0.0)
    fine = f"hosts used at most {percent(busiest)} of their CPUs before the load and no I/O was in flight"
    return judge(broken, missing, fine, cpu_busy_share=shares, in_flight=flights)


@rule("W7", scope=Scope.ATTEMPT, weight=Weight.VOID)
def configuration_as_planned(subject: AttemptSubject) -> Outcome:
    """Mount options, kernel, system version and configuration found at the attempt equal the closure of the cell.

    Every key of `expected` that is part of the closure is compared with `observed`, however deep, and each difference
    is named; a key that was not observed leaves the answer unknown. The mount must also be the same after the load as
    before it (a file system that errors is remounted read-only).

    Prevents: numbers of another configuration than the label says: dittofs #1739 (the "gap" was log level, mount options
    and cache size), riofs #6 (flush not implemented), resume that mixes 30 s and 60 s cells (dfsbench).
    """
    evidence = subject.evidence
    expected = {k: _json(v) for k, v in evidence.expected.items() if k not in POLICY_KEYS}
    observed = {k: _json(v) for k, v in evidence.observed.items() if k in expected}
    differences = _differences(expected, observed)
    absent = [path for path, (_, seen) in differences.items() if seen == _ABSENT]
    broken = [
        f"{path} is {seen!r}, planned {planned!r}" for path, (planned, seen) in differences.items() if seen != _ABSENT
    ]
    after = evidence.after
    if after is not None and evidence.before.mount and after.mount and after.mount != evidence.before.mount:
        changed = [k for k in after.mount if after.mount[k] != evidence.before.mount.get(k)]
        broken.append(f"the mount changed during the attempt: {', '.join(changed) or 'an entry vanished'}")
    missing = [f"not observed: {', '.join(absent)}"] if absent else []
    if not expected:
        missing.append("the plan holds no configuration to compare with")
    fine = f"all of {', '.join(sorted(expected))} as planned"
    shown = {path: {"planned": planned, "observed": seen} for path, (planned, seen) in differences.items()}
    return judge(broken, missing, fine, compared=sorted(expected), differences=shown)


def _json(value: Any) -> Any:
    """The value as it comes back from the ledger, so that tuples equal lists and 1 equals 1.0."""
    return json.loads(json.dumps(value, sort_keys=True, default=str))


def _differences(expected: Any, observed: Any, path: str = "") -> dict[str, tuple[Any, Any]]:
    """Path -> (planned, found) wherever the two differ."""
    if isinstance(expected, dict) and isinstance(observed, dict):
        found: dict[str, tuple[Any, Any]] = {}
        for key in sorted(expected.keys() | observed.keys()):
            below = f"{path}.{key}" if path else str(key)
            found |= _differences(expected.get(key, _ABSENT), observed.get(key, _ABSENT), below)
        return found
    return {} if expected == observed else {path: (expected, observed)}


@rule("W9", scope=Scope.ATTEMPT, weight=Weight.VOID, finished_only=True, not_for=NULL)
def file_names_unique(subject: AttemptSubject) -> Outcome:
    """No two load generators use the same file.

    Does not apply to a single client; the threads of one client may share a file if the job says so.

    Prevents: clients that overwrite or pre-read each other's files and share one cache: fio PR #65, pbench #384 (open),
    pbench PR #1150, ydb/nbs #1684.
    """
    evidence = subject.evidence
    if point_of(evidence).clients == 1 and len(evidence.clients) == 1:
        return not_applicable("only one load generator")
    names = {c.client: sorted(set(c.file_names)) for c in evidence.clients}
    silent = [client for client, files in names.items() if not files]
    if silent or not names:
        return unknown(f"file names of {', '.join(silent) or 'all load generators'} were not recorded", files=names)
    uses = Counter(name for files in names.values() for name in files)
    shared = sorted(name for name, n in uses.items() if n > 1)
    broken = [f"{len(shared)} files are used by more than one load generator, such as {shared[0]}"] if shared else []
    return judge(broken, [], f"{len(uses)} files, each used by one load generator", shared=shared[:20])
