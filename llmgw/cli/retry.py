"""`llmgw retry`: a model that waits after failed starts is tried again at once."""

import click

from llmgw.cli import names
from llmgw.cli.options import server_option


@click.command()
@click.argument("model", shell_complete=names.models)
@click.option("--reason", default="", help="Why.")
@server_option
def command(model: str, reason: str, server: str | None) -> int:
    """Forget the failed starts of MODEL: its back-off ends, a roll-out that they halted goes on.

    Nodes where it failed are no longer avoided. What fails again waits again, from the shortest delay.
    """
    from llmgw.cli.doing import retry

    return retry.run(model, reason, server)
