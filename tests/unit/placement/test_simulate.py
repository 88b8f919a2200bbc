"""Accesses over targets: what is counted, and what section V of the methodology's paper says of it."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.placement import measures, workload
from assay.placement.errors import PlacementError
from assay.placement.simulate import count, simulate, stream_starts
from assay.placement.spread import Plan, spread
from assay.placement.whatif import change_targets

DATA = Path(__file__).parents[2] / "data" / "placement"
TABLE_3 = (0.1675, 0.5565, 0.1256, 0.0752, 0.0752)  # shares of seconds with 0, 1, 2 active targets; the rest 3 or 4
PLANS = [
    Plan("single", 1), Plan("xtreemfs", 8, width=4), Plan("xtreemfs", 6, "replicated", 1, 2),
    Plan("lustre", 8, width=8, unit=1 << 20), Plan("eos", 8, "rain", 4, 2), Plan("eos", 8, "replicated", 1, 1),
    Plan("ceph", 6, "replicated", 1, 2), Plan("ceph", 6, "rain", 4, 2), Plan("glusterfs", 6, "distributed"),
    Plan("glusterfs", 6, "rain", 4, 2), Plan("glusterfs", 6, "replicated", 1, 1, unit=64 << 20),
    Plan("hdfs", 12, "replicated", 1, 2), Plan("hdfs", 12, "rain", 6, 3), Plan("moosefs", 6, "replicated", 1, 1),
    Plan("tahoe", 12, "rain", 3, 7),
]  # fmt: skip


def _trace(rows: list[tuple[float, str, str, int, int]]) -> workload.Accesses:
    names = ("time", "op", "file", "offset", "bytes")
    return workload.from_columns(dict(zip(names, map(list, zip(*rows, strict=True)), strict=True)))


def test_pieces_are_counted_by_second_target_and_class() -> None:
    trace = _trace([(5.0, "open", "a", 0, 0), (10.0, "write", "a", 0, 250), (11.5, "READ", "a", 100, 1)])
    plan = Plan("lustre", 3, width=3, unit=100)
    laid = spread(plan, trace.names, trace.sizes, 1)
    order = laid.tables.tolist()
    targets = [int(laid.writes[1][g]) for g in order]
    got = count([trace], laid, np.zeros(1, np.uint64))
    assert got.rows["write"].shape == (2, 3)
    assert [int(got.rows["write"][0, t]) for t in targets] == [1, 1, 1]
    assert [int(got.bytes["write"][t]) for t in targets] == [100, 100, 50]
    assert got.rows["read"][1, targets[1]] == 1 and got.rows["read"].sum() == 1
    assert got.touches == 4


def test_once_counts_a_target_once_per_access() -> None:
    trace = _trace([(0.0, "write", "a", 0, 1000)])
    plan = Plan("lustre", 2, width=2, unit=100)
    assert simulate(trace, plan).rows["write"].sum() == 10
    assert simulate(trace, plan, once=True).rows["write"].sum() == 2


@settings(max_examples=40, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 7), st.integers(1, 5))
def test_the_counter_equals_plain_python(seed: int, unit: int, streams: int) -> None:
    rng = np.random.default_rng(seed)
    rows = [
        (float(rng.uniform(0, 5)), str(rng.choice(["read", "write"])), str(rng.integers(3)), int(rng.integers(40)),
         int(rng.integers(30)))
        for _ in range(30)
    ]  # fmt: skip
    trace = _trace(rows)
    plan = Plan("xtreemfs", 4, width=3, unit=unit)
    laid = spread(plan, trace.names, trace.sizes, streams, seed)
    starts = stream_starts(streams, seed, 3.0)
    for threads in (1, 2):
        got = count([trace], laid, starts, threads=threads)
        expected = {c: np.zeros_like(got.rows[c]) for c in workload.CLASSES}
        for s in range(streams):
            for i in range(len(trace)):
                second = int((int(trace.at[i]) + int(starts[s])) // 10**9)
                number = s * len(trace.names) + int(trace.file[i])
                table = laid.tables[int(laid.table_starts[number]) : int(laid.table_starts[number + 1])]
                begin, end = int(trace.offset[i]), int(trace.offset[i] + trace.length[i])
                for piece in range(begin // unit, -(-end // unit) if end > begin else begin // unit):
                    target = int(laid.writes[1][table[piece % len(table)]])
                    expected[workload.CLASSES[trace.op[i]]][second, target] += 1
        for c in workload.CLASSES:
            assert (got.rows[c] == expected[c]).all()


def test_chunks_give_what_the_whole_gives() -> None:
    whole = workload.fio_pattern("randrw", block_size=4096, size=1 << 20, threads=2, seconds=20, seed=3)
    laid = spread(PLANS[1], whole.names, whole.sizes, 2, 1)
    starts = stream_starts(2, 1)
    parts = [
        workload.Accesses(
            whole.at[a:b], whole.op[a:b], whole.file[a:b], whole.offset[a:b], whole.length[a:b], whole.names
        )
        for a, b in ((0, 100), (100, 101), (101, len(whole)))
    ]
    one, many = count([whole], laid, starts), count(parts, laid, starts)
    assert all((one.rows[c] == many.rows[c]).all() for c in workload.CLASSES)


@pytest.mark.parametrize("plan", PLANS, ids=lambda p: f"{p.system}-{p.kind}-{p.unit}")
def test_every_system_lays_files_over_its_targets(plan: Plan) -> None:
    trace = workload.fio_pattern("randrw", block_size=1 << 20, size=1 << 29, threads=4, seconds=30, seed=1)
    found = simulate(trace, plan, streams=3, seed=7)
    again = simulate(trace, plan, streams=3, seed=7, threads=2)
    for op in workload.CLASSES:
        assert found.rows[op].shape[1] == plan.targets
        assert found.rows[op].sum() > 0
        assert (found.rows[op] == again.rows[op]).all(), "one seed, one answer"
    written = int((trace.op == workload.WRITE).sum()) * 3
    copies = plan.parts if plan.kind == "replicated" or plan.system in ("glusterfs", "tahoe") else 1
    if plan.system == "ceph":
        copies = plan.parts
    if plan.kind == "rain" and plan.system in ("eos", "hdfs"):
        copies = 1 + plan.parity
    assert found.rows["write"].sum() >= written * copies


@pytest.mark.parametrize(
    ("plan", "says"),
    [
        (Plan("zfs", 3), "unknown system 'zfs'; known: ceph"),
        (Plan("ceph", 5, "rain", 4, 2), "6 parts need as many targets"),
        (Plan("lustre", 3, width=4), "stripe width of 4"),
        (Plan("glusterfs", 5, "replicated", 1, 1), "no multiple of the 2"),
        (Plan("moosefs", 6, "rain", 4, 2), "moosefs has no layout 'rain'"),
    ],
)
def test_impossible_plans_are_named(plan: Plan, says: str) -> None:
    trace = _trace([(0.0, "write", "a", 0, 1)])
    with pytest.raises(PlacementError, match=says):
        simulate(trace, plan)


def test_bad_traces_are_named() -> None:
    with pytest.raises(PlacementError, match="no column op, file"):
        workload.from_columns({"time": [1], "offset": [0], "bytes": [1]})
    with pytest.raises(PlacementError, match="negative or missing"):
        _trace([(0.0, "write", "a", -1, 1)])
    with pytest.raises(PlacementError, match="no read and no write"):
        _trace([(0.0, "open", "a", 0, 1)])
    with pytest.raises(PlacementError, match="do not fit into memory"):
        simulate(_trace([(0.0, "write", "a", 0, 1), (1e9, "write", "a", 0, 1)]), Plan("xtreemfs", 64))


def test_a_file_set_is_written_whole() -> None:
    files = workload.fileset([3 << 20, 0, 1000], bytes_per_second=1e6)
    assert files.sizes.tolist() == [3 << 20, 1000]
    assert len(files) == 4 and int(files.length.sum()) == (3 << 20) + 1000


# --- measures ---


def test_measures_of_a_known_pattern() -> None:
    rows = np.array([[60, 60, 0, 0], [0, 0, 0, 0]], np.uint32)
    e = measures.evenness(rows)
    assert (e.sd_counts, e.cv_counts, e.sd_binary, e.mean_active) == (15.0, 1.0, 0.25, 1.0)
    assert e.active_shares == (0.5, 0.0, 0.5) and e.load_imbalance == 2.0
    assert measures.evenness(rows, idle_seconds=False).sd_counts == 30.0
    assert measures.evenness(rows, threshold=60).mean_active == 0.0
    with pytest.raises(PlacementError):
        measures.evenness(np.zeros((0, 3), np.uint32))


def _superposed(width: int, streams: int, seconds: int = 3000) -> measures.Evenness:
    """Streams as in the facts: each makes 0 to 4 random targets active in each second, with 60 accesses each."""
    rng = np.random.default_rng(width * 1000 + streams)
    rows = np.zeros((seconds, width), np.uint32)
    for _ in range(streams):
        active = rng.choice(5, seconds, p=np.array(TABLE_3) / sum(TABLE_3))
        order = rng.permuted(np.tile(np.arange(width), (seconds, 1)), axis=1)
        for second, k in enumerate(active.tolist()):
            rows[second, order[second, :k]] += 60
    return measures.evenness(rows)


def test_deviations_are_those_of_the_superposition_model() -> None:
    """The published model's rows within what two Monte Carlo runs may differ by."""
    model = json.loads((DATA / "paper_sigma_superposition_model.json").read_text())
    for row in model["rows"]:
        if row["streams"] > 8:
            continue
        e = _superposed(row["SW"], row["streams"])
        assert e.sd_counts == pytest.approx(row["sd_counts"], rel=0.05)
        assert e.sd_binary * 60 == pytest.approx(row["sd_binary_m60"], rel=0.12, abs=0.4)
        assert e.mean_active == pytest.approx(row["mean_active"], rel=0.07)


@pytest.mark.parametrize(("width", "peak"), [(4, 1.7), (8, 3.8), (16, 7.9)])
def test_half_full_patterns_peak_where_the_model_says(width: int, peak: float) -> None:
    streams = range(1, 13)
    found = [_superposed(width, s, 1500) for s in streams]
    crossing = measures.crossing(list(streams), [e.mean_active for e in found], width / 2)
    assert crossing == pytest.approx(peak, rel=0.15)
    assert measures.half_full_streams(1.34, width) == pytest.approx(peak, rel=0.05)
    counts = [e.sd_counts for e in found]
    assert counts == sorted(counts), "the deviation of counts never falls again"
    binary = [e.sd_binary for e in found]
    assert abs(streams[int(np.argmax(binary))] - peak) <= max(1, 0.15 * peak)


def test_the_peak_is_found_in_simulated_accesses_too() -> None:
    """The whole pipeline: single-target bursts of streams with files of their own, in random order over 8 targets."""
    rows = [(t + i / 100, "write", f"f{t}", 0, 1) for t in range(100) for i in range(60)]
    trace = _trace(rows)
    streams = [2, 4, 5, 6, 8, 12]
    active = []
    for s in streams:
        found = simulate(trace, Plan("xtreemfs", 8, width=8), streams=s, seed=5, within_seconds=0.0)
        active.append(found.evenness("write").mean_active)
    assert measures.crossing(streams, active, 4.0) == pytest.approx(measures.half_full_streams(1.0, 8), rel=0.15)


# --- what if ---


def test_a_change_of_targets_moves_what_it_must_and_more() -> None:
    ceph = change_targets(Plan("ceph", 10, "replicated", 1, 2), 1)
    assert ceph.least == pytest.approx(1 / 11, rel=0.01) and ceph.least * 0.9 < ceph.moved < ceph.least * 1.5
    gluster = change_targets(Plan("glusterfs", 10, "distributed"), 1)
    assert gluster.least < gluster.moved < 1
    lustre = change_targets(Plan("lustre", 10), 1)
    assert lustre.moved == 0.0
    with pytest.raises(PlacementError, match="at least 6 must be left"):
        change_targets(Plan("ceph", 6, "rain", 4, 2), -1)
