"""What Prometheus sees of a node. Used by `agent.serve`; pure but for what it is given.

The only labels are models, states and fixed words: a shard's model is a name of the catalog, and their
number is that of the shards.
"""

import collections
from collections.abc import Iterator

from llmgw.agent.core import AgentState
from llmgw.fleet.node import NodeInfo
from llmgw.fleet.shard import Progress
from llmgw.kit.exposition import Family, page


def metrics(
    state: AgentState, info: NodeInfo, progress: tuple[Progress, ...], *, registered: bool, epoch: int
) -> bytes:
    """The page; `info` is the node as it was told last."""
    return page("llmgw_agent_", _families(state, info, progress, registered, epoch))


def _families(
    state: AgentState, info: NodeInfo, progress: tuple[Progress, ...], registered: bool, epoch: int
) -> Iterator[Family]:
    yield _gauge("registered", "1 = a control plane knows this node now.", registered)
    yield _gauge("epoch", "The highest epoch that was obeyed.", epoch)
    yield _gauge("warnings", "What people should know of this node.", len(info.warnings))
    shards = collections.Counter((kept.spec.model, kept.state) for kept in state.shards.values())
    yield Family("shards", "gauge", "Shards on this node.", shards, ("model", "state"))
    slow = collections.Counter((kept.spec.model,) for kept in state.shards.values() if kept.slow)
    yield Family("slow_shards", "gauge", "Ready shards that answer no probes.", slow, ("model",))
    failures: collections.Counter[tuple[str, ...]] = collections.Counter()
    for (model, _), failed in state.failed.items():
        failures[model,] += failed.count
    yield Family("failed_starts", "gauge", "Failures in a row, not yet made good.", failures, ("model",))
    yield Family(
        "fetched_bytes", "gauge", "Bytes here of fetches under way.", _fetched(state, progress), ("model",)
    )
    yield from _machine(info)


def _fetched(state: AgentState, progress: tuple[Progress, ...]) -> dict[tuple[str, ...], float]:
    received = {each.cache_name: each.received for each in progress}
    waiting = {(kept.spec.model,): kept.spec.cache_name for kept in state.shards.values()}
    return {model: received[name] for model, name in waiting.items() if name in received}


def _machine(info: NodeInfo) -> Iterator[Family]:
    """What the node has. What it does not know is left out, and not zero."""
    if info.gpus is not None:
        yield _gauge("cards", "Cards and slices.", len(info.gpus))
        yield _gauge("bad_cards", "Cards that cannot be read.", sum(not gpu.healthy for gpu in info.gpus))
        yield _gauge("card_bytes", "Memory of all cards.", sum(gpu.memory_total for gpu in info.gpus))
        yield _gauge("card_used_bytes", "Of it, in use.", sum(gpu.memory_used or 0 for gpu in info.gpus))
    for name, said, value in (
        ("memory_free_bytes", "Memory that is available.", info.memory_free),
        ("disk_free_bytes", "Room below the cache.", info.disk_free),
    ):
        if value is not None:
            yield _gauge(name, said, value)
    if info.weights is not None:
        yield _gauge("cached_bytes", "Weights in the cache.", sum(entry.size for entry in info.weights))


def _gauge(name: str, said: str, value: float) -> Family:
    return Family(name, "gauge", said, {(): value})
