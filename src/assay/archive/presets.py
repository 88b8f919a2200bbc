"""Built-in profiles, dated and named by source. A 2020 tape archive has a mean size 28 times that of the archives of 2008:
none of these is "typical", and ``assay archive scan`` of the system to be replaced is always better."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cache
from importlib import resources
from typing import Any

from assay.archive import ArchiveError, fit
from assay.archive.fit import Profile
from assay.archive.histogram import from_csv
from assay.archive.panel import make_panel


@dataclass(frozen=True)
class Preset:
    """Histograms that ship with Assay and how they are fitted."""

    name: str
    date: str
    source: str
    files: tuple[str, ...]
    x_max: int | None = None  # bytes


PRESETS = {
    p.name: p
    for p in (
        Preset(
            "nersc-hpss-2020", "2020-10-16",
            "NERSC user archive (HPSS tape), 232.8 million files, 199 PB: the only real archive here; exact counts and bytes",
            ("nersc-hpss-20201016.csv",),
        ),
        Preset(
            "ornl-atlas1-2018", "2018-01-23",
            "OLCF Atlas1 (Lustre scratch, no archive), 333 million files, irregular fprof buckets split log-uniformly",
            ("ornl-atlas1-20180123.csv",),
        ),
        Preset(
            "nersc-cori-2019", "2019-01-15", "NERSC Cori scratch (Lustre, no archive), 1.18 billion files",
            ("nersc-cscratch-20190115.csv",),
        ),
        Preset(
            "reconstruction-2008", "2008",
            "RECONSTRUCTION, NOT DATA, of the four archives of PDSW'11 (arsc-nanu1, arsc-seau1, arsc-seau2, pnnl-nwfs): "
            "meets the paper's means and pooled fractions, the rest is assumption",
            tuple(f"RECONSTRUCTED-{n}.csv" for n in ("arsc-nanu1", "arsc-seau2", "arsc-seau1", "pnnl-nwfs")),
            x_max=2**32,
        ),
    )
}  # fmt: skip


@cache
def load(name: str) -> Profile:
    """A built-in profile, fitted anew from its histograms. Raises ArchiveError for an unknown name."""
    if name not in PRESETS:
        raise ArchiveError(f"no profile {name!r}: neither a file nor one of {', '.join(PRESETS)}")
    preset = PRESETS[name]
    data = resources.files("assay.archive").joinpath("data")
    histograms = [from_csv(data.joinpath(file).read_text(), file.removesuffix(".csv")) for file in preset.files]
    return fit.fit(make_panel(histograms, preset.x_max), name=name, source=preset.source, date=preset.date)


def catalogue() -> list[dict[str, Any]]:
    """Name, date, archives, mean size (upper edges, as the paper counts) and source of each."""
    rows = []
    for name, preset in PRESETS.items():
        profile = load(name)
        rows.append(
            {
                "name": name, "date": preset.date, "archives": len(preset.files), "source": preset.source,
                "mean_size_mib": profile.means()["median"]["upper"],
            }
        )  # fmt: skip
    return rows
