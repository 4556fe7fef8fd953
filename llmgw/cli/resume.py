"""`llmgw resume`: what `llmgw pause` began ends."""

import click

from llmgw.cli import names
from llmgw.cli.options import server_option


@click.command()
@click.argument("model", shell_complete=names.models)
@click.option("--reason", default="", help="Why.")
@click.option("-y", "--yes", is_flag=True, help="Do not ask.")
@server_option
def command(model: str, reason: str, yes: bool, server: str | None) -> int:
    """Let MODEL be what the catalog asks for again. Shows what follows, if anything does, and asks."""
    from llmgw.cli.doing import resume

    return resume.run(model, reason, server, yes=yes)
