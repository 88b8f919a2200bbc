"""Ceph's configuration: profiles, a candidate's own options, keys, pools."""

from __future__ import annotations

import base64
import configparser
import struct

import pytest

from assay.model.layout import parse_layout
from assay.systems.base import AdapterError
from assay.systems.ceph_conf import (
    check_options,
    default_pg_num,
    keyring,
    metadata_copies,
    new_key,
    own_options,
    render,
    sections,
)

RAIN = parse_layout("rain-4-2")


def test_the_file_is_what_the_sections_say() -> None:
    made = sections({"osd.osd_op_num_shards": 4, "client.client_oc": False}, RAIN, 6)
    text = render(made, "f00d", "10.77.0.11", "10.77.0.0/24")
    parsed = configparser.ConfigParser(interpolation=None)
    parsed.read_string(text)
    assert parsed["global"]["fsid"] == "f00d"
    assert parsed["global"]["mon_host"] == "[v2:10.77.0.11:3300,v1:10.77.0.11:6789]"
    assert parsed["osd"]["osd_op_num_shards"] == "4"
    assert parsed["client"]["client_oc"] == "false"
    for name, options in made.items():
        assert options.items() <= dict(parsed[name]).items()


def test_stock_is_ceph_but_for_what_a_lab_needs() -> None:
    stock, fast = (sections({"profile": profile}, RAIN, 6) for profile in ("stock", "fast"))
    assert set(stock) == {"global", "osd"}
    for option in ("osd_heartbeat_grace", "osd_max_backfills", "mgr_stats_period"):
        assert option not in stock["global"]
        assert option in fast["global"]
    assert stock["global"]["mon_allow_pool_size_one"] == "true"
    assert "bluestore_cache_size" not in stock["osd"]


def test_a_candidates_own_option_wins_over_any_section() -> None:
    made = sections({"global.osd_op_num_shards": 7}, RAIN, 6)
    assert made["global"]["osd_op_num_shards"] == "7"
    assert "osd_op_num_shards" not in made["osd"]


@pytest.mark.parametrize(("layout", "hosts", "alone"), [
    ("replicated-2", 2, True), ("replicated-3", 3, True), ("distributed", 3, False), ("rain-4-2", 6, False),
    ("rain-2-1", 3, False), ("distributed", 1, True),
])  # fmt: skip
def test_one_host_that_is_left_can_report_the_others(layout: str, hosts: int, alone: bool) -> None:
    found = sections({}, parse_layout(layout), hosts)["global"].get("mon_osd_min_down_reporters")
    assert found == ("1" if alone else None)


@pytest.mark.parametrize(("tuning", "words"), [
    ({"profile": "slow"}, "ceph has no profile 'slow'; known: fast, stock"),
    ({"disk.size": 3}, "'disk.size' is no option of Ceph; write for example osd.osd_op_num_shards"),
    ({"osd.a b": 3}, "'osd.a b' is no option"),
    ({"osd.x\n[mon]": 3}, "is no option"),
])  # fmt: skip
def test_what_cannot_be_right(tuning: dict[str, object], words: str) -> None:
    with pytest.raises(AdapterError, match=words):
        check_options(tuning)


def test_own_options_are_those_with_a_section() -> None:
    tuning = {"access": "fuse", "osd.a": True, "mon.b": 1.5}
    assert own_options(tuning) == [("osd", "a", "true"), ("mon", "b", "1.5")]


def test_keys_are_cephx_secrets_and_differ() -> None:
    key = base64.b64decode(new_key())
    kind, seconds, _, length = struct.unpack("<hiih", key[:12])
    assert (kind, length, len(key)) == (1, 16, 28)
    assert seconds > 1_600_000_000
    assert new_key() != new_key()
    assert keyring({"osd.0": ("abc=", {"mon": "allow *"})}) == '[osd.0]\n\tkey = abc=\n\tcaps mon = "allow *"\n'


@pytest.mark.parametrize(("osds", "layout", "groups", "copies"), [
    (6, "rain-4-2", 32, 3), (6, "replicated-3", 64, 3), (6, "distributed", 128, 3), (6, "replicated-6", 32, 6),
    (12, "rain-8-4", 32, 5), (2, "replicated-2", 32, 2), (1, "distributed", 32, 1), (64, "distributed", 512, 3),
])  # fmt: skip
def test_pools(osds: int, layout: str, groups: int, copies: int) -> None:
    parsed = parse_layout(layout)
    assert default_pg_num(osds, parsed.width) == groups
    assert metadata_copies(parsed, osds) == copies
