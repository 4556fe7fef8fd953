"""How lines reach people: colour, width, and ASCII forms where the terminal knows no more. Used by every screen.

Colour is never alone: it is laid over symbols and words that are there without it. `--color` decides, then
NO_COLOR, then FORCE_COLOR, then whether stdout is a terminal. Light: `--help` imports this.
"""

import codecs
import io
import os
import sys
from collections.abc import Iterable, Mapping

import click

FORMS: Mapping[str, str] = {
    "×": "x", "…": "...", "→": "->", "←": "<-", "–": "-", "—": "-", "≤": "<=", "≥": ">=", "·": "-",
    "│": "|", "‘": "'", "’": "'", "“": '"', "”": '"', "°": "deg", "µ": "u", "\N{REPLACEMENT CHARACTER}": "?",
}  # fmt: skip
"""Character → what is printed where it cannot be. Anything else becomes its escape, as JSON has it."""

COLOR = click.Option(
    ["--color"],
    type=click.Choice(["auto", "always", "never"]),
    default="auto",
    expose_value=False,
    callback=lambda ctx, _, value: setattr(ctx, "color", chosen(value, os.environ)),
    help="Colour on a terminal, always, or never (NO_COLOR is heard too).",
)
"""The option that every verb has."""


def chosen(option: str, environment: Mapping[str, str]) -> bool | None:
    """Whether there is colour; None = where there is a terminal."""
    if option != "auto":
        return option == "always"
    if environment.get("NO_COLOR"):
        return False
    return True if environment.get("FORCE_COLOR") else None


def width() -> int | None:
    """Columns of the terminal on stdout; None without one: nothing is shortened then."""
    if not sys.stdout.isatty():
        return None
    import shutil

    return shutil.get_terminal_size().columns


def say(lines: Iterable[str]) -> None:
    """Print an answer, with colour where that is wanted."""
    from llmgw.cli.paint import paint

    click.echo("".join(f"{paint(line)}\n" for line in lines), nl=False)


def warn(said: str) -> None:
    """Say on stderr what does not stop a command."""
    from llmgw.kit.text import safe

    click.echo(f"warning: {safe(said)}", err=True)


CODEC = "llmgw_ascii"
"""ASCII by another name: click takes a stream that calls itself ASCII for a mistake, and writes UTF-8 on it."""


def plain_forms(environment: Mapping[str, str]) -> None:
    """Let stdout and stderr print whatever they cannot as its ASCII form. For the console script."""
    codecs.register_error("llmgw-forms", _form)
    codecs.register(_codec)
    locale = next((environment[name] for name in ("LC_ALL", "LC_CTYPE", "LANG") if environment.get(name)), "")
    told = "PYTHONIOENCODING" in environment or environment.get("PYTHONUTF8") == "1"
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            only_ascii = (locale in ("C", "POSIX") and not told) or _is_ascii(stream.encoding)
            stream.reconfigure(encoding=CODEC if only_ascii else stream.encoding, errors="llmgw-forms")


def _is_ascii(encoding: str) -> bool:
    return codecs.lookup(encoding).name == "ascii"


def _codec(name: str) -> codecs.CodecInfo | None:
    if name != CODEC:
        return None
    found = codecs.lookup("ascii")
    return codecs.CodecInfo(
        found.encode,
        found.decode,
        found.streamreader,
        found.streamwriter,
        found.incrementalencoder,
        found.incrementaldecoder,
        name=CODEC,
    )


def _form(error: UnicodeError) -> tuple[str, int]:
    if not isinstance(error, UnicodeEncodeError):
        raise error
    found = "".join(FORMS.get(char) or _escape(char) for char in error.object[error.start : error.end])
    return found, error.end


def _escape(char: str) -> str:
    """As JSON writes it, so that a document stays one."""
    units = char.encode("utf-16-be", "surrogatepass")
    return "".join(f"\\u{units[at]:02x}{units[at + 1]:02x}" for at in range(0, len(units), 2))
