"""The engines' own output: read from its end, kept bounded without the engine's help.

A head is cut by punching a hole: offsets stay valid, no line is lost, and an engine that appends
notices nothing. Called by `agent.supervisor`, and by `agent.log_answers` for people who read along.
On the disk lie at most `keep` bytes of `trim_all` for each shard that is here, `together` of `prune` for those
that have ended, and what engines write between two looks.
"""

import contextlib
import ctypes
import dataclasses
import itertools
import os
import pathlib
import urllib.parse
from collections.abc import Collection, Iterable

from llmgw.agent.holders import holder
from llmgw.fleet.shard import ShardKey
from llmgw.kit.files import open_regular

_KEEP_SIZE, _PUNCH_HOLE = 0x01, 0x02
_BLOCK = 4096
_libc = ctypes.CDLL(None, use_errno=True)


def path_of(directory: pathlib.Path, key: ShardKey) -> pathlib.Path:
    """Where the output of a shard goes."""
    return directory / f"{urllib.parse.quote(key[0], safe='')}.{key[1]}.log"


def tail(path: pathlib.Path, size: int = 16384) -> str:
    """The last `size` bytes as text; empty where there is no log."""
    try:
        with open(open_regular(path), "rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - size))
            return file.read().decode(errors="replace").lstrip("\0")
    except OSError:
        return ""


def trim_all(directory: pathlib.Path, keep: int) -> None:
    """`trim` every log, whoever wrote it and whether it still runs."""
    with contextlib.suppress(OSError):
        for path in _logs(directory):
            trim(path, keep)


def trim(path: pathlib.Path, keep: int) -> None:
    """Give the disk back everything but the last `keep` bytes, once it is a thirty-second more.

    Nothing where the file system cannot.
    """
    with contextlib.suppress(OSError):
        if path.lstat().st_size > keep:
            _cut(path, keep)


def _cut(path: pathlib.Path, keep: int) -> None:
    with open(open_regular(path, os.O_RDWR), "r+b") as file:
        before = os.fstat(file.fileno())
        size = file.seek(0, os.SEEK_END)
        length = (size - keep) // _BLOCK * _BLOCK
        if size - _data_from(file.fileno(), 0, size) > keep + max(2 * _BLOCK, keep // 32):
            mode = _KEEP_SIZE | _PUNCH_HOLE
            _libc.fallocate(file.fileno(), mode, ctypes.c_longlong(0), ctypes.c_longlong(length))
            # Which log is the newest is told by what was written last, and a hole counts as a write.
            os.utime(file.fileno(), ns=(before.st_atime_ns, before.st_mtime_ns))


def prune(directory: pathlib.Path, keep: int, together: int, live: Collection[ShardKey] = ()) -> None:
    """Remove all but the `keep` newest logs, as far as they have no more than `together` bytes on the disk.

    Those of `live` shards, which may have been silent for long, stay and do not count. So does one that somebody
    has open: without a name it would grow on. One that cannot be removed now is removed another time.
    """
    staying = {path_of(directory, key) for key in live}
    with contextlib.suppress(OSError):
        sizes = {path: path.lstat() for path in _newest_first(directory) if path not in staying}
        total = itertools.accumulate(found.st_blocks * 512 for found in sizes.values())
        old = [
            path
            for n, (path, sum_) in enumerate(zip(sizes, total, strict=True))
            if n >= keep or sum_ > together
        ]
        held = bool(old) and _held(directory, [sizes[path] for path in old])
        for path in old:
            if not held or not _held(directory, [sizes[path]]):
                with contextlib.suppress(OSError):
                    path.unlink(missing_ok=True)


def _held(directory: pathlib.Path, files: Collection[os.stat_result]) -> bool:
    return bool(holder({(found.st_dev, found.st_ino) for found in files}, str(directory)))


@dataclasses.dataclass(frozen=True, slots=True)
class Piece:
    """Bytes of a log from `offset` on; `lost` right before them are on no disk any more. `size` = where it ends."""

    data: bytes
    offset: int
    lost: int
    size: int


def piece(path: pathlib.Path, offset: int, most: int) -> Piece:
    """What the log says from `offset` on, at most `most` bytes; after a hole from its first whole line. Raises OSError."""
    with open(open_regular(path), "rb") as file:
        size = file.seek(0, os.SEEK_END)
        start, data = -1, b""
        # What is cut while it is read reads as zeros: then it begins anew behind the hole.
        while (first := _data_from(file.fileno(), min(offset, size), size)) != start:
            start = first
            data = os.pread(file.fileno(), most, start)
    if start > offset:
        cut = data.find(b"\n") + 1
        data, start = data[cut:], start + cut
    return Piece(data, start, max(0, start - offset), size)


def tail_offset(path: pathlib.Path, lines: int, window: int = 4 * 2**20) -> int:
    """Where the last `lines` lines begin, looked for in the last `window` bytes. Raises OSError."""
    with open(open_regular(path), "rb") as file:
        size = file.seek(0, os.SEEK_END)
        start = _data_from(file.fileno(), max(0, size - window), size)
        file.seek(start)
        data = file.read(window)
    end = len(data) - data.endswith(b"\n")
    for _ in range(lines):
        end = data.rfind(b"\n", 0, end)
        if end < 0:
            return start
    return start + (end + 1 if lines else len(data))


def previous(
    directory: pathlib.Path, model: str, rank: int, before: str, live: Collection[ShardKey]
) -> ShardKey | None:
    """The shard of the model that ended last, and before the replica `before` wrote its last; None = none is kept."""
    newest = path_of(directory, (before, rank))
    limit = newest.lstat().st_mtime if before and os.path.lexists(newest) else float("inf")
    for path in _newest_first(directory):
        key = _key_of(path)
        if key[0].rpartition("/")[0] != model or key[1] != rank or key[0] == before or key in live:
            continue
        if path.lstat().st_mtime <= limit:
            return key
    return None


def _newest_first(directory: pathlib.Path) -> list[pathlib.Path]:
    """By their last word; a link's own, wherever it leads."""
    found: list[tuple[float, pathlib.Path]] = []
    for path in _logs(directory):
        with contextlib.suppress(OSError):
            found.append((path.lstat().st_mtime, path))
    return [path for _, path in sorted(found, reverse=True)]


def _logs(directory: pathlib.Path) -> Iterable[pathlib.Path]:
    """None where the directory has become a link: what is cut and removed there would be somebody else's."""
    return () if directory.is_symlink() else directory.glob("*.log")


def _key_of(path: pathlib.Path) -> ShardKey:
    name, _, rank = path.name.removesuffix(".log").rpartition(".")
    return urllib.parse.unquote(name), int(rank) if rank.isdecimal() else -1


def _data_from(descriptor: int, offset: int, size: int) -> int:
    """The first byte from `offset` on that is on the disk; the end where none is."""
    try:
        return os.lseek(descriptor, offset, os.SEEK_DATA) if offset < size else offset
    except OSError:  # nothing but a hole from here on, or a file system without holes
        return offset
