"""The work of `llmgw resume`: what was changed meanwhile happens now, so it is shown and asked for first."""

import shlex

import click

from llmgw.cli.acts import again, body, do
from llmgw.cli.asking import agree
from llmgw.cli.client import Client
from llmgw.cli.exits import Exit
from llmgw.kit.text import safe
from llmgw.planning.plan import Plan
from llmgw.planning.render import plan_lines


def run(model: str, reason: str, server: str | None, *, yes: bool) -> int:
    """Do it; returns the exit code. Where nothing follows, nothing is asked."""
    client, asked = Client(server), body("resume", model, reason, None)
    plan: Plan | None = client.ask(Plan | None, "/v1/hands/plan", asked)
    if plan is None or not any(row.origin == "change" for row in plan.rows):
        do(client, asked)
        return Exit.DONE
    for line in plan_lines(plan):
        click.echo(line)
    if not yes:
        cluster = client.get("/v1/status")["cluster"]
        way = again(f"llmgw resume {shlex.quote(model)}", reason)
        agree(f"Resume {safe(model)} of {safe(cluster)}?", way=way)
    do(client, asked, "" if yes else plan.digest)
    return Exit.DONE
