"""Who is measured with whom, what iperf3 says, and what hosts find out without help."""

from __future__ import annotations

import itertools
import json
import socket

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.lab.baseline import MOST_HOSTS_IN_PAIRS, read_iperf, rounds
from assay.lab.host import HostError
from assay.lab.probes import listens, round_trip_seconds
from assay.model.baseline import Baselines, LinkFigure


@given(st.integers(2, MOST_HOSTS_IN_PAIRS))
def test_every_pair_once_and_no_host_twice_in_a_round(count: int) -> None:
    hosts = [f"s{i}" for i in range(count)]
    found = list(rounds(hosts, ["s0"]))
    for pairs in found:
        flat = [host for pair in pairs for host in pair]
        assert len(flat) == len(set(flat))
    everyone = sorted(tuple(sorted(pair)) for pairs in found for pair in pairs)
    assert everyone == sorted(tuple(sorted(pair)) for pair in itertools.combinations(hosts, 2))


def test_of_many_hosts_only_clients_and_neighbours() -> None:
    hosts = [*(f"s{i}" for i in range(20)), "c1"]
    found = {frozenset(pair) for pairs in rounds(hosts, ["c1"]) for pair in pairs}
    wanted = {frozenset((h, "c1")) for h in hosts[:-1]} | {frozenset(p) for p in itertools.pairwise(hosts)}
    assert found == wanted


def test_iperf3_is_read() -> None:
    report = {"end": {"sum_received": {"bits_per_second": 8e8}, "sum_sent": {"retransmits": 3}}}
    assert read_iperf(json.dumps(report)) == (1e8, 3)
    del report["end"]["sum_sent"]["retransmits"]  # not every kernel counts them
    assert read_iperf(json.dumps(report)) == (1e8, 0)


@pytest.mark.parametrize(
    ("output", "words"),
    [
        ('{"error": "unable to connect to server: Connection refused"}', "Connection refused"),
        ("", "no result"),
        ("[1]", "no result"),
        ('{"end": {"sum_received": {"bits_per_second": "fast"}}}', "no result"),
        ("iperf3: parameter error\nusage", "parameter error"),
    ],
)
def test_what_is_no_result_is_one_line(output: str, words: str) -> None:
    with pytest.raises(HostError, match=words) as caught:
        read_iperf(output)
    assert "\n" not in str(caught.value)


def test_the_best_link_bounds_what_is_not_shaped() -> None:
    links = [LinkFigure(source="s1", target="c1", bytes_per_second=v) for v in (1e9, 3e9)]
    found = Baselines(measured_at=0, seconds=1, links=links, all_to_client_bytes_per_second={"c1": 2e9})
    assert found.best_link_bytes_per_second == 3e9
    assert Baselines(measured_at=0, seconds=1).best_link_bytes_per_second is None


def test_listening_and_round_trips() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert not listens(port)
        server.listen()
        assert listens(port)
    assert not listens(port)
    assert 0 < round_trip_seconds("127.0.0.1", 3) < 0.5
