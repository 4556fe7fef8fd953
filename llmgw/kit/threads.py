"""Threads of a process that may be at its limit: one that cannot be started is refused as the system refuses anything.

Set as its loop's executor by who must live on. Of Python it is a RuntimeError, which nobody expects of a name's
look-up or of a file's.
"""

import concurrent.futures
import ctypes
import errno
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")

_ARENA_MAX = -8
"""glibc's number of the setting: <malloc.h>, M_ARENA_MAX."""


def share_one_heap() -> bool:
    """Let threads that are started from now on take their memory from the main heap; whether this C library can.

    glibc gives each thread a heap of its own, keeps in each what its busiest moment needed, and never gives it
    back: a pool of six cost an agent 8 MiB, for threads that wait for one lock anyway.
    """
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    return mallopt is not None and mallopt(_ARENA_MAX, 1) == 1


class Threads(concurrent.futures.ThreadPoolExecutor):
    """As its base; `submit` raises OSError where no thread can be started. What it refused may still be done later."""

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> "concurrent.futures.Future[T]":
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, f"no thread for it ({error})") from error
