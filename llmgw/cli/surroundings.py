"""Errors of what a command stands in: its output takes nothing, nobody reads it, its directory is gone.

Asked by `cli.main` before it calls an error of the system a bug.
"""

import errno
import os

import click

from llmgw.cli.exits import Exit

SHOWS = frozenset(
    ("status", "replicas", "nodes", "models", "events", "logs", "why", "history", "show", "version")
)
"""Verbs that only show what is: it is no failure where nobody reads it to the end."""

_TAKES_NOTHING = frozenset((errno.ENOSPC, errno.EDQUOT, errno.EFBIG, errno.EIO, errno.EBADF))


def outcome(error: OSError, verb: str) -> Exit | None:
    """The exit code of `verb`, with what is said of it said on stderr; None where the error is none of these."""
    if isinstance(error, BrokenPipeError):
        _write_nowhere()
        if verb in SHOWS:
            return Exit.DONE
        said = "cannot write to standard output: nobody reads it any more"
    elif error.errno in _TAKES_NOTHING and error.filename is None:
        _write_nowhere()
        said = f"cannot write to standard output: {error.strerror}"
    elif isinstance(error, FileNotFoundError) and not _stands_somewhere():
        said = "cannot go on: the working directory is gone\n  help: cd somewhere else"
    else:
        return None
    click.echo(f"error: {said}", err=True)
    return Exit.FAILED


def _write_nowhere() -> None:
    """What is held back would be tried once more when the interpreter ends."""
    null = os.open(os.devnull, os.O_WRONLY)
    os.dup2(null, 1)
    os.close(null)


def _stands_somewhere() -> bool:
    try:
        os.getcwd()
    except FileNotFoundError:
        return False
    return True
