"""Requests to a gateway's web interface: streamed, bounded in time, and errors in one line. The server is a real one."""

from __future__ import annotations

import hashlib
import http.server
import json
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from assay.systems import tahoe_web as web

SIZE = 5 << 20
TRACEBACK = b"""Traceback (most recent call last):
  File "upload.py", line 1, in f
allmydata.interfaces.UploadUnhappinessError: shares could be placed on only 3 server(s)
"""
LOST = b"""NotEnoughSharesError: This indicates that some servers were unavailable.

The full error message is:
ran out of shares: complete=sh4 pending= need 4
"""


class _Gateway(http.server.BaseHTTPRequestHandler):
    """Keeps uploads by the hash of their content; some paths misbehave."""

    protocol_version = "HTTP/1.1"
    kept: dict[str, bytes]

    def log_message(self, format: str, *args: object) -> None:
        """Nothing: the tests' output is theirs."""

    def _answer(self, status: int, body: bytes, claimed: int | None = None) -> None:
        self.send_response(status)
        self.send_header("Content-Length", str(len(body) if claimed is None else claimed))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        name = f"URI:CHK:{hashlib.sha256(body).hexdigest()}"
        self.kept[name] = body
        self._answer(201, name.encode())

    def do_GET(self) -> None:
        name = self.path.removeprefix("/uri/").replace("%3A", ":")
        if name == "slow":
            time.sleep(1.5)
        if name == "torn":
            self._answer(200, b"x" * 1000, SIZE)
            self.close_connection = True
        elif name == "unhappy":
            assert self.headers["Accept"] == "text/plain"
            self._answer(500, TRACEBACK)
        elif name == "lost":
            self._answer(410, LOST)
        elif name == "page":
            self._answer(200, b"<html>")
        else:
            self._answer(200, self.kept.get(name, b"{}"))

    do_HEAD = do_GET  # noqa: N815


@pytest.fixture
def port() -> Iterator[int]:
    _Gateway.kept = {}
    server = http.server.ThreadingHTTPServer(("127.0.0.1", 0), _Gateway)
    thread = threading.Thread(target=server.serve_forever, args=(0.05,))
    thread.start()
    try:
        yield server.server_address[1]
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def test_files_go_there_and_back(port: int, tmp_path: Path) -> None:
    source, target = tmp_path / "source", tmp_path / "target"
    source.write_bytes(bytes(range(256)) * (SIZE // 256))
    capability = web.put(port, source, 30)
    assert web.get(port, capability, target, 30) == SIZE
    assert target.read_bytes() == source.read_bytes()
    assert web.put_again(port, capability, 30) == capability
    assert web.put(port, source, 30) != capability, "equal content is uploaded again, not found to be there"
    source.write_bytes(b"")
    assert web.get(port, web.put(port, source, 30), target, 30) == 0
    assert target.read_bytes() == b""


def test_json(port: int) -> None:
    _Gateway.kept["known"] = json.dumps({"servers": []}).encode()
    assert web.ask(port, "GET", "/uri/known", 5) == {"servers": []}
    with pytest.raises(web.WebError, match="<html> is no JSON"):
        web.ask(port, "GET", "/uri/page", 5)


@pytest.mark.parametrize(("capability", "words"), [
    ("unhappy", r"^allmydata\.interfaces\.UploadUnhappinessError: shares could be placed on only 3 server\(s\)$"),
    ("lost", r"^ran out of shares: complete=sh4 pending= need 4$"),
    ("torn", r"broke off|IncompleteRead|bytes to go"),
])  # fmt: skip
def test_what_is_refused_is_one_line(port: int, tmp_path: Path, capability: str, words: str) -> None:
    with pytest.raises(web.WebError, match=words) as refused:
        web.get(port, capability, tmp_path / "target", 30)
    assert "\n" not in str(refused.value)


def test_no_answer_is_an_error_in_time(port: int, tmp_path: Path) -> None:
    started = time.monotonic()
    with pytest.raises(web.WebError, match=r"no answer within 0\.2 s"):
        web.get(port, "slow", tmp_path / "target", 0.2)
    assert time.monotonic() - started < 1.4


def test_nobody_there(port: int, tmp_path: Path) -> None:
    with pytest.raises(web.WebError, match="refused"):
        web.get(1, "URI:CHK:x", tmp_path / "target", 5)
    with pytest.raises(FileNotFoundError):
        web.put(port, tmp_path / "missing", 5)


def test_trees_that_are_not_there_are_removed_too(tmp_path: Path) -> None:
    (tmp_path / "a" / "b").mkdir(parents=True)
    web.remove_trees([tmp_path / "a", tmp_path / "never"])
    assert list(tmp_path.iterdir()) == []
