"""`llmgw schema`: the JSON Schema that lets an editor complete and check catalog files."""

import pathlib

import click


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
    from llmgw.cli.doing import schema

    schema.run(write_to, check_in)
