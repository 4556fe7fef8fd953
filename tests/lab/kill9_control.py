"""The control plane dies by SIGKILL, again and again, under load: `python -m tests.lab kill9-control --cycles 50`.

Eight engines on four nodes. Each cycle kills the control plane and starts it again; every other time
one node cannot speak at first (its agent is frozen), so that a control plane that took silence for
absence would start or stop something. No request fails, no engine starts or stops, and nothing is
ordered before the roster has spoken.
"""

import contextlib
import random
import signal
import sys
import time
from collections.abc import Iterator

from tests.lab.command import Outcome
from tests.support.fleet_of_eight import NODES, Eight, options, serving
from tests.support.story import must

SPOILED = ("control",)


def run(argv: list[str]) -> Outcome:
    """`--cycles` kills; `--mutant unheard-are-lost` must turn it red."""
    asked = options(argv, __doc__, 50)
    chance = random.Random(asked.seed)
    took = {"kills": 0, "answers_without_it": 0, "kills_with_a_silent_node": 0, "waited_for_the_roster": 0}
    try:
        with serving(asked.mutant, SPOILED) as fleet, fleet.clients() as clients:
            before = fleet.pids()
            for cycle in range(asked.cycles):
                known = clients.done
                silent = NODES[cycle % len(NODES)] if cycle % 2 else ""
                with _frozen(fleet, silent):
                    fleet.kill("control")
                    took["kills"] += 1
                    must(not fleet.status(), "nobody answers for it")
                    fleet.until(lambda known=known: clients.done > known + 5, "answers without it")  # type: ignore[misc]
                    took["answers_without_it"] += clients.done - known
                    fleet.begin("control")
                    fleet.until(fleet.status, "it is back")
                    if silent:
                        _waits(fleet, chance, took)
                fleet.until(fleet.settled, "nothing is outstanding")
                _ordered_nothing(fleet)
                fleet.whole(before)
                must(not clients.failures, f"requests failed: {clients.failures[:3]}")
            figures = {"requests": clients.done, "failed": len(clients.failures), "engines": len(before)}
    except AssertionError as error:
        print(f"FAIL {error}", file=sys.stderr)
        return Outcome(False, took, said=str(error).splitlines()[0])
    return Outcome(True, took, figures)


@contextlib.contextmanager
def _frozen(fleet: Eight, node: str) -> Iterator[None]:
    """The agent of `node` can do nothing meanwhile; with no node named, everybody can."""
    if not node:
        yield
        return
    fleet.running[node].signal(signal.SIGSTOP)
    try:
        yield
    finally:
        fleet.running[node].signal(signal.SIGCONT)


def _waits(fleet: Eight, chance: random.Random, took: dict[str, int]) -> None:
    """The others have spoken, one has not: it is waited for, and nothing is ordered."""
    fleet.until(lambda: list(fleet.standing().values()).count("Ready") == len(NODES) - 1, "three nodes spoke")
    time.sleep(chance.uniform(0.2, 1.0))
    status = fleet.status()
    must(any("waiting for" in alarm for alarm in status["alarms"]), f"the roster is waited for: {status}")
    took["kills_with_a_silent_node"] += 1
    took["waited_for_the_roster"] += 1
    _ordered_nothing(fleet)


def _ordered_nothing(fleet: Eight) -> None:
    """The journal of this control plane holds no start, stop or placement."""
    actions = [entry["said"] for entry in fleet.get("events?after=0") if entry["kind"] == "action"]
    must(not actions, f"ordered after a restart: {actions[:3]}")
