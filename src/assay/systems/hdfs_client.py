"""What hosts carry out for the HDFS adapter through :meth:`assay.lab.host.Host.call`: the native client, and questions to
the services' own web servers.

Standard library and plain values only; hdfs-native is imported from where it is installed when it is first used. The client
lives as long as the helper process: nothing of a start is in the time of a call.
"""

from __future__ import annotations

import contextlib
import errno
import importlib
import re
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, NamedTuple

CHUNK_BYTES = 1 << 20


class Access(NamedTuple):
    """How the native client is reached and what it is told."""

    packages: str  # directory that holds hdfs_native
    url: str  # hdfs://s1:9000
    options: dict[str, str]


_clients: dict[str, Any] = {}


def put(access: Access, source: Path, path: str) -> int:
    """Store a local file; its bytes. Raises OSError."""
    native, client = _native(access), _client(access)
    total = 0
    with source.open("rb") as file, _failing_as_oserror(path):
        client.mkdirs(path.rpartition("/")[0] or "/", create_parent=True)
        writer = client.create(path, native.WriteOptions(overwrite=True))
        with writer:
            while chunk := file.read(CHUNK_BYTES):
                writer.write(chunk)
                total += len(chunk)
    return total


def get(access: Access, path: str, target: Path) -> int:
    """Fetch a file into a local one; its bytes. Raises OSError."""
    client = _client(access)
    total = 0
    with target.open("wb") as file, _failing_as_oserror(path):
        with client.read(path) as reader:
            size = len(reader)
            if size:
                for chunk in reader.read_range_stream(0, size):
                    file.write(chunk)
                    total += len(chunk)
        if total != size:
            raise OSError(errno.EIO, f"{path}: {total} of {size} bytes came")
    return total


def delete(access: Access, path: str) -> None:
    """Remove a file; no error when there is none. Raises OSError."""
    with _failing_as_oserror(path):
        _client(access).delete(path, recursive=False)


def is_directory(access: Access, path: str) -> bool:
    """Whether the NameNode answers this client and knows such a directory. Raises OSError."""
    with _failing_as_oserror(path):
        return bool(_client(access).get_file_info(path).isdir)


def forget() -> int:
    """Drop the client: the next call makes another, with connections of its own. Returns 0, the exit code of a step."""
    _clients.clear()
    return 0


def ask(url: str, timeout_seconds: float, method: str = "GET") -> str:
    """What a service's web server says. Raises OSError, with the server's own words when it refuses."""
    request = urllib.request.Request(url, method=method)
    opener = urllib.request.build_opener(urllib.request.ProxyHandler({}))  # a proxy of this machine knows no lab
    try:
        with opener.open(request, timeout=timeout_seconds) as answer:
            return answer.read().decode(errors="replace")
    except urllib.error.HTTPError as error:
        raise OSError(errno.EIO, error.read().decode(errors="replace")[-400:] or str(error)) from None


def _native(access: Access) -> Any:
    if access.packages not in sys.path:
        sys.path.append(access.packages)
    return importlib.import_module("hdfs_native")


def _client(access: Access) -> Any:
    if access.url not in _clients:
        _clients[access.url] = _native(access).Client(access.url, dict(access.options))
    return _clients[access.url]


def words_of(error: Exception) -> str:
    """What the client says, as one line of at most 300 characters; of the DataNodes that it lists only their names."""
    text = " ".join(str(error).split())
    if match := re.search(r"\[DatanodeInfoProto.*", text):
        names = re.findall(r'host_name: "([^"]*)"', match[0])
        text = f"{text[: match.start()]}{', '.join(dict.fromkeys(names))}"
    return text[:300]


@contextlib.contextmanager
def _failing_as_oserror(path: str) -> Any:
    """The client's errors are of classes that only its own process has."""
    try:
        yield
    except OSError as error:
        raise OSError(error.errno or errno.EIO, f"{path}: {words_of(error)}") from None
    except Exception as error:  # noqa: BLE001 (whatever the client raises)
        raise OSError(errno.EIO, f"{path}: {words_of(error)}") from None
