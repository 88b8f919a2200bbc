"""From the text of a study to a validated :class:`Study`, with the line of every mistake."""

from __future__ import annotations

import datetime
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from pydantic import ValidationError
from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError
from ruamel.yaml.events import AliasEvent, CollectionEndEvent, CollectionStartEvent, ScalarEvent
from ruamel.yaml.reader import ReaderError

from assay.model.study import Study

_MAX_DEPTH = 40  # a study has eight levels; ruamel recurses at every one
_MAX_VALUES = 20_000  # aliases expanded: ten lines of YAML can stand for a billion values


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
    try:
        problem = _survey(text)
        if problem is not None:
            raise StudyError(source, [problem])
        document = YAML(typ="rt").load(text)
    except MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else 0
        raise StudyError(source, [Problem(line, "", _advice(error))]) from None
    except ReaderError as error:
        line = text.count("\n", 0, error.position) + 1
        what = f"the character {chr(error.character)!r} is not text; is this a study?"
        raise StudyError(source, [Problem(line, "", what)]) from None
    except (YAMLError, ValueError, RecursionError) as error:
        raise StudyError(source, [Problem(0, "", f"not YAML: {str(error).splitlines()[0]}")]) from None
    if not isinstance(document, Mapping):
        raise StudyError(source, [Problem(1, "", "a study is a mapping with the keys study, candidates and workloads")])
    if odd := list(_odd_keys(document, ())):
        raise StudyError(source, [_odd_key(document, path) for path in odd])
    try:
        return Study.model_validate(_plain(document))
    except ValidationError as error:
        problems = [_problem(document, dict(e)) for e in error.errors()]
        raise StudyError(source, sorted(set(problems), key=lambda p: (p.line, p.where))) from None


def _survey(text: str) -> Problem | None:
    """What no study can have, found in the stream of YAML events before anything is built of it: aliases that contain
    themselves or multiply without bound, nesting beyond reason, tags."""
    sizes: dict[str, int] = {}  # anchor -> values it stands for
    above: list[list[Any]] = []  # open collections: [anchor, values so far]
    for event in YAML(typ="rt").parse(text):
        line = event.start_mark.line + 1
        if getattr(event, "tag", None) is not None:
            return Problem(line, "", f"the tag {event.tag} means nothing in a study; leave it out")
        if isinstance(event, CollectionStartEvent):
            above.append([event.anchor, 1])
            if len(above) > _MAX_DEPTH:
                return Problem(line, "", f"nested more than {_MAX_DEPTH} levels deep; a study needs fewer than ten")
            continue
        if isinstance(event, AliasEvent):
            if any(event.anchor == anchor for anchor, _ in above):
                return Problem(line, "", f"*{event.anchor} contains itself (an alias that points to its own parent)")
            anchor, size = None, sizes.get(event.anchor, 1)
        elif isinstance(event, ScalarEvent):
            anchor, size = event.anchor, 1
        elif isinstance(event, CollectionEndEvent):
            anchor, size = above.pop()
        else:
            continue
        if anchor is not None:
            sizes[anchor] = size
        if above:
            above[-1][1] += size
            if above[-1][1] > _MAX_VALUES:
                return Problem(line, "", f"more than {_MAX_VALUES} values, aliases counted as often as they are used")
    return None


def _advice(error: MarkedYAMLError) -> str:
    # ruamel adds advice for programmers after the first line
    what = (error.problem or "not YAML").strip().splitlines()[0]
    if "'\\t'" in what:
        return "a tab character; YAML is indented with spaces only"
    if "another document" in what:
        return "a second document begins here; a file holds one study, remove this '---' or what follows"
    if "duplicate key" in what:
        return f"{what}; keep one of the two"
    if "undefined alias" in what:
        return f"{what}; no &anchor of that name comes before it"
    return f"not YAML: {what}"


def _odd_keys(node: Any, path: tuple[Any, ...]) -> Iterator[tuple[Any, ...]]:
    if isinstance(node, dict):
        for key, child in node.items():
            yield from _odd_keys(child, (*path, key)) if isinstance(key, str) else [(*path, key)]
    elif isinstance(node, list):
        for i, child in enumerate(node):
            yield from _odd_keys(child, (*path, i))


def _odd_key(document: Any, path: tuple[Any, ...]) -> Problem:
    key = path[-1]
    what = f"the key {_shown(key)}" if isinstance(key, int | float | None) else "a list or mapping as a key"
    return Problem(_line_of(document, path), _path(path[:-1]), f"{what} is not a word; keys are words such as study")


def _plain(node: Any) -> Any:
    """Ruamel's round-trip containers and scalars as plain Python values."""
    if isinstance(node, dict):
        return {k: _plain(v) for k, v in node.items()}
    if isinstance(node, list):
        return [_plain(v) for v in node]
    for kind in (bool, int, float, str):
        if isinstance(node, kind):
            return kind(node)
    # 2026-01-31 is text in YAML 1.2, and a fine name of a study
    return str(node) if isinstance(node, datetime.date) else node


_SCALARS = ("bool", "int", "float", "str")  # the members of study.Scalar, as pydantic names them in a location
_WANTED = {
    "model_type": "a mapping of keys is needed here",
    "dict_type": "a mapping of keys is needed here",
    "model_attributes_type": "a mapping of keys is needed here",
    "list_type": "a list is needed here",
    "too_short": "at least one value is needed here",
    "int_type": "a whole number is needed here",
    "float_type": "a number is needed here",
    "float_parsing": "a number is needed here",
    "bool_type": "true or false is needed here",
    "bool_parsing": "true or false is needed here",
    "string_type": "text is needed here",
    "string_pattern_mismatch": "letters, digits, '.', '_' and '-' are allowed here, the first a letter or digit",
}


def _problem(document: Any, error: dict[str, Any]) -> Problem:
    loc = tuple(part for part in error["loc"])
    kind, given = error["type"], error["input"]
    message = str(error["msg"]).removeprefix("Value error, ")
    if kind == "unknown_key":
        loc = (*loc, error["ctx"]["key"])
    elif kind == "missing":
        message = f"the key {loc[-1]!r} is missing"
        loc = loc[:-1]
    elif kind == "literal_error":
        message = f"{_shown(given)} is not known; known: {error['ctx']['expected']}"
    elif loc[-1:] and loc[-1] in _SCALARS and len(_real(document, loc)) < len(loc):
        message = f"a number, text, true or false is needed here, not {_shown(given)}"
    elif kind in _WANTED:
        message = f"{_WANTED[kind]}, not {_shown(given)}"
    elif kind != "value_error":
        message = f"{message} (not {_shown(given)})"
    message = message[0].lower() + message[1:] if message[:1].isupper() and not message[:2].isupper() else message
    return Problem(_line_of(document, loc), _path(_real(document, loc)), " ".join(message.split()))


def _shown(value: Any) -> str:
    """A value as the user wrote it, or nearly."""
    if value is None:
        return "an empty value"
    if isinstance(value, bool):
        return str(value).lower()
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


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
