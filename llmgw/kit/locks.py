"""One process a directory. The kernel lets go of the lock when its holder dies, however it dies.

Used for the state directories of the control plane and of agents.
"""

import contextlib
import fcntl
import os
import pathlib

from llmgw.errors import Failed
from llmgw.kit.files import open_regular


def hold(directory: pathlib.Path, *, who: str, better: str) -> int:
    """Make and hold `directory` until the returned descriptor, which children do not inherit, is closed.

    Raises Failed with the holder's pid where another process (`who` it must be) has it, helped by `better`;
    OSError where the directory cannot be used.
    """
    directory.mkdir(parents=True, exist_ok=True, mode=0o700)
    lock = open_regular(directory / "lock", os.O_RDWR | os.O_CREAT)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(lock, 32, 0).decode(errors="replace").strip() or "unknown"
        os.close(lock)
        if not isinstance(error, BlockingIOError):
            raise
        raise Failed(
            f"cannot use {directory}: another {who} (pid {holder}) runs on it", help=better
        ) from None
    # For people only: a full disk keeps nobody from what it holds.
    with contextlib.suppress(OSError):
        os.ftruncate(lock, 0)
        os.pwrite(lock, str(os.getpid()).encode(), 0)
    return lock
