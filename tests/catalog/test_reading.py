"""Whatever a document holds, it is a document or there are words for why not."""

import pytest
from hypothesis import given
from hypothesis import strategies as some

from llmgw.catalog.diagnostics import text
from llmgw.catalog.documents import PROFILES, ModelDocument
from llmgw.catalog.reading import read
from llmgw.catalog.tree import Tree
from tests.catalog.samples import MODEL, PROFILE, checked, codes

FIELDS = sorted(
    {name for document in (ModelDocument, *PROFILES.values()) for name in document.model_fields}
    | {"min", "max", "types", "memory", "cores", "tensor_paralel", "x", ""}
)
SCALARS = (
    some.none()
    | some.booleans()
    | some.integers(-2, 5)
    | some.floats(allow_nan=False)
    | some.sampled_from(["model", "profile", "vllm", "llamacpp", "sglang", "20m", "80GiB", "a", "-x", "\0", "%s"])
)  # fmt: skip
VALUES = some.recursive(
    SCALARS,
    lambda inner: some.lists(inner, max_size=3) | some.dictionaries(some.sampled_from(FIELDS), inner, max_size=4),
    max_leaves=8,
)  # fmt: skip
DOCUMENTS = some.fixed_dictionaries(
    {"kind": some.sampled_from(["model", "profile"])},
    optional={
        "engine": some.sampled_from(["vllm", "sglang", "llamacpp"]),
        **{name: VALUES for name in FIELDS if name not in ("kind", "engine")},
    },
)


@given(DOCUMENTS | VALUES)
def test_no_document_raises(data: object) -> None:
    """Every shape of data is refused in words, whichever field it turns up in."""
    written, problems = read(Tree("x.yaml", b"", data))

    assert problems or written.document or data is None
    assert all(text(problem) for problem in problems)


@given(some.lists(DOCUMENTS, max_size=4))
def test_no_catalog_raises(documents: list[dict[str, object]]) -> None:
    """Documents that contradict each other in every way are refused in words too."""
    from_json = [to_yaml(document) for document in documents]

    found = checked(*from_json)

    assert found.catalog or any(problem.severity == "error" for problem in found.diagnostics)


def to_yaml(value: object) -> str:
    """`value` in YAML's flow style, which is JSON's but for numbers that JSON has no word for."""
    if isinstance(value, dict):
        return "{" + ", ".join(f"{to_yaml(key)}: {to_yaml(item)}" for key, item in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ", ".join(map(to_yaml, value)) + "]"
    if isinstance(value, str):
        return '"' + value.replace("\0", "\\0") + '"'
    return "null" if value is None else str(value).lower() if isinstance(value, bool) else repr(value)


def test_a_number_without_its_unit_says_how_it_is_written() -> None:
    """The usual unit of what is meant; of a number that nobody means nothing is made."""
    for written, help_ in (
        ("drain: 120", "write 120s, if that is meant"),
        ("start_deadline: 0.5", "write 0.5s, if that is meant"),
        ("gpu: {memory: 80}", "write 80GiB, if that is meant"),
        ("drain: -1", ""),
        ("drain: 1" + "0" * 12, ""),
    ):
        (problem,) = checked(f"{PROFILE}{written}\n").diagnostics
        assert (problem.code, problem.help) == ("E206", help_)


def test_what_other_tools_call_replicas_is_scaling_here() -> None:
    """With the number that was written; in a profile there is none of it."""
    for written, bounds in (
        ("2", "{min: 2, max: 2}"),
        ("many", "{min: 1, max: 1}"),
        ("true", "{min: 1, max: 1}"),
    ):
        (problem,) = checked(f"{MODEL}replicas: {written}\n", PROFILE).diagnostics
        assert (problem.code, problem.help) == ("E203", f"how many run is said by `scaling: {bounds}`")
    (problem,) = checked(f"{PROFILE}replicas: 2\n").diagnostics
    assert problem.help == ""


@pytest.mark.parametrize("name", ["a", "7", "a.b_c-d", "a" * 63])
def test_names_that_will_do(name: str) -> None:
    """Lower-case letters, digits and what joins them."""
    assert not read(Tree("x", b"", model(name)))[1]


@pytest.mark.parametrize("name", ["", "A", "-a", ".a", "a/b", "a b", "a" * 64, "é", "a\n", "٣"])
def test_names_that_will_not_do(name: str) -> None:
    """A name is a path, a label and a header value; it must be harmless in all of them."""
    (problem,) = read(Tree("x", b"", model(name)))[1]

    assert problem.code == "E206"


def model(name: str) -> dict[str, object]:
    return {"kind": "model", "name": name, "source": "file:///w", "profiles": ["p"]}


@pytest.mark.parametrize(
    "written",
    [
        "drain: 1" + "0" * 400 + "s",
        "drain: 400d",
        "gpu: {memory: 1" + "0" * 400 + "GiB}",
        "gpu: {memory: 2000TiB}",
    ],
)
def test_a_quantity_that_nothing_could_hold_is_refused(written: str) -> None:
    """Numbers that overflow a float or a message are a problem with a place, not a traceback."""
    assert codes(PROFILE + written + "\n") == ["E206"]


@pytest.mark.parametrize("profiles", ["[P]", "[null]", "[{{ p }}]"])
def test_a_list_with_a_wrong_item_is_not_empty(profiles: str) -> None:
    """Nobody is told to write at least one where one is written."""
    (problem,) = checked(MODEL.replace("[h100-tp4]", profiles)).diagnostics

    assert problem.place.column == 12


def test_what_an_alias_brings_is_not_quoted() -> None:
    """The value stands at the anchor, so there is nothing to quote where the alias is."""
    (problem,) = checked(MODEL, f"{PROFILE}args: &a {{x: 1}}\nenv: *a\n").diagnostics

    assert (problem.place.line, problem.place.column) == (6, 6)
    assert (problem.said, problem.help) == ("`env.x` needs text, this is a number", "")


def test_a_number_behind_an_anchor_is_quoted_without_it() -> None:
    """The anchor is no part of the value."""
    (problem,) = checked(MODEL, f"{PROFILE}env: {{A: &n 5}}\n").diagnostics

    assert (problem.place.column, problem.help) == (13, 'quote it: "5"')


@pytest.mark.parametrize("merged", ["*g", "[*g, {cores: 2}]", "{<<: *g}"])
def test_of_merge_keys_only_themselves_are_told(merged: str) -> None:
    """What they bring is there: it is neither missing nor a field that nobody knows."""
    text = f"{PROFILE}gpu: &g {{memory: 80GiB}}\ncpu:\n  <<: {merged}\n  cores: 1\n"

    assert set(codes(MODEL, text)) == {"E104"}


def test_each_wrong_item_of_a_flag_has_its_place() -> None:
    """A list of a flag is read item by item."""
    problems = checked(MODEL, f"{PROFILE}args: {{x: [a, [b], 1, null]}}\n").diagnostics

    assert [(problem.code, problem.place.column) for problem in problems] == [("E206", 15), ("E206", 23)]


def test_a_problem_with_a_megabyte_in_it_is_a_sentence() -> None:
    """What is quoted in a message is cut in the middle: its beginning and the rule stay."""
    (problem, *_) = checked(MODEL.replace("llama", "L" * 500_000)).diagnostics

    assert len(problem.said) < 400
    assert problem.said.startswith("cannot use the name 'LLL")
    assert problem.said.endswith("at most 63")


def test_many_problems_of_one_file_end_at_a_hundred() -> None:
    """Errors come before warnings: a hundred warnings hide no error."""
    words = "".join(f"  word-{number}: yes\n" for number in range(150))
    found = checked(f"{PROFILE}nodes: 2\ntensor_parallel: 3\nargs:\n{words}")

    assert found.catalog is None
    assert [problem.code for problem in found.diagnostics] == ["E401"]
    assert len(checked(MODEL, *[f"{PROFILE}args:\n{words}"]).diagnostics) == 100
