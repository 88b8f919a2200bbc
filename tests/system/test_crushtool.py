"""CRUSH against crushtool itself: 1,000,000 mappings and more over random maps, and not one may differ.

Needs crushtool (Debian: ceph-base; elsewhere ceph-common), on the PATH or in $ASSAY_CRUSHTOOL.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from assay.placement import crush

sys.path.insert(0, str(Path(__file__).parent))
from random_crush import RandomMap

TOOL = os.environ.get("ASSAY_CRUSHTOOL") or shutil.which("crushtool")
pytestmark = pytest.mark.skipif(TOOL is None, reason="no crushtool here: apt-get install -y ceph-base")
MAPS, INPUTS = 60, 1500
ENOUGH = 1_000_000


def _tool(*argv: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [str(TOOL), *map(str, argv)], capture_output=True, text=True, check=False, timeout=300
    )  # fmt: skip


def _compare(made: RandomMap, place: Path) -> tuple[int, list[str]]:
    """Mappings compared of one map in its three forms, and what differs."""
    text, compiled = place / f"{made.seed}.txt", place / f"{made.seed}.bin"
    text.write_text(made.text)
    done = _tool("-c", text, "-o", compiled)
    if done.returncode != 0 or not compiled.exists():
        return 0, []  # crushtool itself refuses some of these maps
    dump = _tool("-i", compiled, "--dump").stdout
    forms = {
        "compiled": crush.read_map(compiled.read_bytes()),
        "text": crush.read_map(made.text.encode()),
        "json": crush.read_map(dump[dump.index("{") :].encode()),
    }
    changes = {
        made.rng.choice(made.devices): made.rng.choice([0, 0.25, 0.5, 0.9]) for _ in range(made.rng.randint(0, 6))
    }
    extra = [a for d, w in changes.items() for a in ("--weight", str(d), str(w))]
    checked, wrong = 0, []
    for rule in range(len(made.rules)):
        size = made.rng.randint(1, 8)
        argv = ["--test", "--show-mappings", "--rule", str(rule), "--num-rep", str(size), "--min-x", "0"]
        expected = _tool("-i", compiled, *argv, "--max-x", str(INPUTS - 1), *extra).stdout
        for name, read in forms.items():
            weights = crush.reweights(read, changes)
            got = "".join(crush.crushtool_lines(read, rule, size, 0, INPUTS - 1, weights))
            checked += INPUTS
            if got != expected:
                pairs = zip(expected.splitlines(), got.splitlines(), strict=False)
                wrong.append(
                    f"seed {made.seed} {name} rule {rule} size {size}: {[p for p in pairs if p[0] != p[1]][:1]}"
                )
    return checked, wrong


@pytest.mark.slow
@pytest.mark.timeout(1200)
def test_no_mapping_differs_from_crushtool(tmp_path: Path) -> None:
    checked = maps = 0
    for seed in range(10 * MAPS):
        done, wrong = _compare(RandomMap(seed), tmp_path)
        assert not wrong, wrong[:5]
        checked, maps = checked + done, maps + (done > 0)
        if maps >= MAPS and checked >= ENOUGH:
            break
    assert maps >= 50 and checked >= ENOUGH
    print(f"{checked} mappings over {maps} maps, 0 differ")


def test_pool_ids_are_hashed_in_as_crushtool_does(tmp_path: Path) -> None:
    made = RandomMap(3)
    (tmp_path / "m.txt").write_text(made.text)
    assert _tool("-c", tmp_path / "m.txt", "-o", tmp_path / "m.bin").returncode == 0
    read = crush.read_map((tmp_path / "m.bin").read_bytes())
    argv = ["--test", "--show-mappings", "--rule", "0", "--num-rep", "3", "--min-x", "0", "--max-x", "999"]
    expected = _tool("-i", tmp_path / "m.bin", *argv, "--pool-id", "7").stdout
    assert "".join(crush.crushtool_lines(read, 0, 3, 0, 999, pool_id=7)) == expected


def test_shadow_trees_get_the_ids_that_crushtool_gives(tmp_path: Path) -> None:
    for seed in range(40):
        made = RandomMap(seed)
        (tmp_path / "m.txt").write_text(made.text)
        (tmp_path / "m.bin").unlink(missing_ok=True)
        _tool("-c", tmp_path / "m.txt", "-o", tmp_path / "m.bin")
        if made.classes and (tmp_path / "m.bin").exists():
            ours, theirs = (crush.read_map(d) for d in (made.text.encode(), (tmp_path / "m.bin").read_bytes()))
            assert ours.buckets == theirs.buckets
            assert np.array_equal(ours.present, theirs.present)
