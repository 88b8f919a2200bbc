"""Configuration and keys of a Ceph cluster, pure: two profiles, a candidate's own options, and the files' text."""

from __future__ import annotations

import base64
import os
import re
import struct
import time
from collections.abc import Mapping
from typing import Any

from assay.model.layout import Layout
from assay.systems.base import AdapterError

SECTIONS = ("global", "mon", "mgr", "mds", "osd", "client")
PROFILES = ("fast", "stock")
_OPTION = re.compile(r"[a-z][a-z0-9_]*")

Sections = dict[str, dict[str, str]]

#: What a lab cannot do without, whatever the profile.
_LAB: Sections = {
    "global": {
        "auth_allow_insecure_global_id_reclaim": "false",
        "osd_pool_default_pg_autoscale_mode": "off",  # pg_num must not change while it is measured
        "mon_allow_pool_size_one": "true",
        "mon_warn_on_pool_no_redundancy": "false",
        "mon_max_pg_per_osd": "2000",
        "mon_data_avail_warn": "2",  # the disk below is this machine's, and not the cluster's to warn of
        "mon_data_avail_crit": "1",
    },
    "osd": {
        "bluestore_fsck_on_mkfs": "false",
        "bdev_enable_discard": "true",  # what is deleted gives its room back to this machine
        "bdev_async_discard": "true",
    },
}

#: Up sooner, aware of lost hosts sooner, recovering at full speed, small: a third of the memory (facts: osd_memory_target
#: steers nothing where Ceph is linked with glibc's malloc, and cannot go below 896 MiB).
_FAST: Sections = {
    "global": {
        "osd_heartbeat_interval": "1",  # default 6: a host that is silent is noticed after 6 s instead of 29 s
        "osd_heartbeat_grace": "5",  # default 20
        "osd_recovery_sleep": "0",
        "osd_recovery_sleep_hdd": "0",  # default 0.1, and every loop device counts as hdd
        "osd_max_backfills": "8",  # default 1
        "osd_recovery_max_active": "16",
        "osd_delete_sleep_hdd": "0",
        "mgr_stats_period": "1",  # default 5: how old the states of placement groups are
        "mgr_tick_period": "1",
        "mon_osd_crush_smoke_test": "false",
    },
    "mon": {
        "paxos_propose_interval": "0.05",  # default 1: every change of a map waits for it
        "paxos_min_wait": "0.01",
        "mon_osd_cache_size": "20",
        "rocksdb_cache_size": "16777216",
    },
    "mgr": {
        # 100 MiB of Python that nothing here asks; the balancer would falsify CRUSH's placement
        "mgr_disabled_modules": "crash,devicehealth,orchestrator,pg_autoscaler,progress,rbd_support,telemetry,volumes",
    },
    "mds": {"mds_cache_memory_limit": "134217728"},
    "osd": {
        "osd_memory_target": "939524096",
        "bluestore_cache_autotune": "false",
        "bluestore_cache_size": "67108864",
        "bluestore_rocksdb_options": "compression=kNoCompression,max_write_buffer_number=4,min_write_buffer_number_to_merge=1,"
        "recycle_log_file_num=4,write_buffer_size=16777216,writable_file_max_buffer_size=0,compaction_readahead_size=2097152,"
        "max_background_compactions=2,max_total_wal_size=67108864",
        "osd_op_num_shards": "2",
        "osd_op_num_threads_per_shard": "1",
        "ms_async_op_threads": "2",
        "osd_min_pg_log_entries": "50",
        "osd_max_pg_log_entries": "200",
        "osd_pg_log_dups_tracked": "50",
    },
    "client": {
        # default 0, for ever: what is lost must be told. ETIMEDOUT, after a host's loss had time to be noticed
        "rados_osd_op_timeout": "30",
        "rados_mon_op_timeout": "30",
    },
}


def check_options(tuning: Mapping[str, Any]) -> None:
    """Raises AdapterError for a profile or the name of an option that cannot be right; Ceph itself judges the rest."""
    if (profile := tuning.get("profile", "fast")) not in PROFILES:
        raise AdapterError(f"ceph has no profile {profile!r}; known: {', '.join(PROFILES)}")
    for name in tuning:
        section, dot, option = name.partition(".")
        if dot and (section not in SECTIONS or not _OPTION.fullmatch(option)):
            raise AdapterError(
                f"{name!r} is no option of Ceph; write for example osd.osd_op_num_shards or client.client_oc"
            )


def own_options(tuning: Mapping[str, Any]) -> list[tuple[str, str, str]]:
    """Section, option and value of what a candidate's tuning sets (``osd.osd_op_num_shards: 4``)."""
    found = []
    for name, value in tuning.items():
        section, dot, option = name.partition(".")
        if dot:
            found.append((section, option, str(value).lower() if isinstance(value, bool) else str(value)))
    return found


def sections(tuning: Mapping[str, Any], layout: Layout, hosts: int) -> Sections:
    """The configuration but for what names one cluster (see :func:`render`); a candidate's own options win."""
    made: Sections = {name: {} for name in SECTIONS}
    for source in (_LAB, _FAST if tuning.get("profile", "fast") == "fast" else {}):
        for name, options in source.items():
            made[name] |= options
    if hosts < 3:
        made["global"]["osd_pool_default_size"] = str(hosts)  # it warns of too few OSDs
    if hosts - layout.tolerates < 2 or hosts < 3:
        # default 2: the only host that is left could never report the others
        made["global"]["mon_osd_min_down_reporters"] = "1"
    for name, option, value in own_options(tuning):
        for options in made.values():  # a more specific section would win over the candidate's
            options.pop(option, None)
        made[name][option] = value
    return {name: options for name, options in made.items() if options}


def render(made: Sections, fsid: str, monitor: str, network: str) -> str:
    """ceph.conf of a cluster with one monitor at an address."""
    own = {
        "fsid": fsid,
        "mon_host": f"[v2:{monitor}:3300,v1:{monitor}:6789]",
        "public_network": network,
    }
    lines = []
    for name, options in {**made, "global": own | made.get("global", {})}.items():
        lines += [f"[{name}]", *(f"{option} = {value}" for option, value in options.items()), ""]
    return "\n".join(lines)


# --- cephx --------------------------------------------------------------------------------------------------------------


def new_key() -> str:
    """A secret of cephx: type 1 (AES), seconds and nanoseconds of its making, length, 16 bytes (auth/Crypto.cc)."""
    return base64.b64encode(struct.pack("<hiih", 1, int(time.time()), 0, 16) + os.urandom(16)).decode()


def keyring(entries: Mapping[str, tuple[str, Mapping[str, str]]]) -> str:
    """Text of a keyring: name of the entity -> its key and what it may do (service -> capability)."""
    lines = []
    for name, (key, allowed) in entries.items():
        lines += [f"[{name}]", f"\tkey = {key}", *(f'\tcaps {service} = "{cap}"' for service, cap in allowed.items())]
    return "\n".join([*lines, ""])


# --- pools --------------------------------------------------------------------------------------------------------------

_GROUPS_PER_OSD = 32


def default_pg_num(osds: int, width: int) -> int:
    """Placement groups of the data pool: the power of two nearest to 32 parts of groups on each OSD, 16 to 512."""
    wanted = _GROUPS_PER_OSD * osds / width
    power = 1 << max(0, round(wanted).bit_length() - 1)
    if wanted - power > 2 * power - wanted:
        power *= 2
    return min(512, max(16, power))


def metadata_copies(layout: Layout, hosts: int) -> int:
    """Copies of the metadata: three as Ceph has it, and as many more as hosts may be lost with the data surviving."""
    return min(hosts, max(3, layout.tolerates + 1))
