"""Rules about the results: counts agree, aggregates are recomputed, series and repeats are looked at."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from assay.checks.common import (
    DEVICELESS,
    DIRECTIONS,
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
    valid,
)
from assay.checks.registry import Scope, Weight, rule
from assay.checks.subjects import AttemptSubject, CellSubject
from assay.model.baseline import Bound, Limit
from assay.model.bounds import reads_from_memory
from assay.model.evidence import AttemptEvidence, AttemptStatus, Direction, DirectionSummary, Samples, SteadyEvidence

FloatArray = NDArray[np.float64]

DEVICE_SLACK = 0.01
COUNT_SLACK = 0.01
FIGURE_SLACK = 0.01
PERCENTILE_SLACK = 0.02
TREND_ALPHA = 0.05
TREND_EFFECT = 0.05
STRAGGLER_SHARE = 0.10
BOUND_SLACK = 0.02
FEWEST_FOR_PERCENTILE = 20  # for the median, with 10 operations beyond it


@rule("A1", scope=Scope.ATTEMPT, weight=Weight.VOID, finished_only=True)
def bytes_and_operations_agree(subject: AttemptSubject) -> Outcome:
    """Operations times block size are the bytes, and for direct I/O the devices moved at least those bytes.

    fio counts operations and bytes at different moments, so the two may differ by the operations in flight (threads
    times I/O depth; measured with fio 3.33: one operation after a ramp). Device counters are a lower bound with 1 % for
    rounding: replication and metadata only add. A candidate that has no counters is judged by the counts alone, and the
    message says so.

    Prevents: believing one counter. fio #1918 (aggregate miscalculated); a sparse or compressing back end that never
    touches a device; riofs #6 (flush that does nothing).
    """
    evidence = subject.evidence
    point = point_of(evidence)
    if not any(c.totals for c in evidence.clients):
        return unknown("the load generators recorded no bytes and operations")
    if not point.moves_data:
        return not_applicable("the operations move no file data")
    broken, missing = [], []
    if operation := point.operation_bytes:
        slack = point.in_flight * operation
        for client in evidence.clients:
            for direction, total in client.totals.items():
                if abs(total.operations * operation - total.bytes) > slack:
                    broken.append(
                        f"{client.client}: {total.operations} {direction}s of {size(operation)} are not the "
                        f"{size(total.bytes)} reported"
                    )
    missing += [f"load generator {c.client} recorded nothing" for c in evidence.clients if not c.totals]
    shown: dict[str, Any] = {}
    words = "operations times block size are the bytes reported"
    if point.direct and evidence.role not in DEVICELESS:
        moved = device_bytes(evidence)
        counted = evidence.before.devices or (evidence.after and evidence.after.devices)
        if not isinstance(moved, str):
            for direction in DIRECTIONS:
                load = delivered(evidence, direction) or 0
                shown[direction] = {"delivered_bytes": load, "device_bytes": moved.of(direction)}
                if moved.of(direction) < (1 - DEVICE_SLACK) * load:
                    verb = "wrote" if direction == "write" else "read"
                    broken.append(f"devices {verb} {size(moved.of(direction))}, the load {size(load)} by direct I/O")
            words += ", and the devices moved at least as many"
        elif counted:
            missing.append(moved)
        else:
            words += f" ({moved}, so they were not cross-checked)"
    return judge(broken, missing, words, **shown)


@rule("A2", scope=Scope.ATTEMPT, weight=Weight.VOID, finished_only=True)
def aggregate_equals_raw(subject: AttemptSubject) -> Outcome:
    """Totals of the summary are the sums over clients, and its percentiles those of the merged raw histograms.

    Bytes and operations must be equal. Bandwidth and IOPS must lie (within 1 %) between the total over the time from the
    first client's start to the last one's end, and the sum of the clients' rates. Percentiles are recomputed here with NumPy, not with the code that made the summary, and may
    differ by one rank or 2 %. The histograms must hold as many samples as there were operations, within 1 % or the
    operations in flight.

    Prevents: wrong aggregates that nobody recomputes. fio #610, #1881 (aggregate vanishes with several jobs), #1918; IOR
    #336: mdtest's mean and standard deviation were wrong for years.
    """
    evidence, samples = subject.evidence, subject.samples
    summary = evidence.summary
    if summary is None or not evidence.clients:
        return unknown("there is no summary, or no client to recompute it from")
    allowed = point_of(evidence).in_flight * len(evidence.clients)
    broken, missing = [], []
    recomputed: dict[str, dict[str, float]] = {}
    for direction in DIRECTIONS:
        has_totals = any(direction in c.totals for c in evidence.clients)
        shown = summary.directions.get(direction)
        if shown is None:
            if has_totals and delivered(evidence, direction):
                broken.append(f"the summary lacks the {direction}s")
            continue
        if not has_totals:
            broken.append(f"the summary has {direction}s that no load generator reported")
            continue
        broken += _wrong_totals(evidence, direction, shown)
        if not shown.operations:
            continue
        latency, counts = _merged(samples, direction)
        n = int(counts.sum())
        if n == 0:
            missing.append(f"raw histograms of the {direction}s were not recorded")
            continue
        if abs(n - shown.operations) > max(COUNT_SLACK * shown.operations, allowed):
            broken.append(f"histograms hold {n} {direction}s, the summary {shown.operations}")
        if not shown.latency_percentiles_seconds and shown.operations >= FEWEST_FOR_PERCENTILE:
            missing.append(f"the summary has no percentiles of the {direction}s")
        recomputed[direction] = {}
        for q, value in shown.latency_percentiles_seconds.items():
            low, high = _percentile(latency, counts, float(q) / 100)
            recomputed[direction][q] = high
            if not (1 - PERCENTILE_SLACK) * low <= value <= (1 + PERCENTILE_SLACK) * high:
                broken.append(f"p{q} of the {direction}s is {value:.4g} s in the summary, {high:.4g} s in the raw data")
    if not summary.directions:
        missing.append("the summary is empty")
    fine = "sums over clients and percentiles of the merged histograms equal the summary"
    return judge(broken, missing, fine, recomputed_percentiles_seconds=recomputed)


def _wrong_totals(evidence: AttemptEvidence, direction: Direction, shown: DirectionSummary) -> list[str]:
    totals = [c.totals[direction] for c in evidence.clients if direction in c.totals]
    broken = []
    for name, summed, stated in (
        ("bytes", sum(t.bytes for t in totals), shown.bytes),
        ("operations", sum(t.operations for t in totals), shown.operations),
    ):
        if summed != stated:
            broken.append(f"{direction} {name} are {stated} in the summary, {summed} summed over clients")
    # The longest time the clients can have taken together: from the first start to the last end.
    last = max(c.ended_at for c in evidence.clients if direction in c.totals)
    window = max(
        c.totals[direction].runtime_seconds + last - c.ended_at for c in evidence.clients if direction in c.totals
    )
    if window > 0:
        for name, amounts, stated in (
            ("bandwidth", [float(t.bytes) for t in totals], shown.bandwidth_bytes_per_second),
            ("IOPS", [float(t.operations) for t in totals], shown.iops),
        ):
            low = sum(amounts) / window
            high = sum(a / t.runtime_seconds for a, t in zip(amounts, totals, strict=True) if t.runtime_seconds > 0)
            if not (1 - FIGURE_SLACK) * low <= stated <= (1 + FIGURE_SLACK) * high:
                broken.append(f"{direction} {name} is {stated:.6g} in the summary, {low:.6g} from the clients")
    operations = sum(t.operations for t in totals)
    if operations:
        mean = sum(t.latency_mean_seconds * t.operations for t in totals) / operations
        if not math.isclose(mean, shown.latency_mean_seconds, rel_tol=FIGURE_SLACK):
            stated = shown.latency_mean_seconds
            broken.append(f"mean {direction} latency is {stated:.4g} s in the summary, {mean:.4g} s from the clients")
    return broken


def _merged(samples: Samples | None, direction: Direction) -> tuple[FloatArray, NDArray[np.int64]]:
    """Latencies (seconds, ascending) and how often each was seen, over all clients."""
    parts = [c.histograms[direction] for c in samples.clients if direction in c.histograms] if samples else []
    if not parts:
        return np.empty(0), np.empty(0, dtype=np.int64)
    raw = np.concatenate([np.asarray(h.latency_ns, dtype=np.int64) for h in parts])
    weights = np.concatenate([np.asarray(h.counts, dtype=np.int64) for h in parts])
    values, where = np.unique(raw, return_inverse=True)
    counts = np.zeros(values.size, dtype=np.int64)
    np.add.at(counts, where, weights)
    return values / 1e9, counts


def _percentile(latency: FloatArray, counts: NDArray[np.int64], q: float) -> tuple[float, float]:
    """The latencies of the ranks on either side of q (seconds): definitions of a percentile differ by one rank."""
    ranks = np.cumsum(counts)
    total = int(ranks[-1])
    low, high = (min(max(math.floor(q * total) + step, 1), total) for step in (-1, 1))
    return float(latency[np.searchsorted(ranks, low)]), float(latency[np.searchsorted(ranks, high)])


@rule("A3", scope=Scope.ATTEMPT, weight=Weight.FLAG, finished_only=True, not_for=NULL)
def steady_window_found(subject: AttemptSubject) -> Outcome:
    """The bandwidth series has a steady window.

    "No steady state" is a result, shown beside the figure, and excludes nothing.

    Prevents: one number for a run that had two regimes, such as a burst buffer or an SSD cache that fills. SNIA's PTS
    and mlcommons/endpoints report the steady part and the total together; Tarasov et al. show behaviour over time.
    """
    steady = _steady(subject)
    if why := _no_series(subject):
        return not_applicable(why)
    if steady is None:
        return unknown("the steady-state analysis was not done")
    shown = steady.model_dump()
    if steady.found:
        window = f"from {steady.start_seconds:.3g} s to {steady.stop_seconds:.3g} s"
        return valid(f"steady {window}", **shown)
    return invalid(f"no steady state: {steady.reason or 'no reason was recorded'}", **shown)


def _steady(subject: AttemptSubject) -> SteadyEvidence | None:
    return subject.evidence.summary.steady if subject.evidence.summary else None


def _no_series(subject: AttemptSubject) -> str:
    """Why there is no series of the bandwidth to look at; empty when there should be one."""
    point = point_of(subject.evidence)
    if point.whole_files:
        return "each operation is the transfer of a whole file: its time is the result"
    return "" if point.moves_data else "operations on names are a fixed amount of work, done once"


@rule("A4", scope=Scope.ATTEMPT, weight=Weight.FLAG, finished_only=True, not_for=NULL)
def no_trend(subject: AttemptSubject) -> Outcome:
    """Within the examined window bandwidth has no trend that is both significant (p < 0.05) and at least 5 %.

    The size of a significant trend is recomputed from the raw series: Sen's slope across the window over its mean.

    Prevents: calling a slow drift steady. mlcommons/endpoints: "a lone CoV stopping rule converges even on a slowly
    drifting series".
    """
    steady = _steady(subject)
    if why := _no_series(subject):
        return not_applicable(why)
    if steady is None or steady.trend_p is None:
        return unknown("the trend was not tested")
    if steady.coefficient_of_variation is None:
        return unknown(f"the trend was not tested: {steady.reason or 'the series was not examined'}")
    if steady.trend_p >= TREND_ALPHA:
        return valid(f"no significant trend (p = {steady.trend_p:.2g})", trend_p=steady.trend_p)
    seconds, values = _bandwidth_series(subject.samples)
    stop = steady.stop_seconds if steady.stop_seconds > steady.start_seconds else math.inf
    window = values[(seconds > steady.start_seconds) & (seconds <= stop + 1e-9)]
    if window.size < 4 or window.mean() <= 0:
        return unknown(
            f"the trend is significant (p = {steady.trend_p:.2g}), but no series was recorded to tell its size"
        )
    from assay.stats import mann_kendall

    change = mann_kendall(window, None).slope * (window.size - 1) / float(window.mean())
    words = f"bandwidth changes by {percent(change)} across the window (p = {steady.trend_p:.2g})"
    broken = [words] if abs(change) >= TREND_EFFECT else []
    return judge(broken, [], f"{words}, less than {percent(TREND_EFFECT)}", trend_p=steady.trend_p, change=change)


def _bandwidth_series(samples: Samples | None) -> tuple[FloatArray, FloatArray]:
    """Ends of intervals (s) and bandwidth (bytes/s) summed over clients and directions."""
    total: dict[float, float] = {}
    for client in samples.clients if samples else []:
        for series in client.series:
            if series.quantity == "bandwidth" and series.interval_seconds > 0:
                for second, value in zip(series.seconds, series.values, strict=True):
                    end = round(second / series.interval_seconds) * series.interval_seconds
                    total[end] = total.get(end, 0.0) + value
    ends = sorted(total)
    return np.array(ends, dtype=np.float64), np.array([total[e] for e in ends], dtype=np.float64)


@rule("A5", scope=Scope.CELL, weight=Weight.FLAG)
def no_outliers(subject: CellSubject) -> Outcome:
    """No usable attempt lies more than 14.8 median absolute deviations from the median of its cell.

    An outlier is named and stays in every figure. Fewer than 3 usable attempts leave the answer unknown.

    Prevents: dropping what does not fit, and not noticing what does not fit. The threshold is hyperfine's
    (`outlier_detection.rs`); pbench #2192 ("10 failures and 5 successes … could be a fluke") is what hidden attempts do.
    """
    from assay.stats import modified_z, outliers

    def look(values: list[float]) -> Outcome:
        scores, far = modified_z(values), outliers(values)
        odd = [i for i, flag in enumerate(far) if flag]
        words = [f"{subject.value_ids[i]} ({values[i]:.4g}, {scores[i]:+.3g} MAD)" for i in odd]
        broken = [f"outliers, kept in every figure: {', '.join(words)}"] if odd else []
        fine = f"none of {len(values)} attempts is an outlier"
        return judge(broken, [], fine, outliers=[subject.value_ids[i] for i in odd], modified_z=scores)

    return _of_repeats(subject, look)


@rule("A6", scope=Scope.CELL, weight=Weight.FLAG)
def first_not_slow(subject: CellSubject) -> Outcome:
    """The first usable attempt is no outlier in the slow direction.

    For latencies slow means large. Fewer than 3 usable attempts leave the answer unknown.

    Prevents: counting a lazy mount, a lazy allocation or a cold cache as noise; hyperfine warns of a slow first run
    apart from other outliers, because its cure differs (warm up, or prepare).
    """
    from assay.stats import slow_first

    def look(values: list[float]) -> Outcome:
        words = f"the first of {len(values)} attempts gave {values[0]:.4g}, the median is {np.median(values):.4g}"
        slow = slow_first(values, larger_is_better=not subject.metric.startswith("latency"))
        broken = [f"{words}: the first attempt was slow"] if slow else []
        return judge(broken, [], words, first=values[0], median=np.median(values))

    return _of_repeats(subject, look)


def _of_repeats(subject: CellSubject, look: Callable[[list[float]], Outcome]) -> Outcome:
    if len(subject.values) != len(subject.value_ids):
        return unknown(f"{len(subject.values)} values, but {len(subject.value_ids)} attempt ids")
    if len(subject.values) < 3:
        return unknown(f"{len(subject.values)} usable attempts; at least 3 are needed")
    return look(subject.values)


@rule("A7", scope=Scope.ATTEMPT, weight=Weight.FLAG, finished_only=True)
def percentiles_supported(subject: AttemptSubject) -> Outcome:
    """At least 10 operations lie beyond every percentile that is shown: 1000 operations for p99, 10,000 for p99.9.

    Prevents: calling a maximum a percentile; "a p99 of 64 samples is the maximum" (after Hoefler & Belli, SC'15).
    """
    from assay.stats import percentile_supported

    summary = subject.evidence.summary
    if summary is not None and summary.directions and point_of(subject.evidence).whole_files:
        most = max(d.operations for d in summary.directions.values())
        if most < FEWEST_FOR_PERCENTILE:
            return not_applicable(f"no percentile is shown of {most} transfers")
    if summary is None or not any(d.latency_percentiles_seconds for d in summary.directions.values()):
        return unknown("no percentiles were recorded")
    counts = {name: d.operations for name, d in summary.directions.items()}
    broken = []
    for name, d in summary.directions.items():
        thin = [q for q in d.latency_percentiles_seconds if not percentile_supported(d.operations, float(q) / 100)]
        if thin:
            broken.append(f"{d.operations} {name}s are too few for p{', p'.join(thin)}")
    fine = f"{', '.join(f'{n} {name}s' for name, n in counts.items())} are enough for the percentiles shown"
    return judge(broken, [], fine, operations=counts)


@rule("A8", scope=Scope.ATTEMPT, weight=Weight.FLAG, finished_only=True, not_for=NULL)
def no_stragglers(subject: AttemptSubject) -> Outcome:
    """Between the first and the last thread, and the first and the last client, to be done lie at most 10 % of the run.

    Prevents: an average over time in which part of the load had ended. elbencho shows first done and last done apart;
    MLPerf Storage lets the slowest rank define duration and throughput.
    """
    clients = subject.evidence.clients
    silent = [c.client for c in clients if not c.job_runtimes_seconds]
    if silent or not clients:
        return unknown(f"the run time of the threads of {', '.join(silent) or 'all clients'} was not recorded")
    threads = [t for c in clients for t in c.job_runtimes_seconds]
    run = max(threads)
    if run <= 0:
        return unknown("no thread ran for a measurable time")
    if len(threads) == 1:
        return not_applicable("only one thread")
    gaps = {
        "threads": run - min(threads),
        "clients": max(c.ended_at for c in clients) - min(c.ended_at for c in clients),
    }
    broken = [
        f"the last of the {what} was done {gap:.3g} s after the first, {percent(gap / run)} of the run"
        for what, gap in gaps.items()
        if gap > STRAGGLER_SHARE * run
    ]
    fine = f"first and last done lie {max(gaps.values()):.3g} s apart, {percent(max(gaps.values()) / run)} of the run"
    return judge(broken, [], fine, gap_seconds=gaps, run_seconds=run)


@rule("A9", scope=Scope.ATTEMPT, weight=Weight.VOID, not_for=NULL)
def data_verified(subject: AttemptSubject) -> Outcome:
    """Where verification was asked for, every load generator did it and found no error.

    Prevents: a fast file system that returns the wrong bytes, and a verification that was asked for and never ran
    (mlcommons/storage #866: a rule was dormant through a published round).
    """
    evidence = subject.evidence
    method = point_of(evidence).verify
    if method == "none":
        return not_applicable("verification was not asked for")
    errors = {c.client: c.verify_errors for c in evidence.clients}
    found = sum(n for n in errors.values() if n)
    broken = [f"{found} blocks failed verification by {method}"] if found else []
    if not broken and evidence.status is not AttemptStatus.FINISHED:
        return not_applicable(f"the attempt is {evidence.status} and found no wrong data before it ended")
    missing = [f"{name} did not report a verification" for name, n in errors.items() if n is None]
    if not errors:
        missing.append("no load generator's result was recorded")
    return judge(broken, missing, f"all data verified by {method}", verify_errors=errors)


@rule("A10", scope=Scope.ATTEMPT, weight=Weight.VOID, finished_only=True, not_for=DEVICELESS)
def not_above_the_bound(subject: AttemptSubject) -> Outcome:
    """No direction of a shaped network carried more than it can: a result above its bound did not cross the network.

    Allowed above the link's rate are 2 % (a frame without TCP time stamps holds 0.8 % more data, and iperf3 itself was
    measured up to 0.7 % above) and what a shaper lets through at once after a pause, its burst, once per link and run.
    After a ramp the operations then in flight may have crossed before; they are allowed too. Patterns that read and write
    are judged by each direction of the links they share. Reads of a buffered cell that claims to be warm come from memory
    by intention and are left out. Unknown when the network is shaped and no bound was computed.

    Prevents: figures that no network could have carried, taken for the system's speed. The 2023 study saw random writes
    above the limits of its layouts and could only note it; fio #1059 (CephFS reads served by the client's cache).
    """
    evidence, point = subject.evidence, point_of(subject.evidence)
    bound, summary = evidence.bound, evidence.summary
    if bound is None or not point.moves_data:
        return not_applicable("there is no network of hosts to be bound by, or nothing that loads it")
    if not bound.enforced:
        return not_applicable("the links are not shaped, so what they carry at most is not known")
    if not bound.limits or not bound.link_bytes_per_second:
        return unknown("the network is shaped, but no bound was computed for this system and layout")
    does: dict[Direction, bool] = {"read": point.reads and not reads_from_memory(point), "write": point.writes}
    judged: list[Direction] = [d for d in DIRECTIONS if does[d]]
    if not judged:
        return not_applicable("the cell claims that its reads come from the client's memory")
    if summary is None or any(d not in summary.directions for d in judged):
        return unknown("the bandwidth was not recorded")
    speeds: dict[Direction, float] = {d: summary.directions[d].bandwidth_bytes_per_second for d in judged}
    over = [words for limit in bound.limits if (words := _over(limit, bound, subject, speeds))]
    shown = " and ".join(f"{d} {_rate(speed)}" for d, speed in speeds.items())
    most: dict[Direction, float | None] = {"read": bound.read_bytes_per_second, "write": bound.write_bytes_per_second}
    fits = " and ".join(_rate(most[d] or 0.0) for d in judged)
    broken = (
        [f"{shown} is above what the network lets through, {over[0]}: something answered from memory"] if over else []
    )
    return judge(broken, [], f"{shown}, the network lets through {fits}", speeds=speeds, bound=bound.model_dump())


def _over(limit: Limit, bound: Bound, subject: AttemptSubject, speeds: dict[Direction, float]) -> str:
    """The limit in words when more went through than it allows, else nothing."""
    evidence, point = subject.evidence, point_of(subject.evidence)
    per_byte: dict[Direction, float] = {"read": limit.per_byte_read, "write": limit.per_byte_written}
    used = sum(per_byte[d] * speed for d, speed in speeds.items())
    if not used or evidence.summary is None or bound.link_bytes_per_second is None:
        return ""
    seconds = max(evidence.summary.directions[d].bytes / speed for d, speed in speeds.items() if speed)
    under_way = point.in_flight * point.operation_bytes * max(1, len(evidence.clients)) if point.ramp else 0
    more = limit.links * bound.burst_bytes + max(per_byte[d] for d in speeds) * under_way
    if used <= limit.links * bound.link_bytes_per_second * (1 + BOUND_SLACK) + more / seconds:
        return ""
    shares: dict[Direction, float] = {d: per_byte[d] * speed / used for d, speed in speeds.items()}
    possible = limit.links * bound.link_bytes_per_second
    words = " and ".join(_rate(shares[d] * possible / per_byte[d]) for d in speeds if per_byte[d])
    return f"{words} ({limit.nic})"


def _rate(bytes_per_second: float) -> str:
    return f"{bytes_per_second / 1e6:.3g} MB/s"
