"""Agents die by SIGKILL, again and again, under load: `python -m tests.lab kill9-agent --cycles 100`.

Eight engines on four nodes. Each cycle kills one agent, asks one of its engines while nobody watches
it, starts the agent again (every third time it is killed once more while it adopts) and waits until
its engines are adopted. Pids and start ticks stay, no card is held twice, no request fails.
"""

import random
import sys
import time

from tests.lab.command import Outcome
from tests.support import engines
from tests.support.fleet_of_eight import NODES, SENTENCES, Eight, options, serving
from tests.support.rig import CARDS
from tests.support.story import must

SPOILED = NODES


def run(argv: list[str]) -> Outcome:
    """`--cycles` kills; `--mutant adopts-nothing` must turn it red."""
    asked = options(argv, __doc__, 100)
    chance = random.Random(asked.seed)
    took = {"kills": 0, "kills_while_adopting": 0, "answers_without_the_agent": 0}
    try:
        with serving(asked.mutant, SPOILED) as fleet, fleet.clients() as clients:
            before = fleet.pids()
            for cycle in range(asked.cycles):
                _strike(fleet, NODES[cycle % len(NODES)], chance, cycle, took)
                fleet.whole(before)
                must(not clients.failures, f"requests failed: {clients.failures[:3]}")
            figures = {"requests": clients.done, "failed": len(clients.failures), "engines": len(before)}
    except AssertionError as error:
        print(f"FAIL {error}", file=sys.stderr)
        return Outcome(False, took, said=str(error).splitlines()[0])
    return Outcome(True, took, figures)


def _strike(fleet: Eight, node: str, chance: random.Random, cycle: int, took: dict[str, int]) -> None:
    """One agent dies, its engines answer, it comes back."""
    ports = {
        shard["port"]: row["model"]
        for row in fleet.get("replicas")
        for shard in row["shards"]
        if shard["node"] == node
    }
    must(len(ports) == 2, f"two engines on {node}: {ports}")
    fleet.kill(node)
    took["kills"] += 1
    for port, model in ports.items():
        must(engines.chat(port, model) == SENTENCES[model], "the engine answers by itself")
        took["answers_without_the_agent"] += 1
    told = fleet.last_event()
    fleet.begin(node)
    if cycle % 3 == 2:
        time.sleep(chance.uniform(0.2, 1.5))
        fleet.kill(node)
        took["kills_while_adopting"] += 1
        told = fleet.last_event()
        fleet.begin(node)
    fleet.until(lambda: fleet.registered(node, told), f"{node} registers again")
    fleet.until(lambda: _adopted(fleet, node), f"{node} has its engines again")


def _adopted(fleet: Eight, node: str) -> bool:
    """Whether every engine of `node` is told as adopted and ready."""
    mine = [shard for row in fleet.get("replicas") for shard in row["shards"] if shard["node"] == node]
    return len(mine) == len(CARDS) and all(shard["adopted"] and shard["state"] == "ready" for shard in mine)
