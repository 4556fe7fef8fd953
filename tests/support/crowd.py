"""`python -m tests.support.crowd PORT FIRST COUNT CARDS`: many nodes in one process, each on the real link of an agent.

The stampede starts a few of them. A node does at once what it is told and says that it runs; whoever wants to
know what became of it asks the control plane.
"""

import asyncio
import sys
from collections.abc import Sequence

from llmgw.agent.connection import BACKOFF
from llmgw.fleet.node import Gpu, NodeInfo
from tests.support.loopback import Node
from tests.support.processes import Process, Processes


def start(processes: Processes, port: int, *, agents: int, workers: int, cards: int) -> list[Process]:
    """So many agents at the control plane at `port`, spread over `workers` processes."""
    shares = [len(range(worker, agents, workers)) for worker in range(workers)]
    firsts = [sum(shares[:worker]) for worker in range(workers)]
    return [
        processes.start(
            f"crowd-{first}",
            [sys.executable, "-m", "tests.support.crowd", *map(str, (port, first, share, cards))],
        )
        for first, share in zip(firsts, shares, strict=True)
    ]


def main(argv: Sequence[str]) -> None:
    """Until it is ended."""
    port, first, count, cards = map(int, argv)
    asyncio.run(_crowd(port, range(first, first + count), cards))


async def _crowd(port: int, numbers: range, cards: int) -> None:
    async with asyncio.TaskGroup() as group:
        for number in numbers:
            group.create_task(Node(_info(f"node-{number:04}", cards), port, backoff=BACKOFF).run())


def _info(name: str, cards: int) -> NodeInfo:
    gpus = tuple(Gpu(f"{name}-{card}", "H100", 80 << 30) for card in range(cards))
    return NodeInfo(name, name, instance=name, gpus=gpus, engines=None)


if __name__ == "__main__":
    main(sys.argv[1:])
