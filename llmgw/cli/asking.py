"""The question before something happens: a yes, or nothing was changed. Used by every verb that asks."""

import contextlib
import sys
import termios

import click

from llmgw.errors import Declined

YES = ("y", "yes")


def agree(question: str, *, unchanged: str = "Nothing was changed", way: str) -> None:
    """Return on a yes. Raises Declined on anything else; `way` is what to run where nobody can be asked."""
    if not sys.stdin.isatty():
        raise Declined(f"cannot ask: there is no terminal. {unchanged}", help=way)
    with contextlib.suppress(termios.error, OSError, ValueError):  # what was typed before answers nothing
        termios.tcflush(sys.stdin, termios.TCIFLUSH)
    answer = click.prompt(f"{question} [yes/no]", default="no", show_default=False, err=True)
    if str(answer).strip().casefold() not in YES:
        raise Declined(f"cannot go on without a yes. {unchanged}")
