"""What the tests of GlusterFS share: deployments of their own, and the hash that places names."""

from __future__ import annotations

import ctypes
import os
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from assay.lab.fabric import Fabric
from assay.lab.host import LocalHost
from assay.lab.kernel import processes_of
from assay.lab.registry import Lab
from assay.model.lab import Lab as LabDeclaration
from assay.systems.base import Deployment
from assay.systems.catalogue import check_tuning
from assay.systems.gluster import GlusterSystem
from assay.workloads import integrity

LAB = "gluster"
SEED = 20211


@contextmanager
def made(layout: str, hosts: int, tuning: dict[str, object] | None = None, **given: object) -> Iterator[GlusterSystem]:
    """An adapter on hosts that are up, nothing deployed."""
    disk = {"size": "600MiB", **(given.pop("disk", None) or {})}  # type: ignore[dict-item]
    shape = LabDeclaration.model_validate({"hosts": hosts, "disk": disk, **given})
    check_tuning(f"glusterfs/{layout}", tuning or {})
    GlusterSystem.preflight(layout, shape, 32 << 20)
    lab = Lab(LAB, "s")
    fabric = Fabric(lab, "f", shape)
    system = GlusterSystem(
        Deployment("glusterfs", layout, lab, LocalHost(environment=lab.environment), shape.disk, tuning or {}, fabric)
    )
    try:
        fabric.up()
        yield system
    finally:
        system.unmount()
        system.destroy()
        fabric.down()
        lab.remove()


@contextmanager
def mounted(
    layout: str, hosts: int, tuning: dict[str, object] | None = None, **given: object
) -> Iterator[GlusterSystem]:
    """The same, deployed and mounted."""
    with made(layout, hosts, tuning, **given) as system:
        system.deploy()
        system.mount()
        yield system


def fabric_of(system: GlusterSystem) -> Fabric:
    assert system.deployment.fabric is not None
    return system.deployment.fabric


def directory_of(system: GlusterSystem) -> Path:
    assert system.directory is not None
    return system.directory


def write(system: GlusterSystem, seed: int = SEED) -> None:
    """Files of known content, through the first client."""
    system.client.call(integrity.write_files, directory_of(system), seed, timeout_seconds=120)


def wrong(system: GlusterSystem, seed: int = SEED) -> list[str]:
    """What is wrong with them, through the last client."""
    return system.deployment.clients[-1].call(integrity.check_files, directory_of(system), seed, timeout_seconds=120)


def many_files(system: GlusterSystem, count: int) -> None:
    """Small files in one directory."""
    script = f'cd "$0" && mkdir many && for i in $(seq {count}); do echo "content of $i" > many/file$i; done; sync -f .'
    system.client.run(["sh", "-c", script, str(directory_of(system))]).must("writing")


def memory_bytes() -> int:
    """Proportional set size of every process of the lab."""
    total = 0
    for pid in processes_of(LAB):
        try:
            text = Path(f"/proc/{pid}/smaps_rollup").read_text()
        except OSError:
            continue
        total += sum(int(line.split()[1]) for line in text.splitlines() if line.startswith("Pss:")) * 1024
    return total


def brick_of(system: GlusterSystem, directory: str) -> dict[str, str]:
    """Which brick really holds each file of a directory (link files of mode ---------T are none)."""
    found = {}
    for brick in system.cluster.info().bricks:
        name, _, place = brick.partition(":")
        host = next(h for h in fabric_of(system).storage if h.name == name)
        listed = host.run(
            ["find", f"{place}{directory}", "-maxdepth", "1", "-type", "f", "!", "-perm", "1000", "-printf", "%f\\0"]
        )
        found |= {os.fsdecode(file): brick for file in listed.must("listing").stdout.split(b"\0") if file}
    return found


# --- the mount of a client, seen from this machine ------------------------------------------------------------------------

_CLONE = r"""
import ctypes, os, sys
libc = ctypes.CDLL(None, use_errno=True)
def must(result):
    if result < 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
    return result
pid, source, target = int(sys.argv[1]), os.fsencode(sys.argv[2]), os.fsencode(sys.argv[3])
here, there = (os.open(f"/proc/{p}/ns/mnt", os.O_RDONLY) for p in ("self", pid))
must(libc.setns(there, 0x20000))
tree = must(libc.syscall(428, -100, source, 1))  # open_tree, OPEN_TREE_CLONE
must(libc.setns(here, 0x20000))
must(libc.syscall(429, tree, b"", -100, target, 4))  # move_mount, MOVE_MOUNT_F_EMPTY_PATH
"""


@contextmanager
def seen_here(system: GlusterSystem, point: Path) -> Iterator[Path]:
    """The client's mount as a mount of this machine: what a user's existing mount is."""
    point.mkdir()
    pid = fabric_of(system).clients[0].namespaces.pid
    subprocess.run([sys.executable, "-c", _CLONE, str(pid), str(directory_of(system)), str(point)], check=True)
    try:
        yield point
    finally:
        subprocess.run(["umount", "--lazy", point], check=True)


# --- placement (shared facts: checked there against 3660 real placements) -------------------------------------------------

_MASK = 0xFFFFFFFF
_TEMPORARY = re.compile(rb"^\.(.+)\.[^.]+$")  # rsync's names: hashed as what they are renamed to


def hash_of(name: str) -> int:
    """The hash that decides which subvolume holds a file of this name."""
    text = os.fsencode(name)
    if match := _TEMPORARY.match(text):
        text = match[1]
    h0, h1 = 0x9464A485, 0x542E1A94
    full = len(text) // 16 * 16
    for start in range(0, full, 16):
        words = [int.from_bytes(text[start + i : start + i + 4], "little") for i in range(0, 16, 4)]
        h0, h1 = _round(words, 6, h0, h1)
    h0, h1 = _round(_last(text[full:], len(text)), 10, h0, h1)
    return h0 ^ h1


def _last(rest: bytes, length: int) -> list[int]:
    pad = length | length << 8
    pad = (pad | pad << 16) & _MASK
    words = []
    for start in range(0, 16, 4):
        part = rest[start : start + 4]
        if len(part) == 4:
            words.append(int.from_bytes(part, "little"))
            continue
        value = pad
        for byte in part:
            value = (value << 8 | ctypes.c_int8(byte).value & _MASK) & _MASK
        words.append(value)
    return words


def _round(words: list[int], rounds: int, h0: int, h1: int) -> tuple[int, int]:
    b0, b1, total = h0, h1, 0
    for _ in range(rounds):
        total = (total + 0x9E3779B9) & _MASK
        b0 = (b0 + ((((b1 << 4) + words[0]) ^ (b1 + total) ^ ((b1 >> 5) + words[1])) & _MASK)) & _MASK
        b1 = (b1 + ((((b0 << 4) + words[2]) ^ (b0 + total) ^ ((b0 >> 5) + words[3])) & _MASK)) & _MASK
    return (h0 + b0) & _MASK, (h1 + b1) & _MASK
