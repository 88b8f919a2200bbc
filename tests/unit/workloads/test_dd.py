"""dd on real directories, and put and get through a store that is a directory."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from assay.lab.host import Host, LocalHost
from assay.model.point import DdPoint
from assay.workloads.base import RunResult, StoreError, Target, WorkloadError
from assay.workloads.dd import DIRECTORY, DdWorkload

KIB = 1024


@pytest.fixture
def host() -> Iterator[LocalHost]:
    host = LocalHost()
    yield host
    host.close()


def point(**given: Any) -> DdPoint:
    return DdPoint.model_validate(
        {"direction": "write", "size": 64 * KIB, "block_size": KIB, "content": "random", "fsync": True, "files": 3}
        | given
    )


def done(p: DdPoint, target: Target, hosts: list[Host], tmp_path: Path, deadline: float = 60.0) -> RunResult:
    workload = DdWorkload(p)
    workload.prepare(target, hosts, 7, 60.0)
    workload.stage(target, hosts, 7, 60.0)
    return workload.run(target, hosts, seed=7, scratch=tmp_path, deadline_seconds=deadline)


def mounted(tmp_path: Path) -> Target:
    (tmp_path / "mount").mkdir()
    return Target(tmp_path / "mount", sources=tmp_path / "sources")


def test_writes_are_what_was_prepared(tmp_path: Path, host: LocalHost) -> None:
    target = mounted(tmp_path)
    for _ in range(2):  # the second attempt finds nothing of the first
        result = done(point(clients=2), target, [host, host], tmp_path)
        for client in result.clients:
            assert (client.exit_code, client.errors) == (0, {})
            total = client.totals["write"]
            assert (total.bytes, total.operations) == (3 * 64 * KIB, 3)
            assert 0 < total.latency_min_seconds <= total.latency_mean_seconds <= total.latency_max_seconds
            assert total.runtime_seconds <= client.ended_at - client.started_at
    (source,) = (tmp_path / "sources").iterdir()
    written = sorted((tmp_path / "mount" / DIRECTORY).iterdir())
    assert [file.name for file in written] == [f"w-c{c}-{n}" for c in range(2) for n in range(3)]
    assert {file.read_bytes() for file in written} == {source.read_bytes()}
    assert len(set(source.read_bytes())) > 200, "random"


def test_zeros_are_zeros_and_the_command_can_be_repeated_by_hand(tmp_path: Path, host: LocalHost) -> None:
    target = mounted(tmp_path)
    done(point(content="zeros", files=1), target, [host], tmp_path)
    (written,) = (tmp_path / "mount" / DIRECTORY).iterdir()
    assert written.read_bytes() == bytes(64 * KIB)
    line = DdWorkload(point(content="zeros", files=1)).command(target, 0)
    assert line.endswith("bs=1024 count=64 conv=fsync")
    written.unlink()
    assert host.run(["sh", "-c", line]).ok
    assert written.stat().st_size == 64 * KIB


def test_reads_need_no_sync_and_leave_the_files(tmp_path: Path, host: LocalHost) -> None:
    target = mounted(tmp_path)
    result = done(point(direction="read", fsync=False), target, [host], tmp_path)
    assert result.clients[0].totals["read"].bytes == 3 * 64 * KIB
    assert len(list((tmp_path / "mount" / DIRECTORY).iterdir())) == 3
    assert "conv" not in DdWorkload(point(direction="read", fsync=False)).command(target, 0)


def test_a_copy_that_fails_is_a_result(tmp_path: Path, host: LocalHost) -> None:
    target = mounted(tmp_path)
    workload = DdWorkload(point())
    workload.prepare(target, [host], 7, 60.0)
    shutil.rmtree(tmp_path / "mount" / DIRECTORY)
    (client,) = workload.run(target, [host], seed=7, scratch=tmp_path, deadline_seconds=60.0).clients
    assert (client.exit_code, client.errors, client.totals) == (1, {"exit-1": 1}, {})
    assert "No such file or directory" in client.message


def test_a_copy_that_does_not_end_is_killed(tmp_path: Path, host: LocalHost) -> None:
    target = mounted(tmp_path)
    workload = DdWorkload(point())
    workload.prepare(target, [host], 7, 60.0)
    fifo = tmp_path / "mount" / DIRECTORY / "w-c0-0"
    host.run(["mkfifo", str(fifo)]).must("a file that takes no byte")
    (client,) = workload.run(target, [host], seed=7, scratch=tmp_path, deadline_seconds=1.0).clients
    assert (client.exit_code, client.errors) == (None, {"deadline": 1})


def test_a_directory_that_is_no_place_is_one_line(tmp_path: Path, host: LocalHost) -> None:
    target = Target(tmp_path / "missing" / "file", sources=tmp_path / "sources")
    (tmp_path / "missing").write_text("")
    with pytest.raises(WorkloadError, match="cannot make files to copy"):
        DdWorkload(point()).prepare(target, [host], 7, 60.0)


class DirectoryStore:
    """Names are files of a directory; what is asked for in vain is a StoreError."""

    def __init__(self, root: Path) -> None:
        root.mkdir()
        self.root = root

    def put(self, client: Host, source: Path, name: str, timeout_seconds: float) -> None:
        client.run(["cp", str(source), str(self.root / name)], timeout_seconds=timeout_seconds).must("put")

    def get(self, client: Host, name: str, target: Path, timeout_seconds: float) -> None:
        if not client.run(["cp", str(self.root / name), str(target)], timeout_seconds=timeout_seconds).ok:
            raise StoreError(f"{name} is not there")

    def delete(self, client: Host, name: str, timeout_seconds: float) -> None:
        client.run(["rm", "-f", str(self.root / name)], timeout_seconds=timeout_seconds).must("delete")


def test_put_and_get(tmp_path: Path, host: LocalHost) -> None:
    store = DirectoryStore(tmp_path / "store")
    target = Target(None, store=store, sources=tmp_path / "sources")
    (put,) = done(point(), target, [host], tmp_path).clients
    assert put.totals["write"].bytes == 3 * 64 * KIB
    (got,) = done(point(direction="read", fsync=False), target, [host], tmp_path).clients
    assert (got.totals["read"].operations, got.verify_errors) == (3, 0)
    assert not list((tmp_path / "sources").glob("got-*"))


def test_what_was_got_wrong_is_found(tmp_path: Path, host: LocalHost) -> None:
    store = DirectoryStore(tmp_path / "store")
    target = Target(None, store=store, sources=tmp_path / "sources")
    workload = DdWorkload(point(direction="read", fsync=False))
    workload.prepare(target, [host], 7, 60.0)
    damaged = sorted(store.root.iterdir())[0]
    content = bytearray(damaged.read_bytes())
    content[1000] ^= 1
    damaged.write_bytes(content)
    (client,) = workload.run(target, [host], seed=7, scratch=tmp_path, deadline_seconds=60.0).clients
    assert (client.verify_errors, client.errors, client.exit_code) == (1, {"verify": 1}, 1)
    damaged.unlink()
    (client,) = workload.run(target, [host], seed=7, scratch=tmp_path, deadline_seconds=60.0).clients
    assert client.errors == {"failed": 1}
    assert "is not there" in client.message
