"""What of this node may lie on another machine: its weights, the room for more, and the engines' programs.

All is looked at in one thread of its own, as `agent.gpus` asks a driver: a mount that hangs holds up no
heartbeat and no registration. What was seen last stands meanwhile, and is said to be old.
"""

import dataclasses
import pathlib
from collections.abc import Callable, Generator

import psutil

from llmgw.agent.cache import Cache
from llmgw.agent.readings import Readings
from llmgw.fleet.node import CachedWeights, InstalledEngine
from llmgw.kit.clock import Clock
from llmgw.kit.units import show_seconds


@dataclasses.dataclass(frozen=True, slots=True)
class MountTimers:
    """Seconds. `within`: how long one look at all of it may take until a mount counts as hung."""

    within: float = 10.0


@dataclasses.dataclass(frozen=True, slots=True)
class Seen:
    """`free` in bytes, on the disk of the cache. `fault` is why `weights` are those of an earlier look; None = no look."""

    weights: tuple[CachedWeights, ...] | None = None
    free: int | None = None
    engines: tuple[InstalledEngine, ...] | None = None
    fault: str = ""


class Mounts:
    """Made and asked in the agent's event loop. `engines` tells them with what is remembered of their programs.

    `changed` is called when a mount falls silent, and when it answers again. Raises Failed where there is no thread.
    """

    def __init__(
        self,
        cache: Cache,
        engines: Callable[[], tuple[InstalledEngine, ...]],
        clock: Clock,
        timers: MountTimers,
        changed: Callable[[], None],
    ) -> None:
        self._cache, self._engines = cache, engines
        self._at = ""
        self._readings = Readings(
            "mounts", "this node's weights", self._look, clock=clock, within=timers.within, changed=changed
        )

    @property
    def seen(self) -> Seen:
        """What was seen last; nothing before the first look."""
        return self._readings.seen or Seen()

    @property
    def trouble(self) -> str:
        """Why what is told may be old, in words that change ever more rarely; empty = it is not."""
        if seconds := self._readings.silent_for:
            return f"{self._at} has not answered for {show_seconds(seconds)}"
        return self.seen.fault

    def close(self) -> None:
        """Look no more."""
        self._readings.close()

    async def look(self) -> bool:
        """Until there is a look that began after this call; False where a mount hangs."""
        return await self._readings.look()

    def _look(self) -> Generator[Seen, None, None]:
        seen = Seen()
        while True:
            self._at = "an engine's program"
            engines = self._engines()
            self._at = str(self._cache.root)
            try:
                seen = Seen(self._cache.list_entries(), _free(self._cache.root), engines)
            except OSError as error:
                fault = f"{self._cache.root}: {error.strerror}"
                seen = dataclasses.replace(seen, engines=engines, free=None, fault=fault)
            yield seen


def _free(path: pathlib.Path) -> int | None:
    try:
        return psutil.disk_usage(str(path)).free
    except OSError:
        return None
