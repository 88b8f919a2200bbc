"""Lustre's documented output, and what is refused without one. No Lustre runs here: `lfs` is a script with the manual's words."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.lab.host import LocalHost
from assay.lab.registry import Lab
from assay.model.evidence import DeviceCounters
from assay.model.lab import Disk
from assay.model.lab import Lab as LabDeclaration
from assay.systems.base import AdapterError, Deployment, capabilities
from assay.systems.catalogue import check_candidate, check_tuning, make_adapter
from assay.systems.lustre import (
    LustreSystem,
    Striping,
    Targets,
    filesystem_of,
    healthy,
    parse_df,
    parse_getstripe,
    parse_osc_stats,
    stripe_count,
)

DIRECTORY = "/mnt/lustre/own\nstripe_count:  4 stripe_size:   1048576 pattern:       raid0 stripe_offset: -1\n"
DIRECTORY_POOL = "stripe_count:  2 stripe_size:   4194304 pattern:       0 stripe_offset: -1 pool:          flash\n"
FILE = """/mnt/lustre/file
lmm_stripe_count:  4
lmm_stripe_size:   1048576
lmm_pattern:       raid0
lmm_layout_gen:    0
lmm_stripe_offset: 10
\tobdidx\t\t objid\t\t objid\t\t group
\t    10\t       3024641\t     0x2e2701\t             0
\t    11\t       3026034\t     0x2e2c72\t             0
"""
FILE_YAML = """lmm_stripe_count:  2
lmm_stripe_size:   131072
lmm_pattern:       raid0
lmm_layout_gen:    0
lmm_stripe_offset: 0
lmm_pool:          pooltest
lmm_objects:
      - l_ost_idx: 0
        l_fid:     0x100000000:0xa07:0x0
      - l_ost_idx: 1
        l_fid:     0x100010000:0x9c6:0x0
"""
PROGRESSIVE = """/mnt/lustre/domfile
  lcm_layout_gen:    2
  lcm_mirror_count:  1
  lcm_entry_count:   2
    lcme_id:             1
    lcme_mirror_id:      0
    lcme_flags:          init
    lcme_extent.e_start: 0
    lcme_extent.e_end:   1048576
      lmm_stripe_count:  0
      lmm_stripe_size:   1048576
      lmm_pattern:       mdt
      lmm_layout_gen:    0
      lmm_stripe_offset: 0

    lcme_id:             2
    lcme_mirror_id:      0
    lcme_flags:          0
    lcme_extent.e_start: 1048576
    lcme_extent.e_end:   EOF
      lmm_stripe_count:  -1
      lmm_stripe_size:   4194304
      lmm_pattern:       raid0
      lmm_layout_gen:    0
      lmm_stripe_offset: -1
"""
DF = """UUID                   1K-blocks        Used   Available Use% Mounted on
lfs-MDT0000_UUID         9174328     1020024     8154304  12% /mnt/lustre[MDT:0]
lfs-OST0000_UUID        94181368    56330708    37850660  60% /mnt/lustre[OST:0]
lfs-OST0001_UUID        94181368    56385748    37795620  60% /mnt/lustre[OST:1]

filesystem_summary:    188362736   112716456    75646280  60% /mnt/lustre
"""
DF_SILENT = DF.replace("filesystem", "OST0002             : inactive device\nlfs-OST0003_UUID    : Resource temporarily "
                       "unavailable\nfilesystem")  # fmt: skip
OSC_STATS = """osc.lfs-OST0000-osc-ffff880012345678.stats=
snapshot_time             1523008010.817348638 secs.nsecs
start_time                0.000000000 secs.nsecs
elapsed_time              1523008010.817348638 secs.nsecs
req_waittime              26 samples [usecs] 69 1150 21440 1527058
req_active                26 samples [reqs] 1 2 28 32
read_bytes                7 samples [bytes] 4096 1048576 7340032 7696581394432
write_bytes               8 samples [bytes] 167 202945 388227 58058611167
read                      8449 samples [usecs] 2 385149 80065680 5387531243688
osc.lfs-OST0001-osc-ffff880012345678.stats=
snapshot_time             1523008010.817348638 secs.nsecs
read_bytes                1487077410 samples [bytes] 4096 4194304 606617630789632
osc.lfs-OST0002-osc-ffff880012345678.stats=
snapshot_time             1523008010.817348638 secs.nsecs
req_waittime              2 samples [usecs] 69 90 159 12861
"""


def test_striping_of_directories_and_files() -> None:
    assert parse_getstripe(DIRECTORY) == Striping(4, 1 << 20)
    assert parse_getstripe(DIRECTORY_POOL) == Striping(2, 4 << 20, "flash")
    assert parse_getstripe(FILE) == Striping(4, 1 << 20)
    assert parse_getstripe(FILE_YAML) == Striping(2, 128 << 10, "pooltest")
    assert parse_getstripe(PROGRESSIVE).components == 2
    with pytest.raises(AdapterError, match=r"told no striping: \(no output\)"):
        parse_getstripe("")
    with pytest.raises(AdapterError, match="told no striping: has no stripe info"):
        parse_getstripe("has no stripe info\n")


def test_targets() -> None:
    assert parse_df(DF) == Targets(("lfs-MDT0000",), ("lfs-OST0000", "lfs-OST0001"), {})
    assert parse_df(DF_SILENT).silent == {
        "OST0002": "inactive device",
        "lfs-OST0003": "Resource temporarily unavailable",
    }
    assert healthy(parse_df(DF), ["healthy"]) == (True, "1 MDTs and 2 OSTs answer")
    assert healthy(parse_df(DF), []) == (True, "1 MDTs and 2 OSTs answer")
    assert healthy(parse_df(DF), ["NOT", "HEALTHY"])[0] is False
    assert healthy(parse_df(DF_SILENT), ["healthy"])[1].startswith("OST0002: inactive device; lfs-OST0003")
    assert healthy(parse_df("\n"), []) == (False, "lfs df tells of no OST")


def test_counters_are_sums_of_bytes_and_not_of_microseconds() -> None:
    assert parse_osc_stats(OSC_STATS) == [
        DeviceCounters(device="lfs-OST0000", read_bytes=7340032, written_bytes=388227),
        DeviceCounters(device="lfs-OST0001", read_bytes=606617630789632, written_bytes=0),
        DeviceCounters(device="lfs-OST0002", read_bytes=0, written_bytes=0),
    ]
    assert parse_osc_stats("") == []


@pytest.mark.parametrize(("source", "name"), [
    ("10.77.0.1@tcp:/lfs", "lfs"),
    ("10.77.0.1@tcp:10.77.0.2@o2ib1:/scratch1/projects", "scratch1"),
    ("mgs1,mgs2@tcp:mgs3@tcp:/a-b_c", "a-b_c"),
])  # fmt: skip
def test_name_of_the_file_system(source: str, name: str) -> None:
    assert filesystem_of(source) == name


def test_sources_of_something_else() -> None:
    for source in ("/dev/vda1", "s1:/assay-volume", "tmpfs"):
        with pytest.raises(AdapterError, match="is no source of a Lustre mount"):
            filesystem_of(source)


def test_refused_without_a_mount_and_on_another_file_system(tmp_path: Path) -> None:
    with pytest.raises(AdapterError, match=r"mount it and say where, \{system: lustre/striped-4, mount: /mnt/lustre\}"):
        check_candidate("lustre/striped-4", None, LabDeclaration(), 1 << 20)
    with pytest.raises(AdapterError, match=r"^/.* not lustre$"):
        check_candidate("lustre/striped-4", str(tmp_path), LabDeclaration(), 1 << 20)
    with pytest.raises(AdapterError, match="unknown candidate"):
        check_candidate("lustre/replicated-2", None, LabDeclaration(), 1 << 20)
    assert "kill-hosts" not in capabilities(LustreSystem)


def test_tuning() -> None:
    check_tuning("lustre/striped-4", {"stripe-size": "4MiB", "pool": "flash"})
    for size in ("1000", "32KiB", "much", 1 << 20 | 1):
        with pytest.raises(AdapterError, match="stripe-size: "):
            check_tuning("lustre/striped-4", {"stripe-size": size})
    assert [stripe_count(layout) for layout in ("distributed", "striped-4", "striped-12")] == [1, 4, 12]


LFS = f"""#!/bin/sh
echo "$*" >> "$LFS_TOLD"
case "$1 $2" in
    "getstripe -d") sed -n 's/^setstripe -c \\([0-9]*\\) -S \\([0-9]*\\).*/stripe_count:  \\1 stripe_size:   \\2 \
pattern:       raid0 stripe_offset: -1/p' "$LFS_TOLD" ;;
    "df "*) cat <<'END'
{DF}END
    ;;
esac
"""
LCTL = """#!/bin/sh
case "$3" in version) echo 2.15.3 ;; health_check) echo healthy ;; *) exit 2 ;; esac
"""


@pytest.fixture
def client(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> LocalHost:
    monkeypatch.setenv("XDG_DATA_HOME", str(tmp_path / "data"))
    programs = tmp_path / "programs"
    programs.mkdir()
    for name, text in (("lfs", LFS), ("lctl", LCTL)):
        (programs / name).write_text(text)
        (programs / name).chmod(0o755)
    (tmp_path / "told").write_text("")
    return LocalHost(environment={"PATH": f"{programs}:/usr/bin:/bin", "LFS_TOLD": str(tmp_path / "told")})


def test_the_commands_and_what_they_answer(client: LocalHost, tmp_path: Path) -> None:
    lab = Lab("lustre", "s")
    try:
        given = Deployment("x", "striped-2", lab, client, Disk(), {"stripe-size": "4MiB"}, mount=str(tmp_path))
        system = make_adapter("lustre/striped-2", given)
        assert isinstance(system, LustreSystem)
        system.lay_out(tmp_path / "own")
        assert (tmp_path / "told").read_text().splitlines() == [
            f"setstripe -c 2 -S 4194304 {tmp_path / 'own'}",
            f"getstripe -d {tmp_path / 'own'}",
        ]
        assert system.layout_facts(tmp_path / "own") == {"stripe_count": 2, "stripe_bytes": 4 << 20, "pool": ""}
        kind = LustreSystem.mount_kind()
        assert kind.inspect(client, tmp_path, "striped-2")["targets"] == {"mdts": 1, "osts": 2}
        assert kind.inspect(client, tmp_path, "striped-2")["version"].startswith("Lustre 2.15.3, Linux ")
        assert kind.health(client, tmp_path) == (True, "1 MDTs and 2 OSTs answer")
        with pytest.raises(AdapterError, match="lustre/striped-3 needs 3 OSTs"):
            kind.inspect(client, tmp_path, "striped-3")
    finally:
        client.close()
        lab.remove()
