"""`llmgw events`: what happened, oldest first; `-w` follows until Ctrl-C."""

import json

import click

from llmgw.cli.client import Client, output_option, server_option
from llmgw.kit.text import safe

LONG_POLL = 20


@click.command()
@click.option("-w", "--watch", is_flag=True, help="Go on with what happens next.")
@output_option
@server_option
def command(watch: bool, output: str, server: str | None) -> None:
    """Print what the control plane did and heard since it started: actions, transitions, alarms."""
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
