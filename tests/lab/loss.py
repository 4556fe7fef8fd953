"""Nodes that are gone for good, under load: `python -m tests.lab loss --n 10`.

Three nodes, each a network namespace on a switch. Each round takes one that serves from the switch, without
anybody being told. In every other round everything on it dies at that moment; in the others its engines
live on in the dark. What it served is rebuilt elsewhere once it is Lost. Then the node returns: of an
original and its replacement exactly one survives, and it is one that serves.
"""

import random
import sys

from llmgw.kit.clock import SystemClock
from tests.lab.command import Outcome
from tests.support import namespaces
from tests.support.rig import CARDS
from tests.support.spread import Spread, options, spread
from tests.support.story import must

NODES = ("a", "b", "c")
REPLICAS = 3
LOST, EVIDENCE = 4.0, 1.0
TIMERS = {
    "unreachable": "1s", "lost": f"{LOST}s", "lost_grace": f"{LOST}s", "place_grace": "2s",
    "evidence": f"{EVIDENCE}s", "min_ready": "200ms", "backoff_base": "500ms", "backoff_reset": "1s",
    "stop_grace": "5s", "gateway_silent": "3s",
}  # fmt: skip
SUCCEED = 0.999
SETTLES = 60.0
CLOCK = SystemClock()


def run(argv: list[str]) -> Outcome:
    """`--n` losses; `--mutant nobody-is-lost` must turn it red."""
    asked = options(argv, __doc__, 4, ["nobody-is-lost"])
    if not namespaces.inside():
        return namespaces.again("loss", argv, net=True)
    chance = random.Random(asked.seed)
    took = {"losses": 0, "engines_lost": 0, "rebuilt": 0, "returned_dead": 0, "returned_alive": 0}
    slowest = 0.0
    try:
        with spread(NODES, REPLICAS, timers=TIMERS, bug=asked.mutant) as fleet, fleet.clients() as clients:
            load = _load(fleet)
            for number in range(asked.n):
                node = chance.choice([name for name in NODES if fleet.on(name)])
                slowest = max(slowest, _lose(fleet, node, load, dies=number % 2 == 0, took=took))
                _return(fleet, node, dies=number % 2 == 0, took=took)
            failed = len(clients.failures)
            share = clients.done / (clients.done + failed)
            for failure in clients.failures[:10]:
                print(f"request {failure.number} failed: {failure.said}", file=sys.stderr)
            must(share >= SUCCEED, f"{failed} of {clients.done + failed} requests failed")
    except AssertionError as error:
        print(f"FAIL {error}\n" + "\n".join(getattr(error, "__notes__", [])), file=sys.stderr)
        return Outcome(False, took, said=str(error).splitlines()[0])
    figures = {
        "requests": clients.done,
        "failed": failed,
        "succeeded": round(share, 5),
        "load_s": round(load, 2),
        "slowest_rebuilt_s": round(slowest, 2),
    }
    return Outcome(True, took, figures)


def _load(fleet: Spread) -> float:
    """Seconds from an order to Ready here and now: one more replica, and one less."""
    began = CLOCK.now()
    fleet.serve(REPLICAS + 1)
    took = CLOCK.now() - began
    fleet.serve(REPLICAS)
    return took


def _lose(fleet: Spread, node: str, load: float, *, dies: bool, took: dict[str, int]) -> float:
    """The node falls silent for good. Seconds until all it served is ready elsewhere."""
    engines, began = len(fleet.on(node)), CLOCK.now()
    fleet.network.cut(node)
    if dies:
        must(fleet.power_off(node) == engines, f"{engines} engines die with {node}")
    took["losses"] += 1
    took["engines_lost"] += engines
    limit = LOST + EVIDENCE + engines * load + 2.0
    fleet.until(lambda: fleet.ready() < REPLICAS, f"{node} is missed", within=limit)
    fleet.until(lambda: fleet.ready() == REPLICAS, f"what {node} served is rebuilt", within=limit)
    seconds = CLOCK.now() - began
    must(seconds >= LOST, f"nothing is rebuilt before the node is Lost: {seconds:.1f}s")
    must(seconds <= limit, f"rebuilt after {seconds:.1f}s, later than Lost and the load of {engines} engines")
    must(not dies or len(fleet.pids()) == REPLICAS, f"as many engines as replicas: {fleet.pids()}")
    took["rebuilt"] += engines
    return seconds


def _return(fleet: Spread, node: str, *, dies: bool, took: dict[str, int]) -> None:
    """The node is there again, with or without its old engines."""
    alive = {seen.pid for seen in fleet.on(node)}
    must(bool(alive) != dies, f"old engines on {node}: {alive}")
    others = fleet.pids().keys() - alive
    fleet.network.heal(node)
    if dies:
        fleet.begin(node)
    fleet.until(fleet.settled, f"{node} is back", within=SETTLES)
    fleet.until(
        lambda: len(fleet.pids()) == REPLICAS == fleet.ready(), "exactly one of each survives", within=SETTLES
    )
    must(fleet.pids().keys() <= others | alive, f"nothing is started for it: {fleet.pids()}")
    must(not fleet.doubles(), f"two engines on one card: {fleet.doubles()}")
    held = sum(len(fleet.held(name)) for name in NODES)
    must(held == REPLICAS <= len(NODES) * len(CARDS), f"{held} cards are held")
    took["returned_dead" if dies else "returned_alive"] += 1
