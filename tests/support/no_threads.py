"""A process at its limit: no thread can be started, and those of its loop are busy."""

import asyncio
import contextlib
import threading
from collections.abc import Iterator

import pytest

PATIENCE = 20.0


@contextlib.contextmanager
def no_threads() -> Iterator[list[str]]:
    """Until the end of the block; the threads that were asked for in vain meanwhile."""
    asked: list[str] = []
    busy: list[int] = []
    begun, over = threading.Semaphore(0), threading.Event()

    def refuse(thread: threading.Thread) -> None:
        asked.append(thread.name)
        raise RuntimeError("can't start new thread")

    def stay() -> None:
        busy.append(threading.get_ident())
        begun.release()
        over.wait()

    try:
        # One at a time, and nothing is refused yet: an executor takes what it refused for work that somebody idle does.
        while not busy or len(busy) < len(_workers()):
            asyncio.get_running_loop().run_in_executor(None, stay)
            assert begun.acquire(timeout=PATIENCE), "no thread took it"
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(threading.Thread, "start", refuse)
            yield asked
    finally:
        over.set()


def _workers() -> list[str]:
    """Threads of a loop's executor: Python's own, or ours."""
    names = (thread.name for thread in threading.enumerate())
    return [name for name in names if name.startswith(("asyncio_", "ThreadPoolExecutor"))]
