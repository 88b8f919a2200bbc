"""Getting a Tahoe-LAFS grid whole again after hosts were lost, taking hosts out, and removing what no name leads to."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from urllib.parse import quote

from assay.lab.errors import LabError
from assay.lab.host import HostError
from assay.systems import tahoe_config as config
from assay.systems import tahoe_web as web
from assay.systems.base import AdapterError, NoAnswerError
from assay.systems.hosts import each
from assay.systems.tahoe_grid import ANSWER_SECONDS, TahoeGrid

_CHECK_SECONDS = 60.0  # for one file; a server that does not answer is given up after 30 s
_POLL_SECONDS = 0.3
_SHRINK_SECONDS = 600.0


@dataclass(frozen=True)
class Unit:
    """A file or directory that a directory leads to, itself included."""

    capability: str
    storage_index: str  # empty for small files, whose data are in the capability


def reachable(grid: TahoeGrid, root: str) -> list[Unit]:
    """Everything below a directory. Raises NoAnswerError."""
    client = grid.fabric.clients[0]
    try:
        lines = client.call(web.manifest, config.WEB_PORT, root, _CHECK_SECONDS, timeout_seconds=_CHECK_SECONDS + 1)
    except (web.WebError, HostError) as error:
        raise NoAnswerError(f"{client.name}: listing everything: {error}") from None
    return [Unit(line["cap"], line["storage-index"] or "") for line in lines if line["type"] != "stats"]


def heal(grid: TahoeGrid, capabilities: Sequence[str], timeout_seconds: float) -> float | None:
    """Check and repair every file until all its shares are there, on as many servers as there are; the seconds that it
    took, None past the timeout. Raises AdapterError for a file that is lost."""
    started = time.monotonic()
    end = started + timeout_seconds
    left = list(capabilities)
    while True:
        still = []
        for number, capability in enumerate(left):
            if time.monotonic() >= end:
                still += left[number:]
                break
            if not _whole(grid, capability, end):
                still.append(capability)
        left = still
        if not left:
            return time.monotonic() - started
        if time.monotonic() >= end:
            return None
        time.sleep(_POLL_SECONDS)


def _whole(grid: TahoeGrid, capability: str, end: float) -> bool:
    """Whether a file is whole already; if not, it is repaired, and must be looked at again."""
    client = grid.fabric.clients[0]
    try:
        found = _check(grid, capability, end)
        if found is None or _enough(grid, capability, found):
            return True
        if not found.recoverable:
            if set(grid.missing(client)) - set(grid.killed):
                return False  # a server that has just come back
            raise AdapterError(
                f"{capability[:40]}... is lost: {found.shares} of its {found.expected} shares are there, "
                f"{grid.layout.data} are needed"
            )
        if found.shares < found.expected:
            found = _check(grid, capability, end, "&repair=true") or found
        if capability.startswith("URI:CHK:") and not _enough(grid, capability, found):
            seconds = max(1.0, end - time.monotonic())
            client.call(web.put_again, config.WEB_PORT, capability, seconds, timeout_seconds=seconds + 1)
    except (NoAnswerError, web.WebError, HostError):  # asked again until the end
        return False
    return False


def _check(grid: TahoeGrid, capability: str, end: float, repair: str = "") -> config.FileHealth | None:
    path = f"/uri/{quote(capability, safe='')}?t=check&output=JSON{repair}"
    seconds = max(1.0, min(_CHECK_SECONDS, end - time.monotonic()))
    return config.file_health(grid.ask(grid.fabric.clients[0], path, "POST", seconds))


def _enough(grid: TahoeGrid, capability: str, found: config.FileHealth) -> bool:
    """Directories are written anew by every change, so only their number of shares counts."""
    if capability.startswith("URI:CHK:"):
        return found.whole(len(grid.up))
    return found.shares >= found.expected


def shrink(grid: TahoeGrid, capabilities: Sequence[str], hosts: int, progress: Callable[[str], None]) -> None:
    """Take out the last hosts one by one, each when all files are whole without it. Raises AdapterError."""
    staying = len(grid.fabric.storage) - hosts
    if staying < grid.layout.width:
        raise AdapterError(
            f"{staying} hosts are too few for {grid.layout.width} shares; at least as many hosts must stay"
        )
    if grid.killed:
        raise AdapterError(f"{', '.join(grid.killed)} must come back before hosts can be taken out")
    try:
        for host in reversed(grid.fabric.storage[staying:]):
            grid.kill(1)
            grid.await_servers(grid.fabric.clients)  # which do not offer its shares any more
            if heal(grid, capabilities, _SHRINK_SECONDS) is None:
                raise AdapterError(f"files are not whole without {host.name} after {_SHRINK_SECONDS:g} s")
            grid.take_out(host)
            progress(f"{host.name} taken out, its shares are on the others")
    except (LabError, HostError) as error:
        raise AdapterError(f"taking hosts out: {error}") from None


def collect_garbage(grid: TahoeGrid, root: str, capabilities: Sequence[str]) -> int:
    """Remove the shares of what neither the directory nor one of the capabilities leads to; how many files. Every change of
    a file is a new one here, and Tahoe-LAFS keeps the old until its lease ends after a month. No upload may be under
    way. Raises NoAnswerError or HostError."""
    kept = {unit.storage_index for unit in reachable(grid, root)}
    kept |= {place.rpartition("/")[2] for c in capabilities if (place := config.shares_directory(c)) is not None}
    listed = each(
        grid.up,
        lambda host: host.run(
            ["find", f"{config.STORAGE_DIRECTORY}/shares", "-mindepth", "2", "-maxdepth", "2", "-printf", "%f\\n"],
            timeout_seconds=ANSWER_SECONDS,
        ),
    )
    there = {line for done in listed for line in done.stdout.decode().split()}
    garbage = [f"shares/{index[:2]}/{index}" for index in there - kept if len(index) == config.INDEX_LETTERS]
    if garbage:
        grid.remove_shares(garbage, _CHECK_SECONDS)
    return len(garbage)
