"""Secrets out of files and of the environment, never of a command line, which everybody here can read.

Called by the verbs that need a token. No message has a character of what was read.
"""

import os
import pathlib
import stat
from collections.abc import MutableMapping

from llmgw.errors import Failed

LONGEST = 4096
"""Bytes of a secret."""


def read_secret(path: pathlib.Path) -> str:
    """The one line of `path`. Raises Failed where others may read the file, or where it holds no secret."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except OSError as error:
        raise Failed(f"cannot read {path}: {error.strerror}") from error
    try:
        _must_be_private(path, os.fstat(file))
        text = os.read(file, LONGEST + 1)
    finally:
        os.close(file)
    return _checked(text.decode(errors="replace").strip(), str(path))


def take_secret(name: str, environment: MutableMapping[str, str]) -> str:
    """The secret in the variable `name`, empty without one. It is taken out: no child inherits it."""
    text = environment.pop(name, "").strip()
    return _checked(text, name) if text else ""


def _must_be_private(path: pathlib.Path, found: os.stat_result) -> None:
    if not stat.S_ISREG(found.st_mode):
        raise Failed(f"cannot read {path}: it is no regular file")
    if found.st_uid not in (0, os.geteuid()):
        raise Failed(f"cannot trust {path}: it belongs to user {found.st_uid}", help="make it your own")
    if found.st_mode & 0o077:
        raise Failed(
            f"cannot trust {path}: others may read it (mode {stat.S_IMODE(found.st_mode):04o})",
            help=f"chmod 600 {path}",
        )


def _checked(text: str, place: str) -> str:
    if not text or len(text) > LONGEST or not (text.isascii() and text.isprintable()) or " " in text:
        raise Failed(f"cannot use {place}: it holds no token of one line")
    return text
