"""`llmgw replicas`: every replica, what state it is in and why; a fetch shows its progress under it."""

import click
import pydantic

from llmgw.cli.client import Client, output_option, server_option
from llmgw.cli.screens import replica_lines
from llmgw.planning.screen import ReplicaRow


@click.command()
@output_option
@server_option
def command(output: str, server: str | None) -> None:
    """Show every replica, what state it is in and why; a fetch shows its progress under it."""
    rows: tuple[ReplicaRow, ...] = Client(server).read(tuple[ReplicaRow, ...], "/v1/replicas")
    if output == "json":
        click.echo(pydantic.TypeAdapter(tuple[ReplicaRow, ...]).dump_json(rows, indent=2).decode())
    else:
        for line in replica_lines(rows):
            click.echo(line)
