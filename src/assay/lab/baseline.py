"""What a fabric can do without any file system: network, raw disks, clocks, idle CPU.

Everything here is measured before a system is deployed. What cannot be measured is a line in ``Baselines.problems`` and
ends nothing.
"""

from __future__ import annotations

import itertools
import json
import math
import shutil
import time
from collections.abc import Callable, Collection, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from assay.lab import probes, remote
from assay.lab.errors import LabError
from assay.lab.fabric import Fabric
from assay.lab.host import HostError, Process, search_path
from assay.lab.hostdisk import HostDisk
from assay.lab.namespace import NamespaceHost
from assay.model.baseline import Baselines, DiskFigure, LinkFigure

MIB = 1 << 20
TOOLS = {"iperf3": "iperf3", "fio": "fio"}  # program -> Debian package
FIRST_PORT = 5201
#: Every pair of up to this many hosts; of more, each to and from the clients and to the next host.
MOST_HOSTS_IN_PAIRS = 16
#: Pairs that share no host share no shaped link, but they do share this machine's cores: so many bytes/s in all at once.
#: Measured on 2 cores with 3 pairs of 1 Gbit/s: medians no lower than one by one (docs/methodology.md, "Bounds").
TOGETHER_BYTES_PER_SECOND = 500_000_000
UNSHAPED_BYTES = 512 * MIB  # sent through an unshaped link: 0.2 s at 20 Gbit/s
IDLE_SECONDS = 1.0
CLOCK_READINGS = ROUND_TRIPS = 9
DISK_BYTES = 256 * MIB
_DEADLINE_SECONDS = 30.0  # beyond what a measurement should take


@dataclass(frozen=True)
class Times:
    """How long each part is measured, seconds."""

    pair: float = 0.35  # each ordered pair of hosts
    together: int = 1  # all hosts at once, each direction; iperf3 counts whole seconds
    disk: float = 0.5  # each raw disk and direction


@dataclass
class _Found:
    """What is known so far."""

    links: list[LinkFigure] = field(default_factory=list)
    to_client: dict[str, float] = field(default_factory=dict)
    from_client: dict[str, float] = field(default_factory=dict)
    disks: list[DiskFigure] = field(default_factory=list)
    clocks: dict[str, float] = field(default_factory=dict)
    busy: dict[str, float] = field(default_factory=dict)
    round_trips: dict[str, float] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)


def check_tools() -> None:
    """Whether baselines can be measured here. Raises LabError with one clear line."""
    for tool, package in TOOLS.items():
        if shutil.which(tool, path=search_path()) is None:
            raise LabError(
                f"{tool} is missing, it measures the lab's baselines; install it with: apt-get install -y {package}, or set "
                "lab.baselines: false"
            )


def measure(fabric: Fabric, said: Callable[[str], None] = lambda _: None, times: Times | None = None) -> Baselines:
    """Measure a fabric that is up and on which nothing runs; ``said`` gets a line for each part."""
    times = times or Times()
    found, begun = _Found(), time.time()
    parts: list[tuple[str, Callable[[], None]]] = [
        ("idle CPU and clocks", lambda: _idle(fabric, found)),
        ("raw disks", lambda: _disks(fabric, found, times)),
        ("network between hosts", lambda: _network(fabric, found, times)),
    ]
    for name, part in parts:
        said(f"baselines: {name}")
        try:
            part()
        except (LabError, HostError, OSError, ValueError) as error:
            found.problems.append(f"{name}: {_line(error)}")
    return Baselines(
        measured_at=begun,
        seconds=time.time() - begun,
        links=found.links,
        all_to_client_bytes_per_second=found.to_client,
        client_to_all_bytes_per_second=found.from_client,
        disks=found.disks,
        clock_offset_seconds=found.clocks,
        idle_cpu_busy_share=found.busy,
        round_trip_seconds=found.round_trips,
        problems=found.problems,
    )


# --- hosts ----------------------------------------------------------------------------------------------------------


def _idle(fabric: Fabric, found: _Found) -> None:
    for host in fabric.hosts:
        with _problems(found, f"clock of {host.name}"):
            found.clocks[host.name] = _clock_offset(host)
    client = fabric.clients[0]
    for host in fabric.storage:
        with _problems(found, f"round trip {client.name} to {host.name}"):
            found.round_trips[host.name] = client.call(probes.round_trip_seconds, host.address, ROUND_TRIPS)
    before = {host: host.call(remote.cpu_times) for host in fabric.hosts}
    time.sleep(IDLE_SECONDS)
    for host, (busy, total) in before.items():
        busy_now, total_now = host.call(remote.cpu_times)
        if total_now > total:
            found.busy[host.name] = (busy_now - busy) / (total_now - total)


def _clock_offset(host: NamespaceHost) -> float:
    """The host's clock minus this machine's, seconds. As in NTP the answer is taken to have been given half way between
    question and arrival, and the quickest of several answers is the one that is least wrong."""
    best, offset = math.inf, math.nan
    host.call(probes.now)  # starts the helper
    for _ in range(CLOCK_READINGS):
        sent = time.time()
        theirs = host.call(probes.now)
        arrived = time.time()
        if arrived - sent < best:
            best, offset = arrived - sent, theirs - (sent + arrived) / 2
    return offset


# --- disks ----------------------------------------------------------------------------------------------------------


def _disks(fabric: Fabric, found: _Found, times: Times) -> None:
    # one after the other: on one machine they share what lies below them
    for host in fabric.storage:
        for number in range(fabric.shape.disk.per_host):
            with _problems(found, f"disk {number} of {host.name}"):
                found.disks.append(_disk(fabric, host, number, times.disk))


def _disk(fabric: Fabric, host: NamespaceHost, number: int, seconds: float) -> DiskFigure:
    disk = HostDisk(fabric, host, number)
    try:
        disk.create()
        device = disk.attach()
        # written first: a sparse file has nothing to be read
        written, read = (_fio(host, device, rw, seconds) for rw in ("write", "read"))
    finally:
        disk.remove()
    return DiskFigure(host=host.name, disk=number, read_bytes_per_second=read, write_bytes_per_second=written)


def _fio(host: NamespaceHost, device: str, rw: str, seconds: float) -> float:
    """Bytes per second of sequential direct I/O of 1 MiB, over the same region again and again until the time is up. The
    first MiB of the device stays as it is: nothing that looks like a file system is left there."""
    command = [
        "fio", "--name=disk", f"--filename={device}", f"--rw={rw}", "--bs=1M", "--direct=1", "--ioengine=libaio",
        "--iodepth=8", "--offset=1M", f"--size={DISK_BYTES}", "--time_based", f"--runtime={seconds * 1000:.0f}ms",
        "--end_fsync=1", "--output-format=json",
    ]  # fmt: skip
    done = host.run(command, timeout_seconds=seconds + _DEADLINE_SECONDS).must("measuring a raw disk")
    return float(json.loads(done.stdout)["jobs"][0][rw]["bw_bytes"])


# --- network --------------------------------------------------------------------------------------------------------


def _network(fabric: Fabric, found: _Found, times: Times) -> None:
    with _servers(fabric.hosts, [FIRST_PORT]):
        _pairs(fabric, found, times)
    ports = [FIRST_PORT + i for i in range(len(fabric.storage))]
    for client in fabric.clients:
        with _problems(found, f"all hosts to {client.name}"), _servers([client], ports):
            targets = [(host, client, port) for host, port in zip(fabric.storage, ports, strict=True)]
            found.to_client[client.name] = _together(targets, times.together)
    with _servers(fabric.storage, [FIRST_PORT]):
        for client in fabric.clients:
            with _problems(found, f"{client.name} to all hosts"):
                targets = [(client, host, FIRST_PORT) for host in fabric.storage]
                found.from_client[client.name] = _together(targets, times.together)


def _pairs(fabric: Fabric, found: _Found, times: Times) -> None:
    bandwidth = fabric.shape.network.bandwidth
    size = UNSHAPED_BYTES if bandwidth is None else max(MIB, round(bandwidth * times.pair))

    of_name = {host.name: host for host in fabric.hosts}

    def one(pair: tuple[str, str]) -> LinkFigure | str:
        try:
            source, target = (of_name[name] for name in pair)
            received, retransmits = _iperf(source, target, FIRST_PORT, ["--bytes", str(size)], times.pair)
        except HostError as error:
            return f"{pair[0]} to {pair[1]}: {_line(error)}"
        return LinkFigure(source=pair[0], target=pair[1], bytes_per_second=received, retransmits=retransmits)

    figures: dict[tuple[str, str], LinkFigure] = {}
    for disjoint in rounds(list(of_name), [host.name for host in fabric.clients]):
        # each host talks to one other at a time; forward first, then back
        for pairs in (disjoint, [(b, a) for a, b in disjoint]):
            with ThreadPoolExecutor(max_workers=_at_once(bandwidth, len(pairs))) as pool:
                for result in pool.map(one, pairs):
                    if isinstance(result, str):
                        found.problems.append(result)
                    else:
                        figures[result.source, result.target] = result
    found.links = [figures[pair] for pair in itertools.permutations(of_name, 2) if pair in figures]


def _at_once(bandwidth: int | None, pairs: int) -> int:
    return min(pairs, max(1, TOGETHER_BYTES_PER_SECOND // bandwidth)) if bandwidth else 1


def rounds(hosts: Sequence[str], clients: Collection[str]) -> Iterator[list[tuple[str, str]]]:
    """Pairs of hosts in rounds in which no host comes twice (the circle method of tournaments); together they are every
    pair once, or, of more than MOST_HOSTS_IN_PAIRS hosts, those with a client in them and neighbours."""
    circle: list[str | None] = [*hosts, *([None] if len(hosts) % 2 else [])]
    position = {host: i for i, host in enumerate(hosts)}
    few = len(hosts) <= MOST_HOSTS_IN_PAIRS

    def wanted(a: str, b: str) -> bool:
        return few or a in clients or b in clients or abs(position[a] - position[b]) == 1

    for _ in range(len(circle) - 1):
        half = len(circle) // 2
        facing = zip(circle[:half], reversed(circle[half:]), strict=True)
        pairs = [(a, b) for a, b in facing if a is not None and b is not None and wanted(a, b)]
        if pairs:
            yield pairs
        circle = [circle[0], circle[-1], *circle[1:-1]]


def _together(targets: Sequence[tuple[NamespaceHost, NamespaceHost, int]], seconds: int) -> float:
    """Sum of what was received in all streams at once, bytes per second. Raises HostError.

    Each stream has its own second and they begin some hundredths apart, so the sum may be a little above what the link
    carries (measured: up to 1 % on an idle machine, 2 % on a busy one).
    """
    with ThreadPoolExecutor(max_workers=len(targets)) as pool:
        running = [
            pool.submit(_iperf, source, target, port, ["--time", str(seconds)], seconds)
            for source, target, port in targets
        ]
        return sum(each.result()[0] for each in running)


def _iperf(
    source: NamespaceHost, target: NamespaceHost, port: int, amount: list[str], seconds: float
) -> tuple[float, int]:
    """Bytes per second that the target received in one TCP stream, and retransmitted segments. Raises HostError."""
    command = [
        "iperf3",
        "--client",
        target.address,
        "--port",
        str(port),
        *amount,
        "--connect-timeout",
        "3000",
        "--json",
    ]
    done = source.run(command, timeout_seconds=seconds + _DEADLINE_SECONDS)
    if done.exit_code is None:
        raise HostError(f"iperf3 did not end within {seconds + _DEADLINE_SECONDS:g} s")
    return read_iperf(done.stdout.decode(errors="replace"))


def read_iperf(output: str) -> tuple[float, int]:
    """(bytes per second received, retransmitted segments) of iperf3's JSON. Raises HostError with iperf3's own words, or
    for an output that is something else."""
    try:
        report: dict[str, Any] = json.loads(output)
        if "error" in report:
            raise HostError(f"iperf3: {report['error']}")
        end = report["end"]
        return float(end["sum_received"]["bits_per_second"]) / 8, int(end["sum_sent"].get("retransmits", 0))
    except (ValueError, KeyError, TypeError, AttributeError):
        raise HostError(f"iperf3 said something that is no result: {output[:80]!r}") from None


@contextmanager
def _servers(hosts: Sequence[NamespaceHost], ports: Sequence[int]) -> Iterator[None]:
    """iperf3 servers on each host, one for each port. Raises HostError when one does not come up."""
    running: list[Process] = []
    try:
        for host in hosts:
            running += [host.spawn(["iperf3", "--server", "--port", str(port)]) for port in ports]
        end = time.monotonic() + 5
        for host in hosts:
            for port in ports:
                while not host.call(probes.listens, port):
                    if time.monotonic() > end:
                        raise HostError(f"the iperf3 server on {host.name} did not come up")
                    time.sleep(0.01)
        yield
    finally:
        for server in running:
            server.kill()
            server.wait(5)


@contextmanager
def _problems(found: _Found, what: str) -> Iterator[None]:
    try:
        yield
    except (LabError, HostError, OSError, ValueError, KeyError) as error:
        found.problems.append(f"{what}: {_line(error)}")


def _line(error: Exception) -> str:
    text = str(error).strip()
    return text.splitlines()[0] if text else type(error).__name__
