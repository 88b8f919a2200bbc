"""GlusterFS itself, without daemons: one client process over local directories puts files where the layout says.

A volume file written by hand gives the whole distribution graph in one process; nothing listens and nothing is deployed.
"""

from __future__ import annotations

import os
import random
import shutil
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.cli.placing import verify_live
from assay.placement import glusterfs

BRICKS = 12
NAMES = 5000
pytestmark = [
    pytest.mark.root,
    pytest.mark.skipif(os.geteuid() != 0, reason="needs root: mounts"),
    pytest.mark.skipif(shutil.which("glusterfs") is None, reason="needs glusterfs-client: apt-get install -y it"),
]


def _volume_file(root: Path) -> str:
    parts = [
        f"volume tv-posix-{i}\n type storage/posix\n option directory {root}/b{i}\nend-volume\n"
        f"volume tv-client-{i}\n type features/locks\n subvolumes tv-posix-{i}\nend-volume\n"
        for i in range(BRICKS)
    ]
    below = " ".join(f"tv-client-{i}" for i in range(BRICKS))
    parts.append(f"volume tv-dht\n type cluster/distribute\n subvolumes {below}\nend-volume\n")
    return "".join(parts)


@pytest.fixture
def volume(tmp_path: Path) -> Iterator[Path]:
    """A mounted distributed volume of twelve local bricks."""
    for i in range(BRICKS):
        (tmp_path / f"b{i}").mkdir()
    mount = tmp_path / "mnt"
    mount.mkdir()
    (tmp_path / "v.vol").write_text(_volume_file(tmp_path))
    argv = ["glusterfs", "-N", "-f", str(tmp_path / "v.vol"), "-l", str(tmp_path / "log"), str(mount)]
    client = subprocess.Popen(argv, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    try:
        for _ in range(100):
            if str(mount) in Path("/proc/mounts").read_text():
                break
            assert client.poll() is None, (tmp_path / "log").read_text()[-1000:]
            time.sleep(0.1)
        yield mount
    finally:
        subprocess.run(["umount", "-l", str(mount)], check=False, timeout=20)
        client.terminate()
        try:
            client.wait(10)
        except subprocess.TimeoutExpired:
            client.kill()
            client.wait(10)


def _names(rng: random.Random) -> list[bytes]:
    """Names as they occur: plain, dotted, Unicode, and the temporary ones of rsync."""
    letters = "abcXYZ019_-. äßπ文é"
    names: set[bytes] = set()
    while len(names) < NAMES:
        plain = "".join(rng.choice(letters) for _ in range(rng.randint(1, 40))).strip(" ")
        name = rng.choice([plain, f".{plain}.{rng.randrange(10**6):06x}", f"{plain}.dat"]).encode()
        if name.strip(b".") and len(name) < 200:
            names.add(name)
    return sorted(names)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_every_name_lands_where_predicted(volume: Path, capsys: pytest.CaptureFixture[str]) -> None:
    directory = volume / "d-é"
    directory.mkdir()
    names = _names(random.Random(7))
    for name in names:
        os.close(os.open(os.fsencode(directory) + b"/" + name, os.O_CREAT | os.O_WRONLY))
    # where the bricks have them, without asking the volume
    layout = glusterfs.new_layout("/d-é", [f"tv-client-{i}" for i in range(BRICKS)])
    predicted = layout.bricks_of(names)
    found = {
        name: f"tv-client-{i}" for i in range(BRICKS)
        for name in (os.fsencode(p.name) for p in (volume.parent / f"b{i}" / "d-é").iterdir())
    }  # fmt: skip
    assert len(found) == len(names)
    assert [n for n, p in zip(names, predicted, strict=True) if found[n] != p] == []
    # and by the layouts that are stored on the bricks
    stored = {
        f"tv-client-{i}": os.getxattr(volume.parent / f"b{i}" / "d-é", glusterfs.XATTR) for i in range(BRICKS)
    }  # fmt: skip
    assert glusterfs.Layout.from_xattrs(stored) == layout
    # (a graph in one process cannot list directories, so the names are given)
    listed = volume.parent / "names"
    listed.write_bytes(b"\n".join(names))
    assert verify_live(directory, str(listed), as_json=False) == 0
    assert capsys.readouterr().out == f"{NAMES} checked, 0 differ\n"
    # a rename leaves the data where they are: that is what --live reports
    moved = next(n for n, p in zip(names, predicted, strict=True) if p != predicted[0])
    (directory / os.fsdecode(names[0])).rename(directory / os.fsdecode(moved))
    listed.write_bytes(b"\n".join({*names, moved} - {names[0]}))
    assert verify_live(directory, str(listed), as_json=False) == 1


@pytest.mark.slow
def test_new_directories_get_the_predicted_layout(volume: Path) -> None:
    wrong = []
    for i in range(60):
        path = f"/dir-{i}" if i % 2 else f"/.tmp.{i}.x"
        (volume / path[1:]).mkdir()
        stored = {
            f"tv-client-{b}": os.getxattr(volume.parent / f"b{b}" / path[1:], glusterfs.XATTR) for b in range(BRICKS)
        }  # fmt: skip
        if glusterfs.Layout.from_xattrs(stored) != glusterfs.new_layout(path, list(stored)):
            wrong.append(path)
    assert not wrong
