"""`llmgw replicas`: every replica, what state it is in and why; a fetch shows its progress under it."""

import click

from llmgw.cli.options import output_option, server_option


@click.command()
@output_option
@server_option
def command(output: str, server: str | None) -> None:
    """Show every replica, what state it is in and why; a fetch shows its progress under it."""
    from llmgw.cli.doing import replicas

    replicas.run(output, server)
