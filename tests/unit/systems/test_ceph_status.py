"""Ceph's JSON, as a real 16.2.15 printed it (tests/data/ceph)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from assay.model.layout import parse_layout
from assay.systems.base import AdapterError
from assay.systems.ceph_status import (
    health,
    layout_of_pool,
    map_age_seconds,
    parse_directory_layout,
    parse_status,
    pool_of,
)

DATA = Path(__file__).parents[2] / "data" / "ceph"


def sample(name: str) -> Any:
    return json.loads((DATA / f"{name}.json").read_text())


def test_a_whole_cluster() -> None:
    status = parse_status(sample("status"))
    assert (status.osds, status.up, status.in_, status.remapped) == (6, 6, 6, 0)
    assert status.groups == {"active+clean": 145}
    assert status.clean
    assert not status.working
    assert status.inactive == 0
    assert (status.filesystem, status.manager) == ("up:active", True)
    assert health(status) == (True, "HEALTH_OK, 6 OSDs up")
    assert str(status) == "6 of 6 OSDs up, placement groups 145 active+clean"


def test_what_was_muted_is_no_illness() -> None:
    found = sample("status-muted")
    assert found["health"]["checks"]["MGR_MODULE_ERROR"]["muted"]
    assert health(parse_status(found))[0] is True


def test_two_hosts_down() -> None:
    status = parse_status(sample("status-two-hosts-down"))
    assert (status.up, status.in_) == (4, 6)
    assert not status.clean
    assert not status.working, "nothing moves before they are back"
    assert status.inactive == 0, "everything is served"
    assert status.degraded > 0
    healthy, told = health(status)
    assert healthy is False
    assert "OSD_HOST_DOWN: 2 hosts (2 osds) down" in told
    assert "MGR_MODULE_ERROR" not in told


def test_three_hosts_down() -> None:
    status = parse_status(sample("status-three-hosts-down"))
    assert status.inactive == 32
    assert "PG_AVAILABILITY: Reduced data availability: 32 pgs down" in health(status)[1]


def test_recovering() -> None:
    status = parse_status(sample("status-recovering"))
    assert status.working
    assert not status.clean


def test_slowness_is_a_result_and_no_illness() -> None:
    found = sample("status")
    found["health"] = {"status": "HEALTH_WARN", "checks": {"SLOW_OPS": {"summary": {"message": "9 slow ops"}}}}
    assert health(parse_status(found)) == (True, "HEALTH_WARN, 6 OSDs up (SLOW_OPS: 9 slow ops)")
    found["health"]["checks"]["OSD_DOWN"] = {"summary": {"message": "1 osds down"}}
    assert health(parse_status(found)) == (False, "OSD_DOWN: 1 osds down")


def test_groups_that_nobody_has_reported_are_unknown() -> None:
    found = sample("status")
    found["pgmap"]["num_pgs"] = 150
    status = parse_status(found)
    assert status.groups == {"active+clean": 145, "unknown": 5}
    assert not status.clean
    assert status.working
    found["pgmap"] = {"num_pgs": 0}
    assert not parse_status(found).clean, "nothing at all is not whole"


@pytest.mark.parametrize(("key", "value"), [("num_remapped_pgs", 1), ("num_up_osds", 5)])
def test_remapped_is_not_clean_and_down_is_seen(key: str, value: int) -> None:
    found = sample("status")
    found["osdmap"][key] = value
    status = parse_status(found)
    assert status.clean is (key != "num_remapped_pgs")
    assert status.up == (5 if key == "num_up_osds" else 6)


def test_scrubbing_is_clean_and_misplaced_is_not() -> None:
    found = sample("status")
    found["pgmap"]["pgs_by_state"] = [{"state_name": "active+clean+scrubbing+deep", "count": 145}]
    assert parse_status(found).clean
    found["pgmap"]["misplaced_objects"] = 3
    assert not parse_status(found).clean


def test_what_is_no_status_is_refused_in_one_line() -> None:
    for wrong in ({}, {"health": {}}, None):
        with pytest.raises(AdapterError, match=r"^ceph status: an answer that is not understood"):
            parse_status(wrong)  # type: ignore[arg-type]


def test_pools_and_their_layouts() -> None:
    dump = sample("osd_dump")
    layouts = {p["pool_name"]: str(layout_of_pool(p, dump["erasure_code_profiles"])) for p in dump["pools"]}
    assert layouts["rain"] == "rain-4-2"
    assert layouts["rep6"] == "replicated-6"
    assert layouts["dist"] == "distributed"
    assert pool_of(dump, "rain")["stripe_width"] == 16384
    with pytest.raises(AdapterError, match=r"ceph has no pool 'data'; there are .*rain"):
        pool_of(dump, "data")
    with pytest.raises(AdapterError, match="pool rain: no erasure code profile 'rain42'"):
        layout_of_pool(pool_of(dump, "rain"), {})
    assert layout_of_pool(pool_of(dump, "rep3"), {}) == parse_layout("replicated-3")


def test_the_age_of_a_map_is_in_unix_time() -> None:
    dump = {"modified": "1970-01-01T00:01:40.500000+0000"}
    assert map_age_seconds(dump, 103.0) == pytest.approx(2.5)


def test_the_layout_of_a_directory() -> None:
    text = "stripe_unit=4194304 stripe_count=1 object_size=4194304 pool=data"
    assert parse_directory_layout(text) == {
        "stripe_unit": "4194304",
        "stripe_count": "1",
        "object_size": "4194304",
        "pool": "data",
    }
