"""`llmgw release`: end a hold; what is followed is looked at again at once."""

import click

from llmgw.cli.options import server_option


@click.command()
@server_option
def command(server: str | None) -> int:
    """Let the catalog that is followed be adopted again."""
    from llmgw.cli.doing import release

    return release.run(server)
