"""`llmgw version`: which release this is, and which the fleet's processes are."""

import click

from llmgw.cli.options import server_option


@click.command()
@click.option(
    "-o", "--output", type=click.Choice(["text", "json", "yaml"]), default="text", show_default=True
)
@click.option("--client", is_flag=True, help="Only this command's; asks nobody.")
@server_option
def command(output: str, client: bool, server: str | None) -> int:
    """Show the releases of this command, the control plane, every agent and every gateway.

    What differs is marked. Neighbouring releases work together; the oldest is best upgraded first.
    """
    from llmgw.cli.doing import version

    return version.run(output, client, server)
