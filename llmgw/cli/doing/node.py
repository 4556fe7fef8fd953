"""The work of `llmgw node`: show what follows, ask, do it, follow it to its end."""

import shlex

import click

from llmgw.cli.acts import act, again, body, do
from llmgw.cli.asking import agree
from llmgw.cli.client import Client
from llmgw.cli.exits import Exit
from llmgw.cli.telling import transitions
from llmgw.kit.clock import SystemClock
from llmgw.kit.text import count, safe
from llmgw.planning.plan import Plan
from llmgw.planning.render import plan_lines
from llmgw.planning.screen import NodeRow

__all__ = ["act", "planned"]


def planned(
    verb: str,
    name: str,
    server: str | None,
    *,
    yes: bool,
    reason: str = "",
    seconds: float | None = None,
    wait: bool = False,
    limit: float = 0.0,
) -> int:
    """Show what follows, ask, do it, and with `wait` follow to its end, at most `limit` seconds."""
    client, asked = Client(server), body(verb, name, reason, seconds)
    plan: Plan | None = client.ask(Plan | None, "/v1/hands/plan", asked)
    if plan is not None:
        for line in plan_lines(plan):
            click.echo(line)
    if not yes:
        cluster = client.get("/v1/status")["cluster"]
        way = again(f"llmgw node {verb} {shlex.quote(name)}", reason, seconds)
        agree(f"{verb.capitalize()} {safe(name)} of {safe(cluster)}?", way=way)
    about, event = do(client, asked, "" if yes or plan is None else plan.digest)
    if not wait:
        return Exit.DONE
    try:
        return _until_empty(client, about, event, limit)
    except KeyboardInterrupt:
        click.echo("\ndetached; the work goes on. See it with `llmgw nodes`", err=True)
        return Exit.INTERRUPTED


def _until_empty(client: Client, node: str, since: int, limit: float) -> int:
    """Until nothing of ours is left on the node; returns the exit code."""
    clock = SystemClock()
    began = clock.now()
    for _ in transitions(client, since):
        rows: tuple[NodeRow, ...] = client.read(tuple[NodeRow, ...], "/v1/nodes")
        row = next((row for row in rows if row.id == node), None)
        if row is None or not row.shards:
            break
        if clock.now() - began > limit:
            left = count(row.shards, "shard")
            click.echo(f"{left} still there; the work goes on: llmgw why {safe(row.name)}", err=True)
            return Exit.TIMEOUT
    click.echo(f"empty after {clock.now() - began:.1f}s", err=True)
    return Exit.DONE
