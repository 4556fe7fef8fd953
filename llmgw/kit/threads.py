"""Threads of a process that may be at its limit: one that cannot be started is refused as the system refuses anything.

The executor of every process of ours that lives on. Of Python it is a RuntimeError, which nobody expects of a
name's look-up or of a file's: it ended whoever met it.
"""

import asyncio
import concurrent.futures
import ctypes
import errno
import threading
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


def use_threads() -> None:
    """From now on what blocks is done in `Threads` by the loop that runs: `asyncio.to_thread`, names that are looked up.

    As many as Python's own would be. What another executor has begun is done by it, and its threads end after that.
    """
    asyncio.get_running_loop().set_default_executor(Threads())


class Threads(concurrent.futures.ThreadPoolExecutor):
    """As its base; `submit` raises OSError where no thread can be started."""

    def __init__(self, max_workers: int | None = None, thread_name_prefix: str = "") -> None:
        super().__init__(max_workers, thread_name_prefix)
        self._counting = threading.Lock()
        self._passed_over = 0

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> "concurrent.futures.Future[T]":
        """What is refused is not done later either, unless a thread that came free has just begun it."""
        refused = threading.Event()

        def work() -> T:
            if refused.is_set():
                with self._counting:
                    self._passed_over += 1
                raise concurrent.futures.CancelledError
            return fn(*args, **kwargs)

        self._forget_passed_over()
        try:
            return super().submit(work)
        except RuntimeError as error:
            # Its base has queued it by now, for whichever thread there is.
            refused.set()
            raise OSError(errno.EAGAIN, f"no thread for it ({error})") from error

    def _forget_passed_over(self) -> None:
        """Its base counts whoever has passed over what was refused as one more that is idle, and would start none."""
        with self._counting:
            while self._passed_over and self._idle_semaphore.acquire(blocking=False):
                self._passed_over -= 1
