"""`python -m tests.support.crowd PORT FIRST COUNT CARDS CATALOG`: many nodes in one process, on the real link of an agent.

The stampede starts a few of them. Each node comes with a shard on every card, of the models of the catalog in
that directory in turn, as the control plane would have placed them; it does at once what it is told.
"""

import asyncio
import pathlib
import sys
from collections.abc import Sequence

from llmgw.agent.connection import BACKOFF
from llmgw.catalog.load import load
from llmgw.catalog.model import Catalog
from llmgw.fleet.node import Gpu, NodeInfo
from llmgw.fleet.shard import PORTS_PER_SHARD, Peer, ShardSpec
from tests.support.loopback import Node
from tests.support.processes import Process, Processes

UP = 3600.0
"""Seconds that every engine has been ready."""
PORT = 20_000


def start(
    processes: Processes, port: int, catalog: pathlib.Path, *, agents: int, workers: int, cards: int
) -> list[Process]:
    """So many agents at the control plane at `port`, spread over `workers` processes."""
    shares = [len(range(worker, agents, workers)) for worker in range(workers)]
    firsts = [sum(shares[:worker]) for worker in range(workers)]
    return [
        processes.start(
            f"crowd-{first}",
            [sys.executable, "-m", "tests.support.crowd", *map(str, (port, first, share, cards, catalog))],
        )
        for first, share in zip(firsts, shares, strict=True)
    ]


def main(argv: Sequence[str]) -> None:
    """Until it is ended."""
    port, first, count, cards = map(int, argv[:4])
    asyncio.run(_crowd(port, range(first, first + count), cards, load(pathlib.Path(argv[4]))))


async def _crowd(port: int, numbers: range, cards: int, catalog: Catalog) -> None:
    async with asyncio.TaskGroup() as group:
        for number in numbers:
            node = Node(_info(f"node-{number:04}", cards), port, backoff=BACKOFF)
            for card in range(cards if catalog.models else 0):
                node.runs(_spec(node.info, number * cards + card, card, catalog), UP)
            group.create_task(node.run())


def _info(name: str, cards: int) -> NodeInfo:
    gpus = tuple(Gpu(f"{name}-{card}", "H100", 80 << 30) for card in range(cards))
    return NodeInfo(name, name, instance=name, gpus=gpus, engines=None)


def _spec(info: NodeInfo, number: int, card: int, catalog: Catalog) -> ShardSpec:
    model = catalog.models[sorted(catalog.models)[number % len(catalog.models)]]
    ((generation, profile),) = catalog.generations(model).items()
    return ShardSpec(
        replica=f"{model.name}/{number:04x}",
        model=model.name,
        rank=0,
        generation=generation,
        profile=catalog.profiles[profile],
        source=model.source,
        peers=(Peer(0, info.id, info.address, PORT + PORTS_PER_SHARD * card),),
        gpus=(f"{info.id}-{card}",),
    )


if __name__ == "__main__":
    main(sys.argv[1:])
