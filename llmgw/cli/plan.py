"""`llmgw plan`: what would happen, in order, and why. Changes nothing."""

import pathlib

import click
import pydantic

from llmgw.cli.client import Client, output_option, server_option
from llmgw.cli.exits import Exit
from llmgw.cli.uploads import read_upload
from llmgw.planning.plan import Plan
from llmgw.planning.render import plan_lines


@click.command()
@click.argument("path", default="catalog", type=click.Path(path_type=pathlib.Path))
@click.option("--detailed-exitcode", is_flag=True, help="Exit 2 when there are changes.")
@output_option
@server_option
def command(path: pathlib.Path, detailed_exitcode: bool, output: str, server: str | None) -> int:
    """Rehearse the catalog below PATH (default: ./catalog) on the fleet as it is now.

    Prints every action in the order it would happen, with its node, its reason, the catalog line that
    causes it and the bytes to fetch; then the lowest number of ready replicas on the way, and what
    cannot be placed with each node's reasons.
    """
    client = Client(server)
    plan: Plan = client.ask(Plan, "/v1/plan", read_upload(path).body())
    if output == "json":
        click.echo(plan_json(plan))
    else:
        for line in plan_lines(plan):
            click.echo(line)
        if not plan.empty:
            click.echo(f"Next: llmgw apply --expect {plan.id}", err=True)
    return Exit.CHANGES if detailed_exitcode and not plan.empty else Exit.DONE


def plan_json(plan: Plan) -> str:
    """The plan as one JSON document, with its kind and version."""
    dumped = pydantic.TypeAdapter(Plan).dump_python(plan, mode="json")
    whole = {"kind": "llmgw.plan", "format_version": "1.0", "id": plan.id, **dumped}
    return pydantic.TypeAdapter(dict[str, object]).dump_json(whole, indent=2).decode()
