"""The work of `llmgw release`."""

import getpass

import click

from llmgw.cli.client import Client
from llmgw.cli.exits import Exit
from llmgw.kit.text import safe


def run(server: str | None) -> int:
    """Let go; returns the exit code."""
    held = Client(server).post("/v1/release", {"who": getpass.getuser()})
    if held is None:
        click.echo("nothing was on hold")
    else:
        click.echo(safe(f"released: it was held by {held['who'] or '?'}: {held['reason']}"))
    return Exit.DONE
