"""`llmgw status`: one screen, the answer to "is it what we asked for?"."""

import click

from llmgw.cli.options import screen_options, server_option


@click.command()
@screen_options
@server_option
def command(output: str, watch: bool, server: str | None) -> None:
    """Show which revision stands, what is held, what is outstanding, which nodes are there, what people
    set by hand, and every alarm.
    """
    from llmgw.cli.doing import status

    status.run(output, watch, server)
