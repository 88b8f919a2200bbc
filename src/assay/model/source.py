"""From the text of a study to a validated :class:`Study`, with the line of every mistake."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from assay.model.study import Study


@dataclass(frozen=True)
class Problem:
    """One mistake: where (``line`` counts from 1, 0 when unknown) and what."""

    line: int
    where: str  # path inside the study, e.g. workloads[0].fio.block_size
    message: str


class StudyError(Exception):
    """A study that cannot be used; ``problems`` is never empty. ``str()`` is one line per problem."""

    def __init__(self, source: str, problems: list[Problem]) -> None:
        self.source = source
        self.problems = problems
        super().__init__("\n".join(self._line(p) for p in problems))

    def _line(self, problem: Problem) -> str:
        at = f"{self.source}:{problem.line}" if problem.line else self.source
        where = f"{problem.where}: " if problem.where else ""
        return f"{at}: {where}{problem.message}"


def load_study(text: str, source: str) -> Study:
    """Parse and validate. ``source`` names the text in messages. Raises StudyError."""
    # YAML 1.2: "on", "off", "yes" and "no" are words; duplicate keys are refused by ruamel.
    yaml = YAML(typ="rt")
    try:
        document = yaml.load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        # ruamel adds advice for programmers after the first line
        what = (error.problem or "not YAML").strip().splitlines()[0]
        raise StudyError(source, [Problem(line, "", what)]) from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise StudyError(source, [Problem(0, "", f"not YAML: {str(error).splitlines()[0]}")]) from None
    if not isinstance(document, Mapping):
        raise StudyError(
            source, [Problem(1, "", "a study is a mapping with the keys study, candidates and workloads")]
        )
    cycle = _find_cycle(document, (), ())
    if cycle is not None:
        line = _line_of(document, cycle)
        raise StudyError(
            source, [Problem(line, _path(cycle), "contains itself (an alias that points to its own parent)")]
        )
    try:
        return Study.model_validate(_plain(document))
    except ValidationError as error:
        problems = [_problem(document, dict(e)) for e in error.errors()]
        raise StudyError(source, sorted(set(problems), key=lambda p: (p.line, p.where))) from None


def _find_cycle(node: Any, above: tuple[int, ...], path: tuple[Any, ...]) -> tuple[Any, ...] | None:
    if not isinstance(node, dict | list):
        return None
    if id(node) in above:
        return path
    items = node.items() if isinstance(node, dict) else enumerate(node)
    for key, child in items:
        found = _find_cycle(child, (*above, id(node)), (*path, key))
        if found is not None:
            return found
    return None


def _plain(node: Any) -> Any:
    """Ruamel's round-trip containers and scalars as plain Python values."""
    if isinstance(node, dict):
        return {str(k): _plain(v) for k, v in node.items()}
    if isinstance(node, list):
        return [_plain(v) for v in node]
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    return node


def _problem(document: Any, error: dict[str, Any]) -> Problem:
    loc = tuple(part for part in error["loc"])
    message = str(error["msg"]).removeprefix("Value error, ")
    if error["type"] == "unknown_key":
        loc = (*loc, error["ctx"]["key"])
    elif error["type"] == "missing":
        message = f"the key {loc[-1]!r} is missing"
        loc = loc[:-1]
    elif error["type"] == "literal_error":
        message = f"{error['input']!r} is not known; known: {error['ctx']['expected']}"
    elif error["type"] in ("model_type", "dict_type", "model_attributes_type"):
        message = f"a mapping of keys is needed here, not {error['input']!r}"
    elif error["type"] == "list_type":
        message = f"a list is needed here, not {error['input']!r}"
    elif (
        not message.startswith((repr(error["input"]), str(error["input"]))) and error["type"] != "value_error"
    ):
        shown = repr(error["input"])
        message = f"{message} (not {shown[:60]})"
    message = (
        message[0].lower() + message[1:] if message[:1].isupper() and not message[:2].isupper() else message
    )
    return Problem(_line_of(document, loc), _path(_real(document, loc)), message)


def _real(document: Any, loc: tuple[Any, ...]) -> tuple[Any, ...]:
    """The part of a validation location that exists in the text (an axis may be written without its list)."""
    node, path = document, []
    for part in loc:
        if isinstance(node, dict):
            path.append(part)
            if part not in node:
                break
            node = node[part]
        elif isinstance(node, list) and isinstance(part, int) and part < len(node):
            path.append(part)
            node = node[part]
        else:
            break
    return tuple(path)


def _line_of(document: Any, loc: tuple[Any, ...]) -> int:
    node, line = document, 1
    for part in _real(document, loc):
        marks = getattr(node, "lc", None)
        if marks is None:
            break
        try:
            line = (marks.key(part) if isinstance(node, dict) else marks.item(part))[0] + 1
        except (KeyError, TypeError, IndexError):
            break
        try:
            node = node[part]
        except (KeyError, IndexError):
            break
    return line


def _path(loc: tuple[Any, ...]) -> str:
    text = ""
    for part in loc:
        text += f"[{part}]" if isinstance(part, int) else (f".{part}" if text else str(part))
    return text
