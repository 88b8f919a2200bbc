"""Workloads of a study: what is done to each candidate. Lists are axes; their combinations are points (model/point.py)."""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import Field, model_validator

from assay.model.fields import Axis, Bytes, Fraction, Model, Rate, Scalar, Seconds, Size

Pattern = Literal["read", "write", "randread", "randwrite", "rw", "randrw"]
Engine = Literal["libaio", "io_uring", "psync", "sync", "pvsync2", "posixaio", "mmap"]
VerifyMethod = Literal["none", "md5", "crc32c", "xxhash", "sha256"]


class Degraded(Model):
    """Part of the system killed while the load runs."""

    hosts: Axis[Annotated[int, Field(ge=0, le=64, strict=True)]] = Field(
        default=[0], description="Storage hosts killed before the load; they are started again and healed after it."
    )


class FioWorkload(Model):
    """A matrix of fio jobs; every list is an axis."""

    pattern: Axis[Pattern] = Field(description="I/O pattern, fio's rw=.")
    block_size: Axis[Annotated[Bytes, Field(ge=1)]] = Field(description="Bytes per operation, fio's bs=.")
    threads: Axis[Annotated[int, Field(ge=1, le=4096, strict=True)]] = Field(
        default=[1], description="Threads per client, fio's numjobs= with thread."
    )
    iodepth: Axis[Annotated[int, Field(ge=1, le=65536, strict=True)]] = Field(
        default=[32], description="Operations in flight per thread."
    )
    engine: Axis[Engine] = Field(default=["libaio"], description="fio's ioengine=.")
    size: Axis[Size] = Field(
        default=[1 << 30],
        description="Bytes per thread, fio's size=; or total as multiple of memory, e.g. 2xRAM.",
    )
    runtime: Axis[Annotated[Seconds, Field(gt=0)]] = Field(default=[60.0], description="Measured time per attempt.")
    ramp: Axis[Annotated[Seconds, Field(ge=0)]] = Field(
        default=[0.0], description="Time before measuring starts, fio's ramp_time=."
    )
    time_based: bool = Field(default=True, description="Go on until runtime even when size is done.")
    direct: Axis[bool] = Field(default=[True], description="O_DIRECT (true) or through the page cache (false).")
    cache: Axis[Literal["cold", "warm", "any"]] = Field(
        default=["cold"],
        description="State of the caches that the cell claims: cold (dropped and proven), warm (data read once before), "
        "any (no claim).",
    )
    fsync: Axis[Annotated[int, Field(ge=0, strict=True)]] = Field(
        default=[0], description="fsync after every n writes; 0: never."
    )
    fdatasync: Axis[Annotated[int, Field(ge=0, strict=True)]] = Field(
        default=[0], description="fdatasync after every n writes; 0: never."
    )
    end_fsync: bool = Field(default=True, description="fsync once before a writing job ends.")
    rate: Axis[Rate | None] = Field(default=[None], description="Rate limit per thread and direction, fio's rate=.")
    read_share: Axis[Fraction] = Field(default=[0.5], description="Share of reads in rw and randrw, fio's rwmixread=.")
    verify: Axis[VerifyMethod] = Field(default=["none"], description="Write checksums and verify them after writing.")
    clients: Axis[Annotated[int, Field(ge=1, le=256, strict=True)]] = Field(
        default=[1], description="Load-generating processes, started together."
    )
    degraded: Degraded = Field(
        default_factory=Degraded,
        description="Run with storage hosts killed; data are verified by checksum, then the hosts come back and heal.",
    )
    options: dict[str, Axis[Scalar]] = Field(
        default_factory=dict, description="Further fio options as they are; a list is an axis."
    )


class DdWorkload(Model):
    """Whole files copied with dd, as in the platform of paper 002 (dd, 1 KiB records, 1 MiB to 3 GiB, random and zeros); on
    systems without a mount, put and get through their own client."""

    direction: Axis[Literal["write", "read"]] = Field(
        default=["write", "read"], description="Copy to the candidate, or from it."
    )
    size: Axis[Annotated[Bytes, Field(ge=1)]] = Field(description="Bytes per file, dd's bs= times count=.")
    block_size: Axis[Annotated[Bytes, Field(ge=1)]] = Field(
        default=[1024], description="Bytes per record, dd's bs=; without meaning for put and get."
    )
    content: Axis[Literal["random", "zeros"]] = Field(
        default=["random"], description="What the files hold; made on the client beforehand, outside the candidate."
    )
    fsync: Axis[bool] = Field(
        default=[True],
        description="The time of a write includes fsync, dd's conv=fsync; put is as durable as its system.",
    )
    files: Axis[Annotated[int, Field(ge=1, le=10_000, strict=True)]] = Field(
        default=[1], description="Files per client, copied one after the other."
    )
    cache: Axis[Literal["cold", "any"]] = Field(
        default=["cold"], description="State of the caches that a read claims: cold (dropped and proven) or any."
    )
    clients: Axis[Annotated[int, Field(ge=1, le=256, strict=True)]] = Field(
        default=[1], description="Clients that copy at once."
    )
    degraded: Degraded = Field(default_factory=Degraded, description="Run with storage hosts killed.")


class IozoneWorkload(Model):
    """IOzone (where installed): sequential and random access with records, 1 MB by default, in threads."""

    test: Axis[Literal["write", "read", "randread", "randwrite"]] = Field(
        default=["write", "read", "randread", "randwrite"], description="What is measured."
    )
    record: Axis[Annotated[Bytes, Field(ge=4096, multiple_of=1024)]] = Field(
        default=[1 << 20], description="Bytes per operation, iozone's -r."
    )
    size: Axis[Annotated[Bytes, Field(ge=65536, multiple_of=1024)]] = Field(
        default=[1 << 30], description="Bytes per thread, iozone's -s."
    )
    threads: Axis[Annotated[int, Field(ge=1, le=1024, strict=True)]] = Field(
        default=[1], description="Threads per client, iozone's -t."
    )
    direct: Axis[bool] = Field(default=[False], description="O_DIRECT, iozone's -I.")
    cache: Axis[Literal["cold", "any"]] = Field(default=["cold"], description="State of the caches that a cell claims.")
    clients: Axis[Annotated[int, Field(ge=1, le=256, strict=True)]] = Field(
        default=[1], description="Clients that run at once."
    )
    degraded: Degraded = Field(default_factory=Degraded, description="Run with storage hosts killed.")


class MetadataWorkload(Model):
    """Rates of operations on names: every thread works in a directory of its own; measure them by iops or latency."""

    operation: Axis[Literal["create", "stat", "rename", "readdir", "unlink"]] = Field(
        default=["create", "stat", "rename", "readdir", "unlink"],
        description="What is done to each file once; readdir lists the thread's directory, an operation per list.",
    )
    files: Axis[Annotated[int, Field(ge=1, le=10_000_000, strict=True)]] = Field(
        default=[1000], description="Files per thread."
    )
    threads: Axis[Annotated[int, Field(ge=1, le=1024, strict=True)]] = Field(
        default=[1], description="Threads per client."
    )
    cache: Axis[Literal["cold", "any"]] = Field(default=["any"], description="State of the caches that a cell claims.")
    clients: Axis[Annotated[int, Field(ge=1, le=256, strict=True)]] = Field(
        default=[1], description="Clients that run at once."
    )
    degraded: Degraded = Field(default_factory=Degraded, description="Run with storage hosts killed.")


KINDS = ("fio", "dd", "iozone", "metadata")


class Workload(Model):
    """One workload: exactly one kind."""

    name: str | None = Field(
        default=None, min_length=1, max_length=80, description="Name in tables; default: made from the axes."
    )
    fio: FioWorkload | None = Field(default=None, description="A matrix of fio jobs.")
    dd: DdWorkload | None = Field(default=None, description="Whole files copied with dd, or put and got.")
    iozone: IozoneWorkload | None = Field(default=None, description="IOzone, where installed.")
    metadata: MetadataWorkload | None = Field(
        default=None, description="Creating, finding, renaming, listing, removing files."
    )

    @model_validator(mode="after")
    def _one_kind(self) -> Workload:
        given = [kind for kind in KINDS if getattr(self, kind) is not None]
        if not given:
            raise ValueError(f"a workload needs its kind; known: {', '.join(KINDS)}")
        if len(given) > 1:
            raise ValueError(f"a workload has one kind, not {' and '.join(given)}; write one list item for each")
        return self

    @property
    def spec(self) -> FioWorkload | DdWorkload | IozoneWorkload | MetadataWorkload:
        """The one kind that is given."""
        found = self.fio or self.dd or self.iozone or self.metadata
        assert found is not None
        return found
