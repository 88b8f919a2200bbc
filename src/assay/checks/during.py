"""Rules about the time while the load runs."""

from __future__ import annotations

import math
from collections import Counter

from assay.checks.common import (
    DEVICELESS,
    DIRECTIONS,
    MIB,
    NULL,
    Outcome,
    delivered,
    device_bytes,
    invalid,
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
from assay.model.evidence import AttemptEvidence, AttemptStatus

THREAD_CPU_LIMIT = 0.90
HOST_CPU_LIMIT = 0.95
FLOOR_SHARE = 0.90
RUNTIME_SHARE = 0.90
P99_FACTOR = 5
BACKGROUND_SHARE = 0.10
BACKGROUND_BYTES = 8 * MIB


@rule("R3", scope=Scope.ATTEMPT, weight=Weight.VOID)
def no_errors(subject: AttemptSubject) -> Outcome:
    """Every planned load generator reported, ended with exit code 0 and met no more errors than `error_limit` (0).

    Errors are counted by kind. An attempt that failed or was lost breaks this rule.

    Prevents: figures of a run that half failed. dfsbench "exits 0 even if 8/9 systems fail setup"; fio #672 mixes errors
    into its JSON; elbencho #120: an error "is not a fault; it is the answer", so it is data, but no valid figure.
    """
    evidence = subject.evidence
    kinds = sum((Counter(c.errors) for c in evidence.clients), Counter[str]())
    exits = {c.client: c.exit_code for c in evidence.clients}
    shown = {"errors": dict(kinds), "exit_codes": exits, "status": evidence.status}
    if evidence.status is AttemptStatus.LOST:
        return invalid("the attempt was lost: Assay was stopped while it ran", **shown)
    limit = int(evidence.expected.get("error_limit", 0))
    total = sum(kinds.values())
    broken = []
    if evidence.status is AttemptStatus.FAILED:
        broken.append(f"the attempt failed: {evidence.error or 'no reason was recorded'}")
    if total > limit:
        named = ", ".join(f"{kind} {n} times" for kind, n in kinds.most_common())
        broken.append(f"{total} errors ({named}), at most {limit} allowed")
    for client, code in exits.items():
        if code != 0:
            how = "was killed at its deadline" if code is None else f"ended with exit code {code}"
            broken.append(f"load generator {client} {how}")
    planned = point_of(evidence).clients
    if evidence.clients and len(evidence.clients) < planned:
        broken.append(f"only {len(evidence.clients)} of {planned} load generators reported")
    missing = [] if evidence.clients else ["no load generator's result was recorded"]
    return judge(broken, missing, f"{total} errors and exit code 0 of all {len(exits)} load generators", **shown)


@rule("R4", scope=Scope.ATTEMPT, weight=Weight.FLAG, finished_only=True, not_for=DEVICELESS)
def load_generator_not_saturated(subject: AttemptSubject) -> Outcome:
    """No thread of the load generator used 90 % of a core, no host 95 % of its CPUs, and the harness floor is not near.

    The CPU use of hosts is that of the snapshot after the load, if it spans at least half of the attempt. The floor is
    compared (below 90 % of the null target's operations per second) when `expected["floor"]` holds it. Floors themselves
    are meant to be the limit of the harness.

    Prevents: measuring the client instead of the storage, then calling all candidates equal. MLPerf Storage demands a
    minimum utilisation of the emulated accelerator, CBT has `nullbench`, IOR `DUMMY`, COSBench `mock` for that reason.
    """
    evidence = subject.evidence
    threads = {c.client: c.user_cpu_share + c.system_cpu_share for c in evidence.clients}
    broken = [
        f"threads of {client} used {percent(share)} of a core, limit {percent(THREAD_CPU_LIMIT)}"
        for client, share in threads.items()
        if share >= THREAD_CPU_LIMIT
    ]
    missing = [f"the CPU use of load generator {c} was not measured" for c, share in threads.items() if share <= 0]
    if not threads:
        missing.append("no load generator's result was recorded")
    hosts = _host_cpu(evidence)
    for name, share in hosts.items():
        if share is None:
            missing.append(f"the CPU use of host {name} over the load was not measured")
        elif share >= HOST_CPU_LIMIT:
            broken.append(f"host {name} used {percent(share)} of its CPUs, limit {percent(HOST_CPU_LIMIT)}")
    if not hosts:
        missing.append("the CPU use of hosts over the load was not measured")
    floor = evidence.expected.get("floor") or {}
    top = float(floor["iops"]) if "iops" in floor else None
    reached = evidence.summary.iops if evidence.summary else None
    if top is not None and reached is not None and reached >= FLOOR_SHARE * top:
        broken.append(f"{reached:.0f} operations/s are {percent(reached / top)} of what the null target reaches")
    busiest = max(threads.values(), default=0.0)
    fine = f"load generators used at most {percent(busiest)} of a core per thread"
    return judge(broken, missing, fine, threads=threads, hosts=hosts, floor_iops=top, iops=reached)


def _host_cpu(evidence: AttemptEvidence) -> dict[str, float | None]:
    """Share of all CPUs that each host used over the load; None where the measurement does not span it."""
    if evidence.after is None:
        return {}
    spans = [c.ended_at - c.started_at for c in evidence.clients]
    half = max(spans, default=math.inf) / 2
    return {n: h.cpu_busy_share if h.over_seconds >= half else None for n, h in evidence.after.hosts.items()}


@rule("R5", scope=Scope.ATTEMPT, weight=Weight.VOID, finished_only=True, not_for=NULL)
def long_enough(subject: AttemptSubject) -> Outcome:
    """A time-based run lasted at least 90 % of the time asked for, and every run at least 5 times its p99 latency.

    The shortest load generator counts. With too few operations for a p99 the highest percentile that they support is
    taken: the maximum of a few would void attempts for one slow operation, and voiding what is slow is a bias. The null
    target is given less time on purpose and is not judged.

    Prevents: averages over a run that stopped early, or over a handful of operations. IO500 marks short phases INVALID;
    mlcommons/endpoints takes 5 times the p99 as least duration; fio #687 ("why did it stop?").
    """
    evidence = subject.evidence
    point = point_of(evidence)
    lengths = [max(t.runtime_seconds for t in c.totals.values()) for c in evidence.clients if c.totals]
    if not lengths or len(lengths) < len(evidence.clients):
        return unknown("the run length of a load generator was not recorded")
    if point.whole_files:
        return not_applicable("each operation is the transfer of a whole file, however long it takes")
    shortest = min(lengths)
    q, tail = _tail(evidence)
    broken = []
    if point.time_based and shortest < RUNTIME_SHARE * point.runtime:
        broken.append(f"the run lasted {shortest:.3g} s of {point.runtime:g} s, below {percent(RUNTIME_SHARE)}")
    if shortest < P99_FACTOR * tail:
        broken.append(f"the run lasted {shortest:.3g} s, less than {P99_FACTOR} times its p{q} latency of {tail:.3g} s")
    missing = ["no percentile of the latency is known, as with fewer than 20 operations"] if math.isnan(tail) else []
    asked = f" of {point.runtime:g} s" if point.time_based else ""
    fine = f"the run lasted {shortest:.3g} s{asked}, {shortest / tail if tail else math.inf:.3g} times its p{q} latency"
    return judge(
        broken,
        missing,
        fine,
        shortest_seconds=shortest,
        asked_seconds=point.runtime,
        percentile=q,
        latency_seconds=tail,
    )


def _tail(evidence: AttemptEvidence) -> tuple[str, float]:
    """The highest percentile up to 99 that the operations support, and the worse direction's latency there (s)."""
    directions = evidence.summary.directions.values() if evidence.summary else ()
    tails: list[tuple[float, str]] = []
    for d in directions:
        shown = [q for q in d.latency_percentiles_seconds if float(q) <= 99]
        if shown:
            q = max(shown, key=float)
            tails.append((d.latency_percentiles_seconds[q], q))
    latency, q = max(tails, default=(math.nan, "99"))
    return q, latency


@rule("R6", scope=Scope.ATTEMPT, weight=Weight.FLAG, finished_only=True, not_for=DEVICELESS)
def no_background_activity(subject: AttemptSubject) -> Outcome:
    """Background work had settled before the load, and devices moved nothing that the load does not explain.

    Unexplained are reads while a cell only writes, and writes while it only reads, beyond both 8 MiB and 10 % of the
    bytes delivered. Reading back for verification is part of the load.

    Prevents: measuring a rebalance, scrub, compaction, garbage collection or upload that is still under way (dfsbench
    has `WaitSettled` for that).
    """
    evidence = subject.evidence
    point = point_of(evidence)
    settle = evidence.settle
    broken, missing = [], []
    if settle is None or settle.settled is None:
        missing.append("whether background work had settled is not known")
    elif not settle.settled:
        waited = f"after {settle.waited_seconds:.3g} s"
        broken.append(f"background work had not settled {waited}{f': {settle.detail}' if settle.detail else ''}")
    strange: dict[str, int] = {}
    if point.moves_data and not (point.reads and point.writes):
        own, other = DIRECTIONS if point.reads else DIRECTIONS[::-1]
        moved, load = device_bytes(evidence), delivered(evidence, own)
        if isinstance(moved, str):
            missing.append(moved)
        elif load is None:
            missing.append("no delivered bytes are known")
        else:
            strange = {f"device_{other}_bytes": moved.of(other), "delivered_bytes": load}
            verified = working_set(evidence) if point.writes and point.verify != "none" else 0
            if moved.of(other) > max(BACKGROUND_BYTES, BACKGROUND_SHARE * load) + verified:
                verb = "wrote" if other == "write" else "read"
                words = f"devices {verb} {size(moved.of(other))} while the load only did {own}s of {size(load)}"
                broken.append(words)
    fine = "background work had settled and devices moved nothing that the load does not explain"
    return judge(broken, missing, fine, settled=settle.settled if settle else None, **strange)
