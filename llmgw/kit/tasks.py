"""Every task has an owner. A composition root holds one `Tasks`; parts start theirs through it.

A task that ends with an exception nobody handled ends the owner: `wait()` raises it. Silence is
never how a background task dies.
"""

import asyncio
from collections.abc import Coroutine
from typing import Any


class Tasks:
    """Named tasks that live and die with their owner."""

    def __init__(self) -> None:
        self._tasks: set[asyncio.Task[Any]] = set()
        self._failed: asyncio.Future[None] | None = None

    def start(self, name: str, work: Coroutine[Any, Any, Any]) -> asyncio.Task[Any]:
        """Run `work` until it ends or the owner closes. Returns the task, to cancel it early."""
        task = asyncio.get_running_loop().create_task(work, name=name)
        self._tasks.add(task)
        task.add_done_callback(self._ended)
        return task

    def _ended(self, task: asyncio.Task[Any]) -> None:
        self._tasks.discard(task)
        if task.cancelled() or (error := task.exception()) is None:
            return
        failed = self._failure()
        if not failed.done():
            error.add_note(f"in task {task.get_name()!r}")
            failed.set_exception(error)

    def _failure(self) -> asyncio.Future[None]:
        if self._failed is None:
            self._failed = asyncio.get_running_loop().create_future()
        return self._failed

    async def wait(self) -> None:
        """Until a task fails; raises its exception. Cancel this to stop waiting."""
        await asyncio.shield(self._failure())

    async def wait_or(self, done: asyncio.Event) -> None:
        """Until `done` is set, or a task fails: then raises its exception."""
        waiting = asyncio.ensure_future(done.wait())
        try:
            await asyncio.wait((waiting, self._failure()), return_when=asyncio.FIRST_COMPLETED)
        finally:
            waiting.cancel()
        if self._failure().done():
            await self.wait()

    async def close(self) -> None:
        """Cancel what still runs and wait for it. A failure nobody waited for is raised here."""
        tasks = [task for task in self._tasks if task is not asyncio.current_task()]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        if self._failed is not None and self._failed.done() and not self._failed.cancelled():
            self._failed.exception()  # retrieved, so that it is not reported twice
