"""What several test folders need: a private PostgreSQL server."""

from __future__ import annotations

import os
import secrets
import shutil
import subprocess
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import pytest


def _binaries() -> Path | None:
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/initdb"), key=lambda p: int(p.parts[-3]))
    return found[-1].parent if found else None


@pytest.fixture(scope="session")
def postgresql() -> Iterator[str]:
    """Directory of the unix socket of a private server."""
    binaries = _binaries()
    if binaries is None:
        pytest.skip("no PostgreSQL server here: apt-get install -y postgresql")
    home = Path(tempfile.mkdtemp(prefix="assay-pg-"))
    become: list[str] = []
    if os.geteuid() == 0:  # the server refuses root
        try:
            shutil.chown(home, "postgres", "postgres")
        except LookupError:
            shutil.rmtree(home)
            pytest.skip("PostgreSQL does not run as root and there is no user postgres")
        become = ["setpriv", "--reuid=postgres", "--regid=postgres", "--clear-groups", "--pdeathsig=KILL"]
    data = home / "data"
    server: subprocess.Popen[bytes] | None = None
    try:
        subprocess.run(
            [*become, binaries / "initdb", "-D", data, "-U", "assay", "-A", "trust", "-E", "UTF8", "--no-sync"],
            check=True, capture_output=True, cwd=home,
        )  # fmt: skip
        server = subprocess.Popen(
            [*become, binaries / "postgres", "-D", data, "-k", home, "-c", "listen_addresses=", "-c", "fsync=off"],
            stdout=subprocess.DEVNULL, stderr=(home.parent / f"{home.name}.log").open("wb"), cwd=home,
        )  # fmt: skip
        for _ in range(200):
            if subprocess.run([binaries / "pg_isready", "-q", "-h", home], check=False).returncode == 0:
                break
            assert server.poll() is None, (home.parent / f"{home.name}.log").read_text()
            time.sleep(0.05)
        yield str(home)
    finally:
        if server is not None:
            server.terminate()  # smart shutdown would wait for connections that a failed test left open
            try:
                server.wait(5)
            except subprocess.TimeoutExpired:
                server.kill()
                server.wait()
        shutil.rmtree(home, ignore_errors=True)
        (home.parent / f"{home.name}.log").unlink(missing_ok=True)


@pytest.fixture
def postgresql_url(postgresql: str) -> Iterator[str]:
    """URL of an empty database on that server."""
    import psycopg

    name = f"t{secrets.token_hex(6)}"
    with psycopg.connect(host=postgresql, user="assay", dbname="postgres", autocommit=True) as connection:
        connection.execute(f"CREATE DATABASE {name}".encode())
        yield f"postgresql+psycopg://assay@/{name}?host={postgresql}"
        connection.execute(f"DROP DATABASE {name} WITH (FORCE)".encode())
