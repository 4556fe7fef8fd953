"""What is known of the models that somebody proposes, read from their sources before anything is planned.

Built by `serve`; `adoption` asks it to learn a catalog and which problems that shows. Reading is bounded in
time, and what cannot be read excludes nothing: a hub that is away holds up no plan for longer than that.
"""

import asyncio
import dataclasses
import itertools
import logging
import math
from collections.abc import Awaitable, Callable, Iterable, Mapping

from llmgw.catalog.diagnostics import Diagnostic
from llmgw.catalog.facts import ModelFacts
from llmgw.catalog.model import Catalog, Model
from llmgw.catalog.model_checks import model_problems
from llmgw.catalog.sources import Source
from llmgw.kit.clock import Clock
from llmgw.transport.ranges import CannotRead

log = logging.getLogger(__name__)

Read = Callable[[Source], Awaitable[ModelFacts]]


@dataclasses.dataclass(frozen=True, slots=True)
class Bounds:
    """Seconds one `learn` takes at most, seconds a failure is believed, models remembered, reads at a time."""

    patience: float = 5.0
    again: float = 300.0
    most: int = 4096
    at_once: int = 8


class Knowledge:
    """Facts by cache name, in memory only."""

    def __init__(self, read: Read, clock: Clock, bounds: Bounds | None = None) -> None:
        self._read, self._clock, self._bounds = read, clock, bounds or Bounds()
        self._known: dict[str, ModelFacts] = {}
        self._failed: dict[str, tuple[float, str]] = {}

    @property
    def known(self) -> Mapping[str, ModelFacts]:
        return self._known

    @property
    def sizes(self) -> Mapping[str, int]:
        """Bytes to download by cache name, where they are known."""
        return {name: facts.download for name, facts in self._known.items() if facts.download}

    @property
    def unread(self) -> Mapping[str, str]:
        """Why a source could not be looked into, by cache name."""
        return {name: said for name, (_, said) in self._failed.items() if name not in self._known}

    async def learn(self, catalog: Catalog, standing: Catalog | None) -> None:
        """Read what is new in `catalog` and not known yet. Never fails: what cannot be read stays unknown."""
        sources = {model.cache_name: model.source for model in _new(catalog, standing).models.values()}
        wanted = [name for name, source in sources.items() if source.fetched and self._worth_asking(name)]
        for name in wanted:
            self._failed.pop(name, None)
        room = asyncio.Semaphore(self._bounds.at_once)
        try:
            async with asyncio.timeout(self._bounds.patience), asyncio.TaskGroup() as group:
                for name in wanted:
                    group.create_task(self._learn(name, sources[name], room))
        except TimeoutError:
            log.warning(
                "not all of %d models could be looked at within %g seconds",
                len(wanted),
                self._bounds.patience,
            )
            late = [name for name in wanted if name not in self._known and name not in self._failed]
            self._remember_failures(late, f"nothing came within {self._bounds.patience:g} s")

    def problems(self, catalog: Catalog, standing: Catalog | None) -> list[Diagnostic]:
        """What the engines would refuse of `catalog`. What stands already is proven by running, and left alone."""
        return model_problems(_new(catalog, standing), self._known)

    def _worth_asking(self, name: str) -> bool:
        failed, _ = self._failed.get(name, (-math.inf, ""))
        return name not in self._known and self._clock.now() - failed > self._bounds.again

    async def _learn(self, name: str, source: Source, room: asyncio.Semaphore) -> None:
        async with room:
            try:
                facts = await self._read(source)
            except (CannotRead, OSError) as error:  # an OSError: no thread for what it took
                where = source.canonical.partition("?")[0]
                log.info("cannot look into %s before it is fetched: %s", where, error)
                self._remember_failures([name], str(error))
                return
        self._known[name] = facts
        while len(self._known) > self._bounds.most:
            del self._known[next(iter(self._known))]

    def _remember_failures(self, names: Iterable[str], said: str) -> None:
        for name in names:
            self._failed[name] = self._clock.now(), said
        excess = len(self._failed) - self._bounds.most
        for name in list(itertools.islice(self._failed, max(0, excess))):
            del self._failed[name]


def _new(catalog: Catalog, standing: Catalog | None) -> Catalog:
    """`catalog` with only the models that `standing` does not have just like this."""
    if standing is None:
        return catalog
    new = {name: model for name, model in catalog.models.items() if not _stands(model, catalog, standing)}
    return dataclasses.replace(catalog, models=new)


def _stands(model: Model, catalog: Catalog, standing: Catalog) -> bool:
    """Whether `standing` runs `model` just like this."""
    before = standing.models.get(model.name)
    if before is None:
        return False
    if before is model and all(
        catalog.profiles[name] is standing.profiles.get(name) for name in model.profiles
    ):
        return True
    return catalog.generations(model).keys() <= standing.generations(before).keys()
