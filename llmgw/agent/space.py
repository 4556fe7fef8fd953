"""Room on the disk for what is still to be fetched. Called by `agent.fetch` and `agent.flight`."""

import contextlib
import ctypes
import errno
import os
import pathlib
import shutil

from llmgw.kit.units import show_bytes

_KEEP_SIZE = 0x01
_libc = ctypes.CDLL(None, use_errno=True)
_UNSUPPORTED = frozenset({errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL})
FULL = frozenset({errno.ENOSPC, errno.EDQUOT})


def lacking(directory: pathlib.Path, need: int, reserve: int) -> str:
    """Why `need` more bytes do not fit beside `reserve` on the disk of `directory`; empty = they do."""
    free = shutil.disk_usage(directory).free
    if need + reserve <= free:
        return ""
    return (
        f"{show_bytes(need)} to fetch and {show_bytes(reserve)} of reserve do not fit: "
        f"{show_bytes(free)} are free at {directory}"
    )


def claim(fd: int, size: int) -> None:
    """Allocate blocks up to `size`. The file's length stays: it tells how many bytes have come.

    OSError (ENOSPC) where they do not fit; nothing where the file system cannot allocate ahead.
    """
    code = _libc.fallocate(
        ctypes.c_int(fd), ctypes.c_int(_KEEP_SIZE), ctypes.c_longlong(0), ctypes.c_longlong(size)
    )
    if code and ctypes.get_errno() not in _UNSUPPORTED:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))


def claimed(path: pathlib.Path) -> int:
    """Bytes that the file holds on the disk already, written or allocated; 0 where it is missing."""
    with contextlib.suppress(OSError):
        return held(path.lstat())
    return 0


def held(status: os.stat_result) -> int:
    """Bytes of the disk that a file of this status holds, written or allocated."""
    return max(status.st_size, status.st_blocks * 512)
