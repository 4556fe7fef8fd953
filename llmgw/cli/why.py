"""`llmgw why`: why a model, a replica, a node or a gateway is as it is."""

import click

from llmgw.cli import names
from llmgw.cli.options import document_option, server_option


@click.command()
@click.argument("name", shell_complete=names.anything)
@document_option
@server_option
def command(name: str, output: str, server: str | None) -> None:
    """Say why NAME is as it is: placed where and why there, not placed and by which rule on which node,
    waiting after failed starts, paused, cordoned, drained and for whom, held, silent and what that means.

    Of a name that nothing has: which revision removed it, what was last heard of it, what is near.
    """
    from llmgw.cli.doing import why

    why.run(name, output, server)
