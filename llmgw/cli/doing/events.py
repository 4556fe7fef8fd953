"""The work of `llmgw events`: read on from the last number seen."""

import json

import click

from llmgw.cli.client import Client
from llmgw.kit.text import safe

LONG_POLL = 20


def run(watch: bool, output: str, server: str | None) -> None:
    """Print what happened; with `watch` until somebody ends it."""
    client = Client(server)
    last, wait = 0, 0
    while True:
        for entry in client.get("/v1/events", after=last, wait=wait):
            last = int(entry["number"])
            if output == "json":
                click.echo(json.dumps(entry))
            else:
                click.echo(
                    f"{entry['at'][:19]}Z  {entry['kind']:8}{safe(entry['about'])}  {safe(entry['said'])}"
                )
        if not watch:
            return
        wait = LONG_POLL
