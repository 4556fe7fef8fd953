"""`llmgw nodes`: every node of the roster, what it has and what is free."""

import click

from llmgw.cli.options import output_option, server_option


@click.command()
@output_option
@server_option
def command(output: str, server: str | None) -> None:
    """Show every node of the roster, what it has and what is free."""
    from llmgw.cli.doing import nodes

    nodes.run(output, server)
