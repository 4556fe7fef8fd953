"""The work of `llmgw schema`: print it, keep it, compare it."""

import pathlib

import click

from llmgw.catalog import schema
from llmgw.errors import Failed
from llmgw.kit.files import write_atomic


def run(write_to: pathlib.Path | None, check_in: pathlib.Path | None) -> None:
    """Print, write or compare. Raises Failed where the kept one is not current."""
    if write_to:
        try:
            write_to.mkdir(parents=True, exist_ok=True)
            write_atomic(write_to / schema.FILE, schema.text().encode(), mode=0o644)
        except OSError as error:
            raise Failed(f"cannot write {write_to / schema.FILE}: {error.strerror}") from error
    if check_in:
        _check(check_in)
    if not write_to and not check_in:
        click.echo(schema.text(), nl=False)


def _check(directory: pathlib.Path) -> None:
    path = directory / schema.FILE
    try:
        found = path.read_text()
    except OSError as error:
        raise Failed(
            f"cannot read {path}: {error.strerror}", help=f"run llmgw schema --write {directory}"
        ) from error
    if found != schema.text():
        raise Failed(
            f"cannot accept {path}: it is not the schema of this version",
            help=f"run llmgw schema --write {directory}",
        )
