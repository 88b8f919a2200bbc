"""What clients carry out for the Tahoe-LAFS adapter through :meth:`assay.lab.host.Host.call`: requests to the web interface of
the gateway on the same host (``docs/frontends/webapi.rst``).

Standard library and plain values only, as in :mod:`assay.lab.remote`. Files are streamed, never held in memory. Every
function is bounded in time and raises WebError with one clear line when the gateway refuses, breaks off or does not answer.
"""

from __future__ import annotations

import contextlib
import http.client
import json
import os
import shutil
import time
import urllib.parse
from collections.abc import Iterator
from pathlib import Path
from typing import IO, Any

BLOCK = 1 << 20
#: Random bytes before the content of every upload, dropped by every download. The key of a file is a hash of its content and
#: equal files are stored once: without them, putting what is there already would be measured as a very fast upload.
SALT_BYTES = 16
_WORDS = 300
_HOST = "127.0.0.1"


class WebError(Exception):
    """The gateway refused a request, or did not answer; the message is one line."""


def ask(port: int, method: str, path: str, timeout_seconds: float) -> Any:
    """JSON that the gateway answers."""
    with _request(port, method, path, timeout_seconds) as (answer, _):
        text = answer.read()
    try:
        return json.loads(text)
    except ValueError:
        raise WebError(f"{method} {path}: {_one_line(text)} is no JSON") from None


def make_directory(port: int, timeout_seconds: float) -> str:
    """A new empty directory: its capability."""
    with _request(port, "POST", "/uri?t=mkdir", timeout_seconds) as (answer, _):
        return answer.read().decode()


def manifest(port: int, directory: str, timeout_seconds: float) -> list[dict[str, Any]]:
    """Everything below a directory, itself included, each with its capability and storage index."""
    with _request(port, "POST", f"{_path(directory)}?t=stream-manifest", timeout_seconds) as (answer, _):
        lines = answer.read().splitlines()
    try:
        return [json.loads(line) for line in lines if line.strip()]
    except ValueError:
        raise WebError(f"listing everything: {_one_line(lines[-1])}") from None


def remove_trees(places: list[Path]) -> None:
    """Remove directories with all in them; no error for those that are not there."""
    for place in places:
        shutil.rmtree(place, ignore_errors=True)


def put(port: int, source: Path, timeout_seconds: float) -> str:
    """Upload a file; its capability, once enough servers have their shares. Raises OSError for the source."""
    with source.open("rb") as file:
        headers = {"Content-Length": str(SALT_BYTES + os.fstat(file.fileno()).st_size)}
        with _request(port, "PUT", "/uri", timeout_seconds, _salted(file), headers) as (answer, _):
            return answer.read().decode()


def _salted(file: IO[bytes]) -> Iterator[bytes]:
    yield os.urandom(SALT_BYTES)
    while block := file.read(BLOCK):
        yield block


def get(port: int, capability: str, target: Path, timeout_seconds: float) -> int:
    """Download a file that was put; its bytes. Raises OSError for the target."""
    size, salt = 0, SALT_BYTES
    with target.open("wb") as file, _download(port, capability, timeout_seconds) as blocks:
        for block in blocks:
            size += file.write(block[salt:])
            salt -= min(salt, len(block))
    return size


def put_again(port: int, capability: str, timeout_seconds: float) -> str:
    """Download a file and upload it again in the same breath; the capability, which is the same when the convergence secret
    is. Shares that are missing, or that share a server while another has none, are placed anew by this and by nothing else."""
    end = time.monotonic() + timeout_seconds
    with _request(port, "HEAD", _path(capability), timeout_seconds) as (answer, _):
        size = answer.getheader("Content-Length")
    headers = {"Content-Length": size} if size else {}
    with (
        _download(port, capability, timeout_seconds) as blocks,
        _request(port, "PUT", "/uri", end - time.monotonic(), blocks, headers) as (answer, _),
    ):
        return answer.read().decode()


def _path(capability: str) -> str:
    return f"/uri/{urllib.parse.quote(capability, safe='')}"


@contextlib.contextmanager
def _download(port: int, capability: str, timeout_seconds: float) -> Iterator[Iterator[bytes]]:
    end = time.monotonic() + timeout_seconds
    with _request(port, "GET", _path(capability), timeout_seconds) as (answer, connection):

        def blocks() -> Iterator[bytes]:
            while True:
                if connection.sock is not None:  # None once the last bytes are on their way
                    connection.sock.settimeout(max(0.1, end - time.monotonic()))
                block = answer.read(BLOCK)
                if not block:
                    break
                yield block
            if answer.length:  # read(size) ends without a word where read() would raise IncompleteRead
                raise WebError(f"the gateway broke off with {answer.length} bytes to go")

        yield blocks()


@contextlib.contextmanager
def _request(
    port: int, method: str, path: str, timeout_seconds: float, body: IO[bytes] | Iterator[bytes] | None = None,
    headers: dict[str, str] | None = None,
) -> Iterator[tuple[http.client.HTTPResponse, http.client.HTTPConnection]]:  # fmt: skip
    what = f"{method} {path.partition('?')[0][:40]}"
    connection = http.client.HTTPConnection(_HOST, port, timeout=max(0.1, timeout_seconds), blocksize=BLOCK)
    try:
        given = {"Accept": "text/plain", **(headers or {})}  # errors as text, not as a page
        connection.request(method, path, body=body, headers=given)
        answer = connection.getresponse()
        if answer.status >= http.HTTPStatus.BAD_REQUEST:
            raise WebError(_reason(answer.read(1 << 16)))
        yield answer, connection
    except TimeoutError:
        raise WebError(f"{what}: no answer within {timeout_seconds:g} s") from None
    except (ConnectionError, http.client.HTTPException) as error:
        raise WebError(f"{what}: {error or type(error).__name__}") from None
    finally:
        connection.close()


def _reason(text: bytes) -> str:
    """The gist of an error: what Tahoe-LAFS says after its explanations, or the last line of a traceback."""
    if text.startswith(b"Traceback"):
        lines = [line for line in text.splitlines() if line.strip() and not line.startswith(b" ")]
        text = lines[-1].rpartition(b": <class")[2] if lines else text
    return _one_line(text.rpartition(b"The full error message is:")[2])


def _one_line(text: bytes) -> str:
    return " ".join(text.decode(errors="replace").split())[:_WORDS] or "(no words)"
