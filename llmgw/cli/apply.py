"""`llmgw apply`: plan, show, ask, apply, follow. Ctrl-C stops following, not applying."""

import pathlib

import click

from llmgw.cli import names
from llmgw.cli.options import PATH, Duration, catalog_argument, lines_option, server_option
from llmgw.cli.overrides import override_options
from llmgw.planning.fired import Allowed


@click.command()
@catalog_argument
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--expect",
    shell_complete=names.plans,
    metavar="ID",
    default="",
    help="Apply only if the plan is still this one, or what is left of it; do not ask.",
)
@click.option(
    "--plan",
    "saved",
    type=PATH,
    metavar="FILE",
    help="Apply the plan that `llmgw plan --save FILE` wrote, and its bytes; do not ask.",
)
@override_options
@click.option("--wait", type=click.Choice(["ready", "accepted"]), default="ready", show_default=True)
@click.option(
    "--timeout",
    type=Duration(),
    default="30m",
    show_default=True,
    help="Stop following after this; the work goes on.",
)
@click.option(
    "--attach",
    type=int,
    is_flag=False,
    flag_value=0,
    metavar="[REVISION]",
    help="Follow the apply of a revision, by default the newest; change nothing.",
)
@click.option("-m", "--message", default="", help="Kept with the revision.")
@lines_option
@server_option
def command(
    *,
    path: pathlib.Path,
    yes: bool,
    expect: str,
    saved: pathlib.Path | None,
    allowed: Allowed,
    wait: str,
    timeout: float,
    attach: int | None,
    message: str,
    output: str,
    server: str | None,
) -> int:
    """Make the fleet serve the catalog below PATH (default: ./catalog).

    Shows the plan, asks, hands the catalog over and follows until every wanted replica is ready and
    everything else has stopped. Exit code 1 if in the end one of them fits on no node. The bytes that were planned are the bytes that are applied. A guard that
    refuses the plan names the option that allows exactly that.
    """
    if expect and saved is not None:
        raise click.UsageError("--expect and --plan name the plan twice: give one of them")
    from llmgw.cli.doing import apply

    if attach is not None:
        return apply.attach(attach, timeout, server, output)
    asked = apply.Asked(
        expect, saved, allowed, yes=yes, wait=wait, limit=timeout, message=message, output=output
    )
    return apply.run(path, asked, server)
