"""`llmgw replicas`: every replica, where it runs, how far it is, and what is wanted and not there."""

import click

from llmgw.cli import names
from llmgw.cli.options import screen_options, server_option

STATES = [
    "Ready",
    "Fetching",
    "Starting",
    "Draining",
    "Stopping",
    "Pending",
    "Backoff",
    "Paused",
    "Unreachable",
    "Unknown",
    "Failed",
    "Lost",
]


@click.command()
@click.option("--model", "models", multiple=True, shell_complete=names.models, help="Only of this model.")
@click.option("--node", "nodes", multiple=True, shell_complete=names.nodes, help="Only on this node.")
@click.option(
    "--state",
    "states",
    multiple=True,
    type=click.Choice(STATES, case_sensitive=False),
    help="Only in this state.",
)
@click.option("--not-ready", is_flag=True, help="Only what is not Ready.")
@screen_options
@server_option
def command(
    models: tuple[str, ...],
    nodes: tuple[str, ...],
    states: tuple[str, ...],
    not_ready: bool,
    output: str,
    watch: bool,
    server: str | None,
) -> None:
    """Show every replica, and every one that is wanted and not there, with why.

    The progress of a fetch is a line under its replica; `-o wide` adds a line for each rank.
    """
    from llmgw.cli.doing import replicas

    replicas.run(models, nodes, states, not_ready, output, watch, server)
