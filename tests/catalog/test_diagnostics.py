"""How a problem is shown, whatever is in it."""

from llmgw.catalog.diagnostics import (
    SHOWN,
    TOLD,
    Diagnostic,
    Invalid,
    Spot,
    as_concise,
    as_text,
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


def many(number: int) -> list[Diagnostic]:
    """A warning, then `number` errors, by their lines."""
    errors = (Diagnostic("E301", "x", Spot(Place("m.yaml", line, 1))) for line in range(2, number + 2))
    return [Diagnostic("W504", "x", Spot(Place("m.yaml"))), *errors]


def test_people_are_shown_a_screenful() -> None:
    """Fifteen thousand problems are fifty, and how many more; what is left out first are warnings."""
    lines = as_concise(many(15_000)).splitlines()

    assert len(lines) == SHOWN + 1
    assert lines[0] == "m.yaml:2:1: E301 x"
    assert lines[-1] == "and 14951 more problems; llmgw validate -o json has all"
    assert as_text(many(15_000)).endswith(f"\n\n{lines[-1]}")


def test_a_screenful_is_shown_as_it_is() -> None:
    """As many problems as people are shown are in the order of their places, and nothing is said of a rest."""
    lines = as_concise(many(SHOWN - 1)).splitlines()

    assert len(lines) == SHOWN
    assert lines[0] == "m.yaml:1:1: W504 x"


def test_what_a_program_is_not_told_is_no_lie() -> None:
    """Where even JSON leaves some out, nobody is told that it has all."""
    assert as_concise(many(TOLD)).endswith("llmgw validate -o json has 25000")
    assert as_concise(many(TOLD - 1)).endswith("llmgw validate -o json has all")
