"""`llmgw rollback`: apply the bytes of an earlier revision again."""

import click

from llmgw.cli import names
from llmgw.cli.options import Duration, lines_option, server_option
from llmgw.cli.overrides import override_options
from llmgw.planning.fired import Allowed


@click.command()
@click.argument("number", type=click.IntRange(min=1), required=False, metavar="[N]")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--expect",
    metavar="ID",
    default="",
    shell_complete=names.plans,
    help="Only if its plan is still this one; do not ask.",
)
@override_options
@click.option("--wait", type=click.Choice(["ready", "accepted"]), default="ready", show_default=True)
@click.option(
    "--timeout", type=Duration(), default="30m", show_default=True, help="Stop following after this."
)
@click.option("-m", "--message", default="", help="Kept with the revision.")
@lines_option
@server_option
def command(
    *,
    number: int | None,
    yes: bool,
    expect: str,
    allowed: Allowed,
    wait: str,
    timeout: float,
    message: str,
    output: str,
    server: str | None,
) -> int:
    """Apply revision N again, by default the one before the one that stands.

    It is an apply like any other: planned on the fleet as it is, guarded, asked and recorded, as a new
    revision. A catalog that is followed does not take it back before it changes.
    """
    from llmgw.cli.doing import rollback
    from llmgw.cli.doing.apply import Asked

    asked = Asked(expect, None, allowed, yes=yes, wait=wait, limit=timeout, message=message, output=output)
    return rollback.run(number, asked, server)
