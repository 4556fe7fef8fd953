"""Which processes have a file open or mapped. Called by `agent.collect` before it removes anything."""

import contextlib
import os
import pathlib
from collections.abc import Iterator, Set

from llmgw.kit.text import safe

FileId = tuple[int, int]
"""(device, inode)."""


def holder(files: Set[FileId], name: str, *, proc: pathlib.Path = pathlib.Path("/proc")) -> str:
    """The first process that has one of `files` open, or maps a path with `name` in it; empty = none.

    A process that we may not look into belongs to somebody who cannot reach a cache of mode 0700.
    """
    for process in proc.iterdir():
        if process.name.isdigit() and (_opens(process, files) or _maps(process, files, name)):
            return f"pid {process.name} ({_comm(process)})"
    return ""


def _opens(process: pathlib.Path, files: Set[FileId]) -> bool:
    with contextlib.suppress(OSError):
        for fd in os.listdir(process / "fd"):
            with contextlib.suppress(OSError):
                status = os.stat(process / "fd" / fd)
                if (status.st_dev, status.st_ino) in files:
                    return True
    return False


def _maps(process: pathlib.Path, files: Set[FileId], name: str) -> bool:
    # By path too: btrfs and overlays say another device here than `stat` does.
    return any(name in path or file in files for file, path in _mapped(process))


def _mapped(process: pathlib.Path) -> Iterator[tuple[FileId, str]]:
    with contextlib.suppress(OSError):
        for line in (process / "maps").read_text(errors="replace").splitlines():
            fields = line.split(maxsplit=5)
            if len(fields) == 6:
                major, _, minor = fields[3].partition(":")
                yield (os.makedev(int(major, 16), int(minor, 16)), int(fields[4])), fields[5]


def _comm(process: pathlib.Path) -> str:
    try:
        return safe((process / "comm").read_text(errors="replace").strip())
    except OSError:
        return "?"
