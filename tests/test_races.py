"""The labs of plans and guards, briefly: green as they are, red with a bug that is planted."""

import pytest

from tests.lab import guards, plan_race


def test_no_drift_gets_through() -> None:
    """Every kind of round holds, and each of its faults took effect."""
    outcome = plan_race.run(["--n", "6"])
    assert outcome.passed, outcome.said
    assert outcome.effective


@pytest.mark.parametrize(
    ("bug", "step"), [("plans-are-never-used-up", "used_up"), ("words-do-not-matter", "beside")]
)
def test_a_planted_race_is_found(bug: str, step: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A lab that stays green with a bug in it proves nothing."""
    outcome = plan_race.run(["--n", "1", "--only", step, "--mutant", bug])
    assert not outcome.passed
    assert outcome.said
    capsys.readouterr()


def test_a_guard_fires_at_its_limit_and_not_before() -> None:
    """Two of three may stop; three of four need exactly three allowed, on plan, watch and apply."""
    outcome = guards.run(["--case", "least"])
    assert outcome.passed, outcome.said
    assert outcome.effective


@pytest.mark.parametrize(
    ("bug", "case"), [("blanket-overrides", "least"), ("protection-is-forgotten", "protect")]
)
def test_a_planted_hole_in_a_guard_is_found(bug: str, case: str, capsys: pytest.CaptureFixture[str]) -> None:
    """A guard that is not asked, or is content with too little, is missed at once."""
    assert not guards.run(["--case", case, "--mutant", bug]).passed
    capsys.readouterr()
