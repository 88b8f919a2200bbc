"""Broken studies: each gives one clear line with file, line and what would be right, quickly, and never a traceback."""

from __future__ import annotations

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assay.model.source import StudyError, load_study

GOOD = "study: s\ncandidates: [path:/tmp]\nworkloads:\n  - fio: {pattern: read, block_size: 4KiB}\n"


def swap(old: str, new: str) -> str:
    assert old in GOOD
    return GOOD.replace(old, new)


def fio(more: str) -> str:
    return swap("4KiB}", f"4KiB, {more}}}")


def block_size(text: str) -> str:
    return swap("4KiB", text)


# text, line, part of the message that says what is wrong, part that says what would be right
BROKEN = {
    "empty": ("", 1, "mapping", "study, candidates and workloads"),
    "only a comment": ("# nothing\n", 1, "mapping", "study, candidates and workloads"),
    "a list": ("- a\n- b\n", 1, "mapping", "study, candidates and workloads"),
    "a word": ("hello", 1, "mapping", "study, candidates and workloads"),
    "a tab": ("study: s\n\tfoo: 1\n", 2, "tab", "spaces"),
    "a NUL": ("study: s\nquestion: \0\n", 2, "'\\x00' is not text", "is this a study?"),
    "binary": ("\n\n\x01\x02\x7fELF", 3, "'\\x01' is not text", "is this a study?"),
    "duplicate key": (GOOD + "study: t\n", 5, 'duplicate key "study"', "keep one"),
    "two documents": (f"{GOOD}---\n{GOOD}", 5, "second document", "one study"),
    "unclosed": (block_size("[4KiB"), 4, "expected ',' or ']'", "]"),
    "unknown alias": (block_size("*base"), 4, "undefined alias 'base'", "&anchor"),
    "alias cycle in a list": (swap("[path:/tmp]", "&a [local/xfs, *a]"), 2, "*a contains itself", "parent"),
    "alias cycle in a mapping": (GOOD + "measure: &m\n  blocks: *m\n", 6, "*m contains itself", "parent"),
    "tag": (block_size("!!python/object:os.system x"), 4, "tag", "leave it out"),
    "key is a number": (GOOD + "7: 2\n", 5, "key 7", "keys are words"),
    "key is a list": (GOOD + "? [a, b]\n: 2\n", 5, "list or mapping as a key", "keys are words"),
    "unknown key": (GOOD + "mesure: {}\n", 5, "unknown key 'mesure'", "did you mean 'measure'?"),
    "unknown key below": (GOOD + "measure:\n  blocks:\n    pilott: 5\n", 7, "'pilott'", "did you mean 'pilot'?"),
    "unknown key far from all": (GOOD + "xyzzy: 1\n", 5, "unknown key 'xyzzy'", "known here: study,"),
    "unknown key of a candidate": (swap("path:/tmp", "{sytem: local/xfs}"), 2, "'sytem'", "did you mean 'system'?"),
    "bare K": (block_size("4K"), 4, "unknown size unit 'K'", "4KiB (2^n) or 4KB (10^n)"),
    "second value of an axis": (block_size("[4KiB,\n     8 XB]"), 5, "'XB'", "MiB"),
    "fraction of a byte": (block_size("4.5"), 4, "4.5", "whole number of bytes"),
    "no block at all": (block_size("0"), 4, "not 0", "greater than or equal to 1"),
    "a truth for a size": (block_size("true"), 4, "is not a size", "6GiB or 1GB"),
    "nothing for a size": (block_size(""), 4, "is not a size", "6GiB or 1GB"),
    "a mapping for a size": (block_size("{a: 1}"), 4, "is not a size", "6GiB or 1GB"),
    "a list in an axis": (block_size("[4KiB, [8KiB]]"), 4, "is not a size", "6GiB or 1GB"),
    "empty axis": (block_size("[]"), 4, "[]", "at least one value"),
    "value twice in an axis": (block_size("[4KiB, 4096]"), 4, "4096 twice", "axis"),
    "pattern": (swap("read,", "raed,"), 4, "'raed' is not known", "'randread'"),
    "no threads": (fio("threads: 0"), 4, "not 0", "greater than or equal to 1"),
    "threads as words": (fio("threads: two"), 4, "'two'", "a whole number is needed"),
    "half a thread": (fio("threads: 2.5"), 4, "2.5", "a whole number is needed"),
    "a truth for threads": (fio("threads: true"), 4, "not true", "a whole number is needed"),
    "direct": (fio("direct: maybe"), 4, "'maybe'", "true or false"),
    "no memory": (fio("size: 0xRAM"), 4, "'0xRAM'", "2xRAM"),
    "garbled memory": (fio("size: 1.2.3xRAM"), 4, "'1.2.3xRAM'", "6GiB"),
    "tiny data set": (fio("size: 100B"), 4, "too small", "4KiB"),
    "duration": (fio("runtime: 3 minutes"), 4, "unknown time unit 'minutes'", "min, h, d"),
    "no time": (fio("runtime: 0s"), 4, "'0s'", "greater than 0"),
    "no rate": (fio("rate: 0MB/s"), 4, "'0MB/s'", "greater than 0"),
    "rate without unit": (fio("rate: 100"), 4, "rate unit", "100MB/s"),
    "empty option": (fio("options: {sync: }"), 4, "an empty value", "a number, text, true or false"),
    "options as list": (fio("options: [sync]"), 4, "['sync']", "a mapping of keys"),
    "bad name": (swap("study: s", "study: a b"), 1, "'a b'", "letters, digits"),
    "name as number": (swap("study: s", "study: 2021"), 1, "2021", "text is needed"),
    "candidate in capitals": (swap("path:/tmp", "Local/EXT4"), 2, "'Local/EXT4'", "local/xfs"),
    "candidate as number": (swap("path:/tmp", "1"), 2, "1 is not a candidate", "local/xfs"),
    "no candidate": (swap("[path:/tmp]", "[]"), 2, "[]", "at least one value"),
    "candidates as word": (swap("[path:/tmp]", "local/xfs"), 2, "'local/xfs'", "a list is needed"),
    "path too long for the ledger": (swap("/tmp", "/" + "d" * 300), 2, "200 characters", "at most"),
    "workload without kind": (swap("- fio: {pattern: read, block_size: 4KiB}", "- {}"), 4, "kind", "known: fio"),
    "workload is a word": (swap("- fio: {pattern: read, block_size: 4KiB}", "- fio"), 4, "'fio'", "a mapping of keys"),
    "workload without pattern": (swap("pattern: read, ", ""), 4, "'pattern'", "missing"),
    "blocks": (GOOD + "measure: {blocks: {maximum: 2}}\n", 5, "maximum 2", "below minimum 5 or pilot 5"),
    "confidence": (GOOD + "measure:\n  confidence: 150%\n", 6, "'150%'", "between 0% and 100%"),
    "confidence of a coin": (GOOD + "measure: {confidence: 0.1}\n", 5, "0.1", "greater than 0.5"),
    "no budget": (GOOD + "measure: {budget: 0}\n", 5, "(not 0)", "greater than 0"),
    "seed": (GOOD + "measure: {seed: -1}\n", 5, "-1", "greater than or equal to 0"),
    "infinite memory factor": (GOOD + "measure: {ram_factor: .inf}\n", 5, "inf", "finite"),
    "tiny disk": (GOOD + "lab:\n  disk:\n    size: 1MB\n", 7, "'1MB'", "greater than or equal to"),
    "surrogate": (swap("study: s", 'study: "\\ud800"'), 1, "study", "unicode"),
}  # fmt: skip


@pytest.mark.parametrize("name", BROKEN)
def test_one_clear_line_at_the_right_place(name: str) -> None:
    text, line, wrong, right = BROKEN[name]
    with pytest.raises(StudyError) as caught:
        load_study(text, "my.yaml")
    message = str(caught.value)
    assert message.startswith(f"my.yaml:{line}: ")
    assert "\n" not in message, "one mistake, one line"
    assert wrong in message
    assert right in message
    assert len(message) < 250
    for words_of_programmers in ("taggedScalar", "ordereddict", "NoneType", "pydantic", "Traceback", "CommentedMap"):
        assert words_of_programmers not in message


def test_the_good_study_is_good() -> None:
    assert load_study(GOOD, "my.yaml").study == "s"


def test_every_mistake_is_told_in_order_of_lines() -> None:
    with pytest.raises(StudyError) as caught:
        load_study(fio("threads: 0, iodepth: 0") + "measure: {seed: -1}\nmesure: 1\n", "x")
    # an unknown key is told first and alone: what stands below it may be meant for elsewhere
    assert [p.line for p in caught.value.problems] == sorted(p.line for p in caught.value.problems)
    with pytest.raises(StudyError) as caught:
        load_study(fio("threads: 0, iodepth: 0") + "measure: {seed: -1}\n", "x")
    assert [(p.line, p.where) for p in caught.value.problems] == [
        (4, "workloads[0].fio.iodepth"),
        (4, "workloads[0].fio.threads"),
        (5, "measure.seed"),
    ]


@pytest.mark.parametrize(
    "text",
    [
        "study: " + "[" * 100_000,
        GOOD + "measure: " + "{a: " * 50_000,
        "\n".join(" " * i + "a:" for i in range(1000)),
        "a: &a [x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{chr(98 + i)}: &{chr(98 + i)} [{', '.join(['*' + chr(97 + i)] * 9)}]\n" for i in range(12)),
    ],
    ids=["sequences", "mappings", "blocks", "billion laughs"],
)
def test_bombs_are_refused_at_once(text: str) -> None:
    started = time.monotonic()
    with pytest.raises(StudyError, match=r"levels deep|more than 20000 values"):
        load_study(text, "bomb")
    assert time.monotonic() - started < 5


def test_aliases_and_merges_that_are_sane_still_work() -> None:
    text = (
        "study: 2026-01-31\ncandidates: [path:/tmp]\nworkloads:\n  - fio: &base {pattern: read, block_size: &b [4KiB, 8KiB]}\n"
        "  - fio:\n      <<: *base\n      pattern: write\n  - fio: {pattern: randread, block_size: *b}\n"
    )
    study = load_study(text, "x")
    assert study.study == "2026-01-31"
    assert [w.fio.block_size for w in study.workloads if w.fio] == [[4096, 8192]] * 3
    with pytest.raises(StudyError, match=r"^x:8: workloads\[1\]\.fio\.pattern"):
        load_study(text.replace("pattern: write", "engine: sync\n      pattern: wirte"), "x")


@pytest.mark.parametrize("prefix", ["\ufeff", "# c\r\n", "%YAML 1.2\n---\n", "---\n"])
def test_byte_order_marks_line_ends_and_directives(prefix: str) -> None:
    text = prefix + (GOOD.replace("\n", "\r\n") if "\r" in prefix else GOOD)
    assert load_study(text, "x").study == "s"


@settings(max_examples=150, deadline=None)
@given(st.text(max_size=80) | st.text(alphabet="[]{}:,-&*!|>'\"#%@? \n\tab1", max_size=60))
def test_any_text_gives_a_study_or_a_study_error(text: str) -> None:
    for whole in (text, GOOD + text, GOOD.replace("4KiB", text)):
        try:
            load_study(whole, "x")
        except StudyError as error:
            assert error.problems
            assert all(p.message and "\n" not in p.message and p.line >= 1 for p in error.problems)
