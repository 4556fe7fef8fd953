"""`llmgw hold`: adopt nothing that is followed, until somebody lets go."""

import click

from llmgw.cli.options import Duration, server_option


@click.command()
@click.option("--reason", required=True, help="Why; `llmgw status` shows it.")
@click.option(
    "--for", "seconds", type=Duration(positive=True), help="Until it ends by itself: 2h, 3d. [default: never]"
)
@server_option
def command(reason: str, seconds: float | None, server: str | None) -> int:
    """Hold the catalog that is followed: nothing of it is adopted until `llmgw release`.

    What stands goes on standing, replicas are still healed, and people may still apply.
    """
    from llmgw.cli.doing import hold

    return hold.run(reason, seconds, server)
