"""`llmgw version`: which release this is, and which the fleet's processes are."""

import click

from llmgw.cli.options import document_option, server_option


@click.command()
@document_option
@click.option("--client", is_flag=True, help="Only this command's; asks nobody.")
@server_option
def command(output: str, client: bool, server: str | None) -> int:
    """Show the releases of this command, the control plane, every agent and every gateway.

    What differs is marked. Neighbouring releases work together; the oldest is best upgraded first.
    """
    from llmgw.cli.doing import version

    return version.run(output, client, server)
