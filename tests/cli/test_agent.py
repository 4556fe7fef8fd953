"""`llmgw agent`: what its options accept, and what they say when they do not."""

import asyncio
import pathlib

import pytest

from llmgw.agent import serve
from llmgw.catalog.hub import Hub
from llmgw.cli.doing import agent
from llmgw.cli.exits import Exit
from llmgw.cli.main import run
from llmgw.cli.options import HUB


@pytest.fixture
def settings(monkeypatch: pytest.MonkeyPatch, tmp_path: pathlib.Path) -> list[serve.Settings]:
    """The settings that the process would run with; it does not run."""
    seen: list[serve.Settings] = []

    async def note(given: serve.Settings, **_: object) -> None:
        seen.append(given)

    monkeypatch.setattr(serve, "run", note)
    monkeypatch.setattr(agent, "run_until_signal", lambda work: asyncio.run(work()))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    return seen


def test_options_become_settings(settings: list[serve.Settings], tmp_path: pathlib.Path) -> None:
    """Ports, labels, engines and timers arrive as values; what is not said keeps its default."""
    line = (
        "agent --name n --ports 21000-21999 --label rack=a --label zone=b --engine llamacpp=/opt/llama-server"
        " --timer health.hang=500ms --timer sweep.patience=2m --timer core.reset_after=1s"
    )
    assert run(line.split()) == Exit.DONE
    (given,) = settings
    assert (given.ports, given.labels) == ((21000, 21999), (("rack", "a"), ("zone", "b")))
    assert (given.state_dir, dict(given.engines)) == (
        tmp_path / "llmgw" / "agent",
        {"llamacpp": "/opt/llama-server"},
    )
    timers = given.timers
    assert (timers.health.hang, timers.health.look, timers.sweep.patience) == (0.5, 0.2, 120.0)
    assert given.limits.reset_after == 1.0


@pytest.mark.parametrize(
    ("option", "said"),
    [
        ("--ports 21000", "'21000' is no FIRST-LAST between 1 and 65535"),
        ("--ports 9-8", "'9-8' is no FIRST-LAST between 1 and 65535"),
        ("--label rack", "'rack' is no NAME=VALUE"),
        ("--engine tgi=/x", "'tgi': write one of llamacpp, sglang, vllm"),
        ("--timer hang=1s", "'hang' is no timer: write one of core.reset_after, "),
        ("--timer health.hang=1", "health.hang: cannot read '1' as a duration"),
    ],
)
def test_a_wrong_option_says_what_is_right(
    settings: list[serve.Settings], capsys: pytest.CaptureFixture[str], option: str, said: str
) -> None:
    """Usage errors name the value and what would be accepted, and start nothing."""
    assert run(["agent", *option.split()]) == Exit.USAGE
    assert said in capsys.readouterr().err
    assert settings == []


def test_a_directory_that_is_taken_is_no_traceback(
    tmp_path: pathlib.Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """A state directory that cannot be used ends the verb with a sentence."""
    (tmp_path / "obeyed").write_text("{}")
    assert run(["agent", "--state-dir", str(tmp_path), "--control", "127.0.0.1:1"]) == Exit.FAILED
    assert "cannot read" in capsys.readouterr().err


def test_the_hub_of_the_help_is_the_hub_that_is_asked() -> None:
    """The verb writes the address out, because its help must not import a client for HTTP."""
    assert Hub().endpoint == HUB
