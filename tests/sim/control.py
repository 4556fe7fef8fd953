"""The control plane of the simulation: the real Fleet, Ledger and `settle`, with simulated streams.

One `Control` is one life of the process. What a kill leaves is on `Disk`: the epoch, the roster, the
adopted catalog; everything else has to come back from agents and gateways.
"""

import dataclasses
from collections.abc import Callable
from typing import Protocol

from llmgw.catalog.model import Catalog
from llmgw.fleet import events
from llmgw.fleet.expiry import Timers
from llmgw.fleet.routes import Routes
from llmgw.fleet.world import Fleet
from llmgw.planning import actions
from llmgw.planning.desired import Desired
from llmgw.planning.ledger import Ledger
from llmgw.planning.settle import settle
from llmgw.wire import messages
from tests.sim.clockwork import Clockwork, Life
from tests.sim.links import End, Path, Stream

COALESCE = 0.05
"""Seconds in which events share a pass."""


@dataclasses.dataclass(slots=True)
class Disk:
    """What outlives the control plane."""

    catalog: Catalog
    epoch: int = 0
    roster: frozenset[str] = frozenset()


class Watcher(Protocol):
    """Who judges what the control plane does, by what is true."""

    def heard(self, control: "Control", event: events.Event) -> None:
        """An event is about to be applied to the fleet."""
        ...

    def ordered(self, control: "Control", action: actions.Action) -> None:
        """An action is about to be dispatched."""
        ...

    def published(self, routes: Routes) -> None:
        """A new routing table is about to go out."""
        ...


class Control:
    """One life of the control plane process."""

    def __init__(self, clock: Clockwork, disk: Disk, timers: Timers, watcher: Watcher) -> None:
        self.clock = clock
        self.disk = disk
        self.timers = timers
        self.life = Life()
        self.epoch = 0
        self.seq = 0
        self.roster = disk.roster
        self.fleet = Fleet(since=clock.now, roster=disk.roster)
        self.ledger = Ledger()
        self.streams: dict[str, Stream] = {}
        self.paused_at: float | None = None
        self._watcher = watcher
        self._inbox: list[Callable[[], None]] = []
        self._planned = float("inf")

    @property
    def answers(self) -> bool:
        """Whether it takes a new stream now."""
        return not self.life.over and self.paused_at is None

    def start(self) -> None:
        """Take the next epoch and begin to listen."""
        self.disk.epoch += 1
        self.epoch = self.disk.epoch
        self.chance = self.clock.chance(f"control/{self.epoch}")
        self.ledger = Ledger(routes=Routes(version=self.epoch << 32))
        self.plan(self.clock.now)

    def die(self) -> None:
        """kill -9: the kernel closes every stream."""
        self.life.over = True
        for stream in self.streams.values():
            stream.hang_up("down")

    def pause(self) -> None:
        """It stands still, as a suspended machine does; what arrives waits."""
        self.paused_at = self.clock.now

    def resume(self) -> None:
        """It goes on: first it learns how long it was away, then it reads what came meanwhile."""
        if self.paused_at is None:
            return
        self._apply(events.Stalled(self.clock.now - self.paused_at))
        self.paused_at = None
        waiting, self._inbox = self._inbox, []
        for event in waiting:
            event()
        self.plan(self.clock.now)

    # --- streams ------------------------------------------------------------------------------

    def accept(self, name: str, path: Path, peer: End) -> Stream:
        """A stream of a peer; a newer one of the same peer supersedes it."""
        stream: Stream | None = None

        def hears(message: messages.Up) -> None:
            self._when_awake(lambda: self._hear(name, stream, message))

        def closes() -> None:
            self._when_awake(lambda: self._closed(name, stream))

        stream = path.connect(peer, End(hears, closes))
        return stream

    def _when_awake(self, event: Callable[[], None]) -> None:
        if self.life.over:
            return
        if self.paused_at is not None:
            self._inbox.append(event)
        else:
            event()

    def _hear(self, name: str, stream: Stream | None, message: messages.Up) -> None:
        if isinstance(message, messages.Register | messages.Subscribe):
            old = self.streams.get(name)
            self.streams[name] = stream
            if old is not None:
                old.hang_up("down")
        elif self.streams.get(name) is not stream:
            return
        match message:
            case messages.Register():
                self._register(name, message)
            case messages.Report():
                self._apply(events.Reported(name, message.statuses, message.info))
            case messages.Heartbeat():
                self._apply(events.Heartbeat(name, message.idle))
            case messages.Subscribe():
                self._tell(name)
            case messages.Load():
                seen = events.GatewaySeen(
                    name, message.acked, message.in_flight, message.green, message.queued
                )
                self._apply(seen)

    def _register(self, name: str, message: messages.Register) -> None:
        self.disk.epoch = self.epoch = max(self.epoch, message.epoch)
        self._send(name, messages.Registered(epoch=self.epoch))
        self._apply(events.Registered(message.info, message.shards, message.failures, message.progress))
        self.disk.roster = self.fleet.roster

    def _closed(self, name: str, stream: Stream | None) -> None:
        if self.streams.get(name) is stream:
            del self.streams[name]
            self._apply(events.Disconnected(name))

    def _send(self, name: str, message: messages.Down) -> None:
        if name in self.streams:
            self.streams[name].send("down", message)

    # --- the loop -----------------------------------------------------------------------------

    def _apply(self, event: events.Event) -> None:
        self._watcher.heard(self, event)
        self.fleet = self.fleet.apply(event, self.clock.now)
        if not isinstance(event, events.Heartbeat):
            self.plan(self.clock.now + COALESCE)

    def adopt(self, catalog: Catalog) -> None:
        """Somebody applied a new revision."""
        self.disk.catalog = catalog
        self.plan(self.clock.now)

    def plan(self, when: float) -> None:
        """Make a pass at `when`, or earlier if one is due before."""
        if when < self._planned:
            self._planned = when
            self.clock.at(when, lambda: self._when_awake(lambda: self._pass(when)), self.life)

    def _pass(self, planned: float) -> None:
        if planned != self._planned:
            return
        self._planned = float("inf")
        desired = Desired(self.disk.catalog)
        done = settle(desired, self.fleet, self.ledger, self.clock.now, self.chance, self.timers)
        before = self.ledger.routes.version
        self.fleet, self.ledger = done.fleet, done.ledger
        for action in done.actions:
            self._watcher.ordered(self, action)
            self._dispatch(action)
        if self.ledger.routes.version != before:
            self._publish()
        if done.wake_at is not None:
            self.plan(max(done.wake_at, self.clock.now + 0.001))

    def _dispatch(self, action: actions.Action) -> None:
        self.seq += 1
        stamp = {"epoch": self.epoch, "seq": self.seq}
        match action:
            case actions.Assign(spec=spec):
                self._send(spec.node, messages.Assign(**stamp, spec=spec))
            case actions.Start(key=(replica, rank)):
                start = messages.Start(**stamp, replica=replica, rank=rank, generation=action.generation)
                self._send(action.node, start)
            case actions.Stop(key=(replica, rank)):
                stop = messages.Stop(
                    **stamp, replica=replica, rank=rank, generation=action.generation,
                    grace=action.grace, because=action.because,
                )  # fmt: skip
                self._send(action.node, stop)

    def again(self, name: str, order: messages.Assign | messages.Start | messages.Stop) -> bool:
        """Give an order once more, under its own number; False where the node is not connected."""
        self.seq += 1
        self._send(name, order.model_copy(update={"epoch": self.epoch, "seq": self.seq}))
        return name in self.streams

    def _publish(self) -> None:
        self._watcher.published(self.ledger.routes)
        for name in self.streams:
            self._tell(name)

    def _tell(self, name: str) -> None:
        if name.startswith("gw"):
            self._send(name, messages.RoutesUpdate(routes=self.ledger.routes))
