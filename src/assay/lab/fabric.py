"""The hosts and the network of one deployment on this machine: namespaces nested in one outer set, the fabric.

The fabric's first process is the supervisor of all: when it dies, and it dies with Assay, the kernel removes hosts,
daemons, mounts, links and loop devices. Nothing has a global name, so several fabrics stand side by side with the same
addresses.
"""

from __future__ import annotations

import os
import shutil
import sys
import threading
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path

import assay
from assay.lab.devices import check_devices
from assay.lab.disks import RESERVE_BYTES
from assay.lab.errors import LabError
from assay.lab.host import HostError, LocalHost, search_path
from assay.lab.kernel import boot_id, mountinfo
from assay.lab.limits import Groups, check_limits, remove_groups
from assay.lab.namespace import SLEEP_FOREVER, NamespaceHost, Namespaces
from assay.lab.registry import Lab, labs_root
from assay.lab.standing import FirstProcess, Standing, StandingHost
from assay.model import units
from assay.model.bounds import burst_bytes
from assay.model.lab import Disk, Network
from assay.model.lab import Lab as LabDeclaration

SUBNET = "10.77.0"
BRIDGE = "br0"
MOST_STORAGE = 90  # addresses below those of clients
TOOLS = {"unshare": "util-linux", "nsenter": "util-linux", "ip": "iproute2", "tc": "iproute2"}
SMALLEST_BYTES = 300 << 20  # what XFS needs
EMPTY_FILESYSTEM_BYTES = 72 << 20  # what the largest of the file systems writes when it is made: XFS' log
_AT_ONCE = 4
_KEPT_TREES = ("/proc", "/sys", "/dev")
_KEPT = ("/usr", "/bin", "/sbin", "/lib", "/lib64", "/etc", "/opt", "/var/lib", "/var/log", "/var/tmp", "/tmp", "/root")

# $1: a directory where hosts find this machine's /proc; the rest: mounts of others, which a new namespace copies and would
# keep busy for ever
_FABRIC = f"""
set -eu
read -r pid _ < /proc/self/stat
mount --bind /proc "$1"
shift
[ $# = 0 ] || umount --lazy "$@"
mount -t proc proc /proc
ip link set lo up
ip link add {BRIDGE} type bridge
ip link set {BRIDGE} up
echo "up $pid"
{SLEEP_FOREVER}
"""

# $1: this machine's /proc; $2: name; $3: /etc/hosts
_HOST = f"""
set -eu
read -r pid _ < "$1/self/stat"
mount -t proc proc /proc
mount -t sysfs sysfs /sys
mount -t tmpfs -o size=64m,mode=755 tmpfs /run
mkdir -p /run/lock
hostname "$2"
mount --bind "$3" /etc/hosts
ip link set lo up
echo "up $pid"
{SLEEP_FOREVER}
"""


@dataclass
class Fabric:
    """See the module. ``storage`` and ``clients`` are empty until :meth:`up`."""

    lab: Lab
    name: str  # file name below the lab's directory
    shape: LabDeclaration
    storage: list[NamespaceHost] = field(default_factory=list)
    clients: list[NamespaceHost] = field(default_factory=list)
    die_with_assay: bool = True
    outer: Namespaces | None = None
    most_named: int = 0  # highest number of a storage host, those included that were removed
    devices: list[str] = field(default_factory=list)  # handed over to it while it is up, for its disks in order

    @property
    def directory(self) -> Path:
        """Where the fabric keeps its files."""
        return self.lab.directory / "fabric" / self.name

    @property
    def hosts(self) -> list[NamespaceHost]:
        """All hosts, storage first."""
        return [*self.storage, *self.clients]

    def host_directory(self, host: NamespaceHost) -> Path:
        """Where a host keeps what outlives its end: configuration of daemons, logs."""
        directory = self.directory / host.name
        directory.mkdir(parents=True, exist_ok=True)
        return directory

    def disk_base(self) -> Path:
        """Directory of the disks' backing files. Raises LabError."""
        if self.shape.disk.directory is None:
            return self.directory
        base = Path(os.path.realpath(self.shape.disk.directory)) / f"assay-{self.lab.id}"
        return self.lab.make_directory(base)

    def up(self) -> None:
        """Make the fabric and start all hosts. Raises LabError or HostError; nothing is left then."""
        if self.die_with_assay and threading.current_thread() is not threading.main_thread():
            raise LabError("a fabric must be made by the main thread: it goes when the thread goes that made it")
        try:
            (self.directory / "proc").mkdir(parents=True, exist_ok=True)
            environment = self.lab.environment
            self.storage = [self._host(f"s{i}", 10 + i) for i in range(1, self.shape.hosts + 1)]
            self.clients = [self._host(f"c{i}", 100 + i) for i in range(1, self.shape.clients + 1)]
            if named := self.shape.disk.devices:
                count = self.shape.hosts * self.shape.disk.per_host
                self.devices = self.lab.take_devices(named, count, self.shape.disk.size)
            self.most_named = self.shape.hosts
            self._write_names()
            self.outer = Namespaces.make(
                _FABRIC,
                [str(self.directory / "proc"), *_foreign_mounts([self.lab.directory, *self._disk_directories()])],
                inside=None,
                environment=environment,
                die_with_assay=self.die_with_assay,
            )
            self._start_all(self.hosts)
            self._connect(self.hosts)
        except OSError as error:
            self.down()
            raise LabError(f"cannot make a fabric in {self.directory}: {error.strerror}") from None
        except BaseException:
            self.down()
            raise

    def start(self, host: NamespaceHost) -> None:
        """Start a host that was killed. Mounts and daemons are its user's. Raises HostError."""
        self._start(host)
        self._connect([host])

    def add_storage(self, count: int) -> list[NamespaceHost]:
        """Start further storage hosts of the same kind. Raises LabError or HostError."""
        if self.devices:
            raise LabError("a fabric on devices that were handed over cannot grow: its disks are counted")
        first = 1 + self.most_named  # a name that was used before would mean another host to daemons that remember it
        if first + count > MOST_STORAGE:
            raise LabError(f"{count} hosts more are too many; a fabric has at most {MOST_STORAGE - 1} storage hosts")
        added = [self._host(f"s{i}", 10 + i) for i in range(first, first + count)]
        self.storage += added
        self.most_named += count
        self._write_names()
        self._start_all(added)
        self._connect(added)
        return added

    def remove_storage(self, host: NamespaceHost) -> None:
        """Kill a storage host and forget it, with what it kept in its directory."""
        host.kill()
        self.storage.remove(host)
        shutil.rmtree(self.host_directory(host), ignore_errors=True)

    def cut(self, host: NamespaceHost, *, off: bool) -> None:
        """Take a host's link down (a network partition), or up again."""
        self._ip([f"link set v-{host.name} {'down' if off else 'up'}"], self._outer().enter("--net"), "cut")

    def down(self) -> None:
        """Kill everything and give back the devices; no error when it is down. Files stay: the lab removes them. Raises
        LabError for a device or control group that would not go."""
        for host in self.hosts:
            host.close()
        if self.outer is not None:
            self.outer.kill()
            self.outer = None
        for host in self.hosts:
            host.kill()
        if any(host.groups for host in self.hosts):
            remove_groups(self.lab.id, self.name)
        given, self.devices = self.devices, []
        if given:
            self.lab.give_back_devices(given)

    def standing(self, candidate: str | None, mounts: list[str]) -> Standing:
        """What must be remembered of it for later commands. Raises HostError when it is not up."""
        outer = self._outer()
        hosts = []
        for host in self.hosts:
            first = FirstProcess(host.namespaces.pid, host.namespaces.started)
            hosts.append(StandingHost(host.name, host.address, first, host.groups))
        supervisor = FirstProcess(outer.pid, outer.started)
        return Standing(boot_id(), supervisor, hosts, self.shape.model_dump(mode="json"), candidate, mounts)

    # --- parts ---------------------------------------------------------------------------------------------------

    def _outer(self) -> Namespaces:
        if self.outer is None or not self.outer.alive:
            raise HostError(f"the fabric of {self.name} is down")
        return self.outer

    def _write_names(self) -> None:
        # in place, the hosts have this very file mounted
        names = [f"{h.address} {h.name}" for h in self.hosts]
        (self.directory / "hosts").write_text("\n".join(["127.0.0.1 localhost", *names, ""]))

    def _host(self, name: str, number: int) -> NamespaceHost:
        groups = Groups(self.lab.id, f"{self.name}-{name}", self.shape.limits)
        groups.make()
        return NamespaceHost(name, f"{SUBNET}.{number}", self.lab.environment, groups.directories)

    def _here(self) -> LocalHost:
        return LocalHost(environment=self.lab.environment)

    def _disk_directories(self) -> Iterable[Path]:
        if self.shape.disk.directory is not None:
            yield Path(os.path.realpath(self.shape.disk.directory))

    def _start_all(self, hosts: list[NamespaceHost]) -> None:
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:  # half the time of one after the other, on two cores
            list(pool.map(self._start, hosts))

    def _start(self, host: NamespaceHost) -> None:
        host.started(
            Namespaces.make(
                _HOST,
                [str(self.directory / "proc"), host.name, str(self.directory / "hosts")],
                inside=self._outer(),
                environment=self.lab.environment,
                die_with_assay=False,  # it goes with the fabric
                groups=host.groups,
            )
        )

    def _connect(self, hosts: list[NamespaceHost]) -> None:
        outer = self._outer().enter("--net")
        # the link of a killed host disappears a moment after it; a new one of the same name must not meet it
        for host in hosts:
            self._here().run([*outer, "ip", "link", "delete", f"v-{host.name}"])
        links = []
        for host in hosts:
            peer = f"peer name eth0 address {hardware_address(host.address)} netns {host.namespaces.pid}"
            links.append(f"link add v-{host.name} type veth {peer}")
            links.append(f"link set v-{host.name} master {BRIDGE} up")
        self._ip(links, outer, "links")
        shaping = [
            f"qdisc replace dev v-{host.name} {line}" for host in hosts for line in shape_commands(self.shape.network)
        ]
        self._tc(shaping, outer, "shaping")
        with ThreadPoolExecutor(max_workers=_AT_ONCE) as pool:
            list(pool.map(self._configure, hosts))

    def _configure(self, host: NamespaceHost) -> None:
        inside = host.namespaces.enter("--net")
        self._ip([f"address add {host.address}/24 dev eth0", "link set eth0 up"], inside, f"{host.name}-address")
        self._tc(
            [f"qdisc replace dev eth0 {line}" for line in shape_commands(self.shape.network)],
            inside,
            f"{host.name}-shaping",
        )

    def _ip(self, lines: list[str], prefix: list[str], name: str) -> None:
        self._batch("ip", lines, prefix, name)

    def _tc(self, lines: list[str], prefix: list[str], name: str) -> None:
        if lines:
            self._batch("tc", lines, prefix, name)

    def _batch(self, tool: str, lines: list[str], prefix: list[str], name: str) -> None:
        file = self.directory / f"{name}.{tool}"
        file.write_text("\n".join([*lines, ""]))
        self._here().run([*prefix, tool, "-batch", str(file)]).must(f"{self.name}: {name}")


def hardware_address(address: str) -> str:
    """The Ethernet address (locally administered) of an IPv4 address: the same when a host is started again, as with a real
    one. Peers that remember another one go on sending to it for minutes, as long as they hear of the host at all."""
    return ":".join(["02", "00", *(f"{int(part):02x}" for part in address.split("."))])


def shape_commands(network: Network) -> list[str]:
    """Arguments of ``tc qdisc replace dev X`` that shape one end of a link; empty when it is unlimited."""
    commands, parent = [], "root"
    if network.bandwidth is not None:
        # measured with iperf3: within 1 % of the rate's payload share
        burst = burst_bytes(network.bandwidth)
        commands.append(f"root handle 1: tbf rate {network.bandwidth * 8}bit burst {burst} latency 20ms")
        parent = "parent 1:1"
    if network.delay or network.loss:
        emulated = f"{parent} handle 10: netem"
        emulated += f" delay {network.delay * 1e6:.0f}us" if network.delay else ""
        emulated += f" loss {network.loss * 100:g}%" if network.loss else ""
        commands.append(emulated)
    return commands


def check_possible(shape: LabDeclaration) -> None:
    """Whether such a fabric can be made here; touches nothing. Raises LabError with one clear line."""
    if os.geteuid() != 0:
        raise LabError("hosts as namespaces need root; run as root, or use an existing mount (mount: DIR, path:DIR)")
    for tool, package in TOOLS.items():
        if shutil.which(tool, path=search_path()) is None:
            raise LabError(f"{tool} is missing; install it with: apt-get install -y {package}")
    here = LocalHost()
    if not (done := here.run(["unshare", *("--mount", "--net", "--pid", "--uts", "--ipc"), "--fork", "true"])).ok:
        raise LabError(
            f"this machine does not allow namespaces ({done.stderr.decode(errors='replace').strip()}); "
            "inside a container, run it privileged"
        )
    check_limits(shape.limits)
    check_devices(shape.disk.devices, shape.disk.size)
    if not shape.disk.devices:
        _check_room(shape.disk, shape.hosts * shape.disk.per_host)
    for line in shape_commands(shape.network):
        kind = "netem" if "netem" in line else "tbf"
        probe = line.replace("parent 1:1", "root")
        if not here.run(["unshare", "--net", "tc", "qdisc", "replace", "dev", "lo", *probe.split()]).ok:
            what = "lab.network.delay and lab.network.loss are" if kind == "netem" else "lab.network.bandwidth is"
            raise LabError(f"{what} not available here: this kernel has no {kind} (module sch_{kind})")


def _check_room(disk: Disk, count: int) -> None:
    """Whether the backing files fit; of a sparse one what a file system takes when it is made."""
    base = Path(os.path.realpath(disk.directory)) if disk.directory is not None else labs_root()
    while not base.exists():
        base = base.parent
    size = disk.size or SMALLEST_BYTES
    each = EMPTY_FILESYSTEM_BYTES if disk.fill in (None, "sparse") else size
    free = shutil.disk_usage(base).free
    if count * each + RESERVE_BYTES > free:
        raise LabError(
            f"{base} has {free >> 20} MiB free, {count} disks of {units.format_bytes(size)} need "
            f"{(count * each + RESERVE_BYTES) >> 20} MiB; make lab.disk.size smaller or set lab.disk.directory"
        )


def _foreign_mounts(needed: Iterable[Path]) -> list[str]:
    """Mounts that hosts have no use for, deepest first."""
    wanted = [*_KEPT, sys.prefix, sys.base_prefix, str(Path(assay.__file__).parent), *map(str, needed)]
    wanted = [os.path.realpath(path) for path in wanted]

    def kept(point: str) -> bool:
        if any(point == tree or point.startswith(tree + "/") for tree in _KEPT_TREES):
            return True
        return point == "/" or any(path == point or path.startswith(point + "/") for path in wanted)

    return [point for point, _, _ in mountinfo() if not kept(point)][::-1]
