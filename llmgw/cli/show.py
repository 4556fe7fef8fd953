"""`llmgw show`: a revision that is kept, or a plan that was saved."""

import click

from llmgw.cli.options import document_option, server_option


@click.command()
@click.argument("what", metavar="N|FILE")
@document_option
@server_option
def command(what: str, output: str, server: str | None) -> int:
    """Show the plan of revision N, or the one that `llmgw plan --save FILE` wrote.

    A saved plan is read from its file alone; no control plane is asked.
    """
    from llmgw.cli.doing import show

    return show.run(what, output, server)
