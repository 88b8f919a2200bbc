"""What a host is made of and how it is doing: kept with every attempt, because a number without it means little."""

from __future__ import annotations

import os
import platform
from functools import lru_cache
from pathlib import Path
from typing import Any

from assay.lab import remote
from assay.model.evidence import HostState

_SYSCTLS = (
    "vm/dirty_ratio", "vm/dirty_background_ratio", "vm/dirty_bytes", "vm/dirty_expire_centisecs",
    "vm/dirty_writeback_centisecs", "vm/swappiness", "vm/vfs_cache_pressure", "vm/min_free_kbytes", "fs/aio-max-nr",
    "fs/file-max", "kernel/numa_balancing", "net/core/rmem_max", "net/core/wmem_max", "net/ipv4/tcp_congestion_control",
)  # fmt: skip


def _read(path: str) -> str | None:
    try:
        return Path(path).read_text().strip()
    except OSError:
        return None


def memory_bytes() -> int:
    """Installed memory of this host."""
    return remote.meminfo()["MemTotal"]


@lru_cache(maxsize=1)
def host_facts() -> dict[str, Any]:
    """Hardware and kernel of this host: what cannot change while Assay runs."""
    cpuinfo = _read("/proc/cpuinfo") or ""
    model = next((line.split(":", 1)[1].strip() for line in cpuinfo.splitlines() if line.startswith("model name")), "")
    release = dict(
        line.split("=", 1) for line in (_read("/etc/os-release") or "").splitlines() if "=" in line and line[0] != "#"
    )
    return {
        "kernel": platform.release(),
        "architecture": platform.machine(),
        "cpu": model,
        "cpus": os.cpu_count() or 0,
        "memory_bytes": memory_bytes(),
        "distribution": release.get("PRETTY_NAME", "").strip('"'),
        "hypervisor": "hypervisor" in cpuinfo,
    }


def environment() -> dict[str, Any]:
    """What may change between attempts and matters: sysctls, governor, transparent huge pages, load, uptime."""
    governors = {
        p.read_text().strip() for p in Path("/sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor")
    }
    return {
        **host_facts(),
        "sysctl": {name.replace("/", "."): value for name in _SYSCTLS if (value := _read(f"/proc/sys/{name}"))},
        "governor": ",".join(sorted(governors)) or "none exposed",
        "transparent_hugepage": _read("/sys/kernel/mm/transparent_hugepage/enabled") or "",
        "clocksource": _read("/sys/devices/system/clocksource/clocksource0/current_clocksource") or "",
        "uptime_seconds": float((_read("/proc/uptime") or "0").split()[0]),
    }


def host_state(now: dict[str, float], earlier: dict[str, float] | None = None, seconds: float = 0.0) -> HostState:
    """A host's state from its :func:`assay.lab.remote.load`; with an earlier one also the busy share since then."""
    share = None
    if earlier is not None:
        total = now["total"] - earlier["total"]
        share = (now["busy"] - earlier["busy"]) / total if total > 0 else None
    return HostState(
        cpu_busy_share=share,
        over_seconds=seconds,
        cached_bytes=int(now["cached_bytes"]),
        dirty_bytes=int(now["dirty_bytes"]),
        memory_bytes=int(now["memory_bytes"]),
        load_average=now["load_average"],
        clock_offset_seconds=0.0,  # all hosts of a lab on one machine share its clock
    )
