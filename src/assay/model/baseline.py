"""What a lab can do without any file system: its baselines, and the bounds that follow from its network."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict

_CONFIG = ConfigDict(frozen=True, extra="forbid")


class LinkFigure(BaseModel):
    """Throughput of one TCP stream between two hosts, as iperf3 received it."""

    model_config = _CONFIG

    source: str
    target: str
    bytes_per_second: float
    retransmits: int = 0


class DiskFigure(BaseModel):
    """One raw disk (no file system), sequential direct I/O."""

    model_config = _CONFIG

    host: str
    disk: int  # number within the host, from 0
    read_bytes_per_second: float
    write_bytes_per_second: float


class Baselines(BaseModel):
    """All that was measured of a lab before the first attempt. Times are Unix seconds."""

    model_config = _CONFIG

    measured_at: float
    seconds: float  # that measuring took
    links: list[LinkFigure] = []
    all_to_client_bytes_per_second: dict[str, float] = {}  # client -> sum over all storage hosts sending at once
    client_to_all_bytes_per_second: dict[str, float] = {}  # the other direction
    disks: list[DiskFigure] = []
    clock_offset_seconds: dict[str, float] = {}  # host -> its clock minus this machine's
    idle_cpu_busy_share: dict[str, float] = {}  # host -> share of all cores that was busy with nothing to do
    round_trip_seconds: dict[str, float] = {}  # storage host -> round trip from the first client
    problems: list[str] = []  # what could not be measured, with the reason

    @property
    def best_link_bytes_per_second(self) -> float | None:
        """The most that any link carried in one direction: what bounds are made of when links are not shaped. None when
        nothing was measured."""
        together = [*self.all_to_client_bytes_per_second.values(), *self.client_to_all_bytes_per_second.values()]
        return max([link.bytes_per_second for link in self.links] + together, default=None)


class Limit(BaseModel):
    """What one kind of network interface lets through in one direction: ``links`` of them together carry at most
    ``links`` x the link's rate, and each user byte needs so many bytes of it."""

    model_config = _CONFIG

    nic: str  # e.g. "client out", "one file's busiest host out", "all hosts in"
    links: float
    per_byte_read: float = 0.0
    per_byte_written: float = 0.0


class Bound(BaseModel):
    """The most that the network lets through for one cell. Bytes of user data per second; None: the point does not go in
    that direction."""

    model_config = _CONFIG

    read_bytes_per_second: float | None = None
    write_bytes_per_second: float | None = None
    total_bytes_per_second: float | None = None  # both directions together, in the point's mix of reads and writes
    link_bytes_per_second: float | None = None  # payload of one link and direction
    burst_bytes: float = 0.0  # payload that each link lets through at once, above its rate
    read_limit: str = ""  # what limits, e.g. "client in: 1 byte per byte read"
    write_limit: str = ""  # e.g. "client out: 1.5 bytes per byte written"
    limits: list[Limit] = []  # all of them; the figures above are what follows
    enforced: bool = False  # whether the link is shaped: then no result can be above the bound and be right
