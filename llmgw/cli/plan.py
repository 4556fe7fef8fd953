"""`llmgw plan`: what would happen, in order, and why. Changes nothing."""

import pathlib

import click

from llmgw.cli.options import catalog_argument, output_option, server_option


@click.command()
@catalog_argument
@click.option("--explain", is_flag=True, help="Show the command line of every engine that would start.")
@click.option("--detailed-exitcode", is_flag=True, help="Exit 2 when there are changes.")
@output_option
@server_option
def command(
    path: pathlib.Path, explain: bool, detailed_exitcode: bool, output: str, server: str | None
) -> int:
    """Rehearse the catalog below PATH (default: ./catalog) on the fleet as it is now.

    Prints every action in the order it would happen, with its node, its reason, the catalog line that
    causes it and the bytes to fetch; then the lowest number of ready replicas on the way, and what
    cannot be placed with each node's reasons.
    """
    from llmgw.cli.doing import plan

    return plan.run(path, explain, detailed_exitcode, output, server)
