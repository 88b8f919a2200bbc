"""The doctor: what is missing is named with the command that gets it, and only what nothing runs without is an error."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assay.cli.doctor import Finding, commands, examine, version_in
from assay.cli.errors import BadInput
from assay.lab.host import search_path
from assay.systems.base import HasRequirements
from assay.systems.catalogue import SYSTEMS


def _doctor(*arguments: str, path: Path | None = None) -> subprocess.CompletedProcess[str]:
    environment = os.environ | ({"PATH": str(path)} if path else {})
    argv = [sys.executable, "-m", "assay", "doctor", *arguments]
    return subprocess.run(argv, env=environment, capture_output=True, text=True, check=False, timeout=300)


@pytest.fixture
def few(tmp_path: Path) -> Path:
    """A PATH with what is needed and nothing else (programs of /usr/sbin are always found)."""
    for name in ("fio", "setpriv"):
        found = shutil.which(name, path=search_path())
        if found is None:
            pytest.skip(f"no {name} here")
        (tmp_path / name).symlink_to(found)
    return tmp_path


def test_commands_are_one_for_apt_and_then_each_once() -> None:
    def lacking(command: str) -> Finding:
        return Finding("x", None, "missing", command, "s", command)

    found = [
        lacking("apt-get install -y b a"),
        lacking("python3 -m venv d && d/bin/pip install x"),
        Finding("y", True, "1.0"),
        lacking("apt-get install -y c libstdc++6"),
        lacking("python3 -m venv d && d/bin/pip install x"),
        lacking("apt-get install -y maven && mvn x"),
        Finding("root", None, "no", "run as root"),
    ]
    assert commands(found) == [
        "apt-get install -y a b c libstdc++6",
        "python3 -m venv d && d/bin/pip install x",
        "apt-get install -y maven && mvn x",
    ]
    assert commands([]) == []


@pytest.mark.parametrize(("text", "name", "line"), [
    ("fusermount3 version: 3.14.0\nSSHFS version 3.7.3\n", "sshfs", "SSHFS version 3.7.3"),
    ("fusermount3 version: 3.14.0\nMFS version 3.0.117-1\nFUSE library version: 3.14.0", "mfsmount", "MFS version 3.0.117-1"),
    ("\nmke2fs 1.47.0 (5-Feb-2023)\n\tUsing EXT2FS Library version 1.47.0\n", "mkfs.ext4", "mke2fs 1.47.0 (5-Feb-2023)"),
    ("Usage: mount.x <server>:<volume> <point> -o<options>\n", "mount.x", ""),
    ("unknown option -- ?\n", "ssh-keygen", ""),
])  # fmt: skip
def test_the_line_that_tells_the_version(text: str, name: str, line: str) -> None:
    assert version_in(text, name) == line


@pytest.mark.skipif("xtreemfs" not in SYSTEMS, reason="no system whose remedy has to be filled in")
def test_what_has_to_be_filled_in_is_no_command(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ASSAY_SYSTEMS", str(tmp_path))
    lacking = [f for f in examine(["xtreemfs"]) if "XTREEMFS_SOURCE" in f.remedy]
    assert lacking
    assert not any(f.command for f in lacking)


def test_systems_that_are_only_used_where_they_are_mounted() -> None:
    assert {f.what for f in examine(["lustre"]) if f.system} == {"lfs", "lctl"}
    assert {f.ok for f in examine(["lustre"]) if f.system} <= {True, None}


def test_what_merely_limits_is_no_error(few: Path) -> None:
    done = _doctor("--json", path=few)
    found = json.loads(done.stdout)
    assert done.returncode == found["exit_code"] == 0
    (mount,) = [f for f in found["findings"] if f["what"] == "mount" and f["system"] == "local"]
    assert (mount["ok"], mount["command"]) == (None, "apt-get install -y mount")
    assert found["commands"][0].startswith("apt-get install -y ")
    assert " mount" in found["commands"][0]


def test_what_a_named_system_needs_is_an_error(few: Path) -> None:
    done = _doctor("local", "--json", path=few)
    assert done.returncode == 3
    findings = json.loads(done.stdout)["findings"]
    assert {f["system"] for f in findings} == {"", "local"}
    assert [f["ok"] for f in findings if f["what"] == "mount"] == [False]


def test_without_what_everything_needs(tmp_path: Path) -> None:
    done = _doctor("--json", path=tmp_path)
    assert done.returncode == 3
    assert [f["command"] for f in json.loads(done.stdout)["findings"] if f["what"] == "fio"] == [
        "apt-get install -y fio"
    ]
    assert _doctor("--commands", path=tmp_path).returncode == 0, "commands are for scripts that go on"


def test_one_layout_needs_less() -> None:
    found = {f.what for f in examine(["local/xfs"]) if f.system}
    assert "mkfs.xfs" in found
    assert not {"mkfs.ext4", "mkfs.btrfs"} & found


def test_names_that_are_none() -> None:
    with pytest.raises(BadInput, match="unknown system 'glusterf'; did you mean 'glusterfs'"):
        examine(["glusterf"])
    with pytest.raises(BadInput, match="unknown candidate 'local/zfs'"):
        examine(["local/zfs"])
    assert _doctor("glusterf").returncode == 2


@pytest.mark.parametrize("system", [name for name, adapter in SYSTEMS.items() if isinstance(adapter, HasRequirements)])
def test_requirements_name_themselves_and_a_command(system: str) -> None:
    adapter = SYSTEMS[system]
    assert isinstance(adapter, HasRequirements)
    assert adapter.requirements
    for requirement in adapter.requirements:
        assert requirement.name
        assert "\n" not in requirement.remedy
        assert subprocess.run(["bash", "-n", "-c", requirement.remedy], check=False).returncode == 0
