"""`validate` and an editor point at the same characters: our places against those that were recorded."""

import json
import re

import pytest

from llmgw.catalog.load import check
from llmgw.catalog.schema import text
from tests.catalog.mistakes import APART, CORPUS, HALF_READ
from tests.catalog.oracle import COMPLETIONS, HOVERS, MODELINE, RECORD

RECORDED = json.loads(RECORD.read_text())
GUESSES = {
    "unknown kind": {(2, 1)},
    "wrong behind an anchor": {(6, 16)},
    "wrong below an anchor": {(6, 6)},
    "list behind an anchor": {(6, 6)},
}
"""Places that only the server marks: it takes a document of no kind for a model, and misses a model's fields;
and an anchor that nothing uses does no harm."""


def test_the_record_is_of_this_corpus() -> None:
    """Whoever changes the corpus records again."""
    parts = ("marked", "half read", "apart", "hovers", "completions")
    assert [set(RECORDED[part]) for part in parts] == [
        set(CORPUS),
        set(HALF_READ),
        set(APART),
        set(HOVERS),
        set(COMPLETIONS),
    ]


def ours(text: str) -> set[tuple[int, int]]:
    """Line and column of each problem, but of profiles that are not there."""
    problems = check({"x.yaml": f"{MODELINE}{text}".encode()}).diagnostics
    return {(item.place.line, item.place.column) for item in problems if item.code != "E301"}


def theirs(part: str, name: str) -> set[tuple[int, int]]:
    """Line and column of each mark of the server."""
    return {(mark["line"], mark["column"]) for mark in RECORDED[part][name]}


@pytest.mark.parametrize("name", CORPUS)
def test_a_mistake_is_marked_where_the_editor_marks_it(name: str) -> None:
    """Line and column of each problem are those of yaml-language-server."""
    marked = ours(CORPUS[name])

    assert marked
    assert marked == theirs("marked", name) - GUESSES.get(name, set())


@pytest.mark.parametrize("name", HALF_READ)
def test_broken_yaml_is_marked_where_the_editor_marks_it(name: str) -> None:
    """What we say of it, the server says too; what it guesses about the rest we do not say."""
    marked = ours(HALF_READ[name])

    assert marked
    assert marked <= theirs("half read", name)


@pytest.mark.parametrize("name", APART)
def test_where_we_mark_another_place_there_is_a_reason(name: str) -> None:
    """Nothing is marked elsewhere than an editor marks it but what is listed, where it is listed."""
    case = APART[name]

    assert ours(case.text) == case.ours
    assert not case.ours or not case.ours <= theirs("apart", name)
    assert case.why


@pytest.mark.parametrize("name", HOVERS)
def test_a_field_explains_itself_under_the_pointer(name: str) -> None:
    """What the server showed is what the schema says today."""
    shown = RECORDED["hovers"][name].partition("\n\n")[2]

    assert shown
    assert json.dumps(shown)[1:-1] in text()


@pytest.mark.parametrize(
    ("name", "offered", "kept_away"),
    [
        ("fields of a model", {"aliases", "fallbacks", "scaling", "protect"}, {"drain", "name", "gpu"}),
        ("fields of a vllm profile", {"tensor_parallel", "drain", "args"}, {"aliases", "nodes", "source"}),
        ("fields of scaling", {"min", "max", "target_in_flight"}, {"name"}),
        ("kinds", {"model", "profile"}, set()),
        ("engines", {"vllm", "sglang", "llamacpp"}, set()),
        ("whole documents", {"model", "vllm profile", "sglang profile", "llamacpp profile"}, set()),
    ],
)
def test_what_fits_is_offered(name: str, offered: set[str], kept_away: set[str]) -> None:
    """Completion has the fields of the kind and engine that were written, less those that are there."""
    labels = set(RECORDED["completions"][name])

    assert offered <= labels
    assert not kept_away & labels


def test_snippets_are_documents() -> None:
    """What an editor inserts has only fields that exist, in the order that `fmt` keeps."""
    for name, definition in json.loads(text())["$defs"].items():
        for snippet in definition.get("defaultSnippets", ()):
            keys = list(snippet["body"])
            assert keys == [field for field in definition["properties"] if field in keys], name
            assert set(definition["required"]) <= set(keys)
            assert not re.search(r"\$\d", json.dumps(snippet["body"]))
