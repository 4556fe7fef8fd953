"""`llmgw fmt`: one layout, nothing lost."""

import pathlib
import random

import pytest
from click.testing import CliRunner
from hypothesis import example, given
from hypothesis import strategies as some

from llmgw.catalog.builder import build
from llmgw.catalog.diagnostics import Invalid
from llmgw.catalog.documents import ORDER, PROFILES, ModelDocument
from llmgw.catalog.formatting import MODELINE, comments, formatted
from llmgw.cli import fmt
from llmgw.errors import CatalogInvalid, Failed, LlmgwError
from tests.catalog.samples import MODEL, PROFILE

ROOT = pathlib.Path(__file__).parents[2]


def laid_out(text: str, schema: str = "") -> str:
    return formatted("x.yaml", text.encode(), schema).decode()


UNTIDY = """\
# what it is

name: a   # short

# about the kind
kind: profile
args:
    x: 0.90
      # y: 2
    l:
    - 1

# about the engine
engine: vllm
gpu:
   memory: 1GiB
    # all of them
   types: [a,   b]
drain: 1s
flavour: 'mint'
# the end
"""
TIDY = """\
# yaml-language-server: $schema=../s.json
# what it is

# about the kind
kind: profile
name: a   # short

# about the engine
engine: vllm
gpu:
  # all of them
  types: [a, b]
  memory: 1GiB
args:
  x: 0.90
  # y: 2
  l:
    - 1
drain: 1s
flavour: 'mint'
# the end
"""


def test_keys_come_in_order_with_their_comments() -> None:
    """Fields as the schema has them, what is above a key moves with it, nothing else is rewritten."""
    assert laid_out(UNTIDY, "../s.json") == TIDY
    assert laid_out(TIDY, "../s.json") == TIDY


def test_a_modeline_that_is_there_stays() -> None:
    """Whoever pinned another schema keeps it."""
    text = f"{MODELINE}https://example.org/s.json\n{MODEL}"

    assert laid_out(text, "../s.json") == text


def test_windows_line_ends_and_a_mark_go() -> None:
    """A file saved elsewhere has the bytes of one saved here."""
    assert formatted("x", b"\xef\xbb\xbf" + MODEL.replace("\n", "\r\n").encode()) == MODEL.encode()


def test_the_order_has_every_field_once() -> None:
    """A new field has its place among the others before it can be written."""
    fields = {"min", "max", "target_in_flight", "types", "cores", "memory"}
    for document in (ModelDocument, *PROFILES.values()):
        fields |= set(document.model_fields)

    assert sorted(ORDER) == sorted(fields)


@pytest.mark.parametrize(
    "text",
    ["a: [", "a: 1\na: 2\n", "a: !x 1\n", "a: 0123\n", "a: *b\n", "--- 1\n--- 2\n", "a: \x00\n"],
)
def test_what_is_no_yaml_is_refused(text: str) -> None:
    """A file that would be refused when it is loaded is not touched."""
    with pytest.raises(Invalid):
        laid_out(text)


@pytest.mark.parametrize("text", ["kind: model\nargs: {a: , b: 1}\n", "kind: model\nargs: { # why\n  }\n"])
def test_what_cannot_be_kept_is_refused(text: str) -> None:
    """Better no layout than a comment or a value lost."""
    with pytest.raises(Failed, match="cannot format x"):
        laid_out(text)


BETWEEN = """\
kind: model  # what
scaling: {max: 4, # by day
  # at night
  min: 1 # the least
  # no less
  }  # bounds
profiles: [a, # first
  b]
args: {c: {d: [1, # one
  2]}, e: "x # y", f: 'two
     lines', g: {h: 1}}
"""
AS_LINES = """\
kind: model  # what
profiles:
  - a  # first
  - b
scaling:
  # at night
  min: 1  # the least
  max: 4  # by day
  # no less
  # bounds
args:
  c:
    d:
      - 1  # one
      - 2
  e: "x # y"
  f: 'two lines'
  g: {h: 1}
"""


def test_comments_between_braces_become_lines() -> None:
    """There each of them has its place; what has none inside stays between its braces."""
    assert laid_out(BETWEEN) == AS_LINES
    assert laid_out(AS_LINES) == AS_LINES
    assert laid_out("{name: a, # short\n kind: model}\n") == "kind: model\nname: a  # short\n"


WORDS = some.sampled_from(
    [
        "a",
        "0.90",
        "0o17",
        "1_000",
        "yes",
        "~",
        "'it''s'",
        '"é\\n"',
        "a b",
        "2001-12-14",
        "😀",
        "x/#y",
        '"# no"',
    ]
)


@some.composite
def documents(draw: some.DrawFn) -> str:
    """A document as people write it: any order, any indentation, comments anywhere a person puts one."""
    chance = random.Random(draw(some.integers(0, 1 << 32)))
    keys = draw(some.lists(some.sampled_from([*ORDER, "typo", "other"]), unique=True, min_size=1, max_size=9))
    lines: list[str] = []
    for key in keys:
        lines += [""] * chance.choice([0, 0, 1, 2])
        lines += [f"# {key}: before"] * chance.choice([0, 0, 1])
        lines += value(chance, key, draw)
    lines += ["# at the end"] * chance.choice([0, 1])
    return chance.choice(["\n", "\n", "\r\n"]).join(lines) + "\n"


def value(chance: random.Random, key: str, draw: some.DrawFn) -> list[str]:
    """The lines of one field."""
    after = chance.choice(["", "", f"   # {key}: beside"])
    inner = " " * chance.choice([1, 2, 3, 4])
    first, second = draw(WORDS), draw(WORDS)
    return chance.choice(
        [
            [f"{key}: {first}{after}"],
            [f"{key}:   [{first},{second}]{after}"],
            [f"{key}: {{min: {first}, kind: {second}}}{after}"],
            [f"{key}: {{min: {first}, # {key}: inside", f"{inner}kind: {second}}}{after}"],
            [f"{key}: {{  # {key}: begins", f"{inner}min: [{first}, # one", f"{inner}2],", f"{inner}# two", f"{inner}kind: {second} # last", f"{inner}}}"],
            [f"{key}: [{first}, # {key}: inside", f"{inner}{{b: {second} # b", f"{inner}}} ]{after}"],
            [f"{key}:{after}", f"{inner}memory: {first}", f"{inner}# {key}: inside", f"{inner}cores: {second}{after}"],
            [f"{key}:{after}", f"{inner}- {first}", f"{inner}# {key}: between", f"{inner}- {second}"],
            [f"{key}: |{after}", f"{inner}# {key}: text", "", f"{inner}more"],
            [f"{key}:{after}", f"{inner}a:", f"{inner}{inner}- b: {first}", f"{inner}{inner}  c: {second}", f"{inner}# {key}: out"],
        ]
    )  # fmt: skip


@given(documents())
def test_meaning_and_comments_outlive_any_layout(text: str) -> None:
    """Values and comments are those of before, keys that are known are in order, and once is enough."""
    before = build("x", text.encode())
    new = laid_out(text)
    after = build("x", new.encode())

    assert after.value == before.value
    assert sorted(comments(new.encode())) == sorted(comments(text.encode()))
    assert isinstance(after.value, dict)
    known = [key for key in after.value if key in ORDER]
    assert known == sorted(known, key=ORDER.index)
    assert laid_out(new) == new


@given(some.text(some.sampled_from("ab:-#'\"[]{},|>&*!%@? \n\t1~é"), max_size=60))
@example("{1:1}")
def test_any_text_is_formatted_or_refused(text: str) -> None:
    """No text at all is a traceback."""
    try:
        new = laid_out(text)
    except LlmgwError:
        return
    assert laid_out(new) == new


@pytest.fixture
def here(tmp_path: pathlib.Path, monkeypatch: pytest.MonkeyPatch) -> pathlib.Path:
    """A catalog beside its schema, one file untidy."""
    (tmp_path / "schemas").mkdir()
    (tmp_path / "schemas" / "catalog.schema.json").touch()
    (tmp_path / "catalog").mkdir()
    (tmp_path / "catalog" / "m.yaml").write_text("name: llama\n" + MODEL.replace("name: llama\n", ""))
    (tmp_path / "catalog" / "p.yaml").write_text(f"{MODELINE}../schemas/catalog.schema.json\n{PROFILE}")
    monkeypatch.chdir(tmp_path)
    return tmp_path / "catalog"


def test_files_are_written_once(here: pathlib.Path) -> None:
    """The untidy one is replaced, with its permissions; a second run writes nothing."""
    (here / "m.yaml").chmod(0o664)

    first = CliRunner().invoke(fmt.command, [])
    second = CliRunner().invoke(fmt.command, [])

    assert first.stdout == "formatted catalog/m.yaml\n"
    assert (here / "m.yaml").read_text() == f"{MODELINE}../schemas/catalog.schema.json\n{MODEL}"
    assert (here / "m.yaml").stat().st_mode & 0o777 == 0o664
    assert (second.exit_code, second.stdout) == (0, "")


@pytest.mark.parametrize("option", ["--check", "--diff"])
def test_looking_writes_nothing(here: pathlib.Path, option: str) -> None:
    """--check fails and names the file, --diff shows it; neither touches it."""
    before = (here / "m.yaml").read_bytes()

    result = CliRunner().invoke(fmt.command, [option])

    assert (here / "m.yaml").read_bytes() == before
    assert isinstance(result.exception, Failed) is (option == "--check")
    assert ("-kind: model" in result.stdout) is (option == "--diff")


def test_a_broken_file_keeps_no_other_from_being_formatted(here: pathlib.Path) -> None:
    """Each file that can be is written; what cannot be is said with its place, and fails the run."""
    (here / "a.yaml").write_text("a: [\n")

    result = CliRunner().invoke(fmt.command, ["catalog/a.yaml", "catalog/m.yaml"])

    assert isinstance(result.exception, CatalogInvalid)
    assert "catalog/a.yaml:2:1" in result.stderr
    assert result.stdout == "formatted catalog/m.yaml\n"
    assert (here / "a.yaml").read_text() == "a: [\n"


def test_a_link_stays_a_link(here: pathlib.Path) -> None:
    """What a link leads to is written, and the link still leads there."""
    (here / "m.yaml").rename(here.parent / "m.yaml")
    (here / "m.yaml").symlink_to("../m.yaml")

    CliRunner().invoke(fmt.command, ["catalog/m.yaml"], catch_exceptions=False)

    assert (here / "m.yaml").is_symlink()
    assert "schema" in (here.parent / "m.yaml").read_text()


def test_what_is_not_there_is_said(here: pathlib.Path) -> None:
    """A slip in a path is an error."""
    result = CliRunner().invoke(fmt.command, ["catalog/absent.yaml"])

    absent = here / "absent.yaml"
    assert f"cannot format catalog/absent.yaml: there is no file or directory {absent}" in str(
        result.exception
    )


def test_the_examples_are_formatted() -> None:
    """What is shown as an example is laid out as `fmt` lays it out."""
    result = CliRunner().invoke(fmt.command, ["--check", str(ROOT / "catalog")])

    assert result.exit_code == 0, result.output
