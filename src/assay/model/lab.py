"""What a study says of its lab: hosts, disks and network that candidates are deployed on."""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, Field, PlainSerializer, WithJsonSchema, model_validator

from assay.model import units
from assay.model.fields import Bytes, Fraction, Model, Seconds


class Disk(Model):
    """The loop-backed disk of each local candidate and of each storage host."""

    size: Annotated[Bytes, Field(ge=300 << 20)] | None = Field(
        default=None, description="Size of each disk; default: half as much again as the data set, and 512 MiB."
    )
    fill: Literal["written", "allocated", "sparse"] | None = Field(
        default=None,
        description="How the backing file is made: every byte written once, so that no attempt pays for first writes; "
        "space allocated but unwritten; or sparse, which may run out of space while running. Default: written for local "
        "candidates, sparse for the disks of storage hosts.",
    )
    directory: str | None = Field(
        default=None, description="Where the backing files lie; default: Assay's data directory."
    )
    per_host: int = Field(default=1, ge=1, le=16, strict=True, description="Disks of each storage host.")
    devices: list[str] = Field(
        default=[],
        description="Block devices handed over by name instead of backing files, one per disk of a storage host; a device "
        "with a signature or a mount is refused.",
    )


def _parse_bandwidth(value: object) -> int | None:
    if value in (None, "unlimited"):
        return None
    rate = units.parse_rate(value)
    if rate <= 0:
        raise ValueError(f"{value!r} is no bandwidth; write for example 1Gbit or unlimited")
    return rate


Bandwidth = Annotated[
    int | None,
    BeforeValidator(_parse_bandwidth),
    PlainSerializer(lambda rate: None if rate is None else f"{rate}B/s", return_type=str | None),
    WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "null"}], "examples": ["1Gbit"], "description": "rate or unlimited"}
    ),
]


class Network(Model):
    """Every host's link, the clients' too; both directions have the same figures."""

    bandwidth: Bandwidth = Field(
        default=None, description="Bandwidth of each link and direction, e.g. 1Gbit; default: unlimited."
    )
    delay: Annotated[Seconds, Field(ge=0)] = Field(
        default=0.0, description="Added one-way delay of each link; needs the kernel's netem."
    )
    loss: Annotated[Fraction, Field(ge=0, lt=1)] = Field(
        default=0.0, description="Share of packets lost on each link; needs the kernel's netem."
    )


class Limits(Model):
    """What each host of the lab may use of the machine; needs cgroups."""

    cpus: Annotated[float, Field(gt=0, allow_inf_nan=False)] | None = Field(
        default=None, description="Cores of each host, e.g. 0.5; default: all that the machine has."
    )
    memory: Annotated[Bytes, Field(ge=64 << 20)] | None = Field(
        default=None, description="Memory of each host, page cache included; default: all that the machine has."
    )


class Lab(Model):
    """Hosts, disks and network that candidates are deployed on."""

    kind: Literal["local", "existing"] = Field(
        default="local",
        description="local: hosts as namespaces of this machine; existing: file systems that are mounted already (each "
        "candidate names its mount).",
    )
    hosts: int = Field(
        default=6, ge=1, le=64, strict=True, description="Storage hosts of each candidate that is deployed on hosts."
    )
    clients: int = Field(default=1, ge=1, le=32, strict=True, description="Client hosts.")
    network: Network = Field(default_factory=Network, description="Links of the hosts.")
    limits: Limits = Field(default_factory=Limits, description="Limits of each host.")
    disk: Disk = Field(default_factory=Disk, description="The disk of each candidate that Assay deploys.")
    baselines: bool = Field(
        default=True,
        description="Measure the lab before the first attempt: network between hosts, raw disks, clocks, idle CPU.",
    )

    @model_validator(mode="before")
    @classmethod
    def _short(cls, data: Any) -> Any:
        return {"kind": data} if isinstance(data, str) else data

    @model_validator(mode="after")
    def _enough_devices(self) -> Lab:
        if self.disk.devices and len(self.disk.devices) < self.hosts * self.disk.per_host:
            raise ValueError(
                f"{self.hosts} hosts with {self.disk.per_host} disks each need {self.hosts * self.disk.per_host} devices, "
                f"{len(self.disk.devices)} are named"
            )
        return self
