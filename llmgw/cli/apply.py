"""`llmgw apply`: plan, show, ask, apply, follow. Ctrl-C stops following, not applying."""

import pathlib
import sys

import click

from llmgw.cli.client import Client, server_option
from llmgw.cli.exits import Exit
from llmgw.cli.following import follow
from llmgw.cli.uploads import Upload, read_upload
from llmgw.errors import Declined, Stale
from llmgw.kit.units import seconds
from llmgw.planning.plan import Plan
from llmgw.planning.render import plan_lines


@click.command()
@click.argument("path", default="catalog", type=click.Path(path_type=pathlib.Path))
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@click.option(
    "--expect", metavar="ID", default="", help="Apply only if the plan is still this one; do not ask."
)
@click.option("--wait", type=click.Choice(["ready", "accepted"]), default="ready", show_default=True)
@click.option(
    "--timeout", default="30m", show_default=True, help="Stop following after this; the work goes on."
)
@click.option("-m", "--message", default="", help="Kept with the revision.")
@server_option
def command(
    path: pathlib.Path, yes: bool, expect: str, wait: str, timeout: str, message: str, server: str | None
) -> int:
    """Make the fleet serve the catalog below PATH (default: ./catalog).

    Shows the plan, asks, hands the catalog over and follows until every wanted replica is ready and
    everything else has stopped. The bytes that were planned are the bytes that are applied.
    """
    try:
        limit = seconds(timeout)
    except ValueError as error:
        raise click.BadParameter(str(error), param_hint="--timeout") from error
    client = Client(server)
    upload = read_upload(path)
    plan: Plan = client.ask(Plan, "/v1/plan", upload.body())
    for line in plan_lines(plan):
        click.echo(line)
    _agree(client, plan, yes, expect)
    try:
        return accept(client, upload, plan, message, wait, limit)
    except KeyboardInterrupt:
        click.echo("\ndetached; the work goes on. See it with `llmgw status`", err=True)
        return Exit.INTERRUPTED


def accept(client: Client, upload: Upload, plan: Plan, message: str, wait: str, limit: float) -> int:
    """Hand the catalog over as planned, then follow. Returns the exit code."""
    done = client.post("/v1/apply", upload.body(message=message, expect=plan.digest))
    click.echo(f"revision {done['revision']} stands", err=True)
    if wait == "accepted":
        return Exit.DONE
    return follow(client, int(done["event"]), limit)


def _agree(client: Client, plan: Plan, yes: bool, expect: str) -> None:
    """Return when the plan may be applied. Raises Stale or Declined; nothing was changed then."""
    if expect:
        if expect not in (plan.id, plan.digest):
            raise Stale(
                f"cannot apply {expect}: the plan is now {plan.id}, as shown above. Nothing was changed",
                help=f"read it, then llmgw apply --expect {plan.id}",
            )
        return
    if yes or (plan.empty and not plan.unplaced):
        return
    if not sys.stdin.isatty():
        raise Declined(
            "cannot ask: there is no terminal. Nothing was changed", help=f"llmgw apply --expect {plan.id}"
        )
    cluster = client.get("/v1/status")["cluster"]
    if click.prompt(f"Apply {plan.id} to {cluster}? [yes/no]", default="no", show_default=False) != "yes":
        raise Declined("cannot go on without a yes. Nothing was changed")
