"""What the Ceph adapter refuses before anything is touched, and what its helper understands."""

from __future__ import annotations

import json
import socket
import threading
from pathlib import Path

import pytest

from assay.model.lab import Disk
from assay.model.lab import Lab as LabDeclaration
from assay.model.layout import parse_layout
from assay.systems.base import AdapterError
from assay.systems.catalogue import check_tuning, find_system
from assay.systems.ceph import CephSystem, check_room, layout_of
from assay.systems.ceph_probe import ask_daemon, client_process
from assay.systems.existing import kind_of


@pytest.mark.parametrize(("layout", "words"), [
    ("replicated-1", "one copy is no replication; write ceph/distributed"),
    ("rain-1-2", "Ceph wants two data shards or more; ceph/replicated-3 has as many copies"),
    ("striped-4", "is not a layout"),
])  # fmt: skip
def test_layouts_that_ceph_does_not_have(layout: str, words: str) -> None:
    with pytest.raises(AdapterError, match=words):
        layout_of(layout)


def test_hosts_that_do_not_suffice() -> None:
    lab = LabDeclaration.model_validate({"hosts": 5, "disk": {"size": "600MiB"}})
    with pytest.raises(AdapterError, match=r"ceph/rain-4-2 needs 6 hosts.* the lab has 5; set lab\.hosts to 6"):
        CephSystem.preflight("rain-4-2", lab, 1 << 20)


def test_disks_that_do_not_suffice() -> None:
    layout = parse_layout("replicated-3")
    disk = Disk.model_validate({"size": "1GiB"})
    check_room(layout, 3, disk, 500 << 20)
    with pytest.raises(
        AdapterError, match=r"takes 3 times its size on 3 disks; lab\.disk\.size must be at least 1\d\d\dMiB"
    ) as caught:
        check_room(layout, 3, disk, 1 << 30)
    enough = int(str(caught.value).split("at least ")[1].split("MiB")[0])
    check_room(layout, 3, Disk.model_validate({"size": f"{enough + 1}MiB"}), 1 << 30)


@pytest.mark.parametrize(("tuning", "words"), [
    ({"access": "kernel"}, "ceph has no access path 'kernel'; known: fuse, librados"),
    ({"pg_num": 0}, "pg_num: 0 is no number of at least 1"),
    ({"pg_num": "many"}, "pg_num: 'many' is no number"),
    ({"min_size": True}, "min_size: True is no number"),
    ({"balancer": "maybe"}, "balancer: 'maybe' is neither true nor false"),
    ({"profile": "slow"}, "ceph has no profile"),
    ({"shard": 3}, "ceph/rain-4-2 has no tuning 'shard'"),
])  # fmt: skip
def test_tuning_that_cannot_be_right(tuning: dict[str, object], words: str) -> None:
    with pytest.raises(AdapterError, match=words):
        check_tuning("ceph/rain-4-2", tuning)
    check_tuning("ceph/rain-4-2", {"access": "librados", "profile": "stock", "pg_num": 64, "osd.osd_op_num_shards": 4})


def test_it_is_found_and_knows_its_mounts() -> None:
    assert find_system("ceph/rain-4-2") == (CephSystem, "rain-4-2")
    kind = kind_of(CephSystem)
    assert kind.fstypes == ("fuse.ceph-fuse", "ceph")
    assert isinstance(kind.magic, dict)
    assert kind.magic["ceph"] == 0x00C36400


def test_an_admin_socket_is_asked(tmp_path: Path) -> None:
    """The protocol of common/admin_socket.cc, in pieces as a socket may give them."""
    server = socket.socket(socket.AF_UNIX)
    server.bind(str(tmp_path / "asok"))
    server.listen()
    asked: list[bytes] = []

    def serve() -> None:
        for answer in (b'{"id": 4170}', None):
            connection, _ = server.accept()
            with connection:
                request = b""
                while not request.endswith(b"\0"):
                    request += connection.recv(7)
                asked.append(request)
                if answer is not None:
                    message = len(answer).to_bytes(4, "big") + answer
                    for at in range(0, len(message), 3):
                        connection.sendall(message[at : at + 3])

    thread = threading.Thread(target=serve)
    thread.start()
    with server:
        assert ask_daemon(tmp_path / "asok", "status", {"x": 1}, 5.0) == {"id": 4170}
        with pytest.raises(OSError, match="closed its admin socket"):
            ask_daemon(tmp_path / "asok", "status", {}, 5.0)
        thread.join(5)
    assert json.loads(asked[0].rstrip(b"\0")) == {"prefix": "status", "format": "json", "x": 1}
    with pytest.raises(OSError, match=r"refused|No such file"):
        ask_daemon(tmp_path / "asok", "status", {}, 5.0)


def test_a_process_is_known_by_pid_and_start(tmp_path: Path) -> None:
    file = tmp_path / "pid"
    file.write_text("1\n")
    assert client_process(file).startswith("1:")
    file.write_text("999999999")
    with pytest.raises(OSError, match="No such file"):
        client_process(file)
