"""`python -m tests.support.planted BUG /path/of/llmgw ARGS…`: llmgw with one planted bug, for labs that must notice.

A lab that breaks real processes proves with `--mutant` that it can fail: the process that its mutant
names is started by way of this module. Each bug replaces one function for the life of that process;
the product has no switch for it.
"""

import asyncio
import copy
import dataclasses
import pathlib
import sys
import time
from collections.abc import Callable, Mapping
from typing import Any
from unittest import mock

from llmgw.agent import adopt, logs
from llmgw.agent.adopt import Decision
from llmgw.agent.launcher import Launcher
from llmgw.agent.process import Leader
from llmgw.agent.supervisor import Supervisor
from llmgw.cli.main import run
from llmgw.control.loop import Loop
from llmgw.control.peers import Peers
from llmgw.fleet.world import Draft
from llmgw.kit.clock import SystemClock
from llmgw.planning import board
from llmgw.transport.connection import Connection


@dataclasses.dataclass(frozen=True, slots=True)
class Bug:
    """`wrong` gets the right function and takes its place."""

    place: Any
    name: str
    wrong: Callable[[Any], Any]


def _adopts_nothing(right: Any) -> Any:
    """Every engine that is found is an orphan, and ends when the control plane is heard."""

    def decide(found: Any, marked: Any, boot: str, alive: Any) -> Decision:
        marked = list(marked)
        decision = right(found, marked, boot, alive)
        none = dataclasses.replace(found, records=())
        return Decision(forget=decision.adopt, orphans=right(none, marked, boot).orphans)

    return decide


def _ends_with_its_agent(right: Any) -> Any:
    """A starting agent begins from nothing: whatever ran before is ended at once."""

    def adopted(self: Supervisor) -> Any:
        said = right(self)
        self.heard()
        return said

    return adopted


def _copies_and_truncates(_: Any) -> Any:
    """A log is bounded by copying its end aside and writing it back."""

    def trim(path: pathlib.Path, keep: int) -> None:
        size = path.stat().st_size if path.exists() else 0
        if size > keep:
            with path.open("r+b") as file:
                file.seek(size - keep)
                end = file.read()
                file.truncate(0)
                file.seek(0)
                file.write(end)

    return trim


def _forgets_intents(_: Any) -> Any:
    """What is about to be launched is written down afterwards only."""
    return lambda *_: None


def _keeps_orphans(_: Any) -> Any:
    """What nothing describes goes on for ever."""
    return lambda *_: None


def _unheard_are_lost(right: Any) -> Any:
    """Whoever has not spoken yet counts as Lost."""

    def stand(*args: Any, **named: Any) -> Any:
        found = right(*args, **named)
        of = {name: "Lost" if stands == "Unheard" else stands for name, stands in found.of.items()}
        return dataclasses.replace(found, of=of, unheard=(), heard=True)

    return stand


def _unreachable_are_lost(right: Any) -> Any:
    """A blip is a loss."""
    return _renamed(right, "Unreachable", "Lost")


def _nobody_is_lost(right: Any) -> Any:
    """Whoever is silent will be back, for ever."""
    return _renamed(right, "Lost", "Unreachable")


def _renamed(right: Any, true: str, told: str) -> Any:
    """Who is `true` counts as `told`."""

    def stand(*args: Any, **named: Any) -> Any:
        found = right(*args, **named)
        of = {name: told if stands == true else stands for name, stands in found.of.items()}
        lost = frozenset(name for name, stands in of.items() if stands == "Lost")
        return dataclasses.replace(found, of=of, lost=lost)

    return stand


def _sends_no_pings(_: Any) -> Any:
    """Whoever says nothing is taken to be well."""
    return lambda _: None


def _trusts_the_kernel(_: Any) -> Any:
    """Asks every second and waits for no answer: whose kernel acknowledges the question is taken to be well."""

    def tick(self: Connection) -> None:
        self._h2.ping(bytes(8))
        self._flush()
        self._timer = self._loop.call_later(1.0, self._tick)

    return tick


def _hears_ends_late(right: Any) -> Any:
    """The end of a connection is looked at a while after it has come."""

    def connection_lost(self: Connection, exc: Exception | None) -> None:
        asyncio.get_running_loop().call_later(0.05, right, self, exc)

    return connection_lost


def _counts_everything(right: Any) -> Any:
    """Each registration looks at everything that was ever registered, thoroughly."""

    def registered(self: Draft, event: Any, now: float) -> None:
        right(self, event, now)
        copy.deepcopy(dict(self.fleet.shards))

    return registered


def _lets_nothing_go(_: Any) -> Any:
    """What an agent holds of an engine it holds for ever."""
    return lambda _: None


def _tells_the_time(_: Any) -> Any:
    """Deadlines are counted on the wall clock."""
    return lambda _: time.time()  # noqa: TID251 - the bug that is planted


async def _nobody(*_: Any) -> None:
    return


def _admits_twins(_: Any) -> Any:
    """Whoever comes last takes the place, though the first one still answers."""
    return _nobody


def _never_gives_way(_: Any) -> Any:
    """A control plane that is outranked goes on commanding."""
    return lambda *_: None


BUGS: Mapping[str, Bug] = {
    "adopts-nothing": Bug(adopt, "decide", _adopts_nothing),
    "counts-everything": Bug(Draft, "_registered", _counts_everything),
    "ends-unheard": Bug(Supervisor, "adopt", _ends_with_its_agent),
    "copies-and-truncates": Bug(logs, "trim", _copies_and_truncates),
    "forgets-intents": Bug(Launcher, "_intend", _forgets_intents),
    "keeps-orphans": Bug(Supervisor, "heard", _keeps_orphans),
    "same-node-twice": Bug(Peers, "_living_rival", _admits_twins),
    "never-gives-way": Bug(Loop, "fence", _never_gives_way),
    "hears-ends-late": Bug(Connection, "connection_lost", _hears_ends_late),
    "lets-nothing-go": Bug(Leader, "close", _lets_nothing_go),
    "nobody-is-lost": Bug(board, "stand", _nobody_is_lost),
    "sends-no-pings": Bug(Connection, "_tick", _sends_no_pings),
    "tells-the-time": Bug(SystemClock, "now", _tells_the_time),
    "trusts-the-kernel": Bug(Connection, "_tick", _trusts_the_kernel),
    "unheard-are-lost": Bug(board, "stand", _unheard_are_lost),
    "unreachable-are-lost": Bug(board, "stand", _unreachable_are_lost),
}


def wrapper(bug: str | None) -> tuple[str, ...]:
    """What a process is started by way of, with `bug` planted in it; nothing without one."""
    return (sys.executable, "-m", "tests.support.planted", bug) if bug else ()


def main(argv: list[str]) -> int:
    """Run llmgw with the bug planted; its exit code."""
    name, _, *arguments = argv
    bug = BUGS[name]
    with mock.patch.object(bug.place, bug.name, bug.wrong(getattr(bug.place, bug.name))):
        return run(arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
