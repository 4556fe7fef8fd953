"""A connection that is cut at every byte of what a node and its control plane say: `python -m tests.lab sever --every-byte`.

Both ends are real but for disk and engines: link, sessions and transport, the agent's core, the control
plane's loop. One session is recorded whole: a node registers, is told to run two models, runs them, and is
told to stop one. It is played again for every byte position, in both directions, and cut there once, at a
proxy that counts the streams of HTTP/2 that opened. However far it came, no engine is executed or ended
twice, and in the end exactly what is wanted runs, without waiting until a lost order is sent again unasked.
"""

import argparse
import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator, Callable, Iterator
from typing import Any, Literal
from unittest import mock

from llmgw.catalog.load import check
from llmgw.catalog.model import Catalog
from llmgw.fleet.world import Draft
from tests.control.plane import files
from tests.lab.command import Outcome
from tests.support.cutter import Cutter
from tests.support.small_fleet import SmallControl, SmallNode
from tests.transport.harness import HOST, until

Way = Literal["up", "down"]
STEP = 25
AT_ONCE = 6
"""Sessions that are played side by side: each waits more than it works."""
WITHIN = 10.0
"""Seconds in which a fleet must have converged: far less than it takes until an order is sent again unasked."""
ENOUGH = 5
"""Failures after which nobody needs another one."""
ALL = ("alpha", "beta")


def run(argv: list[str]) -> Outcome:
    """Every 25th byte, or every one; `--mutant` must turn it red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--every-byte", action="store_true")
    parser.add_argument("--mutant", choices=sorted(BUGS))
    asked = parser.parse_args(argv)
    logging.getLogger("llmgw").setLevel(logging.ERROR)  # every cut is told otherwise
    took = dict.fromkeys(("cuts_up", "cuts_down", "streams", "executed", "ended"), 0)
    wrong: list[str] = []
    with BUGS[asked.mutant]() if asked.mutant else contextlib.nullcontext():
        lengths = asyncio.run(_sever(1 if asked.every_byte else STEP, took, wrong))
    for said in wrong:
        print(f"FAIL {said}", file=sys.stderr)
    figures = {"cuts": took["cuts_up"] + took["cuts_down"], "wrong": len(wrong)}
    return Outcome(
        not wrong, took, figures | {f"bytes_{way}": lengths[way] for way in lengths}, "; ".join(wrong[:3])
    )


class Session:
    """One control plane, one node, and the proxy between them."""

    def __init__(self, control: SmallControl, node: SmallNode, cutter: Cutter) -> None:
        self.control, self.node, self.cutter = control, node, cutter

    async def play(self) -> None:
        """Two models come, one goes. AssertionError where the fleet does not come to that."""
        await until(lambda: self.serves(len(ALL)), "both models are ready", within=WITHIN)
        self.control.adopt(_catalog(ALL[0]))
        await until(lambda: self.serves(1), "one of them has stopped", within=WITHIN)

    def serves(self, models: int) -> bool:
        """Whether both ends agree that exactly so many are there, all ready."""
        told = {key: shard.state for key, shard in self.control.loop.fleet.shards.items()}
        here = {key: kept.state for key, kept in self.node.state.shards.items()}
        return told == here and list(here.values()) == ["ready"] * models

    def wrong(self, connections: int) -> list[str]:
        """What should not have been, at the end."""
        node, cutter = self.node, self.cutter
        found = [f"{key} was executed {count} times" for key, count in node.executed.items() if count > 1]
        found += [f"{key} was ended {count} times" for key, count in node.ended.items() if count > 1]
        if len(node.executed) != len(ALL):
            found.append(f"{len(node.executed)} engines were executed")
        if not 1 <= cutter.streams <= connections == cutter.accepted:
            found.append(f"{cutter.streams} streams opened on {cutter.accepted} connections")
        return found


async def _sever(step: int, took: dict[str, int], wrong: list[str]) -> dict[Way, int]:
    async with _session() as whole:
        await whole.play()
        (passage,) = whole.cutter.passages
        lengths: dict[Way, int] = {"up": passage.up, "down": passage.down}
        wrong += whole.wrong(connections=1)
    places = iter([(way, at) for way, length in lengths.items() for at in range(1, length + 1, step)])

    async def play() -> None:
        for way, at in places:
            if len(wrong) >= ENOUGH:
                return
            try:
                await _cut(way, at, took, wrong)
            except AssertionError as error:
                wrong.append(f"{way} {at}: {error}")

    async with asyncio.TaskGroup() as group:
        for _ in range(AT_ONCE):
            group.create_task(play())
    return lengths


async def _cut(way: Way, at: int, took: dict[str, int], wrong: list[str]) -> None:
    """One session, cut once, when `at` bytes have passed that way."""
    async with _session(way, at) as session:
        await session.play()
        await until(lambda: session.cutter.cuts, "its pings come to the place of the cut", within=WITHIN)
        # Cut at the last byte, both ends take a moment to notice.
        await until(lambda: session.cutter.accepted > 1, "it connects again", within=WITHIN)
        await until(lambda: session.node.registered and session.serves(1), "it serves again", within=WITHIN)
        took[f"cuts_{way}"] += session.cutter.cuts
        took["streams"] += session.cutter.streams
        took["executed"] += session.node.executed.total()
        took["ended"] += session.node.ended.total()
        wrong += [f"{way} {at}: {said}" for said in session.wrong(connections=2)]


@contextlib.asynccontextmanager
async def _session(way: Way | None = None, at: int = 0) -> AsyncIterator[Session]:
    async with SmallControl(_catalog(*ALL)).running() as control:
        cutter = Cutter(HOST, control.port)
        cutter.once = True
        cutter.cut_after = at if way == "up" else None
        cutter.cut_down_after = at if way == "down" else None
        port = await cutter.start()
        try:
            async with SmallNode("n1", port).running() as node:
                yield Session(control, node, cutter)
        finally:
            await cutter.close()


def _catalog(*models: str) -> Catalog:
    checked = check({name: text.encode() for name, text in files(*models).items()})
    assert checked.catalog is not None, checked.diagnostics
    return checked.catalog


# --- planted ---------------------------------------------------------------------------------


@contextlib.contextmanager
def _stale_register() -> Iterator[None]:
    """A node says on each of its streams what it said on the first."""
    right: Callable[[Any], Any] = SmallNode._snapshot

    def snapshot(self: Any) -> Any:
        self.first = getattr(self, "first", None) or right(self)
        return self.first

    with mock.patch.object(SmallNode, "_snapshot", snapshot):
        yield


@contextlib.contextmanager
def _trusts_orders() -> Iterator[None]:
    """What was ordered before a registration counts as heard, whatever the node says of it."""
    right: Callable[..., None] = Draft._registered

    def registered(self: Any, event: Any, now: float) -> None:
        before = {key: shard for key, shard in self.fleet.shards.items() if shard.ordered}
        right(self, event, now)
        for key, shard in before.items():
            self._shards.write[key] = shard

    with mock.patch.object(Draft, "_registered", registered):
        yield


BUGS: dict[str, Callable[[], contextlib.AbstractContextManager[None]]] = {
    "stale-register": _stale_register,
    "trusts-orders": _trusts_orders,
}
