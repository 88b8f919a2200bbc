"""The study reference, generated from the schema: ``python -m assay.model.reference > docs/study.md``."""

from __future__ import annotations

import types
import typing
from collections.abc import Iterator

from pydantic import BaseModel
from pydantic.fields import FieldInfo

from assay.model import lab, workload
from assay.model import study as schema
from assay.model.fields import listify

_EXAMPLE = """\
```yaml
study: nas-or-scratch
question: Does the new NAS serve our nightly jobs as well as the scratch disk?
candidates:
  - path:/mnt/nas
  - {system: local/xfs, label: scratch, tuning: {mount: [noatime, "noatime,nobarrier"]}}   # a list is an axis
workloads:
  - fio:
      pattern: [read, randread]        # 2 patterns x 2 block sizes x 3 thread counts = 12 points
      block_size: [4KiB, 1MiB]
      threads: [1, 4, 16]
      size: 1GiB
      runtime: 30s
measure:
  budget: 2h
  margin: 5%
```
"""


def reference() -> str:
    """The whole page as Markdown."""
    lines = [
        "# Study reference",
        "",
        "Generated from the schema by `python -m assay.model.reference`; `assay schema` prints the JSON Schema for editors.",
        "",
        "A study is a YAML file. Where a field is marked *axis*, it takes one value or a list; the cells of the study are the",
        "product of all axes. Unknown keys are refused. Sizes are written `4KiB` (2^10) or `4kB` (10^3), durations `180s`,",
        "`5min`, `2h`, rates `100MB/s` or `1Gbit`, shares `5%` or `0.05`.",
        "",
        _EXAMPLE,
    ]
    for model in _models(schema.Study, set()):
        lines += [
            f"## {_title(model)}",
            "",
            (model.__doc__ or "").strip().split("\n\n")[0],
            "",
            "| key | type | default | meaning |",
            "|---|---|---|---|",
        ]
        for name, field in model.model_fields.items():
            lines.append(f"| `{name}` | {_type(field)} | {_default(field)} | {field.description or ''} |")
        lines.append("")
    return "\n".join(lines)


def _title(model: type[BaseModel]) -> str:
    names: dict[type[BaseModel], str] = {
        schema.Study: "The study",
        lab.Lab: "lab",
        lab.Disk: "lab.disk",
        lab.Network: "lab.network",
        lab.Limits: "lab.limits",
        schema.Candidate: "candidates[]",
        workload.Workload: "workloads[]",
        workload.FioWorkload: "workloads[].fio",
        workload.Degraded: "workloads[].KIND.degraded",
        workload.DdWorkload: "workloads[].dd",
        workload.IozoneWorkload: "workloads[].iozone",
        workload.MetadataWorkload: "workloads[].metadata",
        schema.Measure: "measure",
        schema.Blocks: "measure.blocks",
    }
    return names[model]


def _models(model: type[BaseModel], seen: set[type[BaseModel]]) -> Iterator[type[BaseModel]]:
    if model in seen:
        return
    seen.add(model)
    yield model
    for field in model.model_fields.values():
        for inner in _inner(field.annotation):
            yield from _models(inner, seen)


def _inner(annotation: object) -> Iterator[type[BaseModel]]:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        yield annotation
    for argument in typing.get_args(annotation):
        yield from _inner(argument)


def _type(field: FieldInfo) -> str:
    annotation: object = field.annotation
    is_axis = typing.get_origin(annotation) is list and any(getattr(m, "func", None) is listify for m in field.metadata)
    if is_axis:
        return f"axis of {_plain(typing.get_args(annotation)[0])}"
    described = [m.json_schema.get("description") for m in field.metadata if hasattr(m, "json_schema")]
    return str(described[0]) if described and described[0] else _plain(annotation)


def _plain(annotation: object) -> str:
    metadata = getattr(annotation, "__metadata__", ())
    for item in metadata:
        described = getattr(item, "json_schema", {}) if hasattr(item, "json_schema") else {}
        if described.get("description"):
            return str(described["description"])
    if metadata:
        return _plain(typing.get_args(annotation)[0])
    origin, arguments = typing.get_origin(annotation), typing.get_args(annotation)
    if origin is typing.Literal:
        return ", ".join(f"`{a}`" for a in arguments)
    if origin in (types.UnionType, typing.Union):
        return " or ".join(dict.fromkeys(_plain(a) for a in arguments if a is not type(None)))
    if origin is list:
        return f"list of {_plain(arguments[0])}"
    if origin is dict:
        return "mapping"
    if isinstance(annotation, type):
        known = {bool: "true or false", int: "whole number", float: "number", str: "text"}
        return known.get(annotation, "mapping")
    return "text"


def _default(field: FieldInfo) -> str:
    if field.is_required():
        return "*required*"
    value = field.get_default(call_default_factory=True)
    if isinstance(value, BaseModel):
        return "see below"
    if isinstance(value, list) and len(value) == 1:
        value = value[0]
    if value is None or value == "" or value == {}:
        return "none"
    return f"`{str(value).lower() if isinstance(value, bool) else value}`"


if __name__ == "__main__":
    print(reference(), end="")
