"""`llmgw nodes`: every node of the roster, what it has and what is free."""

import click
import pydantic

from llmgw.cli.client import Client, output_option, server_option
from llmgw.cli.screens import node_lines
from llmgw.planning.screen import NodeRow


@click.command()
@output_option
@server_option
def command(output: str, server: str | None) -> None:
    """Show every node of the roster, what it has and what is free."""
    rows: tuple[NodeRow, ...] = Client(server).read(tuple[NodeRow, ...], "/v1/nodes")
    if output == "json":
        click.echo(pydantic.TypeAdapter(tuple[NodeRow, ...]).dump_json(rows, indent=2).decode())
    else:
        for line in node_lines(rows):
            click.echo(line)
