"""Timers as options: what cannot be meant is refused before anything starts, with both values."""

import dataclasses

import click
import pytest
from click.testing import CliRunner

from llmgw.cli.options import Duration
from llmgw.cli.processes import read_timers
from llmgw.cli.serve import command
from llmgw.fleet.expiry import Timers


@pytest.mark.parametrize(
    ("settings", "heartbeat", "said"),
    [
        (("lost=0s",), 5.0, "'lost=0s': more than 0"),
        (("ack=0s",), 5.0, "'ack=0s': more than 0"),
        (("backoff_cap=0s",), 5.0, "'backoff_cap=0s': more than 0"),
        (("place_grace=366d",), 5.0, "at most 365d"),
        (("lost=10000000000000000h",), 5.0, "at most 365d"),
        (("lost=-1s",), 5.0, "cannot read '-1s'"),
        (("lost=nan",), 5.0, "cannot read 'nan'"),
        (("mass_share=5",), 5.0, "'mass_share=5': a share is a number, more than 0"),
        (("mass_share=0",), 5.0, "a share is a number, more than 0"),
        (("mass_share=0.5x",), 5.0, "'mass_share=0.5x': a share is a number, more than 0"),
        (("mass_share=nan",), 5.0, "a share is a number, more than 0"),
        (("lost=10s",), 5.0, "lost=10s must be longer than unreachable=15s"),
        (("lost=15s",), 5.0, "lost=15s must be longer than unreachable=15s"),
        (("unreachable=6s",), 5.0, "unreachable=6s must be longer than 1.2 × heartbeat=5s"),
        ((), 20.0, "unreachable=15s must be longer than 1.2 × heartbeat=20s"),
        (("backoff_cap=1s",), 5.0, "backoff_cap=1s must not be shorter than backoff_base=5s"),
        (("nosuch=1s",), 5.0, "write NAME=DURATION"),
        (("lost",), 5.0, "write NAME=DURATION"),
    ],
)
def test_what_cannot_be_meant(settings: tuple[str, ...], heartbeat: float, said: str) -> None:
    """A node that is lost before it is unreachable, or a share of five, would be found out in an incident."""
    with pytest.raises(click.BadParameter) as refused:
        read_timers(settings, heartbeat)
    assert said in refused.value.message


def test_short_days() -> None:
    """A test's day is short: every timer may be a fraction of a second."""
    names = [field.name for field in dataclasses.fields(Timers) if field.name not in ("lost", "mass_share")]
    found = read_timers((*(f"{name}=300ms" for name in names), "lost=500ms", "mass_share=1"), 0.2)
    assert (found.unreachable, found.lost, found.ack, found.mass_share) == (0.3, 0.5, 0.3, 1.0)
    assert read_timers(("unreachable=1s",), 0.2).unreachable == 1.0
    assert read_timers((), 5.0) == Timers()


@pytest.mark.parametrize("options", [["--heartbeat", "0s"], ["--rescan", "0s"], ["--settle", "9999999h"]])
def test_other_durations(options: list[str]) -> None:
    """The intervals that lie outside the table are held to the same."""
    done = CliRunner().invoke(command, options)
    assert done.exit_code == 2
    assert "at most 365d is possible" in done.output


def test_no_time_may_be_meant() -> None:
    """Where zero has a meaning it stays possible."""
    assert Duration().convert("0s", None, None) == 0.0
