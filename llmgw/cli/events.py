"""`llmgw events`: what happened, oldest first; `-w` follows until Ctrl-C."""

import click

from llmgw.cli import names
from llmgw.cli.options import screen_options, server_option

KINDS = ["action", "shard", "node", "catalog", "alarm", "hand"]


@click.command()
@click.option("--for", "about", shell_complete=names.anything, help="Only about this model, replica or node.")
@click.option("--kind", "kinds", multiple=True, type=click.Choice(KINDS), help="Only of this kind.")
@screen_options
@server_option
def command(about: str | None, kinds: tuple[str, ...], output: str, watch: bool, server: str | None) -> None:
    """Print what the control plane did and heard since it started, and what people did with it.

    With -w and -o json each event is a line of JSON.
    """
    from llmgw.cli.doing import events

    events.run(about, kinds, output, watch, server)
