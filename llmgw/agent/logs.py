"""The engines' own output: read from its end, kept bounded without the engine's help.

A head is cut by punching a hole: offsets stay valid, no line is lost, and an engine that appends
notices nothing. Called by `agent.supervisor`.
"""

import contextlib
import ctypes
import os
import pathlib
import urllib.parse

from llmgw.fleet.shard import ShardKey

_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02
_BLOCK = 4096
_libc = ctypes.CDLL(None, use_errno=True)


def path_of(directory: pathlib.Path, key: ShardKey) -> pathlib.Path:
    """Where the output of a shard goes."""
    return directory / f"{urllib.parse.quote(key[0], safe='')}.{key[1]}.log"


def tail(path: pathlib.Path, size: int = 16384) -> str:
    """The last `size` bytes as text; empty where there is no log."""
    try:
        with path.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read().decode(errors="replace").lstrip("\0")
    except OSError:
        return ""


def trim(path: pathlib.Path, keep: int) -> None:
    """Give the disk back everything but the last `keep` bytes. Nothing where the file system cannot."""
    with contextlib.suppress(OSError), path.open("r+b") as file:
        length = (file.seek(0, os.SEEK_END) - keep) // _BLOCK * _BLOCK
        if length > 0:
            mode = _KEEP_SIZE | _PUNCH_HOLE
            _libc.fallocate(file.fileno(), mode, ctypes.c_longlong(0), ctypes.c_longlong(length))


def prune(directory: pathlib.Path, keep: int) -> None:
    """Remove all but the `keep` newest logs. One that cannot be removed now is removed another time."""
    with contextlib.suppress(OSError):
        logs = sorted(directory.glob("*.log"), key=lambda path: path.stat().st_mtime, reverse=True)
        for path in logs[keep:]:
            path.unlink(missing_ok=True)
