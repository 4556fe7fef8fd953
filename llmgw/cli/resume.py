"""`llmgw resume`: what `llmgw pause` began ends."""

import click

from llmgw.cli import names
from llmgw.cli.options import server_option


@click.command()
@click.argument("model", shell_complete=names.models)
@click.option("--reason", default="", help="Why.")
@server_option
def command(model: str, reason: str, server: str | None) -> int:
    """Let MODEL be what the catalog asks for again."""
    from llmgw.cli.doing import resume

    return resume.run(model, reason, server)
