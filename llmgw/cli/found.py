"""The llmgw.toml that a command finds: the nearest, here or above. A clone is enough to find its cluster.

Read by `access` for the control plane, by `limits` for the guards and by `names` for completion. Whoever
wrote such a file is not always who runs the command: one that belongs to somebody else is passed over, and
no token follows what only such a file says (`access`). Light: completion imports it.
"""

import dataclasses
import os
import pathlib
import stat
from collections.abc import Callable, Mapping
from typing import Any

from llmgw.errors import Failed

NAME = "llmgw.toml"
LARGEST = 1 << 20
"""Bytes of such a file."""


@dataclasses.dataclass(frozen=True, slots=True)
class Found:
    """A file of this user or of root, with its text and what TOML makes of it."""

    path: pathlib.Path
    text: str
    table: Mapping[str, Any]


def from_here(tell: Callable[[str], None] = lambda _: None) -> Found | None:
    """The nearest one of the working directory; none is near where that was removed. Raises Failed."""
    try:
        here = pathlib.Path.cwd()
    except FileNotFoundError:
        return None
    return nearest(here, tell)


def nearest(start: pathlib.Path, tell: Callable[[str], None] = lambda _: None) -> Found | None:
    """The nearest llmgw.toml at `start` or above. `tell` hears of each that is passed over. Raises Failed."""
    for directory in (start, *start.parents):
        path = directory / NAME
        try:
            file = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (FileNotFoundError, NotADirectoryError):
            continue
        except OSError as error:
            raise Failed(f"cannot read {path}: {error.strerror}") from error
        try:
            known = os.fstat(file)
            data = os.read(file, LARGEST + 1) if _is_ours(known) else b""
        finally:
            os.close(file)
        if _is_ours(known):
            return _read(path, data)
        if stat.S_ISREG(known.st_mode):
            tell(f"passed over {path}: it belongs to user {known.st_uid}")
    return None


def _is_ours(known: os.stat_result) -> bool:
    return stat.S_ISREG(known.st_mode) and known.st_uid in (0, os.geteuid())


def _read(path: pathlib.Path, data: bytes) -> Found:
    import tomllib

    if len(data) > LARGEST:
        raise Failed(f"cannot read {path}: it is larger than {LARGEST} bytes")
    try:
        text = data.decode()
        return Found(path, text, tomllib.loads(text))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise Failed(f"cannot read {path}: {error}") from error
    except RecursionError:
        raise Failed(f"cannot read {path}: it is nested too deeply") from None
