"""Nodes that fall silent for a while, under load: `python -m tests.lab blip --n 20`.

Three nodes, each a network namespace on a switch. Each round takes one of them from the switch, without
anybody being told, for longer than it takes to be Unreachable and shorter than to be Lost, and puts it back.
Its engines are the same afterwards, no request failed, and nothing was started or stopped anywhere.
"""

import random
import sys
import time

from llmgw.kit.clock import SystemClock
from tests.lab.command import Outcome
from tests.support import namespaces
from tests.support.spread import Spread, options, spread
from tests.support.story import must

NODES = ("a", "b", "c")
REPLICAS = 4
TIMERS = {
    "unreachable": "1s", "lost": "12s", "lost_grace": "12s", "place_grace": "2s", "evidence": "1s",
    "min_ready": "200ms", "backoff_base": "500ms", "stop_grace": "5s", "gateway_silent": "3s",
}  # fmt: skip
LEAST, MOST = 1.5, 5.0
"""Seconds of silence."""
CLOCK = SystemClock()


def run(argv: list[str]) -> Outcome:
    """`--n` silences; `--mutant unreachable-are-lost` must turn it red."""
    asked = options(argv, __doc__, 5, ["unreachable-are-lost"])
    if not namespaces.inside():
        return namespaces.again("blip", argv, net=True)
    chance = random.Random(asked.seed)
    took = {"silences": 0, "unreachable": 0, "back": 0}
    try:
        with spread(NODES, REPLICAS, timers=TIMERS, bug=asked.mutant) as fleet, fleet.clients() as clients:
            before, told = fleet.pids(), fleet.last_event()
            for number in range(asked.n):
                _blip(fleet, NODES[number % len(NODES)], chance.uniform(LEAST, MOST), took)
                must(fleet.pids() == before, f"the engines changed: {before} became {fleet.pids()}")
                must(not (said := fleet.orders(told)), f"something was ordered: {said}")
                must(not clients.failures, f"requests failed: {clients.failures[:3]}")
            must(fleet.starts() == REPLICAS, f"{fleet.starts()} engines were started")
            figures = {"requests": clients.done, "failed": len(clients.failures), "engines": len(before)}
    except AssertionError as error:
        print(f"FAIL {error}\n" + "\n".join(getattr(error, "__notes__", [])), file=sys.stderr)
        return Outcome(False, took, said=str(error).splitlines()[0])
    return Outcome(True, took, figures)


def _blip(fleet: Spread, node: str, seconds: float, took: dict[str, int]) -> None:
    """One node is silent for so long."""
    ends = CLOCK.now() + seconds
    fleet.network.cut(node)
    took["silences"] += 1
    fleet.until(lambda: fleet.stands(node) == "Unreachable", f"{node} is Unreachable", within=seconds)
    took["unreachable"] += 1
    time.sleep(max(0.0, ends - CLOCK.now()))
    fleet.network.heal(node)
    fleet.until(fleet.settled, f"{node} is back")
    took["back"] += 1
