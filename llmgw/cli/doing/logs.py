"""The work of `llmgw logs`: pieces as they come, made safe for a terminal, untouched in a pipe."""

import base64
import codecs
import sys

import click

from llmgw.cli.client import Client
from llmgw.errors import Failed
from llmgw.kit.text import safe


def run(name: str, rank: int, follow: bool, previous: bool, tail: str, server: str | None) -> None:
    """Print until the end of the log, or with `follow` until the engine's. Raises Failed where it breaks off."""
    show = Terminal() if sys.stdout.isatty() else Pipe()
    query: dict[str, str | int] = {
        "name": name,
        "rank": rank,
        "tail": tail,
        "follow": int(follow),
        "previous": int(previous),
    }
    for line in Client(server).lines("/v1/logs", **query):
        if "data" in line:
            show.write(base64.b64decode(line["data"]))
        if "replica" in line and line["replica"] != name:
            click.echo(f"{safe(line['replica'])} rank {line['rank']} on {safe(line['node'])}", err=True)
        if "said" in line:
            click.echo(safe(line["said"]), err=True)
        if "error" in line:
            raise Failed(safe(line["error"]))


class Pipe:
    """The bytes as they are."""

    def write(self, data: bytes) -> None:
        sys.stdout.buffer.write(data)
        sys.stdout.buffer.flush()


class Terminal:
    """Lines without what a terminal would obey; a carriage return, as of a progress bar, begins a line."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")(errors="replace")

    def write(self, data: bytes) -> None:
        text = self._decoder.decode(data).replace("\r\n", "\n").replace("\r", "\n")
        sys.stdout.write("\n".join(safe(line) for line in text.split("\n")))
        sys.stdout.flush()
