"""A FUSE file system that hangs on demand: a GlusterFS client process that serves a directory, stopped by a signal."""

from __future__ import annotations

import os
import signal
import subprocess
import time
from pathlib import Path

from lab_helpers import eventually

from assay.lab.remote import is_mount_point

VOLUME = """
volume posix
  type storage/posix
  option directory {brick}
end-volume
volume locks
  type features/locks
  subvolumes posix
end-volume
"""


class HangingMount:
    """``place/mnt`` on ``place/brick``."""

    def __init__(self, place: Path) -> None:
        self.point, self.brick = place / "mnt", place / "brick"
        for directory in (place, self.point, self.brick):
            directory.mkdir(parents=True, exist_ok=True)
        volume = place / "volume.vol"
        volume.write_text(VOLUME.format(brick=self.brick))
        self._daemon = subprocess.Popen(
            ["setpriv", "--pdeathsig", "KILL", "glusterfs", "-N", f"--volfile={volume}", f"--log-file={place}/log",
             str(self.point)],
            stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        assert eventually(lambda: is_mount_point(self.point)), (place / "log").read_text()
        time.sleep(0.1)

    @property
    def mounted(self) -> bool:
        return is_mount_point(self.point)

    def hang(self) -> None:
        os.kill(self._daemon.pid, signal.SIGSTOP)

    def answer(self) -> None:
        os.kill(self._daemon.pid, signal.SIGCONT)

    def end(self) -> None:
        """Everything that waits for it gets an error when its daemon dies."""
        self._daemon.kill()
        self._daemon.wait()
        if self.mounted:
            subprocess.run(["umount", "--lazy", str(self.point)], check=True, timeout=10)
