"""`llmgw status`: one screen, the answer to "is it what we asked for?"."""

import click

from llmgw.cli.options import output_option, server_option


@click.command()
@output_option
@server_option
def command(output: str, server: str | None) -> None:
    """Show which revision stands, what is held, what is outstanding, which nodes are there, and every alarm."""
    from llmgw.cli.doing import status

    status.run(output, server)
