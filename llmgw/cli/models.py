"""`llmgw models`: every name clients may ask for, with its ready count and the catalog line it comes from."""

import click

from llmgw.cli.options import screen_options, server_option


@click.command()
@screen_options
@server_option
def command(output: str, watch: bool, server: str | None) -> None:
    """Show every model of the adopted catalog, its ready count, its names and the line it comes from."""
    from llmgw.cli.doing import models

    models.run(output, watch, server)
