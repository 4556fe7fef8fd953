"""The work of `llmgw status`: one answer of the control plane, as a screen."""

import collections
import json

import click

from llmgw.cli.client import Client
from llmgw.kit.text import safe


def run(output: str, server: str | None) -> None:
    """Print the status."""
    status = Client(server).get("/v1/status")
    if output == "json":
        click.echo(json.dumps(status, indent=2))
        return
    stands = f"revision {status['revision']}" if status["revision"] else "no revision yet: llmgw apply"
    commit = f" ({status['commit']})" if status["commit"] else ""
    click.echo(f"{safe(status['cluster'])}  {stands}{safe(commit)}  epoch {status['epoch']}")
    for alarm in [*status["alarms"], *([status["fenced"]] if status["fenced"] else [])]:
        click.echo(f"  ALARM {safe(alarm)}")
    nodes = collections.Counter(status["nodes"].values())
    ready = sum(model["ready"] >= model["wanted"] for model in status["models"].values())
    click.echo(f"  models {ready}/{len(status['models'])} as wanted   nodes {_counted(nodes)}")
    for line in status["outstanding"]:
        click.echo(f"  waiting  {safe(line)}")
    for model in status["unplaced"]:
        click.echo(f"  unplaced {safe(model)}: see `llmgw replicas`")
    if not status["outstanding"] and status["revision"]:
        click.echo("  the fleet is what the catalog asks for")


def _counted(nodes: dict[str, int]) -> str:
    return ", ".join(f"{count} {standing}" for standing, count in sorted(nodes.items())) or "none yet"
