"""`llmgw init`: begin a catalog repository. Writes what is missing, changes nothing that is there."""

import pathlib

import click

from llmgw.cli.options import PATH


@click.command()
@click.argument("directory", default=".", type=PATH, metavar="[DIR]")
@click.option(
    "--ci", type=click.Choice(["github"]), help="A workflow that checks each change, and CODEOWNERS."
)
def command(directory: pathlib.Path, ci: str | None) -> None:
    """Put the beginnings of a catalog repository into DIR (default: here).

    An example model and its profiles, the schema with settings for editors, hooks for pre-commit, and
    llmgw.toml. What is there already stays as it is; a catalog with files in it gets no examples.
    """
    from llmgw.cli.doing import init

    init.run(directory, ci)
