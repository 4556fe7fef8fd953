"""`llmgw doctor`: what a person would look at when something seems wrong, looked at."""

import click

from llmgw.cli.options import server_option


@click.command()
@click.option(
    "-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", show_default=True
)
@server_option
def command(output: str, server: str | None) -> int:
    """Check the control plane, releases, clocks, the catalog, nodes, cards, engines and disks.

    Each finding says what would help. Exit 1 when something is wrong; what is only worth knowing is a warning.
    """
    from llmgw.cli.doing import doctor

    return doctor.run(output, server)
