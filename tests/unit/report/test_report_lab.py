"""The lab's section: shape, baselines and hosts lost on purpose, each figure where it belongs."""

from __future__ import annotations

import dataclasses

import polars as pl
import pytest
from synthetic import LINK, STORAGE, Spec, baselines, lab_spec, study_data

from assay.campaign.analysis import analyse
from assay.ledger.queries import StudyData
from assay.report import lab, tables
from assay.report.markdown import render_markdown
from assay.report.page import lab_section, render_html


@pytest.fixture(scope="module")
def data() -> StudyData:
    return study_data(lab_spec(killed=(0, 2), patterns=("write",), threads=(8,)))


def test_shape_in_words(data: StudyData) -> None:
    shape = dict(lab.shape_rows(data))
    assert shape["storage hosts"].startswith("6 for each candidate")
    assert shape["link of each host"] == "1 Gbit/s in each direction"
    assert shape["disks of a storage host"] == "1, sized by the data set, loop devices on sparse files"
    assert shape["limits of each host"].startswith("none")


def test_shape_tells_what_was_asked_for(data: StudyData) -> None:
    asked = {
        "hosts": 3,
        "network": {"bandwidth": "unlimited", "delay": "2ms", "loss": 0.001},
        "limits": {"cpus": 0.5, "memory": "1GiB"},
        "disk": {"size": "2GiB", "per_host": 2, "fill": "allocated"},
    }
    row = type(data.lab)(id="x", study_id="x", kind="local", shape=asked)
    shape = dict(lab.shape_rows(dataclasses.replace(data, lab=row)))
    assert shape["link of each host"] == "not shaped, 2 ms added delay, 0.1 % loss"
    assert shape["disks of a storage host"] == "2, 2GiB, loop devices on allocated files"
    assert shape["limits of each host"] == "0.5 cores, 1GiB of memory"


def test_existing_lab_names_its_mounts() -> None:
    data = study_data(lab_spec(patterns=("write",), threads=(8,), blocks=1))
    data.study.declaration["candidates"] = [{"system": "glusterfs/rain-4-2", "mount": "/mnt/production"}]
    row = type(data.lab)(id="x", study_id="x", kind="existing", shape={"kind": "existing"})
    shape = dict(lab.shape_rows(dataclasses.replace(data, lab=row)))
    assert shape["mounts"] == "glusterfs/rain-4-2 at /mnt/production"


def test_a_shape_of_another_version_is_shown_as_it_is(data: StudyData) -> None:
    row = type(data.lab)(id="x", study_id="x", kind="local", shape={"racks": 4})
    assert lab.shape_rows(dataclasses.replace(data, lab=row)) == [("shape", "{'racks': 4}")]


def test_the_matrix_has_each_link_in_its_place() -> None:
    found = lab.baseline_rows(baselines())
    assert found is not None
    matrix = found["matrix"]
    assert matrix["hosts"] == [*STORAGE, "c1"]
    known = {(x.source, x.target): x for x in baselines().links}
    for row in matrix["rows"]:
        for target, cell in zip(matrix["hosts"], row["cells"], strict=True):
            if target == row["host"]:
                assert cell is None
                continue
            link = known[row["host"], target]
            assert float(cell["gbit"]) == pytest.approx(link.bytes_per_second * 8e-9, abs=5e-4)
            assert cell["retransmits"] == link.retransmits
            assert cell["percent"] == round(
                100 * link.bytes_per_second / max(x.bytes_per_second for x in known.values())
            )
    assert matrix["rows"][0]["cells"][1]["gbit"] == "0.956"  # the first link, of 119.55 MB/s


def test_disks_hosts_and_sums() -> None:
    found = lab.baseline_rows(baselines())
    assert found is not None
    assert found["disks"][1] == {"disk": "s2 disk 0", "read": "910", "write": "710"}
    assert {"host": "s1", "clock": "0.120", "trip": "0.210", "cpu": "3.00"} in found["hosts"]
    assert {"host": "c1", "clock": "0", "trip": "–", "cpu": "3.00"} in found["hosts"]
    assert found["sums"] == [
        {"what": "all storage hosts to c1", "gbit": "0.948", "mb": "118"},
        {"what": "all storage hosts from c1", "gbit": "0.940", "mb": "118"},
    ]
    assert lab.baseline_rows(None) is None


def test_lab_table_has_every_figure_with_its_unit(data: StudyData) -> None:
    table = tables.all_tables(data, analyse(data))["lab"]
    assert dict(table.group_by("what").len().iter_rows()) == {
        "link": 42, "link-retransmits": 42, "all-to-client": 1, "client-to-all": 1, "disk-read": 6, "disk-write": 6,
        "clock-offset": 7, "round-trip": 6, "idle-cpu-busy": 7,
    }  # fmt: skip
    assert table.filter(what="link")["value"].max() == pytest.approx(LINK / 1e6 - 0.1)
    assert set(table.filter(pl.col("what").is_in(["link", "disk-read"]))["unit"]) == {"MB/s"}


def test_degraded_attempts(data: StudyData) -> None:
    table = lab.degraded_table(data)
    # 4 candidates with hosts and the twin, 2 block sizes, 6 blocks
    assert len(table) == 5 * 2 * 6
    assert set(table["killed"]) == {"s1 s2"}
    wrong = table.filter(~pl.col("data_right_degraded"))
    assert set(wrong["candidate"]) == {"glusterfs/replicated-3"}
    assert wrong["healed_s"].null_count() == len(wrong) == 2
    rows = {(r["workload"], r["candidate"]): r for r in lab.degraded_rows(table)}
    bad = rows["write 1MiB 8 thr 2 hosts down", "glusterfs/replicated-3"]
    assert (bad["right_degraded"], bad["right_healed"], bad["bad"]) == ("5 of 6", "5 of 6", True)
    assert bad["healed"] == "3.9 (3.6 to 4.1); 1 not reached"
    assert bad["problems"] == ["job.0.0: sha256 differs"]
    good = rows["write 4KiB 8 thr 2 hosts down", "glusterfs/rain-4-2"]
    assert (good["right_degraded"], good["bad"], good["restarted"]) == ("6 of 6", False, "2.7 (2.4 to 2.9)")
    labels = [r["candidate"] for r in lab.degraded_rows(table)][:5]
    assert labels == [c.label for c in data.candidates if c.system.split("/")[0] in ("glusterfs", "ceph")]


def test_page_and_markdown_show_the_lab(data: StudyData) -> None:
    analysis = analyse(data)
    page = " ".join(render_html(data, analysis, []).split())
    assert 'id="lab"' in page
    assert "Network between hosts" in page
    assert 'style="--share: 100%"' in page
    assert "Not all could be measured: s3: iperf3 ended with 1 (unable to connect)" in page
    assert "Hosts lost on purpose" in page
    assert "job.0.0: sha256 differs" in page
    text = render_markdown(data, analysis)
    assert "network between hosts (iperf3): 0.904 to 0.956 Gbit/s" in text
    assert "| write 1MiB 8 thr 2 hosts down | glusterfs/replicated-3 | s1 s2 | 5 of 6 |" in text


def test_a_study_without_hosts_has_no_lab_section() -> None:
    data = study_data(Spec(block_sizes=(4096,), patterns=("read",), threads=(1,), blocks=2))
    assert lab_section(data) is None
    assert 'id="lab"' not in render_html(data, analyse(data), [])
    assert set(tables.all_tables(data, analyse(data))) == {"cells", "comparisons", "attempts", "checks"}


def test_not_verified_and_not_reached() -> None:
    schema = lab.degraded_table(
        study_data(Spec(block_sizes=(4096,), patterns=("read",), threads=(1,), blocks=1))
    ).schema
    row = dict.fromkeys(schema, None) | {"workload": "w", "candidate": "c", "killed": "s1", "problems": ""}
    (found,) = lab.degraded_rows(pl.DataFrame([row], schema=schema))
    assert (found["right_degraded"], found["healed"], found["bad"]) == ("not verified", "not reached", False)
