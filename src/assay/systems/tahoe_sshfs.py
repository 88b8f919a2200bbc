"""Tahoe-LAFS as a mount: the gateway's SFTP front end (``docs/frontends/FTP-and-SFTP.rst``) and sshfs on the same host."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from assay.lab import remote
from assay.lab.host import Host
from assay.lab.mounts import ANSWER_SECONDS
from assay.lab.namespace import NamespaceHost
from assay.systems import tahoe_config as config
from assay.systems.base import AdapterError

FSTYPE = "fuse.sshfs"
CLOSE_SECONDS = 0.3  # from a close until the gateway knows of the upload that it means
MOUNT_SECONDS = 60.0


@dataclass(frozen=True)
class Keys:
    """What the front end and its only user know each other by."""

    root: str  # capability of the directory that is mounted
    identity: Path  # the user's private key
    private: dict[str, str]  # files of the gateway: host key and accounts


def make_keys(client: NamespaceHost, directory: Path, root: str) -> Keys:
    """New keys in a directory of the client's. RSA in PEM is what Tahoe-LAFS reads. Raises HostError."""
    keys = {name: directory / name for name in ("host_key", "user_key")}
    for file in keys.values():
        if not file.exists():
            client.run(["ssh-keygen", "-q", "-t", "rsa", "-m", "PEM", "-N", "", "-f", str(file)]).must("making a key")
    public = {name: file.with_suffix(".pub").read_text() for name, file in keys.items()}
    kind, key, *_ = public["user_key"].split()
    private = {
        "host_key": keys["host_key"].read_text(),
        "host_key.pub": public["host_key"],
        "accounts": f"{config.USER} {kind} {key} {root}\n",
    }
    return Keys(root, keys["user_key"], private)


def mount(client: Host, keys: Keys, point: Path) -> None:
    """Mount the directory, and prove it. Raises AdapterError or HostError."""
    source = f"{config.USER}@127.0.0.1:/"
    options = [
        "ssh_command=ssh -F /dev/null",  # nothing of this machine's configuration
        f"port={config.SFTP_PORT}",
        f"IdentityFile={keys.identity}",
        "StrictHostKeyChecking=no",
        "UserKnownHostsFile=/dev/null",
        "HostKeyAlgorithms=+ssh-rsa",
        "PubkeyAcceptedKeyTypes=+ssh-rsa",
        "BatchMode=yes",
    ]
    client.run(["mkdir", "-p", str(point)]).must("mount point")
    argv = ["sshfs", source, str(point), *(word for option in options for word in ("-o", option))]
    done = client.run(
        ["sh", "-c", 'exec "$@" </dev/null >"$0" 2>&1', f"{keys.identity}.log", *argv], timeout_seconds=MOUNT_SECONDS
    )
    entry = client.call(remote.mount_entry, point, timeout_seconds=ANSWER_SECONDS)
    found = (entry or {}).get("point"), (entry or {}).get("fstype"), (entry or {}).get("source")
    if not done.ok or found != (str(point), FSTYPE, source):
        words = " ".join(Path(f"{keys.identity}.log").read_text(errors="replace").split())
        raise AdapterError(f"{client.name}: mounting {source}: {words[-300:] or f'found {found}'}")


def version(client: Host) -> str:
    """What sshfs says of itself; libfuse and fusermount3 put in a word, too. Raises HostError."""
    lines = client.run(["sshfs", "--version"]).stdout.decode(errors="replace").splitlines()
    return next((line for line in lines if "sshfs" in line.lower()), "unknown")
