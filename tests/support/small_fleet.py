"""A control plane and a node without a disk or an engine: everything between the two decisions is real.

Called by the labs that break the connection in between many times over. `SmallControl` is the loop, the
table of peers, the sessions and the listener; `SmallNode` the link and the agent's core, and hands that do
at once what it says. What was really executed is counted by those hands.
"""

import asyncio
import collections
import contextlib
from collections.abc import AsyncIterator

from llmgw.agent import core
from llmgw.agent.connection import Link
from llmgw.catalog.model import Catalog
from llmgw.catalog.sources import cache_name
from llmgw.control.journal import Journal
from llmgw.control.loop import Loop
from llmgw.control.peers import Peer, Peers
from llmgw.control.translate import agent_event, claimed_twice, not_known, order, own_words
from llmgw.fleet import events
from llmgw.fleet.expiry import Timers
from llmgw.fleet.node import NodeInfo
from llmgw.fleet.routes import Routes, first_version
from llmgw.fleet.shard import ShardKey
from llmgw.fleet.world import Fleet
from llmgw.kit.backoff import Backoff
from llmgw.kit.chance import seeded
from llmgw.kit.clock import SystemClock
from llmgw.kit.tasks import Tasks
from llmgw.planning.actions import Action
from llmgw.planning.desired import Desired
from llmgw.planning.ledger import Ledger
from llmgw.transport.client import connect
from llmgw.transport.limits import Limits
from llmgw.wire import messages
from llmgw.wire.session import Command
from tests.transport.harness import HOST, listening

EPOCH = 1
QUICK = Limits(ping=0.2, timeout=5.0)
TIMERS = Timers(min_ready=0.0, stop_grace=0.1, place_grace=0.1, lost_grace=60.0, unreachable=30.0, ack=30.0)
SOON = Backoff(base=0.01, cap=0.05, share=0.5)


class SmallControl:
    """A control plane that wants `catalog`. `port` is where it listens while it is `running`."""

    def __init__(self, catalog: Catalog) -> None:
        clock = SystemClock()
        self.port = 0
        self.loop = Loop(
            desired=Desired(catalog),
            fleet=Fleet(since=clock.now()),
            ledger=Ledger(routes=Routes(version=first_version(EPOCH))),
            timers=TIMERS,
            clock=clock,
            chance=seeded(1),
            journal=Journal(clock),
            dispatch=self._dispatch,
            publish=lambda _: None,
        )
        self._peers = Peers(
            EPOCH,
            lambda: 1,
            self._said,
            lambda peer, _: self.loop.hear(events.Disconnected(peer.id)),
            clock,
            heartbeat=0.2,
            ping=0.2,
            objection=self._objection,
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["SmallControl"]:
        """Listening and deciding."""
        tasks = Tasks()
        async with listening(self._peers.serve, limits=QUICK) as (_, self.port):
            tasks.start("loop", self.loop.run())
            tasks.start("pulse", self.loop.pulse())
            try:
                yield self
            finally:
                await tasks.close()

    def adopt(self, catalog: Catalog) -> None:
        """Another catalog is wanted."""
        self.loop.adopt(Desired(catalog))

    def _objection(self, _: Peer, message: messages.Register | messages.Subscribe) -> str:
        return claimed_twice(message, self.loop.fleet) if isinstance(message, messages.Register) else ""

    def _said(self, peer: Peer, message: messages.Up) -> None:
        event = agent_event(peer.id, own_words(peer.id, message, self.loop.fleet))
        if strange := not_known(peer.id, message, self.loop.fleet):
            self._peers.begin_again(peer.id, strange)
        if event is not None:
            self.loop.hear(event)

    def _dispatch(self, action: Action) -> bool:
        command = order(action)
        return command is None or self._peers.send(*command)


class SmallNode:
    """A node of the control plane at `port`. `executed` counts launches and `ended` ends, by shard."""

    def __init__(self, name: str, port: int) -> None:
        self.state = core.AgentState(name)
        self.executed: collections.Counter[ShardKey] = collections.Counter()
        self.ended: collections.Counter[ShardKey] = collections.Counter()
        self._clock = SystemClock()
        self._info = NodeInfo(name, name, instance="first")
        self._link = Link(
            lambda: connect(HOST, port, "/agent", ping=QUICK.ping, timeout=QUICK.timeout),
            snapshot=self._snapshot,
            heartbeat=lambda: messages.Heartbeat(idle=self.state.idle()),
            adopt=lambda *_: self._tell(core.Heard()),
            obey=self._obey,
            clock=self._clock,
            chance=seeded(name),
            backoff=SOON,
        )

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncIterator["SmallNode"]:
        """Connected whenever it can be."""
        task = asyncio.create_task(self._link.run())
        try:
            yield self
        finally:
            task.cancel()
            await asyncio.wait({task})

    @property
    def registered(self) -> bool:
        """Whether the control plane knows it now."""
        return self._link.registered

    def _snapshot(self) -> messages.Register:
        return messages.Register(info=self._info, shards=self.state.statuses(self._clock.now()))

    def _obey(self, command: Command) -> None:
        if isinstance(command, core.Order):
            self._tell(core.Commanded(command))

    def _tell(self, event: core.Event) -> None:
        self.state, commands = core.step(self.state, event, self._clock.now())
        for command in commands:
            self._do(command)

    def _do(self, command: core.Command) -> None:
        """What the core asks for has happened a moment later."""
        match command:
            case core.Fetch(source=source):
                self._soon(core.Fetched(cache_name(source)))
            case core.Launch(spec=spec):
                self.executed[spec.key] += 1
                self._soon(core.Launched(spec.key, 1))
                self._soon(core.Milestone(spec.key, "started"))
                self._soon(core.Milestone(spec.key, "ready"))
                self._soon(core.Idle(spec.key, idle=True))
            case core.Terminate(key=key) | core.Sweep(key=key):
                self.ended[key] += 1
                self._soon(core.Swept(key))
            case core.Report(statuses=statuses):
                self._link.report(statuses)
            case _:
                pass

    def _soon(self, event: core.Event) -> None:
        asyncio.get_running_loop().call_soon(self._tell, event)
