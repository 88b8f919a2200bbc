"""The integrity files find what they are there to find."""

from __future__ import annotations

from pathlib import Path

import pytest

from assay.workloads.integrity import DIRECTORY, SIZES, check_files, summary, write_files


@pytest.fixture
def files(tmp_path: Path) -> Path:
    assert write_files(tmp_path, 7, 16) == 2 * sum(SIZES)
    return tmp_path / DIRECTORY


def test_untouched_files_are_right(files: Path) -> None:
    assert check_files(files.parent, 7, 16) == []


def test_another_seed_is_other_content(files: Path) -> None:
    assert len(check_files(files.parent, 8, 16)) == 14  # the empty ones are right with any seed


def test_writing_again_is_the_same(files: Path) -> None:
    write_files(files.parent, 7, 16)
    assert check_files(files.parent, 7, 16) == []


def test_one_flipped_bit(files: Path) -> None:
    content = bytearray((files / "f0006").read_bytes())
    content[700_000] ^= 1
    (files / "f0006").write_bytes(content)
    assert check_files(files.parent, 7, 16) == [f"f0006 has 1 wrong bytes of {SIZES[6]}"]


def test_missing_truncated_and_strange_files(files: Path) -> None:
    (files / "f0001").unlink()
    (files / "f0003").write_bytes(b"")
    (files / "other").write_bytes(b"")
    assert check_files(files.parent, 7, 16) == [
        "f0001 is not listed and cannot be read: No such file or directory",
        "f0003 has 0 of 4096 bytes",
        "other should not be there",
    ]


def test_nothing_there(tmp_path: Path) -> None:
    assert check_files(tmp_path, 7) == [f"{DIRECTORY} cannot be listed: No such file or directory"]


def test_summary_is_short() -> None:
    assert summary([str(i) for i in range(9)]) == "0; 1; 2; 3; 4 and 4 more"
    assert summary(["a"]) == "a"
