"""`llmgw apply`: plan, show, ask, apply, follow. Ctrl-C stops following, not applying."""

import pathlib

import click

from llmgw.cli.options import Duration, catalog_argument, server_option


@click.command()
@catalog_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--expect", metavar="ID", default="", help="Apply only if the plan is still this one; do not ask."
)
@click.option("--wait", type=click.Choice(["ready", "accepted"]), default="ready", show_default=True)
@click.option(
    "--timeout",
    type=Duration(),
    default="30m",
    show_default=True,
    help="Stop following after this; the work goes on.",
)
@click.option("-m", "--message", default="", help="Kept with the revision.")
@server_option
def command(
    path: pathlib.Path, yes: bool, expect: str, wait: str, timeout: float, message: str, server: str | None
) -> int:
    """Make the fleet serve the catalog below PATH (default: ./catalog).

    Shows the plan, asks, hands the catalog over and follows until every wanted replica is ready and
    everything else has stopped. The bytes that were planned are the bytes that are applied.
    """
    from llmgw.cli.doing import apply

    return apply.run(path, yes, expect, wait, timeout, message, server)
