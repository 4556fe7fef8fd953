"""`llmgw engine-check NODE`: runs the engines' own version commands on a node, because somebody means to.

Nothing else ever runs an engine to look at it: a wrapper script could start a server. What this starts is
ended, whatever it is.
"""

import click

from llmgw.cli import names
from llmgw.cli.options import document_option, server_option


@click.command()
@click.argument("node", shell_complete=names.nodes)
@document_option
@server_option
def command(node: str, output: str, server: str | None) -> int:
    """Run the version command of every engine that NODE has found, and show what each says.

    It takes seconds: some engines import everything first. The answer is kept with the node and shown by
    `llmgw nodes` until the program changes. Exits with 1 where one does not run.
    """
    from llmgw.cli.doing import engine_check

    return engine_check.run(node, output, server)
