"""Rows that the control plane answers, as a table or as JSON. Used by `models`, `nodes`, `replicas`."""

from collections.abc import Callable
from typing import Any

import click
import pydantic

from llmgw.cli.client import Client


def show(path: str, rows: Any, lines: Callable[[Any], list[str]], output: str, server: str | None) -> None:
    """Print what GET `path` answers, which is a value of the type `rows`."""
    found = Client(server).read(rows, path)
    if output == "json":
        click.echo(pydantic.TypeAdapter(rows).dump_json(found, indent=2).decode())
        return
    for line in lines(found):
        click.echo(line)
