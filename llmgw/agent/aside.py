"""Run a coroutine in a thread with a loop of its own, as if it were awaited here.

Called by `agent.weights`: a fetch that hashes and writes gigabytes must not delay a heartbeat.
"""

import asyncio
import contextlib
from collections.abc import Callable, Coroutine
from typing import Any, Generic, TypeVar

from llmgw.kit.threads import Threads

T = TypeVar("T")
Work = Callable[[], Coroutine[Any, Any, T]]


async def run_aside(name: str, work: Work[T]) -> T:
    """The result of `work()`, run in a thread called `name`. Raises OSError where there is none for it.

    Cancelling this cancels the coroutine there, and returns only once it has ended.
    """
    aside = _Aside(work)
    executor = Threads(1, thread_name_prefix=name)
    running = asyncio.get_running_loop().run_in_executor(executor, aside.run)
    try:
        return await asyncio.shield(running)
    except asyncio.CancelledError:
        aside.cancel()
        while not running.done():
            with contextlib.suppress(asyncio.CancelledError):
                await asyncio.wait({running})
        if not running.cancelled():
            running.exception()  # retrieved: whoever cancelled does not want to know
        raise
    finally:
        executor.shutdown(wait=False)


class _Aside(Generic[T]):
    """One coroutine in its own loop; `cancel` may come from another thread at any time."""

    def __init__(self, work: Work[T]) -> None:
        self._work = work
        self._cancelled = False
        self._task: asyncio.Task[Any] | None = None

    def run(self) -> T:
        return asyncio.run(self._main())

    def cancel(self) -> None:
        self._cancelled = True
        if self._task is not None:
            # Its loop may have closed just now: then there is nothing left to cancel.
            with contextlib.suppress(RuntimeError):
                self._task.get_loop().call_soon_threadsafe(self._task.cancel)

    async def _main(self) -> T:
        self._task = asyncio.current_task()
        if self._cancelled:
            raise asyncio.CancelledError
        return await self._work()
