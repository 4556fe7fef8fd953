"""Following a fleet to the state its catalog asks for: a line a transition, and one now and then for bytes.

Used by `apply` and `up`. Prints on stderr: what is printed here is progress, not the answer.
"""

import time
from collections.abc import Iterable, Iterator

import click

from llmgw.cli.client import Client
from llmgw.cli.exits import Exit
from llmgw.cli.screens import progress_text
from llmgw.kit.clock import SystemClock
from llmgw.kit.text import safe
from llmgw.planning.screen import ReplicaRow

POLL = 0.3
SAY_EVERY = 5.0
"""Seconds between two lines about a fetch that goes on."""


def transitions(client: Client, event: int) -> Iterator[int]:
    """Print what happened since `event`, now and after every rest, for ever; gives the newest each time."""
    while True:
        for entry in client.get("/v1/events", after=event):
            event = int(entry["number"])
            click.echo(f"  {safe(entry['about'])}  {safe(entry['said'])}", err=True)
        yield event
        time.sleep(POLL)


def follow(client: Client, event: int, limit: float) -> int:
    """Until nothing is outstanding; returns the exit code."""
    clock = SystemClock()
    began = said_at = clock.now()
    while True:
        # Asked first: what happened before it is then said before it.
        status = client.get("/v1/status")
        for entry in client.get("/v1/events", after=event):
            event = int(entry["number"])
            click.echo(f"  {safe(entry['about'])}  {safe(entry['said'])}", err=True)
        if not status["outstanding"]:
            click.echo(f"done in {clock.now() - began:.1f}s", err=True)
            return Exit.DONE
        if clock.now() - began > limit:
            click.echo("still outstanding; the work goes on:", err=True)
            _say(f"  {line}" for line in status["outstanding"])
            return Exit.TIMEOUT
        if clock.now() - said_at > SAY_EVERY:
            said_at = clock.now()
            _say(_fetching(client))
        time.sleep(POLL)


def _fetching(client: Client) -> Iterable[str]:
    rows: tuple[ReplicaRow, ...] = client.read(tuple[ReplicaRow, ...], "/v1/replicas")
    return [f"  {safe(row.replica)}  {progress_text(row)}" for row in rows if row.progress is not None]


def _say(lines: Iterable[str]) -> None:
    for line in lines:
        click.echo(line, err=True)
