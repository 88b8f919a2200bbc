"""The study schema: one declared experiment.

Every field that may vary takes one value or a list; a list is an axis and the cells are the product of all axes
(the idea is CBT's). Field descriptions are the study reference in docs/study.md, which is generated from here.
"""

from __future__ import annotations

import re
from typing import Annotated, Literal

from pydantic import BeforeValidator, Field, model_validator

from assay.model.fields import Axis, Fraction, Model, Scalar, Seconds
from assay.model.lab import Lab
from assay.model.workload import Workload


def _parse_candidate(value: object) -> object:
    if value is None:  # "- null" is YAML's null, and the null target is meant
        value = "null"
    if not isinstance(value, str | dict):
        raise ValueError(f"{value!r} is not a candidate; write for example local/xfs or path:/mnt/nas")
    return {"system": value} if isinstance(value, str) else value


class Candidate(Model):
    """System, layout and tuning; written short as a string ``system/layout[/variant]`` or ``path:DIR``."""

    system: str = Field(
        max_length=200, description="For example glusterfs/rain-4-2, local/xfs, tmpfs, null, path:/mnt/nas."
    )
    label: str | None = Field(
        default=None, min_length=1, max_length=60, description="Name in tables; default: the system."
    )
    mount: str | None = Field(
        default=None,
        description="An existing mount of this system: it is used in a subdirectory of its own, nothing is deployed.",
    )
    tuning: dict[str, Axis[Scalar]] = Field(
        default_factory=dict,
        description="Options of the system, e.g. mount: noatime or mkfs: -m reflink=0; a list is an axis.",
    )

    @model_validator(mode="after")
    def _system_is_wellformed(self) -> Candidate:
        if not self.system.startswith("path:") and not re.fullmatch(r"[a-z0-9]+(/[a-z0-9.-]+){0,2}", self.system):
            raise ValueError(
                f"{self.system!r} is not a candidate; write system/layout[/variant] such as local/xfs, or path:DIR"
            )
        if self.mount is not None and not self.mount.startswith("/"):
            raise ValueError(f"mount {self.mount!r} is relative; write the absolute directory")
        return self


class Blocks(Model):
    """How many blocks are run."""

    pilot: int = Field(default=5, ge=2, strict=True, description="Blocks before the number of blocks is computed.")
    minimum: int = Field(default=5, ge=1, strict=True, description="Never fewer blocks than this.")
    maximum: int = Field(default=30, ge=1, strict=True, description="Never more blocks than this.")

    @model_validator(mode="after")
    def _ordered(self) -> Blocks:
        if self.maximum < max(self.minimum, self.pilot):
            raise ValueError(f"maximum {self.maximum} is below minimum {self.minimum} or pilot {self.pilot}")
        return self


Metric = Literal["bandwidth", "iops", "latency-mean", "latency-p50", "latency-p95", "latency-p99"]


class Measure(Model):
    """Measurement rules, fixed before the first attempt."""

    metric: Metric = Field(default="bandwidth", description="What candidates are compared by.")
    blocks: Blocks = Field(default_factory=Blocks, description="How many blocks are run.")
    half_width: Fraction = Field(default=0.05, gt=0, description="Wanted relative half-width of each cell's interval.")
    confidence: Fraction = Field(default=0.95, gt=0.5, lt=1, description="Confidence of intervals.")
    margin: Fraction = Field(default=0.05, gt=0, description="Differences below this are called equivalent.")
    correction: Literal["holm", "benjamini-hochberg"] = Field(
        default="holm", description="Multiple-comparison control over the matrix."
    )
    budget: Annotated[Seconds, Field(gt=0)] | None = Field(
        default=None, description="Time for the whole study; no new block starts that would exceed it."
    )
    seed: int | None = Field(
        default=None,
        ge=0,
        lt=1 << 63,
        strict=True,
        description="Seed of block orders and data; default: drawn and stored.",
    )
    aa: Literal["shared", "own", "none"] = Field(
        default="shared",
        description="A/A pair: the first candidate a second time under another label, on the same deployment (shared), "
        "on a deployment of its own (own), or not at all.",
    )
    null_target: bool = Field(default=True, description="Run fio's null engine as harness floor.")
    retries: int = Field(
        default=1, ge=0, le=5, strict=True, description="Further tries of a void or failed attempt within its block."
    )
    deadline: Annotated[Seconds, Field(gt=0)] = Field(
        default=120.0,
        description="Time beyond the runtime after which an attempt is killed and counted as failed.",
    )
    ram_factor: float = Field(
        default=2.0,
        gt=0,
        allow_inf_nan=False,
        description="Check W1: data set must be at least this many times the memory when buffered and not proven cold.",
    )


class Study(Model):
    """One declared experiment."""

    study: str = Field(
        min_length=1, max_length=80, pattern=r"^[A-Za-z0-9][A-Za-z0-9._-]*$", description="Name of the study."
    )
    question: str = Field(default="", description="What the study is to answer; shown on page one.")
    source: str = Field(default="", description="Where the design comes from, e.g. a paper's table.")
    lab: Lab = Field(default_factory=Lab, description="Hosts, disks and network.")
    candidates: list[Annotated[Candidate, BeforeValidator(_parse_candidate)]] = Field(
        min_length=1, description="What is compared."
    )
    workloads: list[Workload] = Field(min_length=1, description="What is done to each candidate.")
    measure: Measure = Field(default_factory=Measure, description="Measurement rules.")

    @model_validator(mode="after")
    def _existing_names_mounts(self) -> Study:
        if self.lab.kind == "existing":
            for candidate in self.candidates:
                name = candidate.system
                if candidate.mount is None and not name.startswith("path:") and name not in ("null", "tmpfs"):
                    raise ValueError(
                        f"lab: existing deploys nothing; give {name} its mount, e.g. mount: /mnt/{name.split('/')[0]}"
                    )
        return self
