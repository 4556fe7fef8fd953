"""`llmgw pause`: leave a model alone; what runs of it goes on serving."""

import click

from llmgw.cli import names
from llmgw.cli.options import Duration, server_option


@click.command()
@click.argument("model", shell_complete=names.models)
@click.option("--reason", required=True, help="Why; shown wherever it has an effect.")
@click.option(
    "--for", "seconds", type=Duration(positive=True), help="Until it ends by itself: 2h, 3d. [default: never]"
)
@server_option
def command(model: str, reason: str, seconds: float | None, server: str | None) -> int:
    """Start, move and stop nothing of MODEL until it is resumed; what runs goes on serving.

    A replica that breaks meanwhile is cleaned up and not rebuilt; one that drains serves again, unless its stop
    was sent. A drained node waits for it. A model that leaves the catalog is stopped, paused or not.
    """
    from llmgw.cli.doing import pause

    return pause.run(model, reason, seconds, server)
