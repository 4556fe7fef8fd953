"""The work of `llmgw apply`, and the half of it that `llmgw up` shares."""

import pathlib
import sys

import click

from llmgw.cli.client import Client
from llmgw.cli.exits import Exit
from llmgw.cli.following import follow
from llmgw.cli.uploads import Upload, read_upload
from llmgw.errors import Declined, Stale
from llmgw.planning.plan import Plan
from llmgw.planning.render import plan_lines


def run(
    path: pathlib.Path, yes: bool, expect: str, wait: str, limit: float, message: str, server: str | None
) -> int:
    """Plan, ask, hand over, follow; returns the exit code. `limit` in seconds."""
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
