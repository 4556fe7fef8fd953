"""The node's weights: brought once however many ask, looked up on the disk, removed on proof.

`agent.supervisor` asks `ensure` before a shard is held and `model_path` when it launches; the
session sends `progress`, and hands a Collect to `collect`.
"""

import asyncio
import dataclasses
import pathlib
from collections.abc import Callable, Collection, Sequence
from typing import TypeVar

from llmgw.agent.aside import run_aside
from llmgw.agent.cache import Cache, shown
from llmgw.agent.collect import Outcome, collect_entry, out_of_turn
from llmgw.agent.fetch import Limits
from llmgw.agent.flight import Job, fly
from llmgw.agent.meter import Meter
from llmgw.catalog.hub import Hub
from llmgw.catalog.sources import Source, cache_name
from llmgw.errors import Failed, LlmgwError
from llmgw.fleet.node import CachedWeights
from llmgw.fleet.shard import Progress
from llmgw.kit.chance import Chance
from llmgw.kit.clock import Clock
from llmgw.kit.tasks import Tasks
from llmgw.kit.text import safe
from llmgw.kit.threads import Threads

T = TypeVar("T")

THREADS = 8
"""That look at weights at a time: shards that start together on a slow mount wait for each other, and for nobody else."""

_BOOT_ID = pathlib.Path("/proc/sys/kernel/random/boot_id")


@dataclasses.dataclass(slots=True)
class _Flight:
    """One download under way. It ends early when nobody waits for it any more."""

    meter: Meter
    landed: asyncio.Future[LlmgwError | None]
    task: asyncio.Task[None] | None = None
    waiting: int = 0
    abandoned: bool = False


class Weights:
    """One cache and the downloads into it. All methods are called from the agent's loop, but `model_path`.

    What looks at the disk has threads of its own: those that wait for a mount that hangs are nobody else's.
    """

    def __init__(
        self, cache: Cache, tasks: Tasks, clock: Clock, chance: Chance, limits: Limits, hub: Hub
    ) -> None:
        self._cache = cache
        self._tasks = tasks
        self._clock = clock
        self._chance = chance
        self._limits = limits
        self._hub = hub
        self._boot = _BOOT_ID.read_text().strip()
        self._flights: dict[str, _Flight] = {}
        self._collecting = asyncio.Lock()
        self._removing: tuple[str, asyncio.Event] | None = None
        self._asked: set[str] = set()
        self._threads = Threads(THREADS, thread_name_prefix="weights")

    def close(self) -> None:
        """Begin nothing more in its threads."""
        self._threads.shutdown(wait=False, cancel_futures=True)

    async def beside(self, work: Callable[[], T]) -> T:
        """What `work` returns, done in the threads that look at weights. Raises what it raises, OSError without a thread."""
        return await asyncio.get_running_loop().run_in_executor(self._threads, work)

    async def holds(self, source: Source) -> bool:
        """Whether the weights are here whole, by the disk as it is now."""
        if not source.fetched:
            return await self.beside(pathlib.Path(source.canonical.removeprefix("file://")).exists)
        return await self.beside(lambda: self._cache.whole(source)) is not None

    async def ensure(self, source: Source) -> pathlib.Path:
        """Where the weights are, fetched if they are not here. Raises LlmgwError that says why not.

        Callers of one source share one download; it is given up when the last of them is cancelled,
        and what had come is kept for the next.
        """
        if source.fetched:
            await self._fetched(cache_name(source), source)
        return await self.beside(lambda: self._cache.model_path(source))

    def model_path(self, source: Source) -> pathlib.Path:
        """What an engine is given: a file or a directory. Raises LlmgwError where it is not whole."""
        return self._cache.model_path(source)

    def progress(self) -> tuple[Progress, ...]:
        """Each download under way, by cache name."""
        now = self._clock.now()
        return tuple(flight.meter.view(name, now) for name, flight in sorted(self._flights.items()))

    async def collect(
        self,
        entries: Sequence[CachedWeights],
        revision: int,
        newest_revision: int,
        in_use: Collection[str],
    ) -> tuple[Outcome, ...]:
        """Remove exactly these entries, each checked again; one outcome each, in their order.

        `revision` is the catalog's that they were listed under, `newest_revision` the newest this node
        has seen; `in_use` are the cache names that its shards need.
        """
        async with self._collecting:
            self._asked.clear()
            outcomes = []
            for entry in entries:
                needed = {*in_use, *self._asked}
                refusal = out_of_turn(entry.cache_name, revision, newest_revision, self._flights, needed)
                outcomes.append(
                    Outcome(safe(entry.cache_name)[:80], removed=False, said=refusal)
                    if refusal
                    else await self._remove(entry)
                )
            return tuple(outcomes)

    async def _remove(self, entry: CachedWeights) -> Outcome:
        gone = asyncio.Event()
        self._removing = (entry.cache_name, gone)
        try:
            return await self.beside(lambda: collect_entry(self._cache, entry))
        finally:
            self._removing = None
            gone.set()

    async def _fetched(self, name: str, source: Source) -> None:
        """Until the entry is whole. Raises LlmgwError."""
        await self._out_of_the_way(name)
        while True:
            flight = self._flights.get(name)
            if flight is None:
                if await self.holds(source):
                    return
                flight = self._flights.get(name) or self._take_off(name, source)
            if not flight.abandoned:
                break
            assert flight.task is not None
            await asyncio.wait({flight.task})
        error = await self._landing(flight)
        if error is not None:
            raise Failed(error.said, help=error.help)

    async def _out_of_the_way(self, name: str) -> None:
        """Keep a collect that runs now from taking what we are about to rely on, or let it end first."""
        if self._collecting.locked():
            self._asked.add(name)
        if self._removing is not None and self._removing[0] == name:
            await self._removing[1].wait()

    async def _landing(self, flight: _Flight) -> LlmgwError | None:
        flight.waiting += 1
        try:
            return await asyncio.shield(flight.landed)
        finally:
            flight.waiting -= 1
            if not flight.waiting and not flight.landed.done():
                flight.abandoned = True
                assert flight.task is not None
                flight.task.cancel()

    def _take_off(self, name: str, source: Source) -> _Flight:
        flight = _Flight(Meter(self._clock.now()), asyncio.get_running_loop().create_future())
        flight.task = self._tasks.start(f"fetch {name[:12]}", self._fly(name, source, flight))
        self._flights[name] = flight
        return flight

    async def _fly(self, name: str, source: Source, flight: _Flight) -> None:
        job = Job(
            source,
            self._cache.root,
            self._hub,
            self._limits,
            flight.meter,
            self._clock,
            self._chance,
            self._boot,
        )
        try:
            await run_aside(f"fetch-{name[:12]}", lambda: fly(job))
        except LlmgwError as error:
            flight.landed.set_result(error)
        except OSError as error:
            flight.landed.set_result(Failed(f"cannot fetch {shown(source)}: {error.strerror}"))
        else:
            flight.landed.set_result(None)
        finally:
            del self._flights[name]
            flight.landed.cancel()  # of no effect where it has a result
