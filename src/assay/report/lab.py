"""Rows of the report about the lab: its shape, what it can do without any file system, and hosts lost on purpose."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping, Sequence
from typing import TYPE_CHECKING, Any

import polars as pl
from pydantic import ValidationError

from assay.campaign.bounds import layout_of
from assay.model.lab import Lab
from assay.model.units import format_bytes, format_seconds
from assay.report.format import number

if TYPE_CHECKING:
    from assay.ledger.queries import StudyData
    from assay.model.baseline import Baselines
    from assay.model.evidence import AttemptEvidence

Row = dict[str, Any]


def has_lab(data: StudyData) -> bool:
    """Whether anything of the study ran on hosts of a lab or on mounts that were there before."""
    return (
        data.baselines is not None
        or data.lab.kind != "local"
        or any(layout_of(c.system) is not None for c in data.candidates)
    )


def gigabits(bytes_per_second: float) -> str:
    """Gbit/s (10^9 bits per second), without the unit."""
    return number(bytes_per_second * 8e-9)


def shape_rows(data: StudyData) -> list[tuple[str, str]]:
    """The lab in words."""
    try:
        lab = Lab.model_validate({"kind": data.lab.kind, **data.lab.shape})
    except ValidationError:  # written by another version of Assay
        return [("shape", str(data.lab.shape))]
    if lab.kind == "existing":
        declared = {c.get("label") or c["system"]: c.get("mount") for c in data.study.declaration.get("candidates", [])}
        mounts = ", ".join(f"{label} at {mount}" for label, mount in declared.items() if mount)
        return [("kind", "existing: file systems that were mounted already"), ("mounts", mounts or "–")]
    network, disk = lab.network, lab.disk
    links = "not shaped" if network.bandwidth is None else f"{network.bandwidth * 8e-9:g} Gbit/s in each direction"
    extra = [f"{1e3 * network.delay:g} ms added delay"] if network.delay else []
    extra += [f"{100 * network.loss:g} % loss"] if network.loss else []
    size = format_bytes(disk.size) if disk.size else "sized by the data set"
    made = "devices " + ", ".join(disk.devices) if disk.devices else f"loop devices on {disk.fill or 'sparse'} files"
    limits = [f"{lab.limits.cpus:g} cores"] if lab.limits.cpus else []
    limits += [f"{format_bytes(lab.limits.memory)} of memory"] if lab.limits.memory else []
    return [
        ("storage hosts", f"{lab.hosts} for each candidate that is deployed on hosts"),
        ("client hosts", str(lab.clients)),
        ("link of each host", ", ".join([links, *extra])),
        ("disks of a storage host", f"{disk.per_host}, {size}, {made}"),
        ("limits of each host", ", ".join(limits) or "none: all hosts share this machine"),
    ]


def baseline_rows(found: Baselines | None) -> Row | None:
    """The baselines, ready for the page; None when none were measured."""
    if found is None:
        return None
    return {
        "took": format_seconds(found.seconds),
        "matrix": _matrix(found),
        "sums": [
            {"what": f"{words} {client}", "gbit": gigabits(rate), "mb": number(rate * 1e-6)}
            for words, sums in (
                ("all storage hosts to", found.all_to_client_bytes_per_second),
                ("all storage hosts from", found.client_to_all_bytes_per_second),
            )
            for client, rate in sums.items()
        ],
        "disks": [
            {
                "disk": f"{d.host} disk {d.disk}",
                "read": number(d.read_bytes_per_second * 1e-6),
                "write": number(d.write_bytes_per_second * 1e-6),
            }
            for d in found.disks
        ],
        "hosts": _hosts(found),
        "problems": found.problems,
    }


def _matrix(found: Baselines) -> Row | None:
    """Gbit/s from row to column; ``share`` is that of the fastest link, for the shading."""
    if not found.links:
        return None
    hosts = list(dict.fromkeys(h for link in found.links for h in (link.source, link.target)))
    known = {(link.source, link.target): link for link in found.links}
    fastest = max(link.bytes_per_second for link in found.links) or 1.0
    rows = []
    for source in hosts:
        cells: list[Row | None] = []
        for target in hosts:
            link = known.get((source, target))
            text = {"gbit": gigabits(link.bytes_per_second), "retransmits": link.retransmits} if link else None
            cells.append(text and {**text, "percent": round(100 * (link.bytes_per_second if link else 0) / fastest)})
        rows.append({"host": source, "cells": cells})
    return {"hosts": hosts, "rows": rows}


def _hosts(found: Baselines) -> list[Row]:
    names = dict.fromkeys([*found.clock_offset_seconds, *found.round_trip_seconds, *found.idle_cpu_busy_share])

    def of(values: Mapping[str, float], name: str, factor: float) -> str:
        return number(values[name] * factor) if name in values else "–"

    return [
        {
            "host": name,
            "clock": of(found.clock_offset_seconds, name, 1e3),
            "trip": of(found.round_trip_seconds, name, 1e3),
            "cpu": of(found.idle_cpu_busy_share, name, 1e2),
        }
        for name in names
    ]


def lab_table(found: Baselines | None) -> pl.DataFrame:
    """The baselines as a table: one row per figure with its unit."""
    rows: list[tuple[str, str, str | None, float, str]] = []
    if found is not None:
        rows += [("link", x.source, x.target, x.bytes_per_second * 1e-6, "MB/s") for x in found.links]
        rows += [("link-retransmits", x.source, x.target, float(x.retransmits), "1") for x in found.links]
        rows += [("all-to-client", "*", c, v * 1e-6, "MB/s") for c, v in found.all_to_client_bytes_per_second.items()]
        rows += [("client-to-all", c, "*", v * 1e-6, "MB/s") for c, v in found.client_to_all_bytes_per_second.items()]
        for d in found.disks:
            rows.append(("disk-read", d.host, str(d.disk), d.read_bytes_per_second * 1e-6, "MB/s"))
            rows.append(("disk-write", d.host, str(d.disk), d.write_bytes_per_second * 1e-6, "MB/s"))
        rows += [("clock-offset", h, None, v * 1e3, "ms") for h, v in found.clock_offset_seconds.items()]
        rows += [("round-trip", h, None, v * 1e3, "ms") for h, v in found.round_trip_seconds.items()]
        rows += [("idle-cpu-busy", h, None, v * 1e2, "%") for h, v in found.idle_cpu_busy_share.items()]
    text = pl.String
    schema = {"what": text, "source": text, "target": text, "value": pl.Float64, "unit": text}
    return pl.DataFrame(rows, schema=schema, orient="row")


def _degraded(data: StudyData) -> Iterator[tuple[Row, AttemptEvidence]]:
    points = {w.id: w for w in data.workloads if int(w.point.get("degraded_hosts") or 0)}
    for row in data.attempts.iter_rows(named=True):
        if row["workload_id"] in points:
            evidence = data.evidence(row["id"])
            if evidence.degraded is not None:
                yield {**row, "workload": points[row["workload_id"]].name}, evidence


def degraded_table(data: StudyData) -> pl.DataFrame:
    """One row per attempt with hosts lost on purpose, by point, candidate and block; times in seconds, null: not reached."""
    candidates = {c.label: c.position for c in data.candidates}
    points = {w.name: w.position for w in data.workloads}
    rows = [
        {
            "workload": row["workload"],
            "candidate": row["candidate"],
            "block": row["block"],
            "try": row["try_number"],
            "status": row["status"],
            "verdict": row["verdict"],
            "killed": " ".join(lost.killed),
            "killed_s": lost.killed_seconds,
            "data_right_degraded": lost.verified_degraded,
            "restarted_s": lost.restarted_seconds,
            "healed_s": lost.healed_seconds,
            "data_right_healed": lost.verified_healed,
            "problems": "; ".join(lost.problems),
            "attempt_id": row["id"],
        }
        for row, evidence in _degraded(data)
        if (lost := evidence.degraded) is not None
    ]
    rows.sort(key=lambda row: (points[row["workload"]], candidates[row["candidate"]], row["block"], row["try"]))
    text, whole, real, yes = pl.String, pl.Int64, pl.Float64, pl.Boolean
    return pl.DataFrame(
        rows,
        schema={
            "workload": text, "candidate": text, "block": whole, "try": whole, "status": text, "verdict": text,
            "killed": text, "killed_s": real, "data_right_degraded": yes, "restarted_s": real, "healed_s": real,
            "data_right_healed": yes, "problems": text, "attempt_id": text,
        },
    )  # fmt: skip


def degraded_rows(table: pl.DataFrame) -> list[Row]:
    """Degraded attempts per candidate and point, from :func:`degraded_table`."""
    found = []
    for (workload, candidate), part in table.group_by("workload", "candidate", maintain_order=True):
        found.append(
            {
                "workload": workload,
                "candidate": candidate,
                "attempts": len(part),
                "killed": " / ".join(dict.fromkeys(part["killed"])),
                "right_degraded": _counted(part["data_right_degraded"].to_list()),
                "right_healed": _counted(part["data_right_healed"].to_list()),
                "restarted": _spread(part["restarted_s"].to_list()),
                "healed": _spread(part["healed_s"].to_list()),
                "bad": False in part["data_right_degraded"] or False in part["data_right_healed"],
                "problems": list(dict.fromkeys(p for p in part["problems"] if p)),
            }
        )
    return found


def _counted(values: Sequence[bool | None]) -> str:
    known = [v for v in values if v is not None]
    return f"{sum(known)} of {len(values)}" if known else "not verified"


def _spread(values: Sequence[float | None]) -> str:
    """``3.6 (2.4 to 5.0)``: median, smallest and largest; how many were not reached."""
    known = [v for v in values if v is not None]
    missing = len(values) - len(known)
    if not known:
        return "not reached"
    text = f"{number(statistics.median(known), 2)} ({number(min(known), 2)} to {number(max(known), 2)})"
    return f"{text}; {missing} not reached" if missing else text
