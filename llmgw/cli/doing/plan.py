"""The work of `llmgw plan`: upload, let the control plane rehearse, print."""

import pathlib

import click
import pydantic

from llmgw.cli.client import Client
from llmgw.cli.exits import Exit
from llmgw.cli.uploads import read_upload
from llmgw.planning.plan import Plan
from llmgw.planning.render import plan_lines


def run(path: pathlib.Path, explain: bool, detailed_exitcode: bool, output: str, server: str | None) -> int:
    """Print the plan; returns the exit code."""
    client = Client(server)
    plan: Plan = client.ask(Plan, "/v1/plan", read_upload(path).body())
    if output == "json":
        click.echo(plan_json(plan))
    else:
        for line in plan_lines(plan, explain=explain):
            click.echo(line)
        if not plan.empty:
            click.echo(f"Next: llmgw apply --expect {plan.id}", err=True)
    return Exit.CHANGES if detailed_exitcode and not plan.empty else Exit.DONE


def plan_json(plan: Plan) -> str:
    """The plan as one JSON document, with its kind and version."""
    dumped = pydantic.TypeAdapter(Plan).dump_python(plan, mode="json")
    whole = {"kind": "llmgw.plan", "format_version": "1.0", "id": plan.id, **dumped}
    return pydantic.TypeAdapter(dict[str, object]).dump_json(whole, indent=2).decode()
