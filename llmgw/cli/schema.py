"""`llmgw schema`: the JSON Schema that lets an editor complete and check catalog files."""

import pathlib

import click

from llmgw.catalog import schema
from llmgw.errors import Failed
from llmgw.kit.files import write_atomic


@click.command()
@click.option(
    "--write", "write_to", metavar="DIR", type=click.Path(path_type=pathlib.Path), help="Write it below DIR."
)
@click.option(
    "--check",
    "check_in",
    metavar="DIR",
    type=click.Path(path_type=pathlib.Path),
    help="Fail unless DIR has it as it is now.",
)
def command(write_to: pathlib.Path | None, check_in: pathlib.Path | None) -> None:
    """Print the JSON Schema of catalog documents, or keep it in a directory."""
    if write_to:
        write_to.mkdir(parents=True, exist_ok=True)
        write_atomic(write_to / schema.FILE, schema.text().encode(), mode=0o644)
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
