"""How a link is shaped, as arguments of tc(8); tests/system/test_fabric.py measures it."""

from __future__ import annotations

from assay.lab.fabric import hardware_address, shape_commands
from assay.model.lab import Network


def shaped(**given: object) -> list[str]:
    return shape_commands(Network.model_validate(given))


def test_an_unlimited_link_is_left_alone() -> None:
    assert shaped() == shaped(bandwidth="unlimited") == []


def test_bandwidth_is_in_bits_and_the_burst_a_millisecond() -> None:
    assert shaped(bandwidth="1Gbit") == ["root handle 1: tbf rate 1000000000bit burst 131072 latency 20ms"]
    assert shaped(bandwidth="10Gbit") == ["root handle 1: tbf rate 10000000000bit burst 1250000 latency 20ms"]


def test_delay_and_loss_by_netem_below_the_bandwidth() -> None:
    assert shaped(delay="2ms", loss="0.1%") == ["root handle 10: netem delay 2000us loss 0.1%"]
    assert shaped(delay="250us") == ["root handle 10: netem delay 250us"]
    assert shaped(bandwidth="1Gbit", loss="5%") == [
        "root handle 1: tbf rate 1000000000bit burst 131072 latency 20ms",
        "parent 1:1 handle 10: netem loss 5%",
    ]


def test_a_host_keeps_its_hardware_address() -> None:
    """Peers of a restarted host went on sending to its former address for minutes: GlusterFS clients stayed disconnected."""
    assert hardware_address("10.77.0.101") == "02:00:0a:4d:00:65"
    assert hardware_address("10.77.0.11") != hardware_address("10.77.0.12")
