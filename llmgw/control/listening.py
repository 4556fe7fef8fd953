"""Hearing that something happened in the file system, never what. Used by `watch`.

Directories are listened to, not files: an editor's rename would leave a file's listener with an inode
that nobody writes any more. A directory that is replaced is another `Spot`, and gets a listener of its own.
"""

import asyncio
import logging
from collections.abc import Callable

import watchfiles

from llmgw.control.trees import Spot
from llmgw.kit.tasks import Tasks

log = logging.getLogger(__name__)

GATHER, STEP = 200, 20
"""Milliseconds: how long events are gathered at most, and how often they are looked for."""


class Listening:
    """Rings when something happens at any of its spots, until it is closed."""

    def __init__(self, tasks: Tasks, ring: Callable[[], None]) -> None:
        self._tasks, self._ring = tasks, ring
        self._listeners: dict[Spot, asyncio.Task[None]] = {}

    def at(self, spots: frozenset[Spot]) -> bool:
        """Listen at exactly these. Returns whether a listener is new: what happened before it was not heard."""
        for spot in self._listeners.keys() - spots:
            self._listeners.pop(spot).cancel()
        deaf = [spot for spot in spots if spot not in self._listeners or self._listeners[spot].done()]
        for spot in deaf:
            self._listeners[spot] = self._tasks.start(f"listen at {spot.path}", self._listen(spot))
        return bool(deaf)

    def close(self) -> None:
        """Listen nowhere any more."""
        self.at(frozenset())

    async def _listen(self, spot: Spot) -> None:
        """Until there is nothing to hear any more. The slow timer finds what is missed meanwhile."""
        try:
            async for _ in watchfiles.awatch(
                spot.path,
                watch_filter=lambda _, path: spot.matters(path),
                debounce=GATHER,
                step=STEP,
                recursive=not spot.names,
                ignore_permission_denied=True,
            ):
                self._ring()
        except (OSError, RuntimeError) as error:
            log.warning(
                "cannot listen at %s: %s; it is looked at from time to time instead", spot.path, error
            )
