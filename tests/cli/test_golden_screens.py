"""Every screen to the letter, at every width; hostile words do nothing in any of them; colour is never alone."""

import pathlib
import re
from collections.abc import Iterator

import click
import pytest

from tests.support import recorded, screens
from tests.support.desk import Desk, desk

CONTROL = re.compile(r"[\x00-\x09\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069]")


@pytest.fixture(scope="module")
def standing(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """The recorded fleet, answering."""
    with desk(tmp_path_factory.mktemp("desk")).open() as found:
        yield found


@pytest.fixture(scope="module")
def attacked(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Desk]:
    """The fleet whose names attack."""
    who = "".join(recorded.HOSTILE)
    with desk(tmp_path_factory.mktemp("attacked"), recorded.hostile(), who).open() as found:
        yield found


@pytest.mark.parametrize(("screen", "mode"), list(screens.every()))
def test_a_screen_is_what_it_was(screen: str, mode: str, standing: Desk, attacked: Desk) -> None:
    """What changed on a screen is looked at by somebody: `python -m tests.lab screens --write`."""
    where = attacked if mode == "hostile" else standing
    found = screens.drawn(screen, mode, where.address).text
    assert found == screens.golden(screen, mode).read_text()


def test_the_recorded_fleet_is_read_as_it_was_written() -> None:
    """An export of before is still an export: a field that is new has a default."""
    found = recorded.snapshot.read(recorded.FLEET.read_text(), "fleet.json")
    assert found.given.fleet.nodes.keys() == {f"id-{node.name}" for node in recorded.NODES}
    assert found.given.desired.catalog is not None


@pytest.mark.parametrize("screen", list(screens.SCREENS))
def test_hostile_words_do_nothing(screen: str, attacked: Desk) -> None:
    """No control character of a name, a reason or a message reaches a terminal; no line is broken by one."""
    for mode in ("hostile", "ascii"):
        found = screens.drawn(screen, mode, attacked.address)
        if screen in ("plan", "plan-summary", "plan-explain", "status", "replicas", "nodes", "models"):
            assert "bold" in found.out + found.err, "the attack is on this screen"
        assert not CONTROL.search(found.out)
        assert not CONTROL.search(found.err)
        assert "\nbreak" not in found.out + found.err
        if mode == "ascii":
            assert found.out.isascii()


@pytest.mark.parametrize("screen", ["plan", "plan-summary", "status", "validate-broken"])
def test_colour_is_laid_over_what_is_there_without_it(screen: str, standing: Desk) -> None:
    """With colour there are the same letters; a pipe and NO_COLOR get none, whatever is asked a pipe gets it."""
    plain = screens.drawn(screen, "pipe", standing.address)
    forced = screens.drawn(screen, "pipe", standing.address, "--color", "always")
    terminal = screens.drawn(screen, "100", standing.address, told={"NO_COLOR": ""})
    never = screens.drawn(screen, "100", standing.address, "--color", "never", told={"NO_COLOR": ""})
    assert "\x1b" not in plain.out + never.out
    if screen.startswith("plan"):
        assert "\x1b[" in forced.out
        assert "\x1b[" in terminal.out
    assert click.unstyle(forced.out) == plain.out
    assert click.unstyle(terminal.out) == never.out


@pytest.mark.parametrize("screen", list(screens.SCREENS))
def test_a_pipe_gets_whole_lines(screen: str, standing: Desk) -> None:
    """Without a terminal nothing is shortened, wrapped or padded."""
    found = screens.drawn(screen, "pipe", standing.address).out
    assert "…" not in found
    if "markdown" not in screen:
        assert [line for line in found.splitlines() if line != line.rstrip()] == []


def test_ascii_has_a_form_for_everything(standing: Desk) -> None:
    """What is not ASCII is shown by its form, and JSON stays JSON with the same meaning."""
    for screen in screens.SCREENS:
        assert screens.drawn(screen, "ascii", standing.address).out.isascii()


def test_goldens_are_all_in_use() -> None:
    """No golden file is of a screen that is gone."""
    kept = {
        path.relative_to(recorded.GOLDEN / "screens") for path in (recorded.GOLDEN / "screens").rglob("*.txt")
    }
    assert kept == {pathlib.Path(mode) / f"{screen}.txt" for screen, mode in screens.every()}
