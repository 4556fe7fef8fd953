"""`llmgw fmt`: catalog files in their one layout. Changes no meaning and loses no comment."""

import pathlib

import click

from llmgw.cli.options import PATH


@click.command()
@click.argument("paths", nargs=-1, type=PATH, metavar="[PATH]...")
@click.option("--check", "check_only", is_flag=True, help="Write nothing; fail where a file would change.")
@click.option("--diff", is_flag=True, help="Write nothing; print what would change.")
def command(paths: tuple[pathlib.Path, ...], check_only: bool, diff: bool) -> None:
    """Lay out the catalog files at or below each PATH (default: ./catalog).

    Keys come in the order of the schema, each with the comments above it; the first line names the
    schema for editors. Values, quotes and comments stay as they were written. A file that is no YAML, or
    whose layout could not be kept, is named and left as it is. Exit code 1 if --check finds a file.
    """
    from llmgw.cli.doing import fmt

    fmt.run(paths or (pathlib.Path("catalog"),), check_only, diff)
