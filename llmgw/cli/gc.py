"""`llmgw gc`: weights on the nodes that nothing wants. Lists by default; `--collect` asks for exactly the list.

A node checks every entry again before it removes it, and may refuse: that is this working, not an error.
"""

import click

from llmgw.cli.options import document_option, server_option


@click.command()
@click.option("--collect", is_flag=True, help="Ask the nodes to remove exactly what is listed.")
@click.option(
    "--expect", metavar="ID", default="", help="Collect only if the list is still this one; do not ask."
)
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@document_option
@server_option
def command(collect: bool, expect: str, yes: bool, output: str, server: str | None) -> int:
    """List weights that nothing wants: not the catalog, no replica, no fetch.

    Only entries that llmgw fetched are ever listed. With --collect the nodes are asked to remove exactly
    that list; each looks again at every entry and says what it removed, what it refused, and why.
    """
    if expect and not collect:
        raise click.UsageError("--expect is for --collect: without it nothing is removed")
    from llmgw.cli.doing import gc

    return gc.run(collect, expect, yes, output, server)
