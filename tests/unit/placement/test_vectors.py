"""Results of the real systems: not one may differ."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from assay.placement.errors import PlacementError
from assay.placement.vectors import verify

DATA = Path(__file__).parents[2] / "data" / "placement"
CHECKS = {
    "ceph_crush_hash_ln.json": ("ceph", 1155),
    "ceph_crush_ln_tables_compact.json": ("ceph", 65536),
    "ceph_crush_mappings_16.2.15.json": ("ceph", 9600),
    "ceph_pg_object_16.2.15.json": ("ceph", 520),
    "ceph_upmap_16.2.15.json": ("ceph", 58),
    "eos_hashFid_xxh3.csv": ("eos", 30),
    "eos_rain_geometry_real_cc.csv": ("eos", 180),
    "gluster_dht_layout_real_10.3.csv": ("glusterfs", 384),
    "gluster_dht_weighted_real_10.3.csv": ("glusterfs", 45),
    "gluster_dm_hash.csv": ("glusterfs", 620),
    "gluster_ec_4p2_real_fops.json": ("glusterfs", 19),
    "hdfs_striping_real_3.4.1.csv": ("hdfs", 138),
    "lustre_lov_stripe_real_c.csv": ("lustre", 67),
    "tahoe_permuted_ring.json": ("tahoe", 78),
    "xtreemfs_raid0_real_java.csv": ("xtreemfs", 1082),
}


def _companions() -> dict[str, bytes]:
    return {p.name: p.read_bytes() for p in DATA.iterdir()}


@pytest.mark.parametrize("name", CHECKS)
def test_nothing_differs(name: str) -> None:
    verdict = verify(_companions()[name], companions=_companions())
    assert (verdict.system, verdict.checked) == CHECKS[name]
    assert verdict.differ == 0, verdict.examples


def test_every_file_of_vectors_is_looked_at() -> None:
    assert {p.name for p in DATA.iterdir()} - set(CHECKS) == {"paper_sigma_superposition_model.json"}


def test_a_wrong_result_is_counted() -> None:
    text = (DATA / "xtreemfs_raid0_real_java.csv").read_text().splitlines()
    text[5] = text[5].rsplit(",", 1)[0] + ",17"
    verdict = verify("\n".join(text).encode(), "xtreemfs")
    assert (verdict.checked, verdict.differ) == (1082, 1)
    assert "17" in verdict.examples[0]


def test_sets_without_their_map_are_said_to_be_unchecked() -> None:
    verdict = verify((DATA / "ceph_pg_object_16.2.15.json").read_bytes())
    assert verdict.checked == 192 + 120
    assert any("not compared" in n for n in verdict.notes)


@pytest.mark.parametrize(
    ("data", "system", "says"),
    [
        (b"a,b\n1,2\n", None, "columns a, b"),
        (b'{"x": 1}', None, "keys x"),
        (b"[]", None, "damaged"),
        (b"\xff\xfe", None, "damaged"),
        ((DATA / "eos_hashFid_xxh3.csv").read_bytes(), "ceph", "vectors of eos, not of ceph"),
        (json.dumps({"hash32_1": [], "crush_ln_samples": []}).encode(), None, "damaged"),
    ],
)
def test_other_files_are_refused(data: bytes, system: str | None, says: str) -> None:
    with pytest.raises(PlacementError, match=says):
        verify(data, system)
