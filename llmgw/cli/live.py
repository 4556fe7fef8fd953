"""Where progress is shown: plain lines, or a region of a terminal that is drawn again below what scrolls.

Used by `following`. rich is imported only where there is a terminal for it.
"""

import contextlib
import os
from collections.abc import Iterator, Sequence
from typing import Protocol, TextIO

import click


class Region(Protocol):
    """Lines that stay, and lines that are drawn again."""

    def say(self, line: str) -> None:
        """A line that stays."""
        ...

    def draw(self, lines: Sequence[str]) -> None:
        """What moves, in place of what moved before."""
        ...


class Plain:
    """No terminal: everything stays, and what has not changed is not said again."""

    def __init__(self) -> None:
        self._last: Sequence[str] = ()

    def say(self, line: str) -> None:
        click.echo(line, err=True)

    def draw(self, lines: Sequence[str]) -> None:
        for line in lines:
            if line not in self._last:
                click.echo(line, err=True)
        self._last = lines


@contextlib.contextmanager
def region(stream: TextIO) -> Iterator[Region]:
    """Where to show progress on `stream`; what moves is gone when the block ends."""
    if not stream.isatty() or os.environ.get("TERM", "dumb") == "dumb":
        yield Plain()
        return
    from rich.console import Console
    from rich.live import Live
    from rich.text import Text

    console = Console(file=stream, markup=False, highlight=False, emoji=False, soft_wrap=True)

    class Drawn:
        shown = ""

        def say(self, line: str) -> None:
            console.print(Text(line), soft_wrap=True)

        def draw(self, lines: Sequence[str]) -> None:
            if (text := "\n".join(lines)) != self.shown:
                self.shown = text
                live.update(Text(text, no_wrap=True, overflow="ellipsis"), refresh=True)

    with Live(console=console, auto_refresh=False, transient=True, vertical_overflow="crop") as live:
        yield Drawn()
