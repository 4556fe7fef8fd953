"""Colour, laid over the symbols and words of a line. Used by `output` where an answer is printed: `--help` does without."""

import re
from collections.abc import Mapping

import click

_SYMBOLS: Mapping[str, str] = {
    "+": "green", "-": "red", "+/-": "yellow", "-/+": "magenta", "=>": "cyan", "~": "cyan", "!": "red", ".": "blue",
}  # fmt: skip
_ROW = re.compile(r"(  )(\+/-|-/\+|=>|[-+~!.])( +)(?=\S)")
_WORDS: tuple[tuple[re.Pattern[str], str], ...] = (
    (re.compile(r"(\s*)(ALARM|HELD|blocked:|error:)(?=\s|$)"), "red"),
    (re.compile(r"(\s*)(warning:|allowed:|PENDING)(?=\s|$)"), "yellow"),
)


def paint(line: str) -> str:
    """`line` with its symbol, or its alarm, in colour. `click.echo` takes it off again where there is none."""
    if match := _ROW.match(line):
        before, symbol, gap = match.groups()
        bold = symbol in ("-", "-/+", "!")
        return f"{before}{click.style(symbol, fg=_SYMBOLS[symbol], bold=bold)}{gap}{line[match.end() :]}"
    for pattern, colour in _WORDS:
        if match := pattern.match(line):
            return f"{match[1]}{click.style(match[2], fg=colour, bold=True)}{line[match.end() :]}"
    return line
