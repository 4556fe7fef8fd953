"""`llmgw models`: every model of the adopted catalog, its ready count and its names."""

import click
import pydantic

from llmgw.cli.client import Client, output_option, server_option
from llmgw.cli.screens import model_lines
from llmgw.planning.screen import ModelRow


@click.command()
@output_option
@server_option
def command(output: str, server: str | None) -> None:
    """Show every model of the adopted catalog, its ready count and its names."""
    rows: tuple[ModelRow, ...] = Client(server).read(tuple[ModelRow, ...], "/v1/models")
    if output == "json":
        click.echo(pydantic.TypeAdapter(tuple[ModelRow, ...]).dump_json(rows, indent=2).decode())
    else:
        for line in model_lines(rows):
            click.echo(line)
