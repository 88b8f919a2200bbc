"""The schema: a list is an axis, closed, frozen, and what is dumped validates to the same study."""

from __future__ import annotations

import json

import pytest
from pydantic import ValidationError

from assay.model.source import load_study
from assay.model.study import Study
from assay.model.workload import FioWorkload


def study(**fio: object) -> Study:
    base = {"pattern": "read", "block_size": "4KiB"}
    return Study.model_validate({"study": "s", "candidates": ["local/xfs"], "workloads": [{"fio": {**base, **fio}}]})


def axes(**fio: object) -> FioWorkload:
    workload = study(**fio).workloads[0].fio
    assert workload is not None
    return workload


def test_a_scalar_is_an_axis_of_one() -> None:
    assert axes().pattern == ["read"]
    assert axes(pattern=["read", "write"]).pattern == ["read", "write"]


def test_units_are_resolved_before_duplicates_are_looked_for() -> None:
    with pytest.raises(ValidationError, match="names 4096 twice"):
        axes(block_size=["4KiB", "4096B"])
    assert axes(block_size=["1MB", "1MiB"]).block_size == [1_000_000, 1_048_576]


@pytest.mark.parametrize("text", ["2xRAM", "2 x RAM", "2.0×RAM", " 2xRAM "])
def test_multiples_of_memory_have_one_spelling(text: str) -> None:
    assert axes(size=text).size == ["2xRAM"]


@pytest.mark.parametrize("bad", ["xRAM", "0xRAM", "-1xRAM", "1e3xRAM", "..xRAM", "2xram", "1001xRAM"])
def test_useless_multiples_of_memory(bad: str) -> None:
    with pytest.raises(ValidationError):
        axes(size=bad)


@pytest.mark.parametrize(
    "field", ["threads", "iodepth", "fsync", "fdatasync", "clients", "block_size", "size", "runtime", "rate"]
)
@pytest.mark.parametrize("bad", [True, "", -1, [], {}, [[1]], "1 2"])
def test_no_number_field_takes_nonsense(field: str, bad: object) -> None:
    with pytest.raises(ValidationError):
        axes(**{field: bad})


@pytest.mark.parametrize("field", ["pilot", "minimum", "maximum"])
@pytest.mark.parametrize("bad", [0, True, 5.5, "5", None])
def test_blocks_are_whole_numbers(field: str, bad: object) -> None:
    data = study().model_dump(mode="json")
    data["measure"]["blocks"][field] = bad
    with pytest.raises(ValidationError):
        Study.model_validate(data)


def test_what_is_dumped_validates_to_the_same_study() -> None:
    full = study(
        block_size=["4KiB", "1MB"], size=["2xRAM", "1GB"], runtime=["20ms", "3min"], rate=[None, "1Gbit"],
        read_share=["30%"], options={"sync": [0, 1], "name": "x", "flag": [True, False]}, pattern=["randrw"],
    )  # fmt: skip
    again = Study.model_validate(json.loads(json.dumps(full.model_dump(mode="json"))))
    assert again == full
    options = again.workloads[0].fio and again.workloads[0].fio.options
    assert options is not None
    assert [type(v) for v in options["flag"]] == [bool, bool], "true is not 1"


def test_nothing_can_be_changed_afterwards() -> None:
    with pytest.raises(ValidationError, match="frozen"):
        study().measure.seed = 1  # type: ignore[misc]


def test_a_bare_null_is_the_null_target_and_both_spellings_are_one() -> None:
    text = "study: s\ncandidates: [local/xfs, {}]\nworkloads: [{{fio: {{pattern: read, block_size: 4KiB}}}}]\n"
    bare, quoted, mapping = (load_study(text.format(c), "x") for c in ("null", '"null"', '{{system: "null"}}'.format()))
    assert bare == quoted == mapping
    assert bare.candidates[1].system == "null"


@pytest.mark.parametrize("system", ["local/xfs", "local/xfs/big", "tmpfs", "null", "path:/mnt/some where", "path:rel"])
def test_systems_by_name(system: str) -> None:
    assert Study.model_validate({**study().model_dump(), "candidates": [system]}).candidates[0].system == system


@pytest.mark.parametrize("system", ["", "a b", "local//xfs", "/mnt/x", "local/xfs/", "a/b/c/d", "../x", "local/xfs\n"])
def test_no_systems(system: str) -> None:
    with pytest.raises(ValidationError, match="is not a candidate"):
        Study.model_validate({**study().model_dump(), "candidates": [system]})


def test_the_json_schema_says_the_same() -> None:
    schema = Study.model_json_schema()
    assert schema["additionalProperties"] is False
    assert set(schema["required"]) == {"study", "candidates", "workloads"}
    for name, definition in schema["$defs"].items():
        assert definition.get("additionalProperties") is False, f"{name} is not closed"
