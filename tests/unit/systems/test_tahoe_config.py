"""Tahoe-LAFS: layouts, the files that make a node, capabilities, and what the web interface says."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assay.model.lab import Disk
from assay.model.layout import Layout
from assay.systems.base import AdapterError
from assay.systems.tahoe_config import (
    base32,
    busy,
    check_hosts,
    check_room,
    connected_servers,
    default_happy,
    file_health,
    gateway,
    happy_of,
    introducer,
    layout_of,
    option_of,
    shares_directory,
    storage_node,
)

FURL = "pb://tubid@tcp:10.77.0.11:8500/swissnum"
RAIN = Layout("rain", 4, 2)


def test_layouts() -> None:
    assert layout_of("rain-3-7") == Layout("rain", 3, 7)
    with pytest.raises(AdapterError, match=r"^tahoe/replicated-3: Tahoe-LAFS has shares only; write tahoe/rain-1-2$"):
        layout_of("replicated-3")
    with pytest.raises(AdapterError, match="write tahoe/rain-1-1"):
        layout_of("distributed")
    with pytest.raises(AdapterError, match="is not a layout"):
        layout_of("rain42")


def test_every_share_has_a_host_of_its_own() -> None:
    check_hosts(RAIN, 6, 1)
    check_hosts(RAIN, 9, 1)
    with pytest.raises(AdapterError, match=r"6 shares, and the lab has 5; set lab\.hosts to 6$"):
        check_hosts(RAIN, 5, 1)
    with pytest.raises(AdapterError, match=r"set lab\.disk\.per_host to 1"):
        check_hosts(RAIN, 6, 2)


def test_room() -> None:
    disk = Disk.model_validate({"size": "1GiB"})
    check_room(RAIN, 6, disk, 3 << 30)
    with pytest.raises(
        AdapterError, match=r"takes 1\.5 times its size on 6 disks; lab\.disk\.size must be at least 1266MiB"
    ):
        check_room(RAIN, 6, disk, 4 << 30)
    check_room(RAIN, 6, Disk(), 1 << 50)  # its size is that of a device


@given(st.integers(1, 20), st.integers(1, 20), st.integers(0, 20))
def test_uploads_go_on_while_the_layout_survives(data: int, parity: int, more: int) -> None:
    layout, hosts = Layout("rain", data, parity), data + parity + more
    happy = default_happy(layout, hosts)
    assert data <= happy <= hosts - parity, "as many servers as are left, and never fewer than give the file back"
    assert happy <= layout.width


@pytest.mark.parametrize("value", [0, 7, "3", 2.0, True])
def test_happiness_that_cannot_be(value: object) -> None:
    assert happy_of({}, RAIN, 6) == 4
    assert happy_of({"shares.happy": 6}, RAIN, 6) == 6
    with pytest.raises(
        AdapterError, match=r"^shares\.happy: .* is no number of servers from 1 to 6 for tahoe/rain-4-2$"
    ):
        happy_of({"shares.happy": value}, RAIN, 6)


def test_options_that_belong_to_the_layout() -> None:
    assert option_of("client.force_foolscap") == ("client", "force_foolscap")
    assert option_of("node.timeout.keepalive") == ("node", "timeout.keepalive")
    with pytest.raises(AdapterError, match=r"client\.shares\.needed belongs to the layout"):
        option_of("client.shares.needed")
    with pytest.raises(AdapterError, match=r"is no option of tahoe\.cfg"):
        option_of("sftpd.enabled")


def test_an_introducer_is_told_where_it_listens() -> None:
    files = introducer("10.77.0.11").files()
    assert files == {
        "tahoe.cfg": "[node]\nnickname = introducer\nweb.port = \ntub.port = tcp:8500\n"
        "tub.location = tcp:10.77.0.11:8500\n",
        "tahoe-introducer.tac": "",
    }


def test_a_storage_node_has_its_hosts_disk() -> None:
    files = storage_node("s2", "10.77.0.12", FURL, {"storage.readonly": False, "client.force_foolscap": False}).files()
    assert files["private/introducers.yaml"] == f"introducers:\n  default:\n    furl: {FURL}\n"
    assert "tahoe-client.tac" in files
    assert (
        "[storage]\nenabled = true\nreserved_space = 0\nstorage_dir = /run/b/1/tahoe\nreadonly = false\n"
        in files["tahoe.cfg"]
    )
    assert "tub.location = tcp:10.77.0.12:8501\n" in files["tahoe.cfg"]
    assert "force_foolscap = true\n" in files["tahoe.cfg"], "an option of gateways is none of storage nodes"


def test_a_gateway_has_the_encoding_and_the_convergence_secret() -> None:
    secret = bytes(range(32))
    files = gateway(
        "c1", FURL, RAIN, 5, secret, {"client.force_foolscap": True, "storage.readonly": True}, sftp=False
    ).files()
    text = files["tahoe.cfg"]
    assert "[client]\nshares.needed = 4\nshares.happy = 5\nshares.total = 6\nforce_foolscap = true\n" in text
    assert "[storage]\nenabled = false\n" in text
    assert "web.port = tcp:3456:interface=127.0.0.1\n" in text
    assert "readonly" not in text
    assert "[sftpd]" not in text
    assert files["private/convergence"] == f"{base32(secret)}\n"
    with_sftp = gateway("c1", FURL, RAIN, 5, secret, {}, sftp=True).files()["tahoe.cfg"]
    assert "[sftpd]\nenabled = true\nport = tcp:8022:interface=127.0.0.1\n" in with_sftp


# --- capabilities: a real upload's, and where a real storage node kept its shares ----------------------------------------


def test_where_the_shares_of_a_file_are() -> None:
    real = "URI:CHK:gkxhj7g4n6uvzrrfryflnwuvgq:mz3fx3a5xarct3krvq7squ5b7geca377xopcrhhyp6m6v4ipzzrq:4:6:104857600"
    assert shares_directory(real) == "shares/to/tod75hfbm47zp6p2lfwlcp4mpe"
    assert shares_directory("URI:LIT:krugkidfnzsc4") is None
    with pytest.raises(ValueError, match="URI:DIR2 is no immutable file"):
        shares_directory("URI:DIR2:aaaa:bbbb")


# --- what the web interface says --------------------------------------------------------------------------------------------


def test_servers_that_are_connected() -> None:
    def server(name: str, status: str) -> dict[str, str]:
        return {"nickname": name, "connection_status": status}

    welcome = {
        "servers": [
            server("s1", "connected"),  # over HTTP
            server("s2", "Connected to tcp:10.77.0.12:8501 via tcp"),  # over Foolscap
            server("s3", "failure: [Failure instance: ... User timeout caused connection failure]"),
            server("s4", "unstarted"),
            server("s5", "Trying to connect: 1 seconds ago"),
        ]
    }
    assert connected_servers(welcome) == {"s1", "s2"}


def _checked(shares: int, spread: int) -> dict[str, object]:
    counts = {"count-shares-good": shares, "count-shares-expected": 6, "count-happiness": spread}
    return {"storage-index": "tod75", "results": {**counts, "healthy": shares == 6, "recoverable": shares >= 4}}


def test_a_file_is_whole_when_every_share_has_a_server() -> None:
    whole = file_health(_checked(6, 6))
    assert whole is not None and whole.whole(6)
    # written while two of six servers were dead: Tahoe-LAFS calls it healthy
    crowded = file_health(_checked(6, 4))
    assert crowded is not None and crowded.recoverable and not crowded.whole(6)
    assert crowded.whole(4), "as far as there are servers"
    repaired = file_health(
        {"storage-index": "tod75", "pre-repair-results": _checked(5, 5), "post-repair-results": _checked(6, 6)}
    )
    assert repaired is not None and repaired.whole(6)
    lost = file_health(_checked(3, 3))
    assert lost is not None and not lost.recoverable
    assert file_health({"storage-index": "", "results": {"healthy": True}}) is None
    assert file_health({"storage-index": "", "repair-attempted": False}) is None


def test_transfers_under_way() -> None:
    assert busy({"active": [], "recent": [{"type": "upload", "status": "Finished"}]}) == []
    assert busy({"active": [{"type": "upload", "status": "Encoding"}]}) == ["upload: Encoding"]
