"""Crush maps: what is wrong with one is said where it is wrong; two ways to map give the same."""

from __future__ import annotations

import json
import random
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.placement import crush
from assay.placement.errors import PlacementError
from assay.placement.spread import flat_map

DATA = Path(__file__).parents[2] / "data" / "placement"
MAPS = {m["name"]: m["crushmap_text"] for m in json.loads((DATA / "ceph_crush_mappings_16.2.15.json").read_text())}
SMALL = """\
device 0 osd.0 class ssd
device 1 osd.1 class hdd
type 0 osd
type 1 host
type 10 root
host a {
  id -2
  alg straw2
  hash 0
  item osd.0 weight 1.0
}
host b {
  alg straw2
  hash rjenkins1
  item osd.1 weight 2.5
}
root default {
  id -1
  alg straw2
  hash 0
  item a weight 1.0
  item b weight 2.5
}
rule data {
  id 0
  type replicated
  step take default
  step chooseleaf firstn 0 type host
  step emit
}
rule fast {
  id 1
  type replicated
  step take default class ssd
  step chooseleaf firstn 0 type host
  step emit
}
"""


def _changed(old: str, new: str) -> bytes:
    assert old in SMALL
    return SMALL.replace(old, new).encode()


def test_a_map_is_read() -> None:
    small = crush.read_map(SMALL.encode())
    assert small.max_devices == 2
    assert dict(small.classes) == {0: "ssd", 1: "hdd"}
    assert {b[1]: b[4] for b in small.buckets}["default"] == int(3.5 * crush.ONE)
    assert crush.failure_domains(small, 0) == ("host", 2)
    assert set(crush.map_inputs(small, 1, range(50), 2).lengths) == {1}


@pytest.mark.parametrize(
    ("old", "new", "says"),
    [
        ("item osd.1 weight 2.5", "item osd.7 weight 2.5", r"line 15: item \"osd.7\" of bucket \"b\" is not defined"),
        ("item osd.1 weight 2.5", "item default weight 2.5", r"line \d+: bucket .* is in a cycle"),
        ("item osd.1 weight 2.5", "item osd.1 weight heavy", r"line 15: \"heavy\" is not a weight"),
        ("item osd.1 weight 2.5", "item osd.1 weight -1", r"line 15: \"-1\" is not a weight"),
        ("item osd.1 weight 2.5", "item osd.1 weight 1e30", "line 15"),
        ("id -2", "id 2", "line 7: bucket id 2 is not negative"),
        ("id -2", "id -1", "used twice"),
        (
            "alg straw2\n  hash rjenkins1",
            "alg straw3\n  hash rjenkins1",
            r"line 13: unknown bucket algorithm \"straw3\"",
        ),
        ("hash rjenkins1", "hash 7", "line 14: unknown hash"),
        ("step emit\n}\nrule fast", "step jump\n}\nrule fast", r"line 29: unknown step \"jump\""),
        ("take default\n", "take nowhere\n", r"line 27: item \"nowhere\" is not defined"),
        ("class ssd\n  step", "class tape\n  step", r"line 34: .* no devices of class \"tape\""),
        ("type host\n  step emit\n}\nrule fast", "type rack\n  step emit\n}\nrule fast", r"line 28: type \"rack\""),
        ("device 1 osd.1", "device 1 osd.0", "line 2: .* defined twice"),
        ("rule fast {\n  id 1", "rule fast {\n  id 0", "rule id 0 is used twice"),
        ("type 10 root\n", "type 10 root\ntunable magic 3\n", r"line 6: unknown tunable \"magic\""),
        ("  step emit\n}\nrule fast", "  step emit\nrule fast", r"line 30: \"rule\" in rule"),
    ],
)
def test_what_is_wrong_in_the_text_is_named_with_its_line(old: str, new: str, says: str) -> None:
    with pytest.raises(PlacementError, match=says):
        crush.read_map(_changed(old, new))


def test_a_map_that_ends_early_is_named_with_its_line() -> None:
    with pytest.raises(PlacementError, match="line 15: the map ends"):
        crush.read_map(SMALL[: SMALL.index("}\nroot")].encode())


def test_a_dump_with_a_cycle_or_a_loose_end_is_refused() -> None:
    def bucket(id: int, items: list[int]) -> dict[str, object]:
        entries = [{"id": i, "weight": crush.ONE, "pos": 0} for i in items]
        return {"id": id, "name": f"b{-id}", "type_id": 1, "alg": "straw2", "items": entries}

    def dump(*buckets: dict[str, object]) -> bytes:
        return json.dumps(
            {"types": [], "devices": [], "rules": [], "tunables": {}, "buckets": list(buckets)}
        ).encode()  # fmt: skip

    assert crush.read_map(dump(bucket(-1, [-2]), bucket(-2, [0])))
    with pytest.raises(PlacementError, match=r"b1.* contains itself"):
        crush.read_map(dump(bucket(-1, [-2]), bucket(-2, [-1])))
    with pytest.raises(PlacementError, match="refers to bucket -3, which is not in the map"):
        crush.read_map(dump(bucket(-1, [-3])))


def test_unknown_rules_and_devices_are_named() -> None:
    small = crush.read_map(SMALL.encode())
    with pytest.raises(PlacementError, match="no rule 7; it has 0, 1"):
        crush.map_inputs(small, 7, [1], 2)
    with pytest.raises(PlacementError, match="0 replicas"):
        crush.map_inputs(small, 0, [1], 0)
    with pytest.raises(PlacementError, match="device 9 is not in the crush map"):
        crush.reweights(small, {9: 0.5})


def test_weights_of_nothing_still_end() -> None:
    nothing = crush.read_map(SMALL.replace("weight 1.0", "weight 0").replace("weight 2.5", "weight 0").encode())
    rows = crush.map_inputs(nothing, 0, range(100), 2)
    assert rows.items.shape == (100, 2)


def test_lines_are_those_of_crushtool() -> None:
    flat = crush.read_map(MAPS["flat6"].encode())
    text = "".join(crush.crushtool_lines(flat, 0, 3, 0, 2))
    assert text == "CRUSH rule 0 x 0 [2,5,3]\nCRUSH rule 0 x 1 [3,5,4]\nCRUSH rule 0 x 2 [4,3,1]\n"
    assert "".join(crush.crushtool_lines(flat, 0, 3, 0, 9, np.zeros(6, np.uint32))) == ""


def test_threads_change_nothing() -> None:
    tree = crush.read_map(MAPS["outs"].encode())
    one = crush.map_inputs(tree, 0, range(5001), 3)
    two = crush.map_inputs(tree, 0, range(5001), 3, threads=2)
    assert (one.items == two.items).all()


def test_shares_follow_weights() -> None:
    small = crush.read_map(SMALL.encode())
    first = crush.map_inputs(small, 0, range(100_000), 1).items[:, 0]
    assert abs((first == 1).mean() - 2.5 / 3.5) < 0.005  # three standard errors


def test_erasure_sets_keep_positions_when_a_device_goes_out() -> None:
    tree = flat_map(12, 3)
    before = crush.map_inputs(tree, 0, range(2000), 6).items
    out = crush.reweights(tree, {4: 0.0})
    after = crush.map_inputs(tree, 0, range(2000), 6, out).items
    assert (4 in before) and (4 not in after)
    assert (before == after).mean() > 0.85  # only what was on the device, and a few that collide, move


@settings(max_examples=300, deadline=None)
@given(st.binary(max_size=400))
def test_no_bytes_make_the_readers_panic(data: bytes) -> None:
    for prefix in (b"", b"\x00\x00\x01\x00", b"{"):
        try:
            crush.read_map(prefix + data)
        except PlacementError as error:
            assert "\n" not in str(error)


@settings(max_examples=300, deadline=None)
@given(st.integers(0, 2**32), st.integers(1, 12))
def test_damaged_maps_are_read_or_refused(seed: int, damages: int) -> None:
    rng = random.Random(seed)
    words = MAPS[rng.choice(list(MAPS))].split(" ")
    for _ in range(damages):
        place = rng.randrange(len(words))
        words[place] = rng.choice(
            ["{", "}", "-1", "99999999999", "", "osd.0", "item", words[rng.randrange(len(words))]]
        )
    try:
        damaged = crush.read_map(" ".join(words).encode())
    except PlacementError:
        return
    for rule, *_ in damaged.rules:
        crush.map_inputs(damaged, rule, range(20), 3)
