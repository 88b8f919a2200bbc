"""CephFS on clients through ceph-fuse, and what can be known of a CephFS from one of its mounts alone."""

from __future__ import annotations

import json
import os
import re
import time
from contextlib import suppress
from pathlib import Path
from typing import Any

from assay.lab import remote
from assay.lab.host import Host, HostError
from assay.lab.mounts import ANSWER_SECONDS
from assay.systems import ceph_probe
from assay.systems.base import AdapterError
from assay.systems.ceph_status import health as judged
from assay.systems.ceph_status import layout_of_pool, parse_directory_layout, parse_status, pool_of
from assay.systems.existing import MountKind

FUSE_TYPE, KERNEL_TYPE = "fuse.ceph-fuse", "ceph"
MAGIC = {FUSE_TYPE: 0x65735546, KERNEL_TYPE: 0x00C36400}  # FUSE_SUPER_MAGIC, CEPH_SUPER_MAGIC in linux/magic.h
MOUNT_SECONDS = 60.0
END_SECONDS = 15.0  # of a client process after unmount; one whose cluster is gone would stay for ever
PID_FILE = Path("/run/ceph/client.pid")  # of the one mount that a client has
_STAMP = re.compile(r"\d{4}-\d\d-\d\dT\S+ [0-9a-f]+ +-1 ")  # time and thread of a line of log
SOCKET = Path("/run/ceph/client.asok")


def mount(client: Host, point: Path, filesystem: str, directory: str, options: str) -> None:
    """Mount a directory of a file system on a client, and prove that it is one. Raises AdapterError, HostError."""
    client.run(["mkdir", "-p", str(point), "/run/ceph"]).must("mount point")
    argv = ["ceph-fuse", "-n", "client.admin", "--client_fs", filesystem, "-r", directory]
    argv += [f"--pid-file={PID_FILE}", f"--admin-socket={SOCKET}"]
    argv += [str(point), "-o", ",".join(filter(None, ["default_permissions", options]))]
    done = client.run(argv, timeout_seconds=MOUNT_SECONDS)
    entry = client.call(remote.mount_entry, point, timeout_seconds=ANSWER_SECONDS) or {}
    found = entry.get("point"), entry.get("fstype")
    if not done.ok or found != (str(point), FUSE_TYPE):
        words = _STAMP.sub("", " ".join((done.stderr + done.stdout).decode(errors="replace").split()))
        how = f"no answer within {MOUNT_SECONDS:g} s" if done.exit_code is None else words[-300:] or f"found {found}"
        raise AdapterError(f"{client.name}: ceph-fuse: {how}")


def pool_at(client: Host, directory: Path) -> dict[str, str]:
    """The layout of a directory: pool, stripe_unit, stripe_count, object_size. Raises AdapterError without one."""
    try:
        return parse_directory_layout(
            client.call(ceph_probe.attribute, directory, ceph_probe.LAYOUT, timeout_seconds=ANSWER_SECONDS)
        )
    except OSError as error:
        raise AdapterError(f"{client.name}: {directory} has no layout of CephFS: {error.strerror}") from None


def process(client: Host) -> str:
    """Identity of the ceph-fuse process. Raises AdapterError when it is gone."""
    try:
        return client.call(ceph_probe.client_process, PID_FILE, timeout_seconds=ANSWER_SECONDS)
    except (OSError, ValueError) as error:
        raise AdapterError(f"{client.name}: ceph-fuse does not run: {error}") from None


def session(client: Host) -> int:
    """The number of the client at the metadata server. Raises AdapterError when it is gone."""
    try:
        found = client.call(ceph_probe.ask_daemon, SOCKET, "status", {}, ANSWER_SECONDS, timeout_seconds=ANSWER_SECONDS)
    except (OSError, ValueError) as error:
        raise AdapterError(f"{client.name}: ceph-fuse does not answer: {error}") from None
    return int(found["id"])


def end(client: Host) -> bool:
    """Wait for the ceph-fuse process of a mount that was taken away, which closes its session only now; kill it when it does
    not end. Returns whether it ended by itself. Raises HostError."""
    last = time.monotonic() + END_SECONDS
    try:
        while time.monotonic() < last:
            client.call(ceph_probe.client_process, PID_FILE, timeout_seconds=ANSWER_SECONDS)
            time.sleep(0.02)
    except (OSError, ValueError):  # no such file, no such process
        return True
    client.run(["sh", "-c", 'kill -KILL "$(cat "$0")"', str(PID_FILE)])
    return False


# --- mounts of others ---------------------------------------------------------------------------------------------------


def _ask(host: Host, *words: str) -> Any:
    """The cluster's answer by the ``ceph`` program, None when there is none that may be asked from here."""
    with suppress(HostError):
        done = host.run(["ceph", "--connect-timeout", "5", *words, "-f", "json"], timeout_seconds=ANSWER_SECONDS)
        if done.ok:
            with suppress(ValueError):
                return json.loads(done.stdout)
    return None


def nearest_layout(host: Host, directory: Path) -> dict[str, str]:
    """The layout that new files below a directory get: its own or that of the nearest directory above that has one; empty
    when the file system's default holds."""
    entry = host.call(remote.mount_entry, directory, timeout_seconds=ANSWER_SECONDS) or {"point": "/"}
    for place in (directory, *directory.parents):
        try:
            return pool_at(host, place)
        except AdapterError:
            if str(place) == entry["point"]:
                break
    return {}


def _inspect(host: Host, mount: Path, layout: str) -> dict[str, Any]:
    entry = host.call(remote.mount_entry, mount, timeout_seconds=ANSWER_SECONDS) or {}
    found = nearest_layout(host, mount)
    dump = _ask(host, "osd", "dump")
    facts: dict[str, Any] = {
        "version": f"{entry.get('fstype', '')}, Linux {os.uname().release}",
        "files": found or "the file system's default layout",
        "layout": "as declared: the cluster cannot be asked from here (no ceph.conf and keyring)",
    }
    if dump is None or "pool" not in found:
        return facts
    pool = pool_of(dump, found["pool"])
    real = layout_of_pool(pool, dump["erasure_code_profiles"])
    if str(real) != layout:
        raise AdapterError(f"{mount} is ceph/{real} (pool {found['pool']}), not ceph/{layout}")
    facts["layout"] = f"pool {found['pool']}: size {pool['size']}, min_size {pool['min_size']}, {pool['pg_num']} groups"
    if (version := _ask(host, "version")) is not None:
        facts["version"] = f"{version['version']}, {facts['version']}"
    return facts


def _health(host: Host, mount: Path) -> tuple[bool | None, str]:  # noqa: ARG001 (it is the cluster that is asked)
    found = _ask(host, "status")
    if found is None:
        return True, "mounted and writable; the cluster cannot be asked from here"
    return judged(parse_status(found))


MOUNT_KIND = MountKind((FUSE_TYPE, KERNEL_TYPE), MAGIC, _inspect, _health)
