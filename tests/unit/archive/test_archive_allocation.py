"""Filesets are exact: in a thousand random cases, and at the edges."""

from __future__ import annotations

import numpy as np
import pytest

from assay.archive import ArchiveError, allocation, curves
from assay.archive.allocation import SIZES


def random_case(rng: np.random.Generator) -> tuple[np.ndarray, np.ndarray, int]:
    buckets = int(rng.integers(8, 31))
    p = rng.dirichlet(np.full(buckets, rng.choice([0.1, 0.5, 1.0, 3.0])))
    p = p * 2.0 ** (-rng.uniform() * np.arange(buckets))
    p /= p.sum()
    means = 2.0 ** np.arange(1, buckets + 1) * rng.uniform(0.55, 0.95, buckets)
    volume = int(float(p @ 2.0 ** np.arange(1, buckets + 1)) * 1024 * 10 ** rng.uniform(0.3, 4.5))
    return p, means, volume


def test_count_and_volume_are_exact_in_a_thousand_cases() -> None:
    rng = np.random.default_rng(7)
    done = changed = 0
    while done < 1000:
        p, means, volume = random_case(rng)
        sizes = SIZES[done % 3]
        if sizes == "pow2":
            volume -= volume % 2048
        of_bucket = curves.sizes(p.size, allocation._RULE[sizes], means)
        count = max(1, round(volume / (float(p @ of_bucket) * 1024)))
        if count > 100_000:
            continue
        made = allocation.allocate(p, volume=volume, sizes=sizes, bucket_means=means)
        assert made.volume == volume
        assert made.files == made.counts.sum()
        if made.files != count:  # no set of that few powers of two has this sum: said, and only for a handful of files
            assert sizes == "pow2"
            assert count < 24
            assert any("no other set has this volume exactly" in note for note in made.notes)
            changed += 1
        i = np.repeat(np.arange(1, p.size + 1), made.counts)
        if sizes == "pow2":
            assert (made.sizes == 2**i * 1024).all()
        else:
            assert (made.sizes < 2**i * 1024).all()
            assert (made.sizes >= np.where(i == 1, 1, 2 ** (i - 1) * 1024)).all()
        done += 1
    assert changed < 50


def test_count_alone_is_exact_and_near_the_shares() -> None:
    rng = np.random.default_rng(8)
    for _ in range(200):
        p, _, _ = random_case(rng)
        files = int(rng.integers(1, 100_000))
        made = allocation.allocate(p, files=files)
        assert made.files == files
        assert np.abs(made.counts - p * files).max() < 1


def test_count_and_volume_together() -> None:
    p = np.array([0.3, 0.3, 0.2, 0.1, 0.05, 0.05])
    made = allocation.allocate(p, files=500, volume=500 * 16 * 1024)
    assert (made.files, made.volume) == (500, 500 * 16 * 1024)
    with pytest.raises(ArchiveError, match="cannot hold"):
        allocation.allocate(p, files=5, volume=10**9)


def test_a_volume_between_steps_is_noted() -> None:
    made = allocation.allocate([0.5, 0.5], volume=1_000_001)
    assert made.volume == 1_000_001 - 1_000_001 % 2048
    assert "bytes of the volume are left out" in made.notes[0]
    exact = allocation.allocate([0.5, 0.5], volume=1_000_001, sizes="log-uniform")
    assert exact.volume == 1_000_001


def test_buckets_that_expect_less_than_one_file_are_warned_of() -> None:
    p = np.array([0.9, 0.09, 0.009, 0.0009, 0.0001])
    few = allocation.allocate(p, files=100)
    assert "3 buckets" in few.notes[0]
    assert "10000 files would be enough" in few.notes[0]
    assert not allocation.allocate(p, files=20_000).notes


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ({"volume": 100}, "less than the smallest fileset"),
        ({"files": 0}, "at least one file"),
        ({}, "a volume or a number of files"),
        ({"files": 10, "sizes": "odd"}, "unknown sizes 'odd'; known: pow2"),
        ({"files": 10, "sizes": "bucket-mean"}, "use log-uniform"),
    ],
)
def test_bad_requests(arguments: dict, said: str) -> None:
    with pytest.raises(ArchiveError, match=said):
        allocation.allocate([0.2, 0.3, 0.5], **arguments)


def test_bad_probabilities() -> None:
    for p in ([0.0, 0.0], [-0.1, 1.1], [float("nan"), 1.0]):
        with pytest.raises(ArchiveError, match="bucket probabilities"):
            allocation.allocate(p, files=10)


def test_a_smaller_x_max() -> None:
    cdf = np.array([0.25, 0.5, 0.75, 1.0])
    assert allocation.cap(cdf, 2) == pytest.approx([0.5, 0.5])
    assert allocation.cap(cdf, 2, "clamp") == pytest.approx([0.25, 0.75])
    with pytest.raises(ArchiveError, match="outside the profile"):
        allocation.cap(cdf, 9)
