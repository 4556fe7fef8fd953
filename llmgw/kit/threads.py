"""Threads of a process that may be at its limit: one that cannot be started is refused as the system refuses anything.

Set as its loop's executor by who must live on. Of Python it is a RuntimeError, which nobody expects of a name's
look-up or of a file's.
"""

import concurrent.futures
import errno
from collections.abc import Callable
from typing import ParamSpec, TypeVar

P = ParamSpec("P")
T = TypeVar("T")


class Threads(concurrent.futures.ThreadPoolExecutor):
    """As its base; `submit` raises OSError where no thread can be started. What it refused may still be done later."""

    def submit(
        self, fn: Callable[P, T], /, *args: P.args, **kwargs: P.kwargs
    ) -> "concurrent.futures.Future[T]":
        try:
            return super().submit(fn, *args, **kwargs)
        except RuntimeError as error:
            raise OSError(errno.EAGAIN, f"no thread for it ({error})") from error
