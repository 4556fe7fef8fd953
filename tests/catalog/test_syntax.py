"""Broken YAML in words: what it is and what would help; the places are `test_oracle`'s."""

import pytest

from llmgw.catalog.builder import build
from tests.catalog.mistakes import MODEL, PROFILE


@pytest.mark.parametrize(
    ("text", "said", "hint"),
    [
        ("kind: model\n name: a\n", "line 2 goes on with this value, because it lies deeper", "indent it like line 1"),
        ("protect: true: false\n", "this value has a colon after it", "quote it all, or begin a new line with the key"),
        ("aliases: [a]: b\n", "a colon follows a value", "leave it out"),
        ("kind:model\nname: a\n", "this is neither a key nor the end of a text", "write KEY: VALUE, or indent the text"),
        ("a:\n  b: 1\n c: 2\n", "this lies as deep as nothing above it", "indent it like what it belongs to"),
        ("a:\n  - b\n  c: 2\n", "this stands in a list and begins with no dash", "write one, or indent it otherwise"),
        (" a: 1\nb: 2\n", "this does not lie as deep as the first line", "begin all fields in one column"),
        ("a: - b\n", "a list does not begin here", "begin it on the next line, or write [A, B]"),
        ("a: [b\nc: d\n", "the list that begins on line 1 does not end", "write ] at its end"),
        ("\na: {b: [c], d: 1\ne: f\n", "the mapping that begins on line 2 does not end", "write } at its end"),
        ("a: {b: 1 c: 2}\n", "no comma is between this and the next key", "write it, or quote the text with the colon"),
        ('a: "b\nc: 1\n', "the text in quotes that begins on line 1 does not end", 'write " at its end'),
        ("a: 'b\nc: 'd'\n", "the text in quotes does not end on its line", "write ' at its end"),
        ('a: "C:\\models"\n', "\\m is no escape", r"write \\ for a backslash, or use single quotes"),
        ('a: "\\u12"\n', "\\u needs 4 hexadecimal digits", ""),
        ('a: "\\ud800"\n', "\\u gives no character here", ""),
        ("a: [*H100*]\n", "unquoted * begins an alias, and this is none", "quote it if it is text"),
        ("a: &\n", "unquoted & begins an anchor, and this is none", "quote it if it is text"),
        ("a: [!b]\n", "unquoted ! begins a tag, and this is none", "quote it if it is text"),
        ("%a: b\n", "unquoted % begins a directive, and this is none", "quote it if it is text"),
        ("a: @b\n", "no unquoted text begins with @", "quote it if it is text"),
        ("a:\n\tb: 1\n", "a tab stands where only spaces may", "indent with spaces"),
        ('a: ["b" "c"]\n', "no comma is before this", "write one"),
        ("a: [b,, c]\n", "nothing is before this comma", "leave it out"),
        ("a: [b}\n", "the list that begins on line 1 does not end", "write ] at its end"),
        ("a: [b]]\n", "the value ended before this", "leave it out, or quote it all"),
        ("a: 'it's'\n", "the value ended before this", "leave it out, or quote it all"),
        ("a: >=0.21\n", "unquoted > begins a text of several lines", "quote it if it is text"),
        ("{# a #}\nb: 1\nc: 2\n", "a template was left in", "write what it stands for"),
        ("{% if a %}\nb: 1\n", "a template was left in", "write what it stands for"),
        ("a: {{- b }}\n", "a template was left in", "write what it stands for"),
    ],
)  # fmt: skip
def test_a_mistake_has_a_name_and_a_way_out(text: str, said: str, hint: str) -> None:
    """No words of a parser's grammar where people's would do."""
    (problem,) = build("x.yaml", text.encode()).problems

    assert (problem.said.removeprefix("this is not YAML: "), problem.help) == (said, hint)


@pytest.mark.parametrize(
    "text", ["a: {b: {{ c }} }\n", "a: [{{ b }}, c]\n", "{{ a }}: b\n", "a: {{ b }}-c\n"]
)
def test_a_template_is_one_problem(text: str) -> None:
    """It is a mapping whose key is a mapping, and none of that is said."""
    (problem,) = build("x.yaml", text.encode()).problems

    assert problem.said == "a template was left in"


def test_where_it_began_is_shown_beside() -> None:
    """What does not end is pointed at too."""
    (problem,) = build("x.yaml", f"{MODEL}aliases: [a\nprotect: true\n".encode()).problems

    (related,) = problem.related
    assert (problem.place.line, problem.place.column) == (6, 1)
    assert (related.spot.place.line, related.spot.place.column, related.said) == (5, 10, "it begins here")


def test_a_mark_of_byte_order_moves_no_caret() -> None:
    """It is before the first column, and not in the line that is shown."""
    tree = build("x.yaml", f"\ufeff{PROFILE}".encode())
    (broken,) = build("x.yaml", "\ufeff a: b: c\n".encode()).problems

    assert (tree.spot(("kind",)).place.column, tree.spot(("kind",)).line) == (7, "kind: profile")
    assert (broken.place.column, broken.spot.line) == (5, " a: b: c")
