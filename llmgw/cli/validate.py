"""`llmgw validate`: is this catalog valid? Offline, every problem at once."""

import pathlib

import click

from llmgw.cli.options import PATH, catalog_argument

OUTPUTS = ("text", "concise", "json", "github", "sarif")


@click.command()
@catalog_argument
@click.option("-o", "--output", type=click.Choice(OUTPUTS), default="text", show_default=True)
@click.option("--strict", is_flag=True, help="Refuse a catalog that has warnings, too.")
@click.option(
    "--catalog",
    "root",
    type=PATH,
    help="The catalog that PATH is a part of. [default: the directory called catalog around it, or PATH]",
)
def command(path: pathlib.Path, output: str, strict: bool, root: pathlib.Path | None) -> None:
    """Check the catalog below PATH (default: ./catalog) without asking anybody.

    Every problem is shown with its place, its source line and what would help. Exit code 3 if there
    is an error; warnings alone are 0. PATH may be a part of a catalog, or one file of it: that part is
    checked against the whole, and only its problems are shown.
    """
    from llmgw.cli.doing import validate

    validate.run(path, output, strict, root)
