"""The work of `llmgw status`: one answer of the control plane, as a screen."""

import collections
import json
from collections.abc import Iterator, Mapping
from typing import Any

import click

from llmgw.cli.client import Client
from llmgw.kit.text import count, safe
from llmgw.kit.units import show_seconds


def run(output: str, server: str | None) -> None:
    """Print the status."""
    status = Client(server).get("/v1/status")
    if output == "json":
        click.echo(json.dumps(status, indent=2))
        return
    stands = f"revision {status['revision']}" if status["revision"] else "no revision yet: llmgw apply"
    commit = f" ({status['commit']})" if status["commit"] else ""
    click.echo(f"{safe(status['cluster'])}  {stands}{safe(commit)}  epoch {status['epoch']}")
    for line in followed_lines(status["followed"]):
        click.echo(f"  {safe(line)}")
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
    return ", ".join(f"{number} {standing}" for standing, number in sorted(nodes.items())) or "none yet"


def followed_lines(followed: Mapping[str, Any] | None) -> Iterator[str]:
    """What became of the catalog that is followed; nothing where none is."""
    if followed is None:
        return
    yield f"follows {followed['said']}, sync {followed['sync']}"
    if blind := followed["blind"]:
        yield f"HELD for {show_seconds(blind['age'])}: {blind['said']}; {blind['next']}"
    if hold := followed["hold"]:
        word = "PENDING" if hold["why"] == "pending" else "HELD"
        yield f"{word} {followed['tree']} for {show_seconds(hold['age'])}: {hold['said']}"
        yield from (f"  {detail}" for detail in hold["details"])
        yield f"  next: {hold['next']}"
    if followed["busy"]:
        yield f"waiting: {followed['busy']}"
    if dirty := followed["dirty"]:
        yield f"not committed, so not applied: {count(len(dirty), 'file')}, {dirty[0]}"
