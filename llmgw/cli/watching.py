"""`-w`: a screen shown again and again. On a terminal in place, elsewhere only when it has changed."""

import os
import sys
import time
from collections.abc import Callable

import click

from llmgw.cli.output import say, width
from llmgw.errors import Unreachable
from llmgw.kit.text import safe

EVERY = 1.0
"""Seconds between two looks."""

_CLEAR = "\x1b[H\x1b[2J\x1b[3J"


def show(look: Callable[[], str], *, watch: bool, text: bool) -> None:
    """Print `look()`; with `watch` until somebody ends it. A control plane that is away is said and asked again.

    `text` is for people: with colour, and on a terminal each line as far as it goes, which shortens reasons.
    """
    if not watch:
        _print(look(), text=text)
        return
    before, said = "", ""
    while True:
        try:
            now, said = look(), ""
        except Unreachable as error:
            if error.said != said:
                click.echo(f"{safe(error.said)}; asking again", err=True)
            said = error.said
        else:
            if sys.stdout.isatty() and os.environ.get("TERM") != "dumb":
                click.echo(_CLEAR, nl=False)
                _print(now, text=text)
            elif now != before:
                _print(now, text=text)
            before = now
        time.sleep(EVERY)


def _print(shown: str, *, text: bool) -> None:
    if not shown:
        return
    if not text:
        click.echo(shown)
        return
    columns = width()
    say(
        line if columns is None or len(line) <= columns else f"{line[: columns - 1]}…"
        for line in shown.split("\n")
    )
