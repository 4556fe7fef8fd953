"""What happens to the fleet, told as it happens: a line an event. Used by verbs that follow what they began."""

import time
from collections.abc import Iterator

import click

from llmgw.cli.client import Client
from llmgw.kit.text import safe

POLL = 0.3


def transitions(client: Client, event: int) -> Iterator[int]:
    """Print what happened since `event`, now and after every rest, for ever; gives the newest each time."""
    while True:
        for entry in client.get("/v1/events", after=event):
            event = int(entry["number"])
            click.echo(f"  {safe(entry['about'])}  {safe(entry['said'])}", err=True)
        yield event
        time.sleep(POLL)
