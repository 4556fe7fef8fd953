"""How a problem is shown, whatever is in it."""

from llmgw.catalog.diagnostics import (
    Diagnostic,
    Invalid,
    Spot,
    as_concise,
    ordered,
    summary,
    text,
)
from llmgw.catalog.model import Place

ERROR = Diagnostic(
    "E301", "no profile is called `a`", Spot(Place("m.yaml", 4, 12), 1, "profiles: [a]"), "add it"
)
WARNING = Diagnostic("W501", "the file is empty", Spot(Place("a.yaml")))


def carets(spot: Spot) -> tuple[str, str]:
    shown = text(Diagnostic("E101", "x", spot)).splitlines()
    return shown[-2], shown[-1]


def test_carets_stand_under_wide_characters() -> None:
    """A name in Chinese takes two cells a character."""
    line, marks = carets(Spot(Place("x", 1, 7), 2, "name: 模型 b"))

    assert (line, marks) == ("1 | name: 模型 b", "  |       ^^^^")


def test_a_hostile_line_cannot_reach_the_terminal() -> None:
    """Control characters of a file are shown as characters, never obeyed."""
    line, _ = carets(Spot(Place("x", 1, 1), 1, "a\x1b[2Jb\u202ec"))

    assert line == "1 | a�[2Jb�c"


def test_a_long_line_is_cut_around_its_place() -> None:
    """A line of a megabyte is no screenful."""
    line, marks = carets(Spot(Place("x", 1, 500_001), 3, "a" * 500_000 + "bcd" + "e" * 500_000))

    assert "abcde" in line
    assert len(line) < 200
    assert marks.index("^") == line.index("bcd")


def test_a_place_past_the_end_still_has_a_caret() -> None:
    """What is missing at the end of a line is pointed at there."""
    assert carets(Spot(Place("x", 1, 4), 1, "a: ")) == ("1 | a:", "  |    ^")


def test_one_line_for_grep() -> None:
    """Concise output has the place, the code, the sentence and the help on one line each."""
    assert as_concise([WARNING, ERROR]).splitlines() == [
        "a.yaml:1:1: W501 the file is empty",
        "m.yaml:4:12: E301 no profile is called `a` (add it)",
    ]


def test_each_problem_once_and_in_order() -> None:
    """By file, line and column, whoever found it first or twice."""
    assert ordered([ERROR, WARNING, ERROR]) == [WARNING, ERROR]


def test_the_error_says_how_many_and_where_to_begin() -> None:
    """Who only sees the exception still knows what to open."""
    error = Invalid([ERROR, WARNING])

    assert error.diagnostics == (WARNING, ERROR)
    assert str(error) == (
        "cannot use the catalog: 1 error and 1 warning in 2 files\n"
        "  help: begin with m.yaml:4:12: E301 no profile is called `a` (add it)"
    )
    assert summary([]) == "no problem in 0 files"
