"""Workload points: one combination of a workload's axes each, no lists left, sizes resolved.

Checks, bounds and the campaign ask every kind of point the same questions, those of :class:`Point`.
"""

from __future__ import annotations

from abc import abstractmethod
from typing import Annotated, Any, Literal

from pydantic import Field, PlainSerializer, TypeAdapter

from assay.model.fields import Model, Scalar
from assay.model.workload import Engine, Pattern, VerifyMethod

SYNCHRONOUS_ENGINES = ("psync", "sync", "pvsync2", "mmap")  # fio ignores iodepth for these

#: Options of fio that make the size of an operation vary.
_VARYING_SIZES = frozenset({"bs", "bsrange", "blocksize_range", "bssplit", "bs_unaligned", "blocksize_unaligned"})

#: Kinds that the null engine cannot carry out: there is no file to do it to.
FLOORLESS = frozenset({"iozone", "metadata"})


class Point(Model):
    """What all kinds of points have. Sizes in bytes, times in seconds."""

    clients: int = 1  # load-generating processes, started together
    threads: int = 1  # of each
    runtime: float = 0.0  # measured time that was asked for; 0: until the work is done
    ramp: float = 0.0  # before measuring starts
    time_based: bool = False  # goes on until runtime even when the work is done
    direct: bool = False  # O_DIRECT
    cache: Literal["cold", "warm", "any"] = "any"
    verify: VerifyMethod = "none"
    degraded_hosts: int = 0  # storage hosts killed while the load runs

    @property
    @abstractmethod
    def reads(self) -> bool:
        """Whether it reads."""

    @property
    @abstractmethod
    def writes(self) -> bool:
        """Whether it writes."""

    @property
    @abstractmethod
    def dataset_bytes(self) -> int:
        """Bytes of all files of all clients."""

    @property
    @abstractmethod
    def operation_bytes(self) -> int:
        """Bytes of every operation; 0 when they vary or there are none."""

    @property
    def random(self) -> bool:
        """Whether operations are at random places of files."""
        return False

    @property
    def depth(self) -> int:
        """Operations in flight per thread."""
        return 1

    @property
    def in_flight(self) -> int:
        """Operations that may be under way at any moment in one client: what two counters may differ by."""
        return self.threads * self.depth

    @property
    def moves_data(self) -> bool:
        """Whether it reads or writes the contents of files; else only names and attributes."""
        return True

    @property
    def expected_seconds(self) -> float:
        """A guess for plans: the time asked for, or what an ordinary system needs."""
        return self.runtime + self.ramp

    @property
    def allowed_seconds(self) -> float:
        """How long it may take before the study's deadline begins to run: far slower than anything that is worth measuring."""
        return self.runtime + self.ramp

    @property
    def whole_files(self) -> bool:
        """Whether one operation is the transfer of a whole file: few operations, no series, no steady state."""
        return False


class FioPoint(Point):
    """One point of a fio matrix: no lists, sizes resolved, ready to be written as a job file. Sizes in bytes."""

    kind: Literal["fio"] = "fio"
    pattern: Pattern
    block_size: int
    iodepth: int
    engine: Engine
    size: int  # bytes per thread
    fsync: int
    fdatasync: int
    end_fsync: bool
    rate: int | None  # bytes per second per thread and direction
    read_share: float
    options: dict[str, Annotated[Scalar, PlainSerializer(lambda v: v)]] = Field(default_factory=dict)

    @property
    def reads(self) -> bool:
        """Whether the pattern reads."""
        return self.pattern in ("read", "randread", "rw", "randrw")

    @property
    def writes(self) -> bool:
        """Whether the pattern writes."""
        return self.pattern in ("write", "randwrite", "rw", "randrw")

    @property
    def dataset_bytes(self) -> int:
        """Bytes of all files of all clients."""
        return self.size * self.threads * self.clients

    @property
    def operation_bytes(self) -> int:
        """See Point."""
        return 0 if _VARYING_SIZES & self.options.keys() else self.block_size

    @property
    def random(self) -> bool:
        """See Point."""
        return self.pattern in ("randread", "randwrite", "randrw")

    @property
    def depth(self) -> int:
        """See Point."""
        return 1 if self.engine in SYNCHRONOUS_ENGINES else self.iodepth


class DdPoint(Point):
    """Whole files copied by dd, or put and got: one operation is one file."""

    kind: Literal["dd"] = "dd"
    direction: Literal["write", "read"]
    size: int  # bytes per file
    block_size: int  # bytes per record
    content: Literal["random", "zeros"]
    fsync: bool
    files: int  # per client

    @property
    def reads(self) -> bool:
        """See Point."""
        return self.direction == "read"

    @property
    def writes(self) -> bool:
        """See Point."""
        return self.direction == "write"

    @property
    def dataset_bytes(self) -> int:
        """See Point."""
        return self.size * self.files * self.clients

    @property
    def operation_bytes(self) -> int:
        """See Point."""
        return self.size

    @property
    def expected_seconds(self) -> float:
        """See Point: at 100 MB/s in all."""
        return self.dataset_bytes / 100e6

    @property
    def allowed_seconds(self) -> float:
        """See Point: down to 1 MB/s in all."""
        return self.dataset_bytes / 1e6

    @property
    def whole_files(self) -> bool:
        """See Point."""
        return True


class IozonePoint(Point):
    """One test of IOzone. It reports one rate per run: one operation stands for a thread's whole file."""

    kind: Literal["iozone"] = "iozone"
    test: Literal["write", "read", "randread", "randwrite"]
    record: int  # bytes
    size: int  # bytes per thread

    @property
    def reads(self) -> bool:
        """See Point."""
        return self.test in ("read", "randread")

    @property
    def writes(self) -> bool:
        """See Point."""
        return not self.reads

    @property
    def random(self) -> bool:
        """See Point."""
        return self.test.startswith("rand")

    @property
    def dataset_bytes(self) -> int:
        """See Point."""
        return self.size * self.threads * self.clients

    @property
    def operation_bytes(self) -> int:
        """See Point."""
        return self.size

    @property
    def expected_seconds(self) -> float:
        """See Point: at 100 MB/s in all."""
        return self.dataset_bytes / 100e6

    @property
    def allowed_seconds(self) -> float:
        """See Point: down to 1 MB/s in all."""
        return self.dataset_bytes / 1e6

    @property
    def whole_files(self) -> bool:
        """See Point."""
        return True


class MetadataPoint(Point):
    """One operation on the names of files."""

    kind: Literal["metadata"] = "metadata"
    operation: Literal["create", "stat", "rename", "readdir", "unlink"]
    files: int  # per thread

    @property
    def reads(self) -> bool:
        """See Point."""
        return self.operation in ("stat", "readdir")

    @property
    def writes(self) -> bool:
        """See Point."""
        return not self.reads

    @property
    def dataset_bytes(self) -> int:
        """See Point: the files are empty."""
        return 0

    @property
    def operation_bytes(self) -> int:
        """See Point."""
        return 0

    @property
    def moves_data(self) -> bool:
        """See Point."""
        return False

    @property
    def expected_seconds(self) -> float:
        """See Point: at 1000 operations a second in all."""
        return self.files * self.threads * self.clients / 1000

    @property
    def allowed_seconds(self) -> float:
        """See Point: down to 20 operations a second in all."""
        return self.files * self.threads * self.clients / 20


AnyPoint = Annotated[FioPoint | DdPoint | IozonePoint | MetadataPoint, Field(discriminator="kind")]
_ANY: TypeAdapter[FioPoint | DdPoint | IozonePoint | MetadataPoint] = TypeAdapter(AnyPoint)


def parse_point(given: dict[str, Any]) -> FioPoint | DdPoint | IozonePoint | MetadataPoint:
    """The point of what ``model_dump(mode="json")`` gave. Raises pydantic's ValidationError."""
    return _ANY.validate_python(given)
