"""Messages against a trace of a real system, bounds against published figures, and what holds of every bound."""

from __future__ import annotations

from collections import Counter
from typing import Any, Literal

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.model.baseline import Bound
from assay.model.bounds import PAYLOAD_SHARE, bound_for, burst_bytes, payload_bytes_per_second
from assay.model.lab import Lab
from assay.model.layout import Layout, parse_layout
from assay.model.messages import (
    CLIENT,
    PATTERNS,
    Operation,
    Servers,
    UnknownPatternError,
    messages,
    stripe_bytes,
)
from assay.model.point import FioPoint

MB = 1e6
LINK = 1200 * MB  # the KISTI cluster's 10 Gbit/s
MIB = 1 << 20
UNLIMITED = Lab(hosts=6)


def point(pattern: Any = "write", **changes: Any) -> FioPoint:
    base: dict[str, Any] = {
        "pattern": pattern, "block_size": 128 << 10, "threads": 1, "iodepth": 32, "engine": "libaio", "size": 1 << 30,
        "runtime": 2.0, "ramp": 0.0, "time_based": True, "direct": True, "cache": "cold", "fsync": 0, "fdatasync": 0,
        "end_fsync": True, "rate": None, "read_share": 0.5, "verify": "none", "clients": 1,
    }  # fmt: skip
    return FioPoint.model_validate({**base, **changes})


def bound(system: str, layout: str, pattern: str = "write", *, lab: Lab = UNLIMITED, **changes: Any) -> Bound:
    found = bound_for(system, parse_layout(layout), lab, point(pattern, **changes), LINK)
    assert found is not None
    return found


# --- messages -------------------------------------------------------------------------------------------------------

# read and written by the bricks of a dispersed 4+2 volume of glusterfs 10.3 (debug/trace below the ec translator);
# file length before, offset, length, bytes of bricks' reads, bytes of bricks' writes
TRACED = [
    ("write", MIB, 0, 4096, 0, 6144),
    ("write", MIB, 0, 2048, 0, 3072),
    ("write", MIB, 100, 100, 2048, 3072),
    ("write", MIB, 2000, 100, 4096, 6144),
    ("write", MIB, 4096, 100, 2048, 3072),
    ("write", MIB, 8704, 4096, 4096, 9216),
    ("write", MIB, 8192, 131072, 0, 196608),
    ("write", MIB, 8193, 131070, 4096, 196608),
    ("write", MIB, 65537, 2046, 2048, 3072),
    ("write", MIB, 500000, 10, 2048, 3072),
    ("write", MIB, 1048576, 4096, 0, 6144),
    ("write", 1052672, 1052772, 100, 0, 3072),
    ("read", 1052872, 0, 4096, 4096, 0),
    ("read", 1052872, 0, 131072, 131072, 0),
    ("read", 1052872, 100, 100, 2048, 0),
    ("read", 1052872, 2000, 100, 4096, 0),
    ("read", 1052872, 5000, 4096, 6144, 0),
    ("read", 1052872, 300001, 65536, 67584, 0),
]


@pytest.mark.parametrize(("direction", "exists", "offset", "length", "bricks_read", "bricks_wrote"), TRACED)
def test_glusterfs_dispersed_as_traced(
    direction: Literal["read", "write"], exists: int, offset: int, length: int, bricks_read: int, bricks_wrote: int
) -> None:
    sent = messages("glusterfs", Servers(parse_layout("rain-4-2"), 6), Operation(direction, offset, length, 0, exists))
    assert sum(m.bytes for m in sent if m.target == CLIENT) == bricks_read
    assert sum(m.bytes for m in sent if m.source == CLIENT) == bricks_wrote
    writers = {m.target for m in sent if m.source == CLIENT}
    assert len(writers) == (6 if bricks_wrote else 0)
    assert len({m.source for m in sent if m.target == CLIENT}) == (4 if bricks_read else 0)


# facts of section 8: per user byte of full stripes, what leaves the client and what goes between servers
@pytest.mark.parametrize(
    ("system", "layout", "client_out", "between"),
    [
        ("nfs", "distributed", 1, 0), ("lustre", "distributed", 1, 0), ("xtreemfs", "distributed", 1, 0),
        ("glusterfs", "distributed", 1, 0), ("eos", "distributed", 1, 0), ("glusterfs", "replicated-3", 3, 0),
        ("glusterfs", "rain-4-2", 6 / 4, 0), ("tahoe", "rain-3-7", 10 / 3, 0), ("hdfs", "replicated-3", 1, 2),
        ("moosefs", "replicated-2", 1, 1), ("hdfs", "rain-6-3", 9 / 6, 0), ("ceph", "replicated-3", 1, 2),
        ("eos", "replicated-2", 1, 1), ("xtreemfs", "replicated-3", 1, 2), ("ceph", "rain-4-2", 1, 5 / 4),
        ("eos", "rain-4-2", 1, 5 / 4),
    ],
)  # fmt: skip
def test_table_of_writes(system: str, layout: str, client_out: float, between: float) -> None:
    servers = Servers(parse_layout(layout), 12)
    length = 12 * stripe_bytes(system, servers.layout) if stripe_bytes(system, servers.layout) > 1 else 12 * MIB
    sent = messages(system, servers, Operation("write", 0, length))
    assert sum(m.bytes for m in sent if m.source == CLIENT) / length == pytest.approx(client_out, rel=1e-5)
    assert sum(m.bytes for m in sent if CLIENT not in (m.source, m.target)) / length == pytest.approx(between, rel=1e-5)


@pytest.mark.parametrize(("system", "between"), [("ceph", 3 / 4), ("eos", 3 / 4), ("glusterfs", 0), ("hdfs", 0)])
def test_table_of_reads(system: str, between: float) -> None:
    length = 16 * MIB
    sent = messages(system, Servers(parse_layout("rain-4-2"), 6), Operation("read", 0, length))
    assert sum(m.bytes for m in sent if m.target == CLIENT) == length
    assert sum(m.bytes for m in sent if m.target != CLIENT) / length == between


def test_ceph_partial_overwrite_reads_and_rewrites_whole_stripes() -> None:
    sent = messages("ceph", Servers(parse_layout("rain-4-2"), 6), Operation("write", 0, 4096))
    between = Counter((m.target == "host:0", m.bytes) for m in sent if m.source != CLIENT)
    assert between == {(True, 4096): 3, (False, 4096): 5}, "4 reads + 6 writes of 4 KiB, one of each on the primary"


def test_small_reads_fetch_what_they_touch_where_systems_can() -> None:
    servers = Servers(parse_layout("rain-4-2"), 6)
    assert [m.bytes for m in messages("hdfs", servers, Operation("read", MIB - 100, 300))] == [100, 200]
    assert [m.bytes for m in messages("glusterfs", servers, Operation("read", 0, 100))] == [512] * 4


def test_a_host_sends_nothing_to_itself() -> None:
    sent = messages("eos", Servers(parse_layout("rain-4-2"), 3), Operation("write", 0, 4 * MIB))
    assert all(m.source != m.target for m in sent)
    assert sum(m.bytes for m in sent if m.source == "host:0") == 4 * MIB, "two of six stripes stay on the entry host"


def test_files_are_placed_apart() -> None:
    servers = Servers(parse_layout("replicated-3"), 6)
    first, second = (
        {m.target for m in messages("glusterfs", servers, Operation("write", 0, 1, file))} for file in (0, 1)
    )
    assert len(first) == len(second) == 3 and not first & second


def test_unknown_patterns_and_operations() -> None:
    with pytest.raises(UnknownPatternError, match="rain-4-2"):
        messages("nfs", Servers(parse_layout("rain-4-2"), 6), Operation("read", 0, 1))
    with pytest.raises(ValueError, match="positive"):
        messages("nfs", Servers(parse_layout("distributed"), 6), Operation("read", 0, 0))


# --- bounds ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("system", "layout", "hosts", "expected"),
    [
        ("glusterfs", "rain-4-2", 6, 800),  # 2023 paper, section IV: 4/6 of 1200 MB/s
        ("glusterfs", "replicated-6", 6, 200),  # 1/6
        ("glusterfs", "replicated-3", 6, 400),
        ("glusterfs", "distributed", 6, 1200),
        ("eos", "rain-4-2", 6, 960),  # the entry server sends 5/4
        ("eos", "rain-4-2", 3, 1200),  # of which the three hosts of the paper spare it one
        ("eos", "replicated-6", 6, 240),
        ("hdfs", "replicated-3", 6, 1200),
        ("moosefs", "replicated-2", 6, 1200),
        ("tahoe", "rain-3-7", 10, 360),
        ("nfs", "distributed", 6, 1200),
    ],
)
def test_bounds_of_one_file_written(system: str, layout: str, hosts: int, expected: float) -> None:
    found = bound(system, layout, lab=Lab(hosts=hosts))
    assert found.write_bytes_per_second == pytest.approx(expected * MB)
    assert found.total_bytes_per_second == found.write_bytes_per_second
    assert found.read_bytes_per_second is None and found.read_limit == ""


@pytest.mark.parametrize("layout", ["distributed", "replicated-6", "rain-4-2"])
def test_reads_of_large_blocks_are_bound_by_the_client(layout: str) -> None:
    found = bound("glusterfs", layout, "read")
    assert found.read_bytes_per_second == pytest.approx(LINK)
    assert found.read_limit == "client in: 1 byte per byte read"
    assert found.write_bytes_per_second is None


def test_many_clients_and_files_are_bound_by_all_hosts() -> None:
    many: dict[str, Any] = {"threads": 8, "clients": 8}
    lab = Lab(hosts=6, clients=8)
    assert bound("glusterfs", "distributed", lab=lab, **many).write_bytes_per_second == pytest.approx(6 * LINK)
    assert bound("glusterfs", "rain-4-2", lab=lab, **many).write_bytes_per_second == pytest.approx(4 * LINK)
    eos = bound("eos", "rain-4-2", lab=lab, **many)
    assert eos.write_bytes_per_second == pytest.approx(6 * LINK / (1 + 5 / 4))
    assert eos.write_limit == "all hosts in: 2.25 bytes per byte written"
    assert bound("nfs", "distributed", lab=lab, **many).write_limit != ""
    assert bound("eos", "rain-4-2", **many).write_bytes_per_second == pytest.approx(LINK), "one client host only"


def test_ceph_spreads_one_file_over_primaries() -> None:
    sequential = bound("ceph", "rain-4-2", iodepth=1)
    assert sequential.write_bytes_per_second == pytest.approx(LINK), "the client; two objects may be in use at once"
    assert bound("ceph", "replicated-6", iodepth=1).write_bytes_per_second == pytest.approx(2 * LINK / 5)
    assert bound("ceph", "replicated-6", "randwrite").write_bytes_per_second == pytest.approx(6 * LINK / 6)
    assert bound("ceph", "replicated-6", direct=False).write_bytes_per_second == pytest.approx(6 * LINK / 6)


def test_small_random_operations_move_whole_stripes() -> None:
    small: dict[str, Any] = {"block_size": 512}
    assert bound("glusterfs", "rain-4-2", "randread", **small).read_bytes_per_second == pytest.approx(LINK / 4)
    assert bound("glusterfs", "rain-4-2", "randwrite", **small).write_bytes_per_second == pytest.approx(LINK / 6)
    assert bound("glusterfs", "rain-4-2", "randwrite", block_size=4096).write_bytes_per_second == pytest.approx(
        800 * MB
    )
    # what a page cache or write-behind may merge is counted as merged
    assert bound("glusterfs", "rain-4-2", "write", **small).write_bytes_per_second == pytest.approx(800 * MB)
    assert bound("glusterfs", "rain-4-2", "randread", direct=False, **small).read_bytes_per_second == pytest.approx(
        LINK
    )
    assert bound("glusterfs", "rain-4-2", "randread", options={"bsrange": "512-4k"}, **small).read_bytes_per_second == (
        pytest.approx(LINK)
    )
    # 3000 bytes touch 2.45 stripes of 2 KiB on average
    odd = bound("glusterfs", "rain-4-2", "randread", block_size=3000).read_bytes_per_second
    assert odd is not None and LINK * 3000 / (3 * 2048) < odd < LINK * 3000 / (2 * 2048)


def test_mixed_patterns_use_both_directions_of_a_link() -> None:
    mixed = bound("glusterfs", "distributed", "randrw", read_share=0.5)
    assert mixed.read_bytes_per_second == mixed.write_bytes_per_second == pytest.approx(LINK)
    assert mixed.total_bytes_per_second == pytest.approx(2 * LINK), "full duplex"
    assert bound("glusterfs", "distributed", "rw", read_share=0.75).total_bytes_per_second == pytest.approx(LINK / 0.75)
    assert bound("glusterfs", "replicated-3", "rw").total_bytes_per_second == pytest.approx(LINK / 1.5)


def test_dead_hosts_get_nothing_sent() -> None:
    degraded: dict[str, Any] = {"degraded_hosts": 2}
    assert bound("glusterfs", "rain-4-2", **degraded).write_bytes_per_second == pytest.approx(LINK)
    assert bound("glusterfs", "replicated-6", **degraded).write_bytes_per_second == pytest.approx(LINK / 4)
    # at best both dead hosts are in the set of the file
    assert bound("glusterfs", "replicated-3", **degraded).write_bytes_per_second == pytest.approx(LINK)
    assert bound("glusterfs", "rain-4-2", "read", **degraded).read_bytes_per_second == pytest.approx(LINK)


def test_shaped_links_carry_payload_and_are_enforced() -> None:
    lab = Lab.model_validate({"hosts": 6, "network": {"bandwidth": "1Gbit"}})
    found = bound("glusterfs", "rain-4-2", lab=lab)
    assert found.enforced
    link = found.link_bytes_per_second
    assert link == payload_bytes_per_second(125_000_000) == pytest.approx(119.55 * MB, rel=1e-3)
    assert 0.955e9 < 8 * (link or 0) < 0.958e9, "what iperf3 measured"
    assert found.write_bytes_per_second == pytest.approx((link or 0) * 4 / 6)
    assert found.burst_bytes == burst_bytes(125_000_000) * PAYLOAD_SHARE
    assert not bound("glusterfs", "rain-4-2").enforced


def test_reads_that_claim_to_come_from_memory_have_no_bound() -> None:
    warm: dict[str, Any] = {"cache": "warm", "direct": False}
    found = bound("glusterfs", "rain-4-2", "read", **warm)
    assert found.read_bytes_per_second is None and found.total_bytes_per_second is None
    mixed = bound("glusterfs", "rain-4-2", "rw", **warm)
    assert mixed.read_bytes_per_second is None
    assert mixed.total_bytes_per_second == pytest.approx(800 * MB / 0.5)
    assert bound("glusterfs", "rain-4-2", "read", cache="warm").read_bytes_per_second == pytest.approx(LINK)


def test_where_no_bound_is_known() -> None:
    layout = parse_layout("rain-4-2")
    assert bound_for("local", layout, UNLIMITED, point(), LINK) is None
    assert bound_for("nfs", layout, UNLIMITED, point(), LINK) is None
    assert bound_for("glusterfs", layout, UNLIMITED, point(), None) is None
    assert bound_for("glusterfs", layout, UNLIMITED, point(), 0.0) is None
    assert bound_for("glusterfs", layout, Lab(kind="existing"), point(), LINK) is None


# --- properties -----------------------------------------------------------------------------------------------------


@st.composite
def cells(draw: st.DrawFn) -> tuple[str, Layout, int, FioPoint]:
    system, kind = draw(st.sampled_from(sorted(PATTERNS)))
    data, parity = draw(st.integers(1, 8)), draw(st.integers(1, 4))
    layout = {
        "distributed": Layout("distributed"),
        "replicated": Layout("replicated", 1, parity),
        "rain": Layout("rain", data, parity),
    }[kind]
    pattern = draw(st.sampled_from(["read", "write", "randread", "randwrite", "rw", "randrw"]))
    chosen = point(
        pattern,
        block_size=draw(st.sampled_from([512, 3000, 4096, 131072, MIB, 4 * MIB])),
        threads=draw(st.integers(1, 16)),
        clients=draw(st.integers(1, 4)),
        iodepth=draw(st.sampled_from([1, 32])),
        direct=draw(st.booleans()),
        read_share=draw(st.floats(0.05, 0.95)),
        degraded_hosts=draw(st.integers(0, layout.parity)),
    )
    return system, layout, draw(st.integers(1, 4)), chosen


def _figures(found: Bound | None) -> tuple[float, ...]:
    assert found is not None
    figures = (found.read_bytes_per_second, found.write_bytes_per_second, found.total_bytes_per_second)
    return tuple(f for f in figures if f is not None)


@given(cells(), st.integers(1, 16))
def test_no_direction_is_faster_than_the_clients_links(cell: tuple[str, Layout, int, FioPoint], hosts: int) -> None:
    system, layout, clients, chosen = cell
    found = bound_for(system, layout, Lab(hosts=hosts, clients=clients), chosen, LINK)
    assert found is not None
    most = min(clients, chosen.clients) * LINK * (1 + 1e-9)
    assert (found.read_bytes_per_second or 0) <= most
    assert (found.write_bytes_per_second or 0) <= most
    assert 0 < (found.total_bytes_per_second or 0) <= 2 * most / 0.1


@given(cells(), st.integers(1, 16), st.floats(1.0, 100.0))
def test_faster_links_scale_the_bound(cell: tuple[str, Layout, int, FioPoint], hosts: int, factor: float) -> None:
    system, layout, clients, chosen = cell
    lab = Lab(hosts=hosts, clients=clients)
    slow = _figures(bound_for(system, layout, lab, chosen, LINK))
    assert _figures(bound_for(system, layout, lab, chosen, factor * LINK)) == pytest.approx([factor * f for f in slow])


@given(cells(), st.integers(0, 8))
def test_more_hosts_never_lower_the_bound(cell: tuple[str, Layout, int, FioPoint], more: int) -> None:
    # fewer hosts than holders save the entry server messages to itself, so this holds from there on
    system, layout, clients, chosen = cell
    few = layout.width + chosen.degraded_hosts
    small = _figures(bound_for(system, layout, Lab(hosts=few, clients=clients), chosen, LINK))
    large = _figures(bound_for(system, layout, Lab(hosts=few + more, clients=clients), chosen, LINK))
    assert all(b >= a * (1 - 1e-9) for a, b in zip(small, large, strict=True))


@given(cells(), st.integers(1, 16))
def test_more_parity_never_raises_what_can_be_written(cell: tuple[str, Layout, int, FioPoint], hosts: int) -> None:
    system, layout, clients, chosen = cell
    chosen = chosen.model_copy(update={"degraded_hosts": 0})
    more = Layout(layout.kind, layout.data, layout.parity + (layout.kind != "distributed"))
    lab = Lab(hosts=max(hosts, more.width), clients=clients)
    less, safer = (bound_for(system, which, lab, chosen, LINK) for which in (layout, more))
    assert less is not None and safer is not None
    assert (safer.write_bytes_per_second or 0) <= (less.write_bytes_per_second or 0) * (1 + 1e-9)


@given(cells(), st.integers(1, 16), st.integers(0, 1 << 24), st.integers(1, 1 << 23))
def test_the_client_sends_and_gets_at_least_the_data(
    cell: tuple[str, Layout, int, FioPoint], hosts: int, offset: int, length: int
) -> None:
    system, layout, _, _ = cell
    servers = Servers(layout, hosts)
    written = messages(system, servers, Operation("write", offset, length))
    read = messages(system, servers, Operation("read", offset, length))
    assert sum(m.bytes for m in written if m.source == CLIENT) >= length * (1 - 1e-9)
    assert sum(m.bytes for m in read if m.target == CLIENT) >= length
