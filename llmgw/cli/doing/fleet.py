"""The work of `llmgw fleet`: one document of the control plane, written whole."""

import pathlib

import click

from llmgw.cli.client import Client
from llmgw.errors import Failed
from llmgw.kit.files import write_to
from llmgw.kit.text import count


def export(redact: bool, path: pathlib.Path | None, server: str | None) -> None:
    """Write the snapshot to `path`, or print it."""
    text = Client(server).text("/v1/fleet", **({"redact": 1} if redact else {}))
    if path is None:
        click.echo(text, nl=False)
        return
    try:
        write_to(path, text.encode())
    except OSError as error:
        raise Failed(f"cannot write {path}: {error.strerror}") from error
    click.echo(f"wrote {path}: {count(len(text.splitlines()), 'line')}", err=True)
