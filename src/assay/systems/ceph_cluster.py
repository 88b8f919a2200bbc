"""The daemons of a Ceph cluster on the hosts of a lab: monitor, manager and metadata server on the first, OSDs on all."""

from __future__ import annotations

import json
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

from assay.lab.fabric import SUBNET, Fabric
from assay.lab.host import Host, LocalHost
from assay.lab.hostdisk import HostDisk
from assay.lab.namespace import NamespaceHost
from assay.model.evidence import DeviceCounters
from assay.model.layout import Layout
from assay.systems import ceph_probe
from assay.systems.base import AdapterError
from assay.systems.ceph_command import CephCommands
from assay.systems.ceph_conf import default_pg_num, keyring, metadata_copies, new_key, own_options, render, sections
from assay.systems.ceph_status import Status, layout_of_pool, parse_directory_layout, parse_status, pool_of
from assay.systems.hosts import bind, each, log_tail, wait_until

FILESYSTEM, METADATA, DATA, ROOT = "assay", "metadata", "data", "root"  # the file system and its pools
DIRECTORY = "/data"  # of the file system: what clients mount, with its files in the data pool
DAEMON_SECONDS = 120.0
UP_SECONDS = 120.0
EVICT_SECONDS = 20.0
DEFERRED_SECONDS = 5.0
_BATCH, _BENCH_BYTES, _WAKING = "bluestore_deferred_batch_ops", 4096, 2
POLL_SECONDS = 0.1

# $1: device, $2: directory of the OSD, $3: its number, $4: its uuid, empty when it exists. The shell's own descriptor keeps the
# device until the OSD has opened it: detached now, it goes with its last user, whoever is killed when.
_START_OSD = """
set -e
exec 9<"$1"
losetup --detach "$1"
ln -sfn "$1" "$2/block"
[ -z "$4" ] || ceph-osd -i "$3" --mkfs --osd-uuid "$4" --monmap /etc/ceph/monmap 9<&-
ceph-osd -i "$3" --pid-file "/run/ceph/osd.$3.pid" 9<&-
"""


class CephCluster:
    """Hosts and daemons; the first storage host has the only monitor, and is never killed."""

    def __init__(self, fabric: Fabric, layout: Layout, tuning: Mapping[str, Any]) -> None:
        self.fabric, self.layout, self.tuning = fabric, layout, dict(tuning)
        self.fast = tuning.get("profile", "fast") == "fast"
        self.sections = sections(tuning, layout, len(fabric.storage))
        self.killed: list[str] = []
        self.disks: dict[int, HostDisk] = {}  # by OSD
        self.placed: dict[int, NamespaceHost] = {}  # the host of each OSD
        self._fsid = str(uuid.uuid4())
        self._keys = {name: new_key() for name in ("mon.", "client.admin", "mgr.x", "mds.m")}
        self._commands: CephCommands | None = None

    @property
    def first(self) -> NamespaceHost:
        """The host of monitor, manager and metadata server."""
        return self.fabric.storage[0]

    @property
    def up(self) -> list[NamespaceHost]:
        """Storage hosts that were not killed."""
        return [host for host in self.fabric.storage if host.name not in self.killed]

    @property
    def ask(self) -> CephCommands:
        """Commands to the cluster. Raises HostError when the first host is down."""
        if self._commands is None:
            self._commands = CephCommands(self.first, self.fabric.lab.environment)
        return self._commands

    # --- coming up --------------------------------------------------------------------------------------------------------

    def start(self) -> None:
        """From nothing to a file system with its data pool. Raises AdapterError, LabError or HostError."""
        self._write_configuration()
        each(self.fabric.hosts, self.directories)
        self._start_monitor()
        self.check_options()
        osds = self._create_osds(self.fabric.storage)
        each(
            [self._start_manager, self._start_metadata_server, *(self._starter(*o) for o in osds)],
            lambda start: start(),
        )
        self.await_up()
        self._settle_manager()
        self._make_pools()
        self._make_filesystem()

    def _settle_manager(self) -> None:
        # before there are data: it would move them about, away from where CRUSH puts them
        self.ask.mgr(f"balancer {'on' if self.tuning.get('balancer') else 'off'}")
        if self.fast:
            self.ask.mon("health mute", code="MGR_MODULE_ERROR", sticky=True)  # modules that were disabled on purpose

    def directories(self, host: Host) -> None:
        """What daemons and clients find below /etc/ceph, /var/lib/ceph and /var/log/ceph of a host. Raises HostError."""
        assert isinstance(host, NamespaceHost)
        own = self.fabric.host_directory(host)
        bind(host, {self._etc: "/etc/ceph", own / "lib": "/var/lib/ceph", own / "log": "/var/log/ceph"})
        host.run(["mkdir", "-p", "/run/ceph"]).must(f"{host.name}: directories")

    @property
    def _etc(self) -> Path:
        return self.fabric.directory / "etc"

    def _write_configuration(self) -> None:
        self._etc.mkdir(parents=True, exist_ok=True)
        (self._etc / "ceph.conf").write_text(render(self.sections, self._fsid, self.first.address, f"{SUBNET}.0/24"))
        every = dict.fromkeys(("mon", "osd", "mds", "mgr"), "allow *")
        keys = {
            "mon.": {"mon": "allow *"},
            "client.admin": every,
            "mgr.x": {"mon": "allow profile mgr", "osd": "allow *", "mds": "allow *"},
            "mds.m": {"mon": "profile mds", "mgr": "profile mds", "mds": "allow *", "osd": "allow *"},
        }
        entries = {name: (self._keys[name], allowed) for name, allowed in keys.items()}
        self._secret(self._etc / "monitor.keyring", keyring(entries))
        self._secret(self._etc / "ceph.client.admin.keyring", keyring({"client.admin": entries["client.admin"]}))

    def _secret(self, file: Path, text: str) -> None:
        file.parent.mkdir(parents=True, exist_ok=True)
        file.touch(mode=0o600)
        file.write_text(text)

    def _run(self, host: NamespaceHost, argv: Sequence[str], purpose: str) -> None:
        # one arena of malloc instead of one per thread: a fifth of the memory
        small = ["env", "MALLOC_ARENA_MAX=1"] if self.fast else []
        done = host.run([*small, *argv], timeout_seconds=DAEMON_SECONDS)
        if not done.ok and not done.stderr.strip():  # several failures are told to the log alone
            log = next(iter(sorted((self.fabric.host_directory(host) / "log").glob(f"*{argv[0]}*"))), Path("/none"))
            raise AdapterError(
                f"{host.name}: {purpose}: exit code {done.exit_code}; its log says: {log_tail(log, lines=2)}"
            )
        done.must(f"{host.name}: {purpose}")

    def _start_monitor(self) -> None:
        address = self.first.address
        monmap = ["monmaptool", "--create", "--addv", "a", f"[v2:{address}:3300,v1:{address}:6789]"]
        monmap += ["--fsid", self._fsid, "--enable-all-features", "--clobber", "/etc/ceph/monmap"]
        self._run(self.first, monmap, "making the monitor's map")
        (self.fabric.host_directory(self.first) / "lib" / "mon").mkdir(parents=True, exist_ok=True)
        make = [
            "ceph-mon",
            "--mkfs",
            "-i",
            "a",
            "--monmap",
            "/etc/ceph/monmap",
            "--keyring",
            "/etc/ceph/monitor.keyring",
        ]
        self._run(self.first, make, "making the monitor")
        self._run(self.first, ["ceph-mon", "-i", "a"], "starting the monitor")

    def _start_manager(self) -> None:
        self._daemon_key("mgr", "x", self._keys["mgr.x"], self.first)
        self._run(self.first, ["ceph-mgr", "-i", "x"], "starting the manager")

    def _start_metadata_server(self) -> None:
        self._daemon_key("mds", "m", self._keys["mds.m"], self.first)
        self._run(self.first, ["ceph-mds", "-i", "m"], "starting the metadata server")

    def _daemon_key(self, kind: str, name: str, key: str, host: NamespaceHost) -> Path:
        directory = self.fabric.host_directory(host) / "lib" / kind / f"ceph-{name}"
        self._secret(directory / "keyring", keyring({f"{kind}.{name}": (key, {})}))
        return directory

    def check_options(self) -> None:
        """Have Ceph judge the candidate's own options: in ceph.conf it ignores unknown ones and wrong values in silence.
        Raises AdapterError in its words."""
        for section, option, value in own_options(self.tuning):
            try:
                self.ask.mon("config set", who=section, name=option, value=value)
            except AdapterError as error:
                raise AdapterError(f"{section}.{option}: {value}: {error}") from None

    # --- OSDs -------------------------------------------------------------------------------------------------------------

    def _create_osds(self, hosts: Sequence[NamespaceHost]) -> list[tuple[int, str]]:
        """Disks attached and numbers known to the monitor: (number, uuid) of each. Raises LabError, AdapterError."""
        made = []
        for host in hosts:
            for disk in range(1, self.fabric.shape.disk.per_host + 1):
                number = (int(host.name.removeprefix("s")) - 1) * self.fabric.shape.disk.per_host + disk - 1
                own, key = str(uuid.uuid4()), new_key()
                self.placed[number], self.disks[number] = host, HostDisk(self.fabric, host, disk)
                self._daemon_key("osd", str(number), key, host)
                secret = json.dumps({"cephx_secret": key}).encode()
                self.ask.mon("osd new", uuid=own, id=number, stdin=secret)
                self.disks[number].create()
                self.disks[number].attach()
                made.append((number, own))
        return made

    def _starter(self, number: int, own: str) -> Any:
        return lambda: self._start_osd(number, own)

    def _start_osd(self, number: int, own: str = "") -> None:
        """Start an OSD on its attached disk; with a uuid it is made first. Raises HostError or AdapterError."""
        host, device = self.placed[number], self.disks[number].device
        assert device is not None
        directory = f"/var/lib/ceph/osd/ceph-{number}"
        script = ["sh", "-c", _START_OSD, "ceph-osd", device, directory, str(number), own]
        self._run(host, script, f"starting osd.{number}")

    def start_osds(self, numbers: Sequence[int], timeout_seconds: float = UP_SECONDS) -> None:
        """Start OSDs again, with the data that are on their disks, and wait until they serve. Raises LabError, HostError,
        AdapterError."""
        epoch = self.dump()["epoch"]
        for number in numbers:
            self.disks[number].attach()
        each(numbers, self._start_osd)
        late: set[int] = set()

        def booted() -> bool:  # the map may still say "up" of what was killed a moment ago
            osds = [o for o in self.dump()["osds"] if o["osd"] in numbers]
            late.clear()
            late.update(o["osd"] for o in osds if not (o["up"] and o["in"] and o["up_from"] > epoch))
            return not late

        if not wait_until(booted, timeout_seconds, POLL_SECONDS):
            names = ", ".join(f"osd.{number}" for number in sorted(late))
            raise AdapterError(f"{names} not up after {timeout_seconds:g} s; its log says: {self.why(min(late))}")

    def add(self, hosts: Sequence[NamespaceHost]) -> list[int]:
        """Make and start OSDs on further hosts; returns their numbers. Raises LabError, HostError, AdapterError."""
        each(hosts, self.directories)
        made = self._create_osds(hosts)
        each(made, lambda o: self._start_osd(*o))
        self.await_up()
        return [number for number, _ in made]

    def osds_of(self, hosts: Sequence[NamespaceHost]) -> list[int]:
        """Numbers of the OSDs on hosts."""
        return sorted(number for number, host in self.placed.items() if host in hosts)

    def kill_osd(self, number: int) -> None:
        """Kill one OSD with SIGKILL; its host lives on. Raises AdapterError when it does not run."""
        host = self.placed[number]
        kill = ["sh", "-c", 'kill -KILL "$(cat "$0")"', f"/run/ceph/osd.{number}.pid"]
        if not host.is_up or not host.run(kill).ok:
            raise AdapterError(f"osd.{number} does not run")

    def running(self) -> list[int]:
        """OSDs that are on hosts that run."""
        return self.osds_of(self.up)

    # --- pools and the file system ----------------------------------------------------------------------------------------

    @property
    def pg_num(self) -> int:
        """Placement groups of the data pool."""
        return int(self.tuning.get("pg_num", 0)) or default_pg_num(len(self.placed), self.layout.width)

    def _make_pools(self) -> None:
        copies = metadata_copies(self.layout, len(self.fabric.storage))
        self._make_pool(METADATA, 16, size=copies, least=1)
        if self.layout.kind == "rain":
            # Ceph wants the pool of the root's files replicated: it keeps the path of every file
            self._make_pool(ROOT, 16, size=copies, least=1)
            profile = [f"k={self.layout.data}", f"m={self.layout.parity}", "plugin=jerasure", "technique=reed_sol_van"]
            profile.append("crush-failure-domain=host")
            self.ask.mon("osd erasure-code-profile set", name=DATA, profile=profile)
            words: dict[str, Any] = {"pool_type": "erasure", "erasure_code_profile": DATA}
            self.ask.mon("osd pool create", pool=DATA, pg_num=self.pg_num, pgp_num=self.pg_num, **words)
            self.ask.mon("osd pool set", pool=DATA, var="allow_ec_overwrites", val="true")
            least = self.layout.data  # Ceph's default, one more, serves nobody with M hosts dead
        else:
            self._make_pool(DATA, self.pg_num, size=self.layout.width, least=None)
            least = 1
        self.ask.mon("osd pool set", pool=DATA, var="min_size", val=str(self.tuning.get("min_size", least)))

    def _make_pool(self, name: str, groups: int, *, size: int, least: int | None) -> None:
        kind: dict[str, Any] = {"pool_type": "replicated", **({"size": size} if size > 1 else {})}
        self.ask.mon("osd pool create", pool=name, pg_num=groups, pgp_num=groups, **kind)
        if size == 1:
            self.ask.mon("osd pool set", pool=name, var="size", val="1", yes_i_really_mean_it=True)
        elif least is not None:
            self.ask.mon("osd pool set", pool=name, var="min_size", val=str(least))

    def _make_filesystem(self) -> None:
        rain = self.layout.kind == "rain"
        self.ask.mon("fs new", fs_name=FILESYSTEM, metadata=METADATA, data=ROOT if rain else DATA)
        if rain:
            self.ask.mon("fs add_data_pool", fs_name=FILESYSTEM, pool=DATA)
        if not wait_until(lambda: self.status().filesystem == "up:active", UP_SECONDS, POLL_SECONDS):
            raise AdapterError(f"the file system is not active after {UP_SECONDS:g} s: {self.status()}")
        made = self.ask.call(ceph_probe.make_directory, FILESYSTEM, DIRECTORY, DATA, timeout_seconds=UP_SECONDS)
        if (pool := parse_directory_layout(made).get("pool")) != DATA:
            raise AdapterError(f"files below {DIRECTORY} go to pool {pool}, not to {DATA}")
        found = self.pool_layout()
        if found != self.layout:
            raise AdapterError(f"pool {DATA} is {found}, not {self.layout}")

    # --- asking -----------------------------------------------------------------------------------------------------------

    def status(self) -> Status:
        """The cluster as its monitor sees it. Raises AdapterError."""
        return parse_status(self.ask.mon("status"))

    def dump(self) -> dict[str, Any]:
        """``ceph osd dump``. Raises AdapterError."""
        return self.ask.mon("osd dump")

    def pool_layout(self) -> Layout:
        """The data pool's layout as Ceph has it. Raises AdapterError."""
        dump = self.dump()
        return layout_of_pool(pool_of(dump, DATA), dump["erasure_code_profiles"])

    def await_up(self, timeout_seconds: float = UP_SECONDS) -> None:
        """Wait until every OSD on a host that runs is up and in, and the manager is there. Raises AdapterError."""
        wanted = len(self.running())

        def there() -> bool:
            status = self.status()
            return status.up == status.in_ == wanted and status.manager

        if not wait_until(there, timeout_seconds, POLL_SECONDS):
            down = {o["osd"] for o in self.dump()["osds"] if not (o["up"] and o["in"])} & set(self.running())
            said = next((self.why(number) for number in sorted(down)), "")
            names = ", ".join(f"osd.{n}" for n in sorted(down)) or "the manager"
            raise AdapterError(
                f"{names} is not there after {timeout_seconds:g} s" + (f"; its log says: {said}" if said else "")
            )

    def why(self, number: int) -> str:
        """The last error in an OSD's log, for people; empty without one."""
        return log_tail(self.fabric.directory / self.placed[number].name / "log" / f"ceph-osd.{number}.log", " -1 ")

    def counters(self) -> list[DeviceCounters]:
        """Bytes moved by the device of each OSD of the hosts that are up. Raises LabError."""
        return [self.disks[number].counters() for number in self.running()]

    def evict(self, session: int) -> None:
        """End the session of a client that was killed. Raises HostError; no error when the metadata server does not answer."""
        socket, words = Path("/run/ceph/ceph-mds.m.asok"), {"filters": [f"id={session}"]}
        with suppress(OSError, ValueError):
            self.first.call(ceph_probe.ask_daemon, socket, "session evict", words, EVICT_SECONDS)

    def drop_caches(self) -> int:
        """Have all OSDs drop their caches; returns the writes that stay in memory even so. Raises AdapterError.

        Small writes stay there until a batch of them (64 on hdd) goes from the log to its place, however long that takes: a batch
        of one, and small writes to wake the OSD up, have them all written.
        """
        late = self.running()  # all: the few that are left on one may be those that woke it up, or data
        for number in late:
            self.ask.osd(number, "config set", var=_BATCH, val=["1"])

        def written() -> bool:
            rest = [number for number in late if self._deferred(number)]
            for number in rest:
                self.ask.osd(number, "bench", count=_BENCH_BYTES, size=_BENCH_BYTES)
            return not rest

        try:
            for number in late:
                self.ask.osd(number, "bench", count=_BENCH_BYTES, size=_BENCH_BYTES)
            wait_until(written, DEFERRED_SECONDS, POLL_SECONDS)
        finally:
            for number in late:
                self.ask.osd(number, "config unset", var=_BATCH)
        for number in self.running():
            self.ask.osd(number, "cache drop")
        return sum(map(self._deferred, late))

    def _deferred(self, number: int) -> int:
        """Writes that are in BlueStore's log and not yet in their place (counters of the states of transactions in ``perf
        dump``), but for those that woke it up."""
        counted = self.ask.osd(number, "perf dump", logger="bluestore")["bluestore"]
        left = counted["state_kv_done_lat"]["avgcount"] - counted["state_finishing_lat"]["avgcount"]
        return left if left > _WAKING else 0

    # --- losing hosts and getting them back -------------------------------------------------------------------------------

    def kill(self, names: Sequence[str]) -> None:
        """Kill hosts: every process on them at once."""
        self.killed += names
        each([h for h in self.fabric.storage if h.name in names], lambda host: host.kill())

    def restart(self, timeout_seconds: float) -> list[str]:
        """Start the killed hosts and their OSDs again; returns the hosts' names. Raises LabError, HostError, AdapterError."""
        names = list(self.killed)
        back = [h for h in self.fabric.storage if h.name in names]
        for host in back:
            if not host.is_up:
                self.fabric.start(host)
        each(back, self.directories)
        self.start_osds(self.osds_of(back), timeout_seconds)
        self.killed.clear()
        return names

    def remove(self, hosts: Sequence[NamespaceHost]) -> None:
        """Take hosts down and remove their disks; no error when they are down."""
        if self.first in hosts and self._commands is not None:
            self._commands.close()
            self._commands = None
        each(hosts, lambda host: host.kill())
        for number in self.osds_of(hosts):
            disk = self.disks.pop(number)
            if self.fabric.devices:
                self._wipe(disk)
            del self.placed[number]
            disk.remove()

    def _wipe(self, disk: HostDisk) -> None:
        """Give a device that was handed over back as empty: BlueStore's mark carries no label of the lab's that clean-up
        could recognise. Raises LabError, HostError."""
        device = disk.attach()
        LocalHost().run(["wipefs", "--all", device]).must(f"wiping {device}")
