"""What may take for ever to read, read in one thread of its own: who asks is never kept longer than a bound.

`agent.gpus` asks a driver so, `agent.mounts` file systems. While a reading hangs the last one stands, and no
second one is begun.
"""

import asyncio
import contextlib
import queue
import threading
from collections.abc import Callable, Generator
from typing import Generic, TypeVar

from llmgw.errors import Failed
from llmgw.kit.clock import Clock

T = TypeVar("T")


class Readings(Generic[T]):
    """One reading after the other, for the life of the agent. Made and asked in its event loop.

    `read` makes the readings, in the thread; where it ends, the last one stands for good. One that takes longer than
    `within` seconds counts as hung; `changed` is called then, and when it has come after all. `name` is the thread's,
    `what` is read, in words. Raises Failed where it gets no thread.
    """

    def __init__(
        self,
        name: str,
        what: str,
        read: Callable[[], Generator[T, None, None]],
        *,
        clock: Clock,
        within: float,
        changed: Callable[[], None],
    ) -> None:
        self._read, self._clock, self._within, self._changed = read, clock, within, changed
        self._loop = asyncio.get_running_loop()
        self._seen: T | None = None
        self._over = False
        self._silent_since: float | None = None
        self._running: asyncio.Future[bool] | None = None
        self._next: asyncio.Future[bool] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._go = queue.SimpleQueue[bool]()
        # Not of a pool: an exit would wait for it, as long as it hangs.
        try:
            threading.Thread(target=self._work, name=name, daemon=True).start()
        except RuntimeError as error:
            raise Failed(
                f"cannot ask for {what}: no thread can be started",
                help="let the agent have more processes (ulimit -u, TasksMax=)",
            ) from error

    @property
    def seen(self) -> T | None:
        """The last reading; None before the first."""
        return self._seen

    @property
    def silent_for(self) -> float:
        """Seconds that a reading hangs, in steps that come ever more rarely; 0 = none does."""
        since, step = self._silent_since, self._within
        if since is None:
            return 0.0
        while since + 2 * step <= self._clock.now():
            step *= 2
        return step

    def close(self) -> None:
        """Let the thread end, as soon as what it reads lets it."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._go.put(False)

    async def look(self) -> bool:
        """Until there is a reading that began after this call; False where one hangs."""
        if self._over:
            return True
        if self._silent_since is not None:
            return False
        if self._running is None:
            return await asyncio.shield(self._begin(self._loop.create_future()))
        if self._next is None:
            self._next = self._loop.create_future()
        return await asyncio.shield(self._next)

    # --- one after the other ---------------------------------------------------------------------

    def _begin(self, asked: "asyncio.Future[bool]") -> "asyncio.Future[bool]":
        self._running, self._next = asked, None
        self._deadline = self._loop.call_later(self._within, self._late, self._clock.now())
        self._go.put(True)
        return asked

    def _late(self, begun: float) -> None:
        self._silent_since = begun
        for asked in (self._running, self._next):
            if asked is not None:
                asked.set_result(False)
        self._next = None
        self._changed()

    def _came(self, seen: T) -> None:
        self._seen = seen
        self._answered()

    def _ended(self) -> None:
        self._over = True
        self._answered()

    def _answered(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
        asked, self._running = self._running, None
        if asked is not None and not asked.done():
            asked.set_result(True)
        if self._silent_since is not None:
            self._silent_since = None
            self._changed()
        if self._next is not None and self._over:
            self._next.set_result(True)
        elif self._next is not None:
            self._begin(self._next)

    # --- the thread ------------------------------------------------------------------------------

    def _work(self) -> None:
        """Nothing but reading, once each time it is told to, until it is told to end or there is nothing to read."""
        with contextlib.closing(self._read()) as readings:
            while self._go.get():
                try:
                    seen = next(readings)
                except StopIteration:
                    self._tell(self._ended)
                    return
                if not self._tell(self._came, seen):
                    return

    def _tell(self, callback: Callable[..., None], *words: T) -> bool:
        try:
            self._loop.call_soon_threadsafe(callback, *words)
        except RuntimeError:  # the loop is closed: nobody asks any more
            return False
        return True
