"""Letting go of mounts, also of those that hang."""

from __future__ import annotations

from pathlib import Path

from assay.lab import remote
from assay.lab.errors import LabError
from assay.lab.host import Host, HostError

ANSWER_SECONDS = 10.0  # a file system that needs longer for a question about itself hangs
UNMOUNT_SECONDS = 120.0  # it flushes


def unmount(host: Host, point: Path) -> None:
    """Unmount what is mounted at ``point`` (a real path) on a host; no error when nothing is. One that hangs is detached by
    force. Raises LabError when it is busy, HostError when it hangs and does not go even so."""
    if not host.call(remote.is_mount_point, point):
        return
    if answers(host, point):  # umount asks too, and would wait
        done = host.run(["umount", str(point)], timeout_seconds=UNMOUNT_SECONDS)
        words = done.stderr.decode(errors="replace").strip()
        if done.ok or "not mounted" in words:
            return
        if done.exit_code is not None:
            raise LabError(words)
    # force aborts what waits for a file system in user space or on the network, lazy asks it nothing
    argv = ["umount", "--lazy", "--force", str(point)]
    host.run(argv, timeout_seconds=UNMOUNT_SECONDS).must(f"{host.name}: detaching a mount that hangs")


def answers(host: Host, directory: Path) -> bool:
    """Whether a file system says anything at all within the deadline; an error is an answer too."""
    try:
        host.call(remote.statvfs, directory, timeout_seconds=ANSWER_SECONDS)
    except HostError:
        return False
    except OSError:  # "Transport endpoint is not connected"
        return True
    return True
