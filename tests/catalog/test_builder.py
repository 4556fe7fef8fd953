"""Bytes in, data and places out; whatever the bytes are."""

import time

import pytest
from hypothesis import given
from hypothesis import strategies as some

from llmgw.catalog import builder
from llmgw.catalog.builder import build
from llmgw.catalog.marks import Path
from tests.support.held import held_after

PROFILE = b"""\
# a comment
kind: profile
gpu: {types: ["H100*"], memory: 80GiB}
args:
  first: 'one'
  second: [1, 2.5]
"""


def codes(data: bytes) -> list[str]:
    return [problem.code for problem in build("x.yaml", data).problems]


def test_data_is_plain_python() -> None:
    """Mappings, lists and scalars are what they look like."""
    assert build("x.yaml", PROFILE).value == {
        "kind": "profile",
        "gpu": {"types": ["H100*"], "memory": "80GiB"},
        "args": {"first": "one", "second": [1, 2.5]},
    }


@pytest.mark.parametrize(
    ("path", "key", "line", "column", "width"),
    [
        (("kind",), True, 2, 1, 4),
        (("kind",), False, 2, 7, 7),
        (("gpu", "types", 0), False, 3, 15, 7),
        (("gpu", "memory"), True, 3, 25, 6),
        (("args", "first"), False, 5, 10, 5),
        (("args", "second", 1), False, 6, 15, 3),
        (("args", "absent", "deeper"), False, 4, 1, 4),
        (("absent",), False, 2, 1, 1),
    ],
)
def test_every_part_knows_its_place(path: Path, key: bool, line: int, column: int, width: int) -> None:
    """Keys, values and items point at themselves; what was not written at what is around it."""
    spot = build("x.yaml", PROFILE).spot(path, key=key)

    assert (spot.place.line, spot.place.column, spot.width) == (line, column, width)


def test_columns_count_characters() -> None:
    """A name of several bytes a character moves no caret."""
    spot = build("x.yaml", "{é€😀: 1, b: 2}".encode()).spot(("b",))

    assert spot.place.column == 13


def test_a_directive_changes_nothing() -> None:
    """A file that asks for YAML 1.1 is read as YAML 1.2 all the same."""
    assert build("x.yaml", b"%YAML 1.1\n---\na: no\nb: 1:30\n").value == {"a": "no", "b": "1:30"}


def test_an_alias_stands_for_its_anchor() -> None:
    """An alias is the value it names, and its problems point at the alias."""
    tree = build("x.yaml", b"a: &x {b: 1}\nc: *x\n")

    assert tree.value == {"a": {"b": 1}, "c": {"b": 1}}
    assert tree.spot(("c", "b")).place.line == 2


@pytest.mark.parametrize(
    "data",
    ["a: 1\n".encode("utf-16"), "a: 1\n".encode("utf-16-be"), b"a: \0\n", b"a: \xff\n", b"a: \xed\xa0\x80\n"],
    ids=["UTF-16", "UTF-16 without mark", "NUL", "no UTF-8", "surrogate"],
)
def test_what_is_not_utf_8_is_refused(data: bytes) -> None:
    """The parser would guess other encodings; a catalog has one."""
    assert codes(data) == ["E108"]


def test_a_byte_that_is_not_utf_8_has_a_place() -> None:
    """An editor can jump to the broken byte."""
    (problem,) = build("x.yaml", b"a: 1\nb: \xc3\xa9 \xff\n").problems

    assert (problem.place.line, problem.place.column) == (2, 6)


def test_a_byte_order_mark_is_no_character() -> None:
    """Editors that mark UTF-8 do not break a catalog."""
    assert build("x.yaml", b"\xef\xbb\xbfa: 1\n").value == {"a": 1}


def test_a_large_file_is_refused_unread() -> None:
    """A megabyte is far more than a document is."""
    assert codes(b"#" * (builder.MAX_BYTES + 1)) == ["E107"]


@pytest.mark.parametrize(
    "data",
    [
        b"a: " + b"[" * 500_000,
        b"{a: " * 100_000,
        b"? " * 100_000,
        b"- " * 200_000,
        b"a: &a [x, x]\n" + b"".join(b"k%d: &a [*a, *a]\n" % number for number in range(60)),
        b"".join(b"k: %d\n" % number for number in range(100_000)),
        b"[" + b"1," * 400_000,
        b"a: &a [*a]\n" * 1000,
        b'"' + b"x" * 1_000_000,
    ],
    ids=["flow", "maps", "keys", "lists", "laughs", "twice", "items", "rings", "open quote"],
)
def test_a_bomb_is_refused_within_a_second(data: bytes) -> None:
    """What multiplies, nests or repeats ends early, with few words."""
    started = time.process_time()

    found = codes(data)

    assert found
    assert len(found) <= builder.MAX_PROBLEMS
    assert time.process_time() - started < 1


@given(
    some.binary(max_size=200)
    | some.text(alphabet="ab:-[]{}&*!|>'\"#%?,\n\t 01.~", max_size=200).map(str.encode)
)
def test_no_bytes_raise(data: bytes) -> None:
    """Whatever a file holds, the answer is data or problems with places in it."""
    tree = build("x.yaml", data)

    assert tree.parsed or tree.problems
    assert all(problem.place.line >= 1 and problem.place.column >= 1 for problem in tree.problems)


def test_no_long_key_is_remembered() -> None:
    """A key as long as its file goes with the file: four thousand of them would be gigabytes."""
    size = builder.MAX_BYTES // 2

    def read() -> None:
        for key in (letter * size for letter in "abcdefgh"):
            assert build("x.yaml", f"? {key}\n: 1\n".encode()).value == {key: 1}

    kept, most = held_after(read)

    assert most > size
    assert kept < 2 * size
