"""The report in a real browser, without a network: charts are drawn, nothing is fetched, no error is logged."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parents[1] / "unit" / "report"))

from synthetic import HOSTILE, Spec, lab_spec, study_data  # pyright: ignore[reportMissingImports]

from assay.campaign.analysis import analyse
from assay.report.export import write_report

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser")

pytestmark = [
    pytest.mark.browser,
    pytest.mark.skipif(CHROMIUM is None, reason="chromium is missing: apt-get install chromium"),
]


@pytest.fixture(scope="module")
def report(tmp_path_factory: pytest.TempPathFactory) -> Path:
    spec = Spec(candidates=("ext4", "xfs", HOSTILE), block_sizes=(4096, 1 << 20), threads=(1, 8), blocks=6)
    data = study_data(spec)
    (path,) = write_report(data, analyse(data), tmp_path_factory.mktemp("report"), {"html"})
    return path


def browse(report: Path, profile: Path, *options: str) -> tuple[str, str]:
    """Run Chromium without any network (a namespace of its own as root, a dead proxy besides); DOM and log."""
    assert CHROMIUM is not None
    # A proxy that refuses everything: whatever the page would fetch fails and is logged.
    command = [
        CHROMIUM, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", "--enable-logging=stderr", "--v=0",
        f"--user-data-dir={profile}", "--proxy-server=127.0.0.1:9", "--disable-background-networking",
        "--disable-component-update", "--no-first-run", "--virtual-time-budget=60000", "--window-size=1280,2000",
        *options, report.as_uri(),
    ]  # fmt: skip
    if os.geteuid() == 0 and shutil.which("unshare"):
        command = ["unshare", "--net", *command]
    done = subprocess.run(command, capture_output=True, text=True, timeout=240, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    return done.stdout, done.stderr


@pytest.fixture(scope="module")
def dom(report: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    return browse(report, tmp_path_factory.mktemp("profile"), "--dump-dom")


def charts(dom: str) -> dict[str, str]:
    """Inner HTML of every chart by id."""
    parts = re.split(r'<div class="chart[^"]*" data-spec="', dom)[1:]
    return {part.split('"', 1)[0]: part.split("</figure>", 1)[0] for part in parts}


def test_all_charts_are_drawn(dom: tuple[str, str]) -> None:
    found = charts(dom[0])
    assert len(found) == 13
    assert 'data-charts="done"' in dom[0]
    for name, content in found.items():
        assert 'data-state="drawn"' in content, name
        assert "<svg" in content, name
        assert "could not be drawn" not in content, name


def test_marks_stand_for_the_data(dom: tuple[str, str]) -> None:
    found = charts(dom[0])
    # 3 candidates x 2 block sizes x 2 numbers of threads
    assert len(re.findall(r'aria-roledescription="bar"', found["bandwidth-randwrite"])) == 12
    # one mark per point and pair, and one per point of the A/A pair
    assert len(re.findall(r'aria-roledescription="point"', found["ratios"])) == 32 - 1  # one cell has no value
    assert len(re.findall(r'aria-roledescription="point"', found["aa-ratios"])) == 16
    assert len(re.findall(r'aria-roledescription="rect mark"', found["winners"])) == 16
    assert len(re.findall(r'aria-roledescription="line mark"', found["time-series"])) >= 16 * 3 - 1
    assert len(re.findall(r'aria-roledescription="line mark"', found["latency-cdf"])) >= 16 * 3 - 1
    for axis in ("Bandwidth (MB/s)", "IOPS (1/s)", "Mean latency (ms)", "Threads"):
        assert axis in found["trend-randwrite"]


def test_no_console_errors_and_nothing_fetched(dom: tuple[str, str]) -> None:
    # Chromium's own pages (chrome://) log too; the page under test is a file.
    lines = [line for line in dom[1].splitlines() if "CONSOLE" in line and "source: file:" in line]
    assert lines == []
    assert "net::ERR" not in "".join(line for line in dom[1].splitlines() if "file:" in line)


def test_hostile_label_runs_nothing(dom: tuple[str, str]) -> None:
    body = re.sub(r"(?s)<script\b.*?</script>", "", dom[0])
    assert "<script" not in body
    assert "&lt;script&gt;alert" in body


@pytest.fixture(scope="module")
def lab_dom(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, str]:
    data = study_data(lab_spec(threads=(1, 8), block_sizes=(4096, 1 << 20), killed=(0, 2), blocks=4))
    (path,) = write_report(data, analyse(data), tmp_path_factory.mktemp("lab"), {"html"})
    return browse(path, tmp_path_factory.mktemp("profile"), "--dump-dom")


def test_figures_of_a_lab(lab_dom: tuple[str, str]) -> None:
    found = charts(lab_dom[0])
    assert all('data-state="drawn"' in content for content in found.values())
    # two systems x two block sizes x two numbers of threads
    whole, degraded = (found[f"layout-rain-bandwidth-write{end}"] for end in ("", "-2-hosts-down"))
    for content in (whole, degraded):
        assert len(re.findall(r'aria-roledescription="bar"', content)) == 8
    # when writing, RAIN from the client and through a primary have bounds of their own ...
    assert len(re.findall(r'aria-roledescription="tick"', whole)) == 8
    assert "network bound" not in whole
    # ... until the two hosts are down that the client sent a third of its bytes to
    assert len(re.findall(r'aria-roledescription="tick"', degraded)) == 0
    assert degraded.count(">network bound 120 MB/s<") == 2
    assert found["layout-rain-bandwidth-read"].count(">network bound 120 MB/s<") == 2  # one line in each panel
    for axis in ("Bandwidth (MB/s)", "IOPS (1/s)", "Mean latency (ms)", "Threads"):
        assert axis in found["layout-distributed-trend-write"]
    assert [line for line in lab_dom[1].splitlines() if "CONSOLE" in line and "source: file:" in line] == []


def test_section_of_a_lab(lab_dom: tuple[str, str]) -> None:
    section = lab_dom[0].split('<section id="lab"', 1)[1].split("</section>", 1)[0]
    assert len(re.findall(r'<td class="n heat"', section)) == 7 * 6
    assert "Hosts lost on purpose" in section
    assert "s3: iperf3 ended with 1" in section


def test_phone_and_dark(report: Path, tmp_path: Path) -> None:
    image = tmp_path / "phone.png"
    browse(
        report,
        tmp_path / "profile",
        "--window-size=500,1200",
        "--blink-settings=preferredColorScheme=0",
        f"--screenshot={image}",
    )
    assert image.read_bytes().startswith(b"\x89PNG")
    assert image.stat().st_size > 30_000  # a blank page takes about 5 kB
