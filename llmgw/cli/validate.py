"""`llmgw validate`: is this catalog valid? Offline, every problem at once."""

import pathlib

import click

from llmgw.cli.options import catalog_argument

OUTPUTS = ("text", "concise", "json")


@click.command()
@catalog_argument
@click.option("-o", "--output", type=click.Choice(OUTPUTS), default="text", show_default=True)
def command(path: pathlib.Path, output: str) -> None:
    """Check the catalog below PATH (default: ./catalog) without asking anybody.

    Every problem is shown with its place, its source line and what would help. Exit code 3 if there
    is an error; warnings alone are 0.
    """
    from llmgw.cli.doing import validate

    validate.run(path, output)
