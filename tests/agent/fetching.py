"""What the tests of weights share: a node's weights in a directory, with timers of a test's day."""

import asyncio
import contextlib
import dataclasses
import hashlib
import pathlib
import random
from collections.abc import AsyncIterator, Callable

from llmgw.agent.cache import Cache
from llmgw.agent.fetch import Limits
from llmgw.agent.weights import Weights
from llmgw.catalog.hub import Hub
from llmgw.catalog.sources import Source, parse
from llmgw.kit.chance import seeded
from llmgw.kit.clock import SystemClock
from llmgw.kit.tasks import Tasks

LIMITS = Limits(
    stall=0.4, connect=2.0, attempts=3, retry_base=0.005, retry_cap=0.02, reserve=0, lock_poll=0.02
)


@dataclasses.dataclass(frozen=True, slots=True)
class Store:
    """Weights, and the cache below them."""

    weights: Weights
    cache: Cache

    @property
    def root(self) -> pathlib.Path:
        return self.cache.root

    def names(self) -> list[str]:
        """What stands in the cache directory."""
        return sorted(child.name for child in self.root.iterdir())


@contextlib.asynccontextmanager
async def store(root: pathlib.Path, limits: Limits = LIMITS, hub: Hub | None = None) -> AsyncIterator[Store]:
    """A node's weights in `root`; what still runs ends with the block."""
    cache, tasks = Cache(root), Tasks()
    cache.sweep()
    try:
        yield Store(Weights(cache, tasks, SystemClock(), seeded(1), limits, hub or Hub()), cache)
    finally:
        await tasks.close()
        cache.close()


async def until(condition: Callable[[], object], what: str, within: float = 10.0) -> None:
    """Wait for a condition without holding up the loop."""

    loop = asyncio.get_running_loop()
    deadline = loop.time() + within
    while not condition():
        assert loop.time() < deadline, f"waited {within:g} s in vain: {what}"
        await asyncio.sleep(0.005)


def noise(size: int, seed: int = 0) -> bytes:
    """Bytes that no compression and no lucky guess reproduces."""
    return random.Random(seed).randbytes(size)


def pinned(url: str, body: bytes) -> Source:
    """The source of `url` whose bytes must be `body`."""
    return parse(url, hashlib.sha256(body).hexdigest())


def unpinned(url: str) -> Source:
    """A source whose bytes nothing proves. People may write it for https only; the rules are the same."""
    return Source("https", url)
