"""Links that are dead and look alive, peers that are frozen, peers that are killed: `python -m tests.lab half-open --n 2`.

Control plane, gateway and node are network namespaces on a switch, with the timers that everybody has. The
control plane is taken from the switch without anybody being told: the node, the gateway and the control plane
each notice within fifteen seconds, and requests go on. Back on the switch everybody finds each other again,
and no engine was touched. Then agent and control plane are stopped (SIGSTOP) and killed in turn, and it is
measured how long the other end takes to notice: a frozen peer no longer than a silent path and one ping more, a
killed one twenty milliseconds, in the median of several.
"""

import functools
import signal
import statistics
import sys
import time
from collections.abc import Sequence

from llmgw.kit.clock import SystemClock
from tests.lab.command import Outcome
from tests.support import namespaces
from tests.support.spread import Spread, options, spread
from tests.support.story import must

NODES = ("a",)
REPLICAS = 2
NOTICED, FROZEN, KILLED = 15.0, 20.0, 0.02
"""Seconds within which a silent path, a frozen peer and (in the median) a dead one are noticed."""
KILLS, KILLED_AT_MOST = 5, 1.0
"""So often each end is killed; seconds within which each time is noticed, whatever else this machine does."""
BACK = 60.0
HEARTBEAT = ("--heartbeat", "5s")
AGENT, GATEWAY, CONTROL = ("a", "no control plane: "), ("gateway", "control plane went away"), "control"
AGENT_GONE, GATEWAY_GONE = (CONTROL, "agent a at "), (CONTROL, "gateway gateway at ")
"""Who says what when it finds that the other end is gone."""
CLOCK = SystemClock()


def run(argv: list[str]) -> Outcome:
    """`--n` partitions; `--mutant` must turn it red: `sends-no-pings` the limit of silent paths, `trusts-the-kernel`
    that of frozen peers, `hears-ends-late` that of killed ones.
    """
    asked = options(argv, __doc__, 1, ["sends-no-pings", "trusts-the-kernel", "hears-ends-late"])
    if not namespaces.inside():
        return namespaces.again("half-open", argv, net=True)
    took = {"partitions": 0, "noticed": 0, "back": 0, "frozen": 0, "killed": 0}
    figures: dict[str, float] = {}
    try:
        with spread(
            NODES, REPLICAS, timers={"min_ready": "200ms"}, bug=asked.mutant, control=HEARTBEAT
        ) as fleet:
            before = fleet.pids()
            with fleet.clients() as clients:
                for _ in range(asked.n):
                    _partition(fleet, took, figures)
                    must(fleet.pids() == before, f"the engines changed: {before} became {fleet.pids()}")
            must(clients.done > 0 and not clients.failures, f"requests failed: {clients.failures[:3]}")
            _frozen(fleet, took, figures)
            _killed(fleet, took, figures)
            must(fleet.pids() == before, f"the engines changed: {before} became {fleet.pids()}")
            must(fleet.starts() == REPLICAS, f"{fleet.starts()} engines were started")
            figures["requests"] = clients.done
    except AssertionError as error:
        print(f"FAIL {error}\n" + "\n".join(getattr(error, "__notes__", [])), file=sys.stderr)
        return Outcome(False, took, figures, said=str(error).splitlines()[0])
    return Outcome(True, took, {name: round(value, 3) for name, value in figures.items()})


class Ear:
    """Hears what processes say from now on, and when."""

    def __init__(self, fleet: Spread, *words: tuple[str, str]) -> None:
        self._from = {name: fleet.running[name].err for name, _ in words}
        self._heard = {path: path.stat().st_size for path in self._from.values()}
        self._words = words
        self._began = CLOCK.now()

    def begin(self) -> None:
        """What it waits for can be noticed from now on."""
        self._began = CLOCK.now()

    def wait(self, within: float) -> list[float]:
        """Seconds until each was said, in order; AssertionError where one is later than `within`."""
        took: dict[tuple[str, str], float] = {}
        while missing := [words for words in self._words if words not in took]:
            now = CLOCK.now() - self._began
            must(now <= within, f"not noticed within {within:g} s: {missing}")
            for name, said in missing:
                with self._from[name].open("rb") as file:
                    file.seek(self._heard[self._from[name]])
                    if said.encode() in file.read():
                        took[name, said] = now
            time.sleep(0.002)
        return [took[words] for words in self._words]


def _longest(figures: dict[str, float], names: Sequence[str], seconds: Sequence[float]) -> None:
    for name, value in zip(names, seconds, strict=True):
        figures[name] = max(figures.get(name, 0.0), value)


def _partition(fleet: Spread, took: dict[str, int], figures: dict[str, float]) -> None:
    """Nobody reaches the control plane; nobody is told."""
    ear = Ear(fleet, AGENT, GATEWAY, AGENT_GONE, GATEWAY_GONE)
    fleet.network.cut("control")
    ear.begin()
    took["partitions"] += 1
    heard = ear.wait(NOTICED)
    took["noticed"] += len(heard)
    names = ("agent_noticed_s", "gateway_noticed_s", "control_noticed_agent_s", "control_noticed_gateway_s")
    _longest(figures, names, heard)
    fleet.network.heal("control")
    _back(fleet, took, figures)


def _back(fleet: Spread, took: dict[str, int], figures: dict[str, float]) -> None:
    """Everybody is connected again, and says so itself."""
    began = CLOCK.now()
    fleet.until(lambda: _connected(fleet), "agent and gateway are connected again", within=BACK)
    _longest(figures, ["slowest_back_s"], [CLOCK.now() - began])
    took["back"] += 1


def _connected(fleet: Spread) -> bool:
    """The newest word of agent and gateway is that they are in, and the control plane agrees."""
    agent, gateway = fleet.running["a"].said(), fleet.running["gateway"].said(200)
    inside = agent.rfind("registered at") > agent.rfind(AGENT[1])
    served = gateway.rfind("subscribed to") > gateway.rfind(GATEWAY[1])
    return inside and served and fleet.settled()


def _frozen(fleet: Spread, took: dict[str, int], figures: dict[str, float]) -> None:
    """An agent, then the control plane, stands still with its sockets open."""
    for name, other, figure in (
        ("a", AGENT_GONE, "frozen_agent_noticed_s"),
        (CONTROL, AGENT, "frozen_control_noticed_s"),
    ):
        ear = Ear(fleet, other)
        fleet.running[name].signal(signal.SIGSTOP)
        try:
            _longest(figures, [figure], ear.wait(FROZEN))
        finally:
            fleet.running[name].signal(signal.SIGCONT)
        took["frozen"] += 1
        _back(fleet, took, figures)


def _killed(fleet: Spread, took: dict[str, int], figures: dict[str, float]) -> None:
    """An agent, then the control plane, is gone at once, and comes again."""
    for name, other, figure in (
        ("a", AGENT_GONE, "killed_agent_noticed_s"),
        (CONTROL, AGENT, "killed_control_noticed_s"),
    ):
        seconds = [_kill(fleet, name, other, took, figures) for _ in range(KILLS)]
        figures[figure] = middle = statistics.median(seconds)
        _longest(figures, ["slowest_kill_noticed_s"], [max(seconds)])
        said = f"a killed {name} is noticed after {middle * 1000:.1f} ms, {KILLED * 1000:.0f} are the most"
        must(middle <= KILLED, said)


def _kill(
    fleet: Spread, name: str, other: tuple[str, str], took: dict[str, int], figures: dict[str, float]
) -> float:
    """Seconds until the other end has noticed."""
    ear = Ear(fleet, other)
    fleet.kill(name)
    (seconds,) = ear.wait(KILLED_AT_MOST)
    took["killed"] += 1
    told = fleet.last_event()
    fleet.begin(name, *(HEARTBEAT if name == CONTROL else ()))
    again = functools.partial(fleet.registered, "a", told)
    fleet.until(again, "the agent registers again", within=BACK)
    _back(fleet, took, figures)
    return seconds
