"""Histograms of other tools, and bad ones."""

from __future__ import annotations

import math

import numpy as np
import pytest

from assay.archive import ArchiveError, curves, fit, importers, panel
from assay.archive.histogram import Bucket, Histogram, from_csv, make, side_tables, to_csv
from assay.archive.scanning import from_scan

K = 1024

FSSTATS = """#Generic fsstats
skipped special files,0
histogram,file size
count,1000,items
average,12.0,KB
min,0,KB
max,100,KB
bucket min,bucket max,count,percent,cumulative pct,val count,percent,cumulative pct
0,2,500,0.5,0.5,400,0.1,0.1
2,4,300,0.3,0.8,900,0.2,0.3
64,128,200,0.2,1.0,18000,0.7,1.0

histogram,directory size (entries)
bucket min,bucket max,count,percent,cumulative pct,val count,percent,cumulative pct
0,2,5,1,1,5,1,1
"""
FPROF = """
Fileset Histogram

       Buckets        Num of Files         Size       %(Files)        %(Size)

    <= 4.00 KiB       1,000          2.00 MiB         50.00%          1.00%
    <= 8.00 KiB       600            3.50 MiB         30.00%          2.00%
    <= 1.00 MiB       400            90.00 MiB        20.00%         97.00%
    >  1.00 MiB       0              0 B               0.00%          0.00%

Directory Histogram
    <= 10             77                              100.00%
"""
ROBINHOOD = """type, count, 0, 1~31, 32~1K-, 1K~31K, 32K~1M-, 1M~31M, 32M~1G-, 1G~31G, 32G~1T-, +1T
file, 100, 10, 5, 5, 20, 30, 20, 10, 0, 0, 0
file, 10, 0, 0, 0, 10, 0, 0, 0, 0, 0, 0
"""
DWALK = "Range\tNumber\n[0~1024]\t7\n[1025~1048576]\t8\n[1048577~MAX]\t5\n"
GUFI = "None 3\n0 5\n10 7\n11 9\n"
S3 = '"b","k1","100"\n"b","k2","5000"\n'
S3_HEAD = (
    "Bucket,Key,VersionId,IsLatest,IsDeleteMarker,Size\nb,k,1,true,false,100\nb,k,0,false,false,7\nb,l,2,true,true,\n"
)


@pytest.mark.parametrize(
    ("form", "text", "files", "first", "last"),
    [
        ("fsstats", FSSTATS, 1000, (0, 2 * K, 500), (64 * K, 128 * K, 200)),
        ("fprof", FPROF, 2000, (0, 4 * K, 1000), (K * K, math.inf, 0)),
        ("robinhood", ROBINHOOD, 110, (0, 1, 10), (2**40, math.inf, 0)),
        ("dwalk", DWALK, 20, (0, K, 7), (K * K, math.inf, 5)),
        ("gufi", GUFI, 24, (0, 1, 3), (2048, 4096, 9)),
        ("sizes", "0\n1\n100\n4096\n", 4, (0, 1, 1), (4096, 8192, 1)),
        ("sizes", "d d0\nf 100 d0/a\nf 5000 d0/b\n", 2, (0, 1, 0), (4096, 8192, 1)),
        ("s3", S3, 2, (0, 1, 0), (4096, 8192, 1)),
        ("s3", S3_HEAD, 1, (0, 1, 0), (64, 128, 1)),
    ],
)
def test_importers(form: str, text: str, files: float, first: tuple, last: tuple) -> None:
    assert importers.recognise(text) == form
    h = importers.read(text, "x")
    assert h.files == files
    for bucket, want in ((h.buckets[0], first), (h.buckets[-1], last)):
        assert (bucket.low, bucket.high, bucket.count) == want


def test_volumes_come_along() -> None:
    assert importers.read(FSSTATS, "x").volume == (400 + 900 + 18000) * K
    assert importers.read(FPROF, "x").volume == pytest.approx(95.5 * K * K)
    assert importers.read(DWALK, "x").volume is None


def test_csv_there_and_back() -> None:
    h = importers.read(FSSTATS, "x")
    again = from_csv(to_csv(h), "y")
    assert again.buckets == h.buckets
    assert again.name == "x"


def test_a_scan_gives_tables_and_a_sample_gives_errors() -> None:
    counts, sizes = [0] * 65, [0] * 65
    counts[0], counts[11], sizes[11] = 2, 8, 8 * 1500
    seen = {
        "names": 1000, "stated": 10, "directories": 3, "symlinks": 0, "special": 0, "duplicate_links": 0,
        "weighted_links": 0, "vanished": 0, "errors": 0, "counts": counts, "bytes": sizes,
        "squares": [0.0] * 11 + [8 * 1500.0**2] + [0.0] * 53, "allocated": 40960, "largest": 1500, "per_directory": [0, 1, 2],
        "largest_directory": 3, "depth": [0, 10], "age_counts": [10], "age_bytes": [12000],
    }  # fmt: skip
    h = from_scan(seen, "x", {})
    assert h.files == 1000
    bucket = h.buckets[11]
    assert bucket.count == 800
    assert bucket.count_se == pytest.approx(1000 * math.sqrt(0.8 * 0.2 / 10 * 0.99))
    again = from_csv(to_csv(h), "y")
    assert again.buckets[11].count_se == pytest.approx(bucket.count_se)
    assert next(t.title for t in side_tables(to_csv(h))) == "directories by their number of files"
    whole = from_scan({**seen, "names": 10}, "x", {})
    assert whole.buckets[11].count_se == 0


@pytest.mark.parametrize(
    ("rows", "said"),
    [
        ([(0, 4, 1), (2, 8, 1)], "overlaps the one before it"),
        ([(4, 8, 1), (0, 2, 1)], "sort the buckets"),
        ([(0, 4, -1)], "count -1 is not a number at 0 or above"),
        ([(0, 4, float("nan"))], "count nan"),
        ([(0, 4, 0)], "no files in any bucket"),
        ([(4, 4, 1)], "the end must lie above the start"),
        ([], "no buckets"),
    ],
)
def test_bad_histograms(rows: list, said: str) -> None:
    with pytest.raises(ArchiveError, match=said):
        make("x", [Bucket(float(a), float(b), float(n)) for a, b, n in rows])


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("", "nothing but comments"),
        ("# only\n", "nothing but comments"),
        ("hello world\n", "it is none of assay, fsstats"),
        ("12\n-5\n", "cannot have -5 bytes|none of"),
        ("bucket_min_kb,bucket_max_kb,count\n0,2,x\n", "line 2: count is 'x', not a number"),
        ("bucket_min_kb,bucket_max_kb,count\n0,2,-4\n", "count -4"),
    ],
)
def test_bad_files(text: str, said: str) -> None:
    with pytest.raises(ArchiveError, match=said):
        importers.read(text, "x.csv")


def archive(name: str, shift: float = 0.0) -> Histogram:
    share = np.diff(1 / (1 + np.exp(-(np.arange(0, 24) - 10 - shift) / 2)), prepend=0.0)
    rows = [Bucket(0.0 if i == 0 else 2.0**i * K, 2.0 ** (i + 1) * K, round(1e6 * s)) for i, s in enumerate(share)]
    return make(name, rows)


def test_one_archive_has_a_centre_and_no_envelope() -> None:
    profile = fit.fit(panel.make_panel([archive("a")]), name="p", source="s")
    assert profile.envelopes == ()
    assert any("one archive: no envelope, since" in note for note in profile.notes)
    with pytest.raises(ArchiveError, match="has no envelope: it was fitted to 1 archive"):
        profile.curve("lower95")


def test_x_max_below_the_data() -> None:
    with pytest.raises(ArchiveError, match=r"lies below the data: .* % of the files of a are larger; raise it"):
        panel.make_panel([archive("a")], x_max=64 * K)
    with pytest.raises(ArchiveError, match="not a power of two"):
        panel.make_panel([archive("a")], x_max=100 * K)


def test_no_output_holds_nan_and_profiles_survive_json() -> None:
    import json

    p = panel.make_panel([archive("a"), archive("b", 1.0), archive("c", -1.0)])
    for model in fit.MODEL_NAMES:
        for mode in ("paper", "robust"):
            try:
                profile = fit.fit(p, name="p", source="s", model=model, mode=mode, draws=2000)
            except ArchiveError:
                continue  # a clear refusal is an answer
            text = json.dumps(fit.to_dict(profile), allow_nan=False)
            again = fit.from_dict(json.loads(text))
            assert again.median == pytest.approx(profile.median)
            assert again.curve_names == profile.curve_names


def test_equal_archives_are_refused_or_zero_wide() -> None:
    p = panel.make_panel([archive("a"), archive("a")])
    profile = fit.fit(p, name="p", source="s")
    assert (profile.envelopes[0].upper - profile.envelopes[0].lower).max() < 0.1
    assert p.names == ("a (1)", "a (2)")


def test_the_printed_correction_of_the_paper_and_ours() -> None:
    raw = np.array([0.3, 0.2, 0.1, 0.5])
    assert curves.lower_monotone(raw).tolist() == [0.1, 0.1, 0.1, 0.5]
    assert not curves.is_cdf(curves.pairwise_lower(raw))  # 0.2, 0.1, 0.1, 0.5 still decreases
    assert curves.upper_monotone(raw).tolist() == [0.3, 0.3, 0.3, 0.5]


def test_pava_is_isotonic_regression() -> None:
    from scipy.optimize import isotonic_regression

    rng = np.random.default_rng(1)
    rows = rng.normal(size=(300, 11))
    want = np.array([isotonic_regression(r).x for r in rows])
    assert curves.pava(rows) == pytest.approx(want, abs=1e-12)
    assert curves.pava(rows[0]) == pytest.approx(want[0], abs=1e-12)


def test_upper_edges_inflate_by_two_ln_two() -> None:
    p = archive("a")
    grid = panel.make_panel([p])
    ratio = curves.expected(grid.cdf[0]) / curves.expected(grid.cdf[0], "log-uniform")
    assert ratio == pytest.approx(2 * math.log(2))
