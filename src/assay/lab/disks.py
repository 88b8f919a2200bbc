"""Loop-backed disks that Assay makes, and what the kernel says about block devices."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from assay.lab.errors import LabError
from assay.lab.host import Host
from assay.model import units
from assay.model.evidence import DeviceCounters

RESERVE_BYTES = 256 << 20  # left free on the file system that holds the backing files


def make_backing_file(path: Path, size: int, fill: str) -> None:
    """Make a disk's backing file. Raises LabError when the space is not there; nothing is left then."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        free = shutil.disk_usage(path.parent).free
    except OSError as error:
        raise LabError(f"cannot make a disk at {path}: {error.strerror}") from None
    if fill != "sparse" and size + RESERVE_BYTES > free:
        raise LabError(
            f"{path.parent} has {units.format_bytes(free // (1 << 20) * (1 << 20))} free, a disk of "
            f"{units.format_bytes(size)} does not fit; make lab.disk.size smaller or set lab.disk.directory"
        )
    try:
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL, 0o600)
    except OSError as error:  # what is there already stays
        raise LabError(f"cannot make a disk at {path}: {error.strerror}") from None
    try:
        if fill == "sparse":
            os.ftruncate(handle, size)
        elif fill == "allocated":
            os.posix_fallocate(handle, 0, size)
        else:
            block = os.urandom(1 << 20) * 8
            left = size
            while left:
                left -= os.write(handle, block[: min(left, len(block))])
            os.fsync(handle)
    except OSError as error:
        path.unlink()
        raise LabError(f"cannot make a disk of {units.format_bytes(size)} at {path}: {error.strerror}") from None
    finally:
        os.close(handle)


def attach_loop(host: Host, backing: Path) -> str:
    """Attach a loop device with direct I/O (no second cache below it); returns /dev/loopN. Raises LabError."""
    backing = Path(os.path.realpath(backing))  # the kernel knows no symbolic links
    done = host.run(["losetup", "--find", "--show", "--direct-io=on", "--nooverlap", str(backing)])
    if not done.ok:
        raise LabError(
            f"cannot attach a loop device: {done.stderr.decode(errors='replace').strip()}; loop disks need root and /dev/loop-control"
        )
    device = done.stdout.decode().strip()
    found = Path(f"/sys/block/{Path(device).name}/loop/backing_file").read_text().strip()
    if found != str(backing):
        raise LabError(f"{device} belongs to {found}, not to {backing}; nothing was written")
    return device


def device_of(entry: dict[str, str]) -> str | None:
    """Kernel name of the block device under a mount (``loop3``, ``vda``), None for network and memory file systems."""
    link = Path(f"/sys/dev/block/{entry['device']}")
    if link.exists():
        return Path(os.path.realpath(link)).name
    source = entry["source"]  # btrfs and overlay mounts have an anonymous device number
    if source.startswith("/dev/") and Path(source).exists():
        return Path(os.path.realpath(source)).name
    return None


def device_counters(device: str) -> DeviceCounters:
    """Bytes moved by a block device, from /sys/class/block/*/stat (Documentation/block/stat.rst; sectors of 512 bytes).

    Raises LabError when the device is gone.
    """
    try:
        fields = Path(f"/sys/class/block/{device}/stat").read_text().split()
    except OSError as error:
        raise LabError(f"block device {device} is gone: {error.strerror}") from None
    return DeviceCounters(
        device=device, read_bytes=int(fields[2]) * 512, written_bytes=int(fields[6]) * 512, in_flight=int(fields[8])
    )
