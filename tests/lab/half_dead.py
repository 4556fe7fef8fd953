"""Engines that are neither dead nor alive: `python -m tests.lab half-dead --n 5`.

Health pages that say 200 over a head without workers, sockets that refuse, processes that are frozen,
requests that hang, completions that never end, names that are somebody else's: what engines really do
when they break. Each must be told as failed for its own reason within the limits, its whole tree must
be gone before its card counts as free; and an engine that is only slow must not be touched.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import os
import pathlib
import signal
import tempfile
from collections.abc import Iterator, Mapping
from typing import Any
from unittest import mock

from llmgw.agent import health
from llmgw.agent.pulse import Pulse
from llmgw.agent.supervisor import Supervisor
from llmgw.fleet.shard import ShardSpec
from tests.agent.house import TIMERS, House, alive, gone, launched, ready, until
from tests.lab.command import Outcome


@dataclasses.dataclass(frozen=True, slots=True)
class Case:
    """What the engine does from its start, what is done to it once it is ready, and what must be said of it.

    `says` empty = nothing may happen to it.
    """

    does: str
    breaks: signal.Signals | None
    says: tuple[str, ...] = ()


CASES: Mapping[str, Case] = {
    "leader dead, workers alive": Case("workers", signal.SIGKILL, ("killed by SIGKILL",)),
    "socket closed, process alive": Case("", signal.SIGUSR1, ("refuse",)),
    "frozen": Case("workers", signal.SIGSTOP, ("does not answer",)),
    "hangs with a request in flight": Case("busy", None, ("progress",)),
    "never becomes ready: no completion": Case("mute", None),
    "answers as somebody else": Case("wrong-name", None),
    "slow, and counters move": Case("busy moving", None),
    "idle for ever": Case("", None),
}
UNREADY = ("never becomes ready: no completion", "answers as somebody else")
"""These may never be told as ready; their start deadline is the control plane's."""
SOON = dataclasses.replace(TIMERS, health=dataclasses.replace(TIMERS.health, probe=0.3))
PATIENCE = 4.0
"""Seconds in which nothing may happen to an engine that is not broken: several hang limits of the lab."""


async def _nothing(*_: Any) -> None:
    return


MUTANTS: Mapping[str, tuple[tuple[Any, str, Any], ...]] = {
    "believes-health": (
        (health.Watcher, "_must_answer", _nothing),
        (health.Watcher, "_must_serve_the_model", _nothing),
    ),
    "never-hangs": ((Pulse, "dead", lambda *_: ""),),
}
"""(place, name, what takes its place), by the name of the bug."""


def run(argv: list[str]) -> Outcome:
    """`--n` rounds; `--mutant believes-health` must turn it red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--n", type=int, default=1)
    parser.add_argument("--mutant", choices=sorted(MUTANTS))
    asked = parser.parse_args(argv)
    took = dict.fromkeys(CASES, 0)
    wrong: list[str] = []
    with _planted(asked.mutant):
        for _ in range(asked.n):
            with tempfile.TemporaryDirectory(prefix="llmgw-half-dead-") as place:
                house = House(pathlib.Path(place))
                try:
                    for name, case in CASES.items():
                        wrong += [f"{name}: {said}" for said in asyncio.run(_one(house, name, case))]
                        took[name] += 1
                finally:
                    house.clean()
    return Outcome(not wrong, took, {"wrong": len(wrong)}, "; ".join(wrong[:3]))


@contextlib.contextmanager
def _planted(mutant: str | None) -> Iterator[None]:
    with contextlib.ExitStack() as stack:
        for place, name, wrong in MUTANTS[mutant] if mutant else ():
            stack.enter_context(mock.patch.object(place, name, wrong))
        yield


async def _one(house: House, name: str, case: Case) -> list[str]:
    """What went wrong with one engine."""
    shard = house.spec(does=case.does)
    house.reports.clear()
    async with house.agent(timers=SOON) as agent:
        if name in UNREADY:
            await launched(agent, shard)
            await asyncio.sleep(PATIENCE / 2)
            said = ["it was told as ready"] if "ready" in house.states(shard.key) else []
            await gone(agent, shard)
            return said
        try:
            pid = await ready(house, agent, shard)
        except AssertionError as error:
            return [str(error)]
        tree = house.marked()
        if case.breaks is not None:
            os.kill(pid, case.breaks)
        try:
            said = await (_failed if case.says else _untouched)(house, agent, shard, case, tree)
        except AssertionError as error:
            said = [str(error).splitlines()[0]]
        await gone(agent, shard)
        return said


async def _failed(
    house: House, agent: Supervisor, shard: ShardSpec, case: Case, tree: list[int]
) -> list[str]:
    """It is told as failed, for its own reason, and nobody of its tree is left."""
    await until(lambda: house.last(shard.key).state == "failed", "it is told as failed")
    reason = house.last(shard.key).reason
    said = [f"the reason is {reason!r}"] if not any(word in reason for word in case.says) else []
    await until(lambda: agent.state.shards[shard.key].swept, "its tree is swept")
    left = [pid for pid in tree if alive(pid)]
    return said + ([f"{left} are left"] if left else [])


async def _untouched(house: House, _: Supervisor, shard: ShardSpec, __: Case, tree: list[int]) -> list[str]:
    """It stays ready, with every process it had."""
    await asyncio.sleep(PATIENCE)
    state = house.last(shard.key).state
    said = [f"it is {state}: {house.last(shard.key).reason}"] if state != "ready" else []
    left = [pid for pid in tree if not alive(pid)]
    return said + ([f"{left} have ended"] if left else [])
