"""`llmgw nodes`: every node of the roster, what it has and what is free."""

import click

from llmgw.cli.options import screen_options, server_option


@click.command()
@screen_options
@server_option
def command(output: str, watch: bool, server: str | None) -> None:
    """Show every node of the roster, what it has and what is free.

    `?` is what a node did not say; `-o wide` adds its id, address, build and cards.
    """
    from llmgw.cli.doing import nodes

    nodes.run(output, watch, server)
