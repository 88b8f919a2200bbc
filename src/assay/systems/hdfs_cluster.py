"""The services of an HDFS cluster on the hosts of a lab: a NameNode on the first, a DataNode on each."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from assay.lab.errors import LabError
from assay.lab.fabric import Fabric
from assay.lab.host import Completed, HostError
from assay.lab.namespace import NamespaceHost
from assay.model.evidence import DeviceCounters
from assay.systems import hdfs_client, hdfs_install
from assay.systems.base import AdapterError, NoAnswerError
from assay.systems.hdfs_config import (
    DATANODE_HTTP,
    HOME,
    LOG4J,
    NAMENODE_HTTP,
    core_options,
    java_arguments,
    site_xml,
)
from assay.systems.hdfs_status import ClusterState, actor_running, cluster_state, policy_name
from assay.systems.hosts import HostDisks, each, log_tail, wait_until

NAMENODE = "org.apache.hadoop.hdfs.server.namenode.NameNode"
DATANODE = "org.apache.hadoop.hdfs.server.datanode.DataNode"
READY_SECONDS = 300.0  # seven virtual machines on a busy machine; one that has ended is noticed at once
ANSWER_SECONDS = 10.0
TOOL_SECONDS = 180.0
NOTICE_SECONDS = 6.0  # three times the recheck interval of the lab
_POLL_SECONDS = 0.15
_LOOK_SECONDS = 3.0  # between looks at the processes themselves


class HdfsCluster:
    """Hosts, disks and services; the first storage host is asked, and is never killed."""

    def __init__(self, fabric: Fabric, filesystem: str, heap_bytes: int) -> None:
        self.fabric = fabric
        self.filesystem = filesystem
        self.disks: dict[str, HostDisks] = {}
        self.killed: list[str] = []
        self._heap = heap_bytes
        self._dead_since: dict[str, float] = {}  # killed hosts that the NameNode lists as dead
        self._archive = hdfs_install.class_archive()
        self._learning = not self._archive.exists()
        self._started: dict[tuple[str, str], int] = {}  # (host, class) -> process id within the host

    @property
    def first(self) -> NamespaceHost:
        """The host of the NameNode."""
        return self.fabric.storage[0]

    @property
    def up(self) -> list[NamespaceHost]:
        """Storage hosts that were not killed."""
        return [host for host in self.fabric.storage if host.name not in self.killed]

    @property
    def exclude(self) -> Path:
        """The file that names hosts to be taken out of service."""
        return self.fabric.directory / "exclude"

    # --- start ----------------------------------------------------------------------------------------------------------

    def start(self, site: Mapping[str, str]) -> None:
        """Format and start everything at once: DataNodes wait for the NameNode. Raises AdapterError, LabError, HostError."""
        self.write_configuration(site)
        self.start_hosts(self.fabric.storage, format_first=True)
        self.await_ready()
        if self._learning:
            lists = sorted(self.fabric.host_directory(self.first).glob("*.classes"))
            self._learning = not hdfs_install.make_class_archive(self.first, lists)

    def write_configuration(self, site: Mapping[str, str]) -> None:
        """The files that services and tools read."""
        place = self.fabric.directory / "hadoop"
        for application in ("hdfs", "datanode"):  # the pages of the web servers, which are not in the JARs
            (place / "webapps" / application).mkdir(parents=True, exist_ok=True)
        (place / "core-site.xml").write_text(site_xml(core_options()))
        (place / "hdfs-site.xml").write_text(site_xml(site))
        (place / "log4j.properties").write_text(LOG4J)
        self.exclude.touch()
        archive = None if self._learning else self._archive
        arguments = java_arguments(hdfs_install.jars(), place, self._heap, archive)
        (self.fabric.directory / "java.args").write_text(arguments)

    def start_hosts(self, hosts: Sequence[NamespaceHost], *, format_first: bool = False) -> None:
        """Give hosts their disks and start their services. Raises LabError or HostError."""
        for host in hosts:
            self.disks[host.name] = HostDisks(self.fabric, host, self.filesystem)

        def begin(host: NamespaceHost) -> None:
            self.disks[host.name].make()
            self._spawn(host, DATANODE)
            if format_first and host is self.first:
                self.tool(NAMENODE, "-format", "-force", "-nonInteractive", purpose="formatting the NameNode")
                self._spawn(host, NAMENODE)

        each(hosts, begin)

    def _java(self, host: NamespaceHost, service: str) -> list[str]:
        learn = []
        if self._learning and host is self.first:
            name = service.rpartition(".")[2].lower()
            learn = [f"-XX:DumpLoadedClassList={self.fabric.host_directory(host) / name}.classes"]
        return ["java", f"@{self.fabric.directory / 'java.args'}", *learn, service]

    def _spawn(self, host: NamespaceHost, service: str) -> None:
        # not a child of nsenter: it lives until the host ends
        self.fabric.host_directory(host)
        script = '"$@" </dev/null >>"$0" 2>&1 & echo $!'
        argv = ["sh", "-c", script, str(self.log(host.name, service)), *self._java(host, service)]
        done = host.run(argv, timeout_seconds=TOOL_SECONDS).must(f"{host.name}: starting {service}")
        self._started[host.name, service] = int(done.stdout)

    def log(self, name: str, service: str = DATANODE) -> Path:
        """Where a service says what it has to say."""
        return self.fabric.directory / name / f"{service.rpartition('.')[2].lower()}.log"

    def tool(self, program: str, *arguments: str, purpose: str, timeout_seconds: float = TOOL_SECONDS) -> str:
        """Run one of Hadoop's programs on the first host; what it printed. Raises HostError."""
        return (
            self.run(program, *arguments, timeout_seconds=timeout_seconds).must(purpose).stdout.decode(errors="replace")
        )

    def run(self, program: str, *arguments: str, timeout_seconds: float = TOOL_SECONDS) -> Completed:
        """The same for programs whose exit code has a meaning. Raises HostError when Java is missing."""
        return self.first.run([*self._java(self.first, program), *arguments], timeout_seconds=timeout_seconds)

    # --- asking -----------------------------------------------------------------------------------------------------------

    def state(self, timeout_seconds: float = ANSWER_SECONDS) -> ClusterState:
        """What the NameNode says. Raises NoAnswerError."""
        root = f"http://{self.first.name}:{NAMENODE_HTTP}/jmx?qry=Hadoop:service=NameNode,name="
        return cluster_state(
            self._ask(f"{root}FSNamesystemState", timeout_seconds), self._ask(f"{root}NameNodeInfo", timeout_seconds)
        )

    def unnoticed(self, state: ClusterState) -> list[str]:
        """Killed hosts whose blocks may not be counted as low yet: the NameNode lists a host as dead by the clock, and looks
        for such hosts every ``dfs.namenode.heartbeat.recheck-interval``."""
        now = time.monotonic()
        for name in self.killed:
            if name not in state.live:
                self._dead_since.setdefault(name, now)
        return [name for name in self.killed if now - self._dead_since.get(name, now) < NOTICE_SECONDS]

    def registered(self, host: NamespaceHost) -> bool:
        """Whether the DataNode that runs there now has registered."""
        url = f"http://{host.name}:{DATANODE_HTTP}/jmx?qry=Hadoop:service=DataNode,name=DataNodeInfo"
        try:
            return actor_running(self._ask(url, ANSWER_SECONDS))
        except AdapterError:
            return False

    def set_policy(self, policy: str | None) -> None:
        """Make the directory that carries the layout, with an erasure-coding policy or none, and see that it has it. Raises
        AdapterError."""
        root = f"http://{self.first.name}:{NAMENODE_HTTP}/webhdfs/v1{HOME}?user.name=root&op="
        self._ask(f"{root}MKDIRS", ANSWER_SECONDS, "PUT")
        if policy is not None:
            self._ask(f"{root}SETECPOLICY&ecpolicy={policy}", ANSWER_SECONDS, "PUT")
        found = policy_name(self._ask(f"{root}GETFILESTATUS", ANSWER_SECONDS))
        if found != policy:
            raise AdapterError(f"{HOME} has the erasure-coding policy {found} and not {policy}")

    def _ask(self, url: str, timeout_seconds: float, method: str = "GET") -> str:
        try:
            return self.first.call(
                hdfs_client.ask, url, timeout_seconds, method, timeout_seconds=timeout_seconds + ANSWER_SECONDS
            )
        except (OSError, HostError) as error:
            raise NoAnswerError(f"{url.partition('?')[0]}: {error}") from None

    # --- waiting ----------------------------------------------------------------------------------------------------------

    def await_ready(self, timeout_seconds: float = READY_SECONDS) -> None:
        """Wait until the NameNode has left its safe mode and knows what every DataNode of the hosts that are up holds. Raises
        AdapterError, with the last words of a service that has ended."""
        names = [host.name for host in self.up]
        unknown = list(self.up)
        said = "no answer"
        look_at = time.monotonic() + _LOOK_SECONDS

        def ready() -> bool:
            nonlocal said, look_at
            if time.monotonic() > look_at:
                self._must_live()
                look_at = time.monotonic() + _LOOK_SECONDS
            try:
                state = self.state()
            except NoAnswerError as error:
                said = str(error)
                return False
            except AdapterError:
                return False
            said = f"safe mode {'on' if state.safe_mode else 'off'}, missing {', '.join(state.gone(names)) or 'none'}"
            if not state.ready(names):
                return False
            # a DataNode that was killed a moment ago still counts as live: its successor must say that it has registered
            unknown[:] = [host for host in unknown if not self.registered(host)]
            return not unknown

        if not wait_until(ready, timeout_seconds, _POLL_SECONDS):
            raise AdapterError(f"HDFS is not ready after {timeout_seconds:g} s: {said}{self._words()}")

    def _must_live(self) -> None:
        for host in self.up:
            for service in (DATANODE, NAMENODE):
                pid = self._started.get((host.name, service))
                if pid is not None and not host.run(["kill", "-0", str(pid)]).ok:
                    name = service.rpartition(".")[2]
                    words = log_tail(self.log(host.name, service), "Exception:") or log_tail(
                        self.log(host.name, service)
                    )
                    raise AdapterError(f"{host.name}: the {name} has ended; its log says: {words or 'nothing'}")

    def _words(self) -> str:
        for host in self.up:
            if words := log_tail(self.log(host.name), "Exception:"):
                return f"; {host.name} says: {words}"
        return ""

    # --- disks, losing hosts and getting them back --------------------------------------------------------------------------

    def counters(self) -> list[DeviceCounters]:
        """Bytes moved by the devices of the hosts that are up. Raises LabError."""
        return [counter for host in self.up for counter in self.disks[host.name].counters()]

    def flush(self) -> list[tuple[str, int]]:
        """Write back what the DataNodes' file systems hold: (step, exit code) each."""
        disks = range(1, self.fabric.shape.disk.per_host + 1)
        points = [f"/run/b/{n}" for n in disks]
        done = each(self.up, lambda host: host.run(["sync", "--file-system", *points], timeout_seconds=300))
        return [(f"{h.name}: sync", 0 if d.ok else d.exit_code or 1) for h, d in zip(self.up, done, strict=True)]

    def kill(self, names: Sequence[str]) -> None:
        """Kill hosts: every process on them at once."""
        self.killed += names
        each([h for h in self.fabric.storage if h.name in names], lambda host: host.kill())

    def restart(self, timeout_seconds: float) -> list[str]:
        """Start the killed hosts and their DataNodes again and wait for them; their names. Raises AdapterError."""
        names = list(self.killed)
        back = [h for h in self.fabric.storage if h.name in names]
        try:
            for host in back:
                if not host.is_up:
                    self.fabric.start(host)
            for host in back:
                self.disks[host.name].mount_again()
            each(back, lambda host: self._spawn(host, DATANODE))
        except (LabError, HostError) as error:
            raise AdapterError(f"restarting {', '.join(names)}: {error}") from None
        self.killed.clear()
        self._dead_since.clear()
        self.await_ready(timeout_seconds)
        return names

    def remove(self, hosts: Sequence[NamespaceHost]) -> None:
        """Take hosts down and remove their disks; no error when they are down."""
        each(hosts, lambda host: host.kill())
        for host in hosts:
            if (disks := self.disks.pop(host.name, None)) is not None:
                disks.remove()
            for service in (DATANODE, NAMENODE):
                self._started.pop((host.name, service), None)
