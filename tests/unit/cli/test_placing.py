"""``assay place``: what it prints, and what it says of bad input."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from assay.cli.errors import BadInput
from assay.cli.main import app

DATA = Path(__file__).parents[2] / "data" / "placement"


def _run(*argv: str | Path, stdin: str | None = None) -> Result:
    return CliRunner().invoke(app, ["place", *map(str, argv)], input=stdin)


@pytest.fixture
def flat(tmp_path: Path) -> Path:
    maps = json.loads((DATA / "ceph_crush_mappings_16.2.15.json").read_text())
    file = tmp_path / "map.txt"
    file.write_text(next(m["crushmap_text"] for m in maps if m["name"] == "flat6"))
    return file


def test_the_lines_of_crushtool(flat: Path) -> None:
    argv = ("map", "--crushmap", flat, "--rule", "0", "--num-rep", "3", "--max-x", "1")
    done = _run(*argv, "--format", "crushtool")
    assert (done.exit_code, done.stdout) == (0, "CRUSH rule 0 x 0 [2,5,3]\nCRUSH rule 0 x 1 [3,5,4]\n")
    assert _run(*argv).stdout == "x,osds\n0,2 5 3\n1,3 5 4\n"
    assert json.loads(_run(*argv, "--format", "json").stdout)[0] == {"x": 0, "osds": [2, 5, 3]}
    assert "2" not in _run(*argv, "--weight", "2=0").stdout.splitlines()[1].split(",")[1].split()


def test_objects_go_to_osds(flat: Path) -> None:
    pool = '{"pool": 1, "pg_num": 64, "size": 3, "crush_rule": 0}'
    done = _run("map", "--crushmap", flat, "--pool", pool, "--objects", "-", stdin="foo1\nxxxx\n")
    lines = done.stdout.splitlines()
    assert lines[0] == "object,pg,osds,primary" and len(lines) == 3
    name, group, osds, primary = lines[1].split(",")
    assert name == "foo1" and group.startswith("1.") and osds.split()[0] == primary
    groups = json.loads(_run("map", "--crushmap", flat, "--pool", pool, "--format", "json").stdout)
    assert len(groups) == 64 and all(len(set(g["osds"])) == 3 for g in groups)


def test_names_go_to_bricks() -> None:
    layout = DATA / "gluster_dht_layout_real_10.3.csv"
    stored = _run("map", "--layout", layout, "--directory", "/d16", "--objects", "-", stdin="a\n.a.x\n")
    made = _run("map", "--bricks", "12", "--volume", "tv", "--directory", "/d16", "--objects", "-", stdin="a\n.a.x\n")
    stored_rows = [line.split(",") for line in stored.stdout.splitlines()[1:]]
    made_rows = [line.split(",") for line in made.stdout.splitlines()[1:]]
    assert [r[2] for r in made_rows] == [f"tv-client-{r[2]}" for r in stored_rows]
    assert made_rows[0][1:] == made_rows[1][1:], ".a.x is hashed as a"


def test_verify_counts_and_exits() -> None:
    file = DATA / "ceph_upmap_16.2.15.json"
    done = _run("verify", "--system", "ceph", "--vectors", file)
    assert (done.exit_code, done.stdout) == (0, "58 checked, 0 differ\n")
    assert json.loads(_run("verify", "--vectors", file, "--json").stdout)["checked"] == 58


def test_verify_exits_with_1_when_something_differs(tmp_path: Path) -> None:
    text = (DATA / "eos_hashFid_xxh3.csv").read_text().replace("b7ae726b74ed6f2e", "b7ae726b74ed6f2f")
    (tmp_path / "v.csv").write_text(text)
    done = _run("verify", "--vectors", tmp_path / "v.csv")
    assert (done.exit_code, done.stdout) == (1, "30 checked, 1 differ\n")


def test_simulate_prints_measures(tmp_path: Path) -> None:
    trace = tmp_path / "trace.csv"
    trace.write_text("time,op,file,offset,bytes\n" + "".join(f"{i / 50},write,f,{i * 1000},1000\n" for i in range(500)))
    argv = (
        "simulate",
        "-s",
        "xtreemfs",
        "-s",
        "ceph/replicated-2",
        "--targets",
        "4",
        "--streams",
        "1,3",
        "--trace",
        trace,
    )
    rows = json.loads(_run(*argv, "--format", "json", "--stripe-unit", "4KiB").stdout)
    assert [(r["candidate"], r["streams"]) for r in rows] == [
        ("xtreemfs/striped-4", 1), ("xtreemfs/striped-4", 3), ("ceph/replicated-2", 1), ("ceph/replicated-2", 3)
    ]  # fmt: skip
    assert all(r["sd_counts"] >= 0 and r["load_imbalance"] >= 1 for r in rows)
    assert rows[2]["seed"] is None, "Ceph draws no lots and one stream needs no start"
    chart = tmp_path / "c.svg"
    assert _run(*argv, "--chart", chart).exit_code == 0
    assert "<svg" in chart.read_text()
    moved = _run("simulate", "-s", "ceph/replicated-3", "--targets", "9", "--change", "1", "--format", "csv").stdout
    assert moved.splitlines()[0] == "candidate,targets,change,moved,least,over_least"


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (("map",), "nothing to map with"),
        (("map", "--crushmap", "MAP"), "give --rule and --num-rep"),
        (("map", "--crushmap", "MAP", "--rule", "9", "--num-rep", "3"), "no rule 9; it has 0, 1, 2, 3, 4, 5"),
        (("map", "--crushmap", "MAP", "--rule", "0", "--num-rep", "3", "--format", "xml"), "unknown format 'xml'"),
        (("map", "--crushmap", "MAP", "--rule", "0", "--num-rep", "3", "--weight", "x"), "not DEVICE=WEIGHT"),
        (("map", "--crushmap", "MAP", "--pool", '{"pool":1,"pg_num":8,"size":7,"crush_rule":0}'), "needs 7 times host"),
        (("map", "--crushmap", "MAP", "--pool", '{"pool":'), "--pool: not JSON"),
        (("map", "--layout", "VECTORS"), "--directory must name one of"),
        (("verify",), "give one of --vectors"),
        (("verify", "--vectors", "MAP"), "no placement vectors"),
        (("verify", "--live", "/"), "not on a mounted GlusterFS volume"),
        (("simulate", "-s", "ceph"), "give one workload"),
        (("simulate", "-s", "zfs", "--fio", "read:rate=10"), "unknown system 'zfs'"),
        (("simulate", "-s", "ceph/raid5", "--fio", "read"), "'raid5' is not a layout"),
        (("simulate", "-s", "ceph", "--fio", "read:depth=3"), "unknown option 'depth'"),
        (("simulate", "-s", "ceph", "--targets", "four", "--fio", "read"), "not a list of numbers"),
    ],
)
def test_bad_input_is_one_clear_line(flat: Path, argv: tuple[str, ...], says: str) -> None:
    places = {"MAP": str(flat), "VECTORS": str(DATA / "gluster_dht_layout_real_10.3.csv")}
    done = _run(*(places.get(a, a) for a in argv))
    assert isinstance(done.exception, BadInput)
    assert says in str(done.exception) and "\n" not in str(done.exception)
