"""Rules about what was in memory: "cold" is proven, never assumed."""

from __future__ import annotations

import math
from statistics import median

from assay.checks.common import (
    DEVICELESS,
    Outcome,
    cold_proof,
    invalid,
    judge,
    not_applicable,
    percent,
    point_of,
    size,
    unknown,
    valid,
    working_set,
)
from assay.checks.registry import Scope, Weight, rule
from assay.checks.subjects import AttemptSubject, CellSubject

COLD_SLACK = 0.01
WARM_SHARE = 0.10
CACHED_SHARE = 0.10
RANDOM_RATIO = 1.5
CARRY_OVER_MADS = 3.0
CARRY_OVER_SHARE = 0.20


@rule("K1", scope=Scope.ATTEMPT, weight=Weight.VOID, not_for=DEVICELESS)
def cache_drop_executed(subject: AttemptSubject) -> Outcome:
    """For a cell that claims to be cold, every step of the cache drop ran, its exit code was kept, and it was 0.

    Unknown when a step's exit code was not kept.

    Prevents the commonest defect of the field, a cache drop that never happened, found in six tools: bench-fio runs
    `echo 3 > ...` without a shell, CBT logs a refused `sudo tee` and goes on, smallfile's libc stub returns 0,
    Phoronix skips what is not writable, dfsbench warns and still says "cold", MLPerf Storage's check is `pass`.
    """
    evidence = subject.evidence
    if point_of(evidence).cache != "cold":
        return not_applicable("the cell does not claim to be cold")
    cold = evidence.cold
    if cold is None or not cold.requested or not cold.steps:
        return invalid("the cell claims to be cold, but no cache drop was executed")
    shown = {"steps": cold.steps, "exit_codes": cold.exit_codes}
    failed = [f"{s} ended with exit code {c}" for s, c in zip(cold.steps, cold.exit_codes, strict=False) if c != 0]
    missing = (
        [f"{len(cold.steps)} steps, but {len(cold.exit_codes)} exit codes were kept"]
        if len(cold.steps) != len(cold.exit_codes)
        else []
    )
    return judge(failed, missing, f"{', '.join(cold.steps)}: every exit code was kept and is 0", **shown)


@rule("K2", scope=Scope.ATTEMPT, weight=Weight.FLAG, not_for=DEVICELESS)
def page_cache_fell(subject: AttemptSubject) -> Outcome:
    """After the drop `Cached` of /proc/meminfo fell by at least 10 %, or is at most 10 % of the working set.

    For buffered cells that claim to be cold. Pages of tmpfs and of other running programs count as `Cached` and cannot be
    dropped, so what stays is no fault where K3 proves that the devices read every byte.

    Prevents: trusting an exit code. bench-fio's drop ends with 0 and drops nothing, and so does smallfile's when its libc
    is not found; a drop of dirty pages without `sync` ends with 0 too and drops little.
    """
    evidence = subject.evidence
    point = point_of(evidence)
    if point.cache != "cold":
        return not_applicable("the cell does not claim to be cold")
    if point.direct or not point.moves_data:
        return not_applicable("nothing fills the page cache")
    cold = evidence.cold
    if cold is None or cold.cached_before_bytes is None or cold.cached_after_bytes is None:
        return unknown("the page cache was not measured before and after the drop")
    before, after, touched = cold.cached_before_bytes, cold.cached_after_bytes, working_set(evidence)
    words = f"the page cache went from {size(before)} to {size(after)}, {percent(after / touched)} of the working set"
    shown = {"cached_before_bytes": before, "cached_after_bytes": after, "working_set_bytes": touched}
    if after <= 0.9 * before or after <= CACHED_SHARE * touched:
        return valid(words, **shown)
    proof = cold_proof(subject, COLD_SLACK)
    if not isinstance(proof, str) and proof.cold:
        return valid(f"{words}; what stayed was other data, as the devices read every byte delivered", **shown)
    return invalid(words, **shown)


@rule("K3", scope=Scope.ATTEMPT, weight=Weight.VOID, finished_only=True, not_for=DEVICELESS)
def devices_read_what_was_delivered(subject: AttemptSubject) -> Outcome:
    """For a reading cell that claims to be cold, the devices read at least the bytes that were delivered.

    1 % is allowed for rounding; read-ahead only adds. Bytes of the ramp, which the load generator does not report, are
    charged at half of the measured rate. A buffered, time-based cell that goes over its data several times reads it
    from memory the second time: it is not cold, and this rule says so. Nor can a compressing file system be proven
    cold, as it reads fewer bytes than it delivers. A buffered cell that claims to be *warm* must show the converse:
    devices read at most 10 % of what was delivered. Without byte counters the answer is unknown.

    Prevents: "cold" figures from memory. MLPerf Storage #464 ("zero storage traffic from epoch 2"), IO500 #109
    (random-read results "impacted by caching-sensitive behavior"), fio #1059 (CephFS, "do not know which numbers to
    use"), dfsbench #1574.
    """
    point = point_of(subject.evidence)
    if point.cache == "any" or not point.reads:
        return not_applicable("the cell does not read" if not point.reads else "the cell claims nothing about caches")
    if not point.moves_data:
        return not_applicable("names and attributes are read, whose bytes nobody counts")
    if point.cache == "warm" and point.direct:
        return not_applicable("direct I/O cannot be warm in the page cache")
    proof = cold_proof(subject, COLD_SLACK)
    if isinstance(proof, str):
        return unknown(f"whether the reads were {point.cache} cannot be shown: {proof}")
    words = f"devices read {size(proof.device_read)} for {size(proof.delivered)} delivered ({percent(proof.share)})"
    shown = {
        "delivered_bytes": proof.delivered,
        "device_read_bytes": proof.device_read,
        "needed_bytes": proof.needed,
        "working_set_bytes": working_set(subject.evidence),
    }
    if point.cache == "warm":
        broken = [f"not warm: {words}, above {percent(WARM_SHARE)}"] if proof.share > WARM_SHARE else []
        return judge(broken, [], f"warm: {words}", **shown)
    broken = [] if proof.cold else [f"not cold: {words}; at least {size(proof.needed)} were needed"]
    return judge(broken, [], f"cold: {words}", **shown)


@rule("K4", scope=Scope.CELL, weight=Weight.FLAG)
def random_not_faster_than_sequential(subject: CellSubject) -> Outcome:
    """Random reads are at most 1.5 times as fast as sequential reads of the same block size and threads.

    Compares medians of bandwidth. Does not apply to cells that do not read at random, to the null engine, and where the
    study has no sequential counterpart.

    Prevents: reading a small region from a cache without noticing; this ratio is how IO500 #109 found results "impacted
    by caching-sensitive behavior".
    """
    attempts = [a for a in subject.attempts if a.attempt_id in set(subject.value_ids)]
    if not subject.attempts:
        return unknown("the cell has no attempt")
    first = subject.attempts[0]
    if first.role in DEVICELESS:
        return not_applicable("no device is read")
    if not (point_of(first).random and point_of(first).reads and not point_of(first).writes):
        return not_applicable("the cell does not read at random")
    if "sequential-read" not in subject.siblings:
        return not_applicable("the study has no cell that differs in being sequential only")
    sequential = subject.siblings["sequential-read"]
    random = [a.summary.directions["read"].bandwidth_bytes_per_second for a in attempts if a.summary is not None]
    if not random or not sequential:
        return unknown("one of the two cells has no usable attempt")
    ratio = median(random) / median(sequential)
    words = (
        f"random reads reach {size(median(random))}/s, sequential reads {size(median(sequential))}/s, ratio {ratio:.2f}"
    )
    broken = [f"{words}, above {RANDOM_RATIO:g}: a cache is likely"] if ratio > RANDOM_RATIO else []
    return judge(broken, [], words, random=median(random), sequential=median(sequential), ratio=ratio)


@rule("K5", scope=Scope.CELL, weight=Weight.FLAG)
def nothing_carried_over(subject: CellSubject) -> Outcome:
    """The first attempt does not differ from the median of the later ones by both 3 MAD and 20 %, in either direction.

    Fewer than 4 usable attempts leave the answer unknown.

    Prevents: state carried from attempt to attempt (a cache that stays filled, a file that is first written and later
    overwritten, a log that grows), which makes the number of blocks part of the result. MLPerf Storage #464 was such a
    case: the first epoch read storage, the later ones memory.
    """
    values = subject.values
    if len(values) < 4:
        return unknown(f"{len(values)} usable attempts; at least 4 are needed")
    if not all(math.isfinite(v) and v > 0 for v in values):
        return unknown("a value is not a positive number")
    later = median(values[1:])
    mad = median(abs(v - later) for v in values[1:])
    difference = values[0] - later
    share = difference / later
    words = f"the first attempt differs from the median of the {len(values) - 1} later ones by {percent(share)}"
    far = abs(share) > CARRY_OVER_SHARE and abs(difference) > CARRY_OVER_MADS * mad
    broken = [f"{words} and {abs(difference) / mad if mad else math.inf:.3g} MAD: state is carried over"] if far else []
    return judge(broken, [], words, first=values[0], later_median=later, later_mad=mad, share=share)
