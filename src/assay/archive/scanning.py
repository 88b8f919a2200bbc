"""What a scan saw as a histogram: exact, or with the error bars of a sample."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from assay.archive import ArchiveError
from assay.archive.histogram import Bucket, Histogram, SideTable, make


def from_scan(seen: Mapping[str, Any], name: str, facts: Mapping[str, str]) -> Histogram:
    """The histogram of :func:`assay._core.scan_tree`. Raises ArchiveError when it saw no file.

    In a sampled scan every name was counted, a share p of the files was looked at. Counts are scaled by names / looked-at
    (files that vanished or could not be read are taken for typical), volumes likewise; standard errors are those of
    drawing without replacement, for a count N sqrt(q (1 - q) / n (1 - p)) and for a volume by the spread of the sizes.
    """
    names, stated = int(seen["names"]), int(seen["stated"])
    if names == 0 or sum(seen["counts"]) == 0:
        raise ArchiveError(f"{name}: no regular files to count")
    share = stated / names
    exact = stated + int(seen["vanished"]) + int(seen["errors"]) >= names or share >= 1
    scale = 1.0 if exact else names / stated
    top = max(k for k, n in enumerate(seen["counts"]) if n)
    rows = []
    for k in range(top + 1):
        count, volume = int(seen["counts"][k]), float(seen["bytes"][k])
        low, high = (0.0, 1.0) if k == 0 else (2.0 ** (k - 1), 2.0**k)
        if exact:
            rows.append(Bucket(low, high, count, volume))
            continue
        rest = max(0.0, 1 - share)
        q = count / stated
        count_se = names * math.sqrt(q * (1 - q) / stated * rest)
        variance = max(0.0, float(seen["squares"][k]) / stated - (volume / stated) ** 2)
        bytes_se = names * math.sqrt(variance / stated * rest)
        rows.append(Bucket(low, high, count * scale, volume * scale, count_se, bytes_se))
    told = {
        **facts,
        "files": str(sum(seen["counts"])) if exact else f"{names} names, {stated} looked at",
        "directories": str(seen["directories"]),
        "zero_byte_files": f"{rows[0].count:.0f}",
        "hard_links_not_counted_again": str(seen["duplicate_links"]),
        "symlinks": str(seen["symlinks"]),
        "special_files": str(seen["special"]),
        "unreadable": str(seen["errors"]),
        "vanished": str(seen["vanished"]),
        "allocated_bytes": str(round(seen["allocated"] * scale)),
        "largest_file_bytes": str(seen["largest"]),
        "largest_directory_files": str(seen["largest_directory"]),
    }
    if seen["weighted_links"]:
        told["hard_links_weighted"] = f"{seen['weighted_links']} names counted with probability 1/links"
    histogram = make(name, rows, told)
    return Histogram(histogram.name, histogram.buckets, histogram.facts, _tables(seen, scale))


def _tables(seen: Mapping[str, Any], scale: float) -> tuple[SideTable, ...]:
    depth = seen["depth"]
    return (
        SideTable("directories by their number of files", "files", _powers(seen["per_directory"], None, 1.0)),
        SideTable(
            "files by depth below the root", "depth",
            tuple((float(k), k + 1.0, float(depth[k]), None) for k in range(_top(depth) + 1)),
        ),
        SideTable("files by days since modification", "days", _powers(seen["age_counts"], seen["age_bytes"], scale)),
    )  # fmt: skip


def _powers(
    counts: Sequence[int], volumes: Sequence[int] | None, scale: float
) -> tuple[tuple[float, float, float, float | None], ...]:
    return tuple(
        (0.0 if k == 0 else 2.0 ** (k - 1), 2.0**k, counts[k] * scale, None if volumes is None else volumes[k] * scale)
        for k in range(_top(counts) + 1)
    )


def _top(counts: Sequence[int]) -> int:
    return max((k for k, n in enumerate(counts) if n), default=0)
