"""`llmgw events`: what happened, oldest first; `-w` follows until Ctrl-C."""

import click

from llmgw.cli.options import output_option, server_option


@click.command()
@click.option("-w", "--watch", is_flag=True, help="Go on with what happens next.")
@output_option
@server_option
def command(watch: bool, output: str, server: str | None) -> None:
    """Print what the control plane did and heard since it started: actions, transitions, alarms."""
    from llmgw.cli.doing import events

    events.run(watch, output, server)
