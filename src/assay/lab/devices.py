"""Block devices that are handed over by name as disks of storage hosts.

A device is taken only when it is empty and unused, and given back as empty: clean-up wipes a file system only when its
label says that this lab has made it, whatever else may be on the device by then.
"""

from __future__ import annotations

import hashlib
import json
import os
import re
import stat
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from assay.lab.errors import LabError
from assay.lab.host import LocalHost
from assay.lab.kernel import loops_over
from assay.model import units

_LET_GO_SECONDS = 10.0


@dataclass(frozen=True)
class Signature:
    """What wipefs(8) recognises on a device: a file system, a partition table, a volume manager's mark."""

    kind: str
    label: str


def device_label(lab_id: str) -> str:
    """Label of file systems that a lab makes: 12 characters, as many as XFS has room for."""
    return "assay" + hashlib.sha256(lab_id.encode()).hexdigest()[:7]


def real_device(device: str) -> str:
    """The device's own name: what is given may be a link below /dev/disk. Raises LabError for what is no block device."""
    real = os.path.realpath(device)
    try:
        kind = Path(real).stat().st_mode
    except OSError as error:
        raise LabError(f"device {device}: {error.strerror}; list what there is with: lsblk") from None
    if not stat.S_ISBLK(kind):
        raise LabError(f"device {device} is not a block device; list those with: lsblk")
    return real


def check_devices(devices: Iterable[str], size: int | None) -> list[str]:
    """Real names of devices that may be taken, each at least ``size`` bytes; touches nothing. Raises LabError with one
    clear line for one that is not a block device, named twice, in use, not empty, or too small."""
    found: list[str] = []
    for device in devices:
        real = real_device(device)
        if real in found:
            raise LabError(f"device {device} is named twice (as {real}); name each device once")
        _check_unused(device, real)
        _check_empty(device, real)
        _check_size(device, real, size)
        found.append(real)
    return found


def attach_device(device: str, size: int | None) -> str:
    """Attach a loop device with direct I/O over the first ``size`` bytes of a device; returns /dev/loopN. Raises
    LabError. A loop device over it goes with its last user like one over a file, and cuts all disks to one size."""
    command = ["losetup", "--find", "--show", "--direct-io=on", "--sector-size", str(_sector_size(device))]
    done = LocalHost().run([*command, *(["--sizelimit", str(size)] if size is not None else []), device])
    if not done.ok:
        raise LabError(f"cannot attach a loop device over {device}: {done.stderr.decode(errors='replace').strip()}")
    return done.stdout.decode().strip()


def signatures(device: str) -> list[Signature]:
    """What is recognised on a device. Raises LabError when it cannot be read."""
    done = LocalHost().run(["wipefs", "--no-act", "--json", device])
    if not done.ok:
        raise LabError(f"cannot read {device}: {done.stderr.decode(errors='replace').strip()}")
    # wipefs says nothing at all, not even JSON, of some empty devices
    found = json.loads(done.stdout or b"{}").get("signatures", [])
    return [Signature(entry["type"], entry.get("label") or "") for entry in found]


def wipe(device: str, lab_id: str) -> bool:
    """Remove the file system that a lab has made on a device. Returns whether there was one; what is not the lab's
    stays. Raises LabError when it would not go."""
    if not Path(device).exists():  # pulled out
        return False
    end = time.monotonic() + _LET_GO_SECONDS
    while loops := loops_over(device):  # its last words are written when its last user has gone
        LocalHost().run(["losetup", "--detach", loops[0]])
        if time.monotonic() > end:
            raise LabError(f"{loops[0]} still uses {device}; end what uses it, then run: assay lab clean {lab_id}")
        time.sleep(0.01)
    found = signatures(device)
    if not found or any(s.label != device_label(lab_id) for s in found):
        return False
    done = LocalHost().run(["wipefs", "--all", device])
    if not done.ok:
        why = done.stderr.decode(errors="replace").strip()
        raise LabError(f"cannot wipe {device}: {why}; end what uses it, then run: assay lab clean")
    return True


def _check_unused(device: str, real: str) -> None:
    if loops := loops_over(real):
        raise LabError(f"device {device} is in use by {loops[0]}; free it with: losetup --detach {loops[0]}")
    try:
        # the kernel refuses this for what is mounted, swapped on, or part of a RAID or volume (open(2), O_EXCL)
        os.close(os.open(real, os.O_RDONLY | os.O_EXCL))
    except OSError as error:
        raise LabError(
            f"device {device} cannot be taken: {error.strerror}; see what uses it with: lsblk {real}"
        ) from None
    name = Path(real).name
    if any((part / "partition").exists() for part in Path(f"/sys/class/block/{name}").glob(f"{name}*")):
        raise LabError(f"device {device} has partitions; name one of them, or a device without: lsblk {real}")


def _check_empty(device: str, real: str) -> None:
    found = signatures(real)
    if not found:
        return
    if re.fullmatch("assay[0-9a-f]{7}", found[0].label):
        raise LabError(f"device {device} holds what a lab has left ({found[0].kind}); first: assay lab clean")
    label = f" labelled {found[0].label!r}" if found[0].label else ""
    raise LabError(
        f"device {device} is not empty: {found[0].kind}{label}; if nothing on it is needed: wipefs --all {real}"
    )


def _check_size(device: str, real: str, size: int | None) -> None:
    there = device_bytes(real)
    if size is not None and there < size:
        raise LabError(
            f"device {device} has {units.format_bytes(there)}, lab.disk.size is {units.format_bytes(size)}; "
            "make lab.disk.size smaller or name a larger device"
        )


def device_bytes(device: str) -> int:
    """Size of a block device."""
    handle = os.open(device, os.O_RDONLY)
    try:
        return os.lseek(handle, 0, os.SEEK_END)
    finally:
        os.close(handle)


def _sector_size(device: str) -> int:
    name = Path(device).name
    queue = Path(f"/sys/class/block/{name}/queue")
    if not queue.exists():  # a partition: its disk's
        queue = Path(os.path.realpath(f"/sys/class/block/{name}")).parent / "queue"
    return int((queue / "logical_block_size").read_text())
