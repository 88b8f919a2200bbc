"""What the study schema is made of: quantities with units, axes, and a closed base model."""

from __future__ import annotations

import difflib
import re
from typing import Annotated, Any, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainSerializer,
    WithJsonSchema,
    model_validator,
)
from pydantic_core import PydanticCustomError

from assay.model import units

_T = TypeVar("_T")
Scalar = bool | int | float | str


def listify(value: object) -> object:
    """One value is an axis of one."""
    return value if isinstance(value, list) else [value]


def _distinct(values: list[_T]) -> list[_T]:
    for i, value in enumerate(values):
        if value in values[:i]:
            raise ValueError(f"the axis names {value!r} twice")
    return values


def _schema(example: str, unit: str) -> WithJsonSchema:
    return WithJsonSchema(
        {"anyOf": [{"type": "string"}, {"type": "number"}], "examples": [example], "description": unit}
    )


Bytes = Annotated[int, BeforeValidator(units.parse_bytes), _schema("6GiB", "size")]
Seconds = Annotated[float, BeforeValidator(units.parse_seconds), _schema("180s", "duration")]
Fraction = Annotated[float, BeforeValidator(units.parse_fraction), _schema("5%", "share")]
Rate = Annotated[
    int,
    BeforeValidator(units.parse_rate),
    PlainSerializer(lambda rate: f"{rate}B/s", return_type=str),  # a bare number would not be read again
    Field(gt=0),
    _schema("100MB/s", "rate"),
]
Axis = Annotated[list[_T], BeforeValidator(listify), Field(min_length=1), AfterValidator(_distinct)]

_RAM_SIZE = re.compile(r"^\s*([0-9]*\.?[0-9]+)\s*[x×]\s*RAM\s*$")


def _parse_size(value: object) -> int | str:
    if isinstance(value, str) and (match := _RAM_SIZE.match(value)):
        if not 0 < float(match[1]) <= 1000:
            raise ValueError(f"{value!r} is no useful multiple of memory; write for example 2xRAM")
        return f"{float(match[1]):g}xRAM"
    size = units.parse_bytes(value)
    if size < 4096:
        raise ValueError(f"{value!r} is too small for a data set; write at least 4KiB")
    return size


Size = Annotated[
    int | str, BeforeValidator(_parse_size), _schema("6GiB", "size, or a multiple of memory such as 2xRAM")
]


class Model(BaseModel):
    """Base of the schema: closed, and an unknown key is refused with the nearest known name."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    @model_validator(mode="before")
    @classmethod
    def _no_unknown_keys(cls, data: Any) -> Any:
        if not isinstance(data, dict):
            return data
        for key in data:
            if key not in cls.model_fields:
                near = difflib.get_close_matches(str(key), cls.model_fields, n=1)
                hint = f"did you mean {near[0]!r}?" if near else f"known here: {', '.join(cls.model_fields)}"
                raise PydanticCustomError("unknown_key", "unknown key '{key}'; {hint}", {"key": str(key), "hint": hint})
        return data
