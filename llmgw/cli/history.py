"""`llmgw history`: every apply that is kept, newest first; `history show N` is one of them, whole."""

import pathlib

import click

from llmgw.cli.options import PATH, document_option, server_option


@click.group(invoke_without_command=True)
@click.option("-n", "last", type=click.IntRange(min=1), default=20, show_default=True, help="How many.")
@document_option
@server_option
@click.pass_context
def command(ctx: click.Context, last: int, output: str, server: str | None) -> int:
    """List the revisions: when, by whom, of which commit, what became of it."""
    if ctx.invoked_subcommand is not None:
        return 0
    from llmgw.cli.doing import history

    return history.run(last, output, server)


@command.command("show")
@click.argument("number", type=click.IntRange(min=1))
@click.option(
    "--to", "directory", type=PATH, metavar="DIR", help="Write the catalog's files below DIR, as they were."
)
@document_option
@server_option
def show(number: int, directory: pathlib.Path | None, output: str, server: str | None) -> int:
    """Show revision NUMBER: its plan, every action of its apply, and the catalog's bytes (-o json, --to)."""
    from llmgw.cli.doing import history

    return history.show(number, directory, output, server)
