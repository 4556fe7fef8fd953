"""`llmgw logs`: what an engine said, from its node, through the control plane."""

import click

from llmgw.cli import names
from llmgw.cli.options import server_option


class _Lines(click.ParamType[str]):
    """A number of lines, or `all`."""

    name = "LINES"

    def convert(self, value: object, param: click.Parameter | None, ctx: click.Context | None) -> str:
        text = str(value)
        if text != "all" and not (text.isascii() and text.isdecimal() and len(text) < 8):
            self.fail(f"{text[:40]!r} is no number of lines, nor all", param, ctx)
        return text


@click.command()
@click.argument("replica", shell_complete=names.replicas)
@click.option("--rank", type=click.IntRange(0, 65535), default=0, show_default=True, help="Of which rank.")
@click.option("-f", "--follow", is_flag=True, help="Go on with what it says next, until it ends or Ctrl-C.")
@click.option(
    "--previous", is_flag=True, help="Of the one that ran before it and ended, such as a failed start."
)
@click.option("--tail", type=_Lines(), default="100", show_default=True, help="How many lines, or all.")
@server_option
def command(replica: str, rank: int, follow: bool, previous: bool, tail: str, server: str | None) -> None:
    """Print the output of REPLICA's engine; a model's name will do where it has one replica.

    On a terminal control characters are left out, so that nothing an engine says can change what you
    see; piped, the bytes are exactly the engine's. A node keeps the newest 32 MiB of each log, and logs of
    64 engines that ended: where earlier output is gone, that is said on stderr.
    """
    from llmgw.cli.doing import logs

    logs.run(replica, rank, follow, previous, tail, server)
