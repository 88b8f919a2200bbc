"""What is known of one attempt: the raw material of checks, statistics and reports.

Everything here is plain data that survives a trip through JSON, except :class:`Samples` (histograms and series), which
the ledger keeps beside the database as Parquet.
"""

from __future__ import annotations

from enum import StrEnum
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field

from assay.model.baseline import Bound

Direction = Literal["read", "write"]


class Record(BaseModel):
    """Frozen, closed base of all evidence."""

    model_config = ConfigDict(frozen=True, extra="forbid")


class AttemptStatus(StrEnum):
    """How an attempt ended. Validity is another question, answered by the checks."""

    FINISHED = "finished"  # the workload ran to its end
    FAILED = "failed"  # the system or tool under test failed: data, not an accident
    LOST = "lost"  # Assay was killed while it ran; known from the start event alone
    NOT_APPLICABLE = "not-applicable"  # the cell needs a capability the adapter lacks


class Histogram(Record):
    """A latency histogram: ``latency_ns[i]`` (ns, ascending, the value fio gives for the bin) seen ``counts[i]`` times."""

    latency_ns: list[int] = []
    counts: list[int] = []


class Series(Record):
    """A time series: mean of the quantity over each interval that ends at ``seconds[i]`` after the start.

    Unit of ``values`` by quantity: bandwidth bytes/s, iops operations/s, latency seconds.
    """

    quantity: Literal["bandwidth", "iops", "latency"]
    direction: Direction
    interval_seconds: float
    seconds: list[float]
    values: list[float]


class DirectionTotal(Record):
    """Totals of one client in one direction over the measured time, as counted by the load generator."""

    bytes: int
    operations: int
    runtime_seconds: float
    latency_mean_seconds: float
    latency_min_seconds: float = 0.0
    latency_max_seconds: float = 0.0


class ClientResult(Record):
    """What one load-generating process reports. Times are Unix seconds."""

    client: str
    host: str
    started_at: float
    ended_at: float
    exit_code: int | None  # None: killed at its deadline
    totals: dict[Direction, DirectionTotal] = {}
    job_runtimes_seconds: list[float] = []  # one per thread, for stragglers
    errors: dict[str, int] = {}  # kind (errno name or tool message class) -> count
    user_cpu_share: float = 0.0  # of one core, over the run, mean per thread
    system_cpu_share: float = 0.0
    verify_errors: int | None = None  # None: verification was not asked for
    tool_version: str = ""
    file_names: list[str] = []
    message: str = ""  # tail of stderr, for people


class ClientSamples(Record):
    """Raw histograms (one per direction) and series of one client."""

    client: str
    histograms: dict[Direction, Histogram] = {}
    series: list[Series] = []


class Samples(Record):
    """Raw samples of all clients of one attempt."""

    clients: list[ClientSamples] = []


class HostState(Record):
    """One host at one moment."""

    cpu_busy_share: float | None = None  # of all cores, over ``over_seconds``; None: not measured
    over_seconds: float = 0.0
    cached_bytes: int | None = None  # /proc/meminfo Cached
    dirty_bytes: int | None = None  # Dirty + Writeback
    memory_bytes: int | None = None
    load_average: float | None = None
    clock_offset_seconds: float | None = None


class DeviceCounters(Record):
    """Bytes a device has moved since it appeared, from /proc/diskstats (sectors of 512 bytes)."""

    device: str
    read_bytes: int
    written_bytes: int
    in_flight: int = 0


class Snapshot(Record):
    """The state around an attempt, taken just before and just after the load."""

    at: float  # Unix seconds
    hosts: dict[str, HostState] = {}
    devices: list[DeviceCounters] | None = None  # None: the candidate has no byte counters
    free_bytes: int | None = None
    total_bytes: int | None = None
    free_inodes: int | None = None
    mount: dict[str, str] = {}  # source, fstype, options, as in /proc/self/mountinfo
    healthy: bool | None = None  # None: the adapter cannot tell
    health_detail: str = ""


class ColdEvidence(Record):
    """What go-cold did before the attempt, measured rather than requested."""

    requested: bool
    steps: list[str] = []  # "sync", "drop_caches=3", "remount", ...
    exit_codes: list[int] = []  # one per step
    cached_before_bytes: int | None = None
    cached_after_bytes: int | None = None
    seconds: float = 0.0


class SettleEvidence(Record):
    """Whether background work had ended before the load began."""

    settled: bool | None = None  # None: the adapter cannot tell
    waited_seconds: float = 0.0
    detail: str = ""


class DurabilityEvidence(Record):
    """Durability tier of the candidate, declared and probed."""

    declared: str = ""  # volatile | page-cache | device | replicated
    probed: bool | None = None  # True: a written and fsynced file was seen to reach the device
    detail: str = ""


class SteadyEvidence(Record):
    """Outcome of the steady-state analysis on the bandwidth series (stats.steady)."""

    found: bool
    start_seconds: float = 0.0
    stop_seconds: float = 0.0
    reason: str = ""
    total_mean: float = 0.0  # bytes/s
    steady_mean: float | None = None  # bytes/s; None without a steady state
    trend_p: float | None = None
    shift_p: float | None = None
    coefficient_of_variation: float | None = None


class DirectionSummary(Record):
    """Aggregate over clients, computed by Assay from counts and merged histograms."""

    bandwidth_bytes_per_second: float
    iops: float
    bytes: int
    operations: int
    latency_mean_seconds: float
    latency_percentiles_seconds: dict[str, float] = {}  # "50", "95", "99", "99.9", ...; of merged histograms


class Summary(Record):
    """What comparisons and tables use; all of it can be recomputed from totals and samples."""

    directions: dict[Direction, DirectionSummary] = {}
    steady: SteadyEvidence | None = None

    @property
    def bandwidth(self) -> float:
        """Bytes per second, both directions together."""
        return sum(d.bandwidth_bytes_per_second for d in self.directions.values())

    @property
    def iops(self) -> float:
        """Operations per second, both directions together."""
        return sum(d.iops for d in self.directions.values())

    @property
    def latency_mean(self) -> float:
        """Seconds, mean over the operations of both directions; NaN without operations."""
        operations = sum(d.operations for d in self.directions.values())
        if not operations:
            return float("nan")
        return sum(d.latency_mean_seconds * d.operations for d in self.directions.values()) / operations

    def percentile(self, q: str) -> float:
        """Seconds; the worse direction's percentile (a mixture of both would hide the slower); NaN if absent."""
        return max(
            (d.latency_percentiles_seconds[q] for d in self.directions.values() if q in d.latency_percentiles_seconds),
            default=float("nan"),
        )


class DegradedEvidence(Record):
    """What was done to the system around a degraded attempt, and whether its data stayed right."""

    killed: list[str] = []  # hosts
    killed_seconds: float = 0.0  # that killing took
    verified_degraded: bool | None = None  # checksums right with the hosts gone; None: not verified
    restarted_seconds: float | None = None  # until all daemons were there again; None: not reached
    healed_seconds: float | None = None  # from the restart until healed; None: not reached
    verified_healed: bool | None = None
    problems: list[str] = []  # what was wrong, file by file


class AttemptEvidence(Record):
    """One execution of a cell in one block and all that was observed around it."""

    attempt_id: str
    study_id: str
    cell_id: str
    candidate: str  # label
    system: str  # "local/ext4", "null", ...
    role: Literal["subject", "twin", "null", "floor"]
    block: int
    try_number: int
    status: AttemptStatus
    started_at: float
    ended_at: float
    point: dict[str, Any]  # the workload point, as FioPoint.model_dump(mode="json")
    expected: dict[str, Any]  # the closure of the cell: versions, mount options, configuration, ...
    observed: dict[str, Any] = {}  # the same keys, captured at the attempt
    environment: dict[str, Any] = {}  # kernel, CPU, memory, sysctls, governor, tool versions
    before: Snapshot
    after: Snapshot | None = None
    cold: ColdEvidence | None = None
    settle: SettleEvidence | None = None
    durability: DurabilityEvidence | None = None
    degraded: DegradedEvidence | None = None
    bound: Bound | None = None  # None: no network to be bound by
    clients: list[ClientResult] = []
    summary: Summary | None = None
    dataset_bytes: int = 0
    outside_seconds: float = 0.0  # time of the attempt that was not inside the load generator
    error: str = ""
    artefacts: dict[str, str] = Field(default_factory=dict)  # name -> content hash
