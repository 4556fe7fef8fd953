"""`llmgw models`: every model of the adopted catalog, its ready count and its names."""

import click

from llmgw.cli.options import output_option, server_option


@click.command()
@output_option
@server_option
def command(output: str, server: str | None) -> None:
    """Show every model of the adopted catalog, its ready count and its names."""
    from llmgw.cli.doing import models

    models.run(output, server)
