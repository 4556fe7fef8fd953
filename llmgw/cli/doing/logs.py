"""The work of `llmgw logs`: pieces as they come, made safe for a terminal, untouched in a pipe.

Who follows goes on where it was when an agent or the control plane is started again.
"""

import base64
import codecs
import sys
import time
from collections.abc import Iterator
from typing import Any

import click

from llmgw.cli.client import Client
from llmgw.errors import Failed, Unreachable
from llmgw.kit.clock import SystemClock
from llmgw.kit.text import safe

PATIENCE = 120.0
"""Seconds without an answer after which nobody follows any longer."""

AGAIN = 0.5
"""Seconds before it is asked again."""


def run(name: str, rank: int, follow: bool, previous: bool, tail: str, server: str | None) -> None:
    """Print until the end of the log, or with `follow` until the engine's.

    Raises Failed or Unreachable where it breaks off, with `follow` once nobody has answered for long.
    """
    show = Terminal() if sys.stdout.isatty() else Pipe()
    query: dict[str, str | int] = {
        "name": name,
        "rank": rank,
        "tail": tail,
        "follow": int(follow),
        "previous": int(previous),
    }
    for line in _lines(Client(server), query):
        if "data" in line:
            show.write(base64.b64decode(line["data"]))
        if "replica" in line and line["replica"] != name:
            name = line["replica"]
            click.echo(f"{safe(name)} rank {line['rank']} on {safe(line['node'])}", err=True)
        if "said" in line:
            click.echo(safe(line["said"]), err=True)


def _lines(client: Client, query: dict[str, str | int]) -> Iterator[dict[str, Any]]:
    """Every line; who follows asks again, from the byte after the last that came."""
    clock = SystemClock()
    heard, told = clock.now(), ""
    while True:
        try:
            for line in client.lines("/v1/logs", **query):
                if "error" in line:
                    raise Failed(safe(line["error"]))
                if "replica" in line:
                    query |= {"name": line["replica"], "previous": 0}
                if "next" in line:
                    query["offset"], heard, told = line["next"], clock.now(), ""
                yield line
            return
        except (Failed, Unreachable) as error:
            if not query["follow"] or "offset" not in query or clock.now() - heard > PATIENCE:
                raise
            if (said := _without_figures(error.said)) != told:
                click.echo(f"{error.said}: asking again", err=True)
            told = said
            time.sleep(AGAIN)


def _without_figures(said: str) -> str:
    """The same words however long it has been so."""
    return " ".join(word for word in said.split() if not any(map(str.isdigit, word)))


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
