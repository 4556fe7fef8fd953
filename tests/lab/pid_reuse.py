"""A stranger gets the pid of a dead engine: `python -m tests.lab pid-reuse --n 300`.

In a pid namespace of its own the number of the next process can be chosen. An engine dies while its
agent is away, or under an agent that adopted it, and a process that is not ours gets its pid, mostly
in the same clock tick. The agent then does all it ever does to a shard: it adopts or forgets, sweeps,
stops. The stranger must not be touched: it runs on, as the very process that was started (its pidfd
is still the same one), and it was sent no signal that can be caught.
"""

import argparse
import asyncio
import contextlib
import dataclasses
import os
import pathlib
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from typing import Any
from unittest import mock

from llmgw.agent import marks, process, procfs
from tests.agent.house import House, gone, ready, until
from tests.lab.command import Outcome
from tests.support import namespaces

STRANGER = """
import os, signal, sys, time
for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP, signal.SIGQUIT, signal.SIGUSR1):
    signal.signal(number, lambda number, _: os.write(1, b"signal"))
os.write(1, b"ready")
time.sleep(60)
"""


def run(argv: list[str]) -> Outcome:
    """`--n` reuses; `--mutant pid-is-identity` must turn it red."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--n", type=int, default=60)
    parser.add_argument("--mutant", choices=["pid-is-identity"])
    asked = parser.parse_args(argv)
    if not namespaces.inside():
        return namespaces.again("pid-reuse", argv)
    took = {"reused_while_away": 0, "reused_while_watched": 0, "same_tick": 0}
    hit: list[str] = []
    with tempfile.TemporaryDirectory(prefix="llmgw-reuse-") as place, _planted(asked.mutant):
        house = House(pathlib.Path(place))
        try:
            for number in range(asked.n):
                watched = number % 2 == 1
                hit += asyncio.run((_watched if watched else _away)(house, took))
        finally:
            house.clean()
    reused = took["reused_while_away"] + took["reused_while_watched"]
    figures = {"tried": asked.n, "reused": reused, "foreign_signals": len(hit)}
    return Outcome(not hit and reused >= asked.n * 0.8, took, figures, "; ".join(hit[:3]))


@contextlib.contextmanager
def _planted(mutant: str | None) -> Iterator[None]:
    """A pid is taken for the process that it was."""
    if mutant is None:
        yield
        return

    def by_pid(stat: procfs.Stat, identity: marks.Identity, *_: Any, **__: Any) -> bool:
        return stat.pid == identity.pid

    with mock.patch.object(marks, "belongs", by_pid), mock.patch.object(process, "marks", marks):
        yield


class Stranger:
    """A process of nobody's, with the pid that was asked for."""

    def __init__(self, pid: int) -> None:
        namespaces.next_pid(pid)
        self._child = subprocess.Popen(
            [sys.executable, "-S", "-c", STRANGER], stdout=subprocess.PIPE, start_new_session=True
        )
        self.pid = self._child.pid
        assert self._child.stdout is not None
        self._out = self._child.stdout
        assert os.read(self._out.fileno(), 5) == b"ready"
        os.set_blocking(self._out.fileno(), False)

    def harm(self) -> str:
        """What was done to it; empty = nothing. It is ended then."""
        ended = self._child.poll()  # to a zombie, signal 0 still goes
        if ended is not None:
            said = f"a stranger was ended by signal {-ended}"
        else:
            said = "a stranger was sent a signal" if self._told() else ""
        self._child.kill()
        self._child.wait()
        self._out.close()
        return said

    def _told(self) -> bytes:
        try:
            return os.read(self._out.fileno(), 100)
        except BlockingIOError:
            return b""


async def _away(house: House, took: dict[str, int]) -> list[str]:
    """The engine dies while no agent lives; the next agent finds a record with a stranger's pid."""
    shard = house.spec()
    async with house.agent() as agent:
        pid = await ready(house, agent, shard)
    stranger = taken(pid, took, "reused_while_away")
    same_tick(house, stranger, took)
    async with house.agent() as agent:
        agent.heard()
        await asyncio.sleep(0.05)
        if shard.key in agent.state.shards:
            await gone(agent, shard)
    return [said] if (said := stranger.harm()) else []


async def _watched(house: House, took: dict[str, int]) -> list[str]:
    """The engine dies under an agent that adopted it: nobody's zombie keeps its pid meanwhile."""
    shard = house.spec()
    async with house.agent() as agent:
        pid = await ready(house, agent, shard)
    async with house.agent() as agent:
        await until(lambda: shard.key in agent.state.shards, "adopted")
        stranger = taken(pid, took, "reused_while_watched")
        await until(lambda: agent.state.shards[shard.key].swept, "swept")
        await gone(agent, shard)
    return [said] if (said := stranger.harm()) else []


def taken(pid: int, took: dict[str, int], how: str) -> Stranger:
    """Kill the engine `pid` and put a stranger into its place."""
    os.kill(pid, signal.SIGKILL)
    with contextlib.suppress(ChildProcessError):
        os.waitpid(pid, 0)
    stranger = Stranger(pid)
    took[how] += stranger.pid == pid
    return stranger


def same_tick(house: House, stranger: Stranger, took: dict[str, int]) -> None:
    """The record's process began in the very tick of the stranger, as happens within ten milliseconds.

    Before Linux 6.9 nothing tells these apart once the environment may have been cleared.
    """
    now = procfs.stat(stranger.pid)
    for record in house.records.read().records:
        if now is not None and record.identity.pid == stranger.pid and record.identity.inode:
            identity = dataclasses.replace(record.identity, ticks=now.ticks)
            house.records.write(dataclasses.replace(record, identity=identity))
            took["same_tick"] += 1
