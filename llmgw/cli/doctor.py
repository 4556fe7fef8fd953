"""`llmgw doctor`: what a person would look at when something seems wrong, looked at."""

import click

from llmgw.cli.options import document_option, server_option


@click.command()
@document_option
@server_option
def command(output: str, server: str | None) -> int:
    """Check the control plane, releases, clocks, the catalog, nodes, cards, engines and disks.

    And where it runs: the token, the completion of the shell, and whether git reads the repository.

    Each finding says what would help. Exit 1 when something is wrong; what is only worth knowing is a warning.
    """
    from llmgw.cli.doing import doctor

    return doctor.run(output, server)
