"""The control plane of the simulation: the real loop, session and translation on simulated streams.

One `Control` is one life of the process. What a kill leaves is on `Disk`: the epoch, the roster, the
adopted catalog; everything else has to come back from agents and gateways. `control.loop.Loop` decides
when a pass is due and what it means; here it is called when its sleep would have ended.
"""

import contextlib
import dataclasses
import datetime
import functools
import math
from collections.abc import Callable
from typing import Protocol, cast

from llmgw.catalog.model import Catalog
from llmgw.control.hands import Act, Hands
from llmgw.control.journal import Journal
from llmgw.control.keeping import Keeping
from llmgw.control.loop import Loop
from llmgw.control.marks import Kept
from llmgw.control.store import Store
from llmgw.control.translate import agent_event, gateway_event, order
from llmgw.errors import LlmgwError
from llmgw.fleet import events
from llmgw.fleet.expiry import Timers
from llmgw.fleet.node import CachedWeights
from llmgw.fleet.routes import Routes, first_version
from llmgw.fleet.world import Fleet, Gateway
from llmgw.kit.chance import Chance
from llmgw.planning import actions
from llmgw.planning.desired import Desired
from llmgw.planning.ledger import Ledger
from llmgw.planning.plan import Plan, make_plan
from llmgw.wire import messages
from llmgw.wire import session as say
from tests.sim import scenario
from tests.sim.clockwork import Clockwork, Life
from tests.sim.links import End, Path, Stream
from tests.sim.papers import Papers

HEARTBEAT = 5.0
HOST = "control"
"""Its machine: every simulated gateway has another."""
AT_ONCE = 0.01
BUSY = (AT_ONCE, 0.1, 0.4)
"""Seconds until the loop's task runs after news: at once, or later where its machine is busy."""

EPOCH = datetime.datetime(2030, 1, 1, tzinfo=datetime.UTC)


@dataclasses.dataclass(slots=True)
class Disk:
    """What outlives the control plane. `gateways` are those it has ever met."""

    catalog: Catalog
    marks: Kept = dataclasses.field(default_factory=Kept)
    epoch: int = 0
    revision: int = 1
    roster: frozenset[str] = frozenset()
    gateways: tuple[str, ...] = ()


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


class SimulatedClock:
    """The clock that the loop is given."""

    def __init__(self, clockwork: Clockwork) -> None:
        self._clockwork = clockwork

    def now(self) -> float:
        return self._clockwork.now

    def wall(self) -> datetime.datetime:
        return EPOCH + datetime.timedelta(seconds=self._clockwork.now + self._clockwork.wall_ahead)


@dataclasses.dataclass(slots=True, eq=False)
class Line:
    """One stream of a peer and how far its conversation is."""

    session: say.ControlSession
    stream: Stream | None = None

    def send(self, message: messages.Message) -> None:
        """Say something to the peer."""
        if self.stream is not None:
            self.stream.send("down", messages.encode(message))


class Control:
    """One life of the control plane process."""

    def __init__(self, clock: Clockwork, disk: Disk, timers: Timers, watcher: Watcher) -> None:
        disk.epoch += 1
        self.clock = clock
        self.disk = disk
        self.timers = timers
        self.unhurried = dataclasses.replace(timers, scale_every=math.inf)
        self.life = Life()
        self.epoch = disk.epoch
        self.roster = disk.roster
        self.lines: dict[str, Line] = {}
        self.paused = False
        self.rehearses = False
        self._pauses = 0
        self._watcher = watcher
        self._seq = 0
        self._newest: dict[str, actions.Action] = {}
        self._streams: list[Stream] = []
        self._inbox: list[Callable[[], None]] = []
        self._planned = math.inf
        self._plans = 0
        self._plans_steadily = False
        self._busy = clock.chance(f"busy/{self.epoch}").choice(BUSY)
        self.loop = Loop(
            desired=Desired(disk.catalog, sizes=scenario.sizes(disk.catalog)),
            fleet=_fleet(disk, clock.now),
            ledger=Ledger(routes=Routes(version=first_version(self.epoch))),
            timers=timers,
            clock=SimulatedClock(clock),
            chance=clock.chance(f"control/{self.epoch}"),
            journal=Journal(SimulatedClock(clock)),
            dispatch=self._dispatch,
            publish=self._publish,
        )

        self.hands = Hands(
            cast("Store", Papers(disk)),
            self.loop,
            self.loop._journal,
            Keeping(self.loop._journal),
            SimulatedClock(clock),
            forget=self._forgotten,
        )
        self.hands.resume()

    @property
    def fleet(self) -> Fleet:
        """What it knows."""
        return self.loop.fleet

    @property
    def ledger(self) -> Ledger:
        """What it remembers."""
        return self.loop.ledger

    @property
    def answers(self) -> bool:
        """Whether it takes a new stream now."""
        return not self.life.over and not self.paused

    def start(self) -> None:
        """Begin to listen."""
        self._plan(self.clock.now)

    def die(self) -> None:
        """kill -9: the kernel closes every stream."""
        self.life.over = True
        for stream in self._streams:
            stream.hang_up("down")

    def pause(self) -> None:
        """It stands still, as a suspended machine does; what arrives waits."""
        self._pulse()
        self.paused = True
        self._pauses += 1
        pause = self._pauses
        for line in self.lines.values():
            if line.stream is not None:
                line.stream.unanswered(lambda: self.paused and self._pauses == pause)

    def resume(self) -> None:
        """It goes on: it reads what came meanwhile, and finds that its pulse stood still."""
        self.paused = False
        waiting, self._inbox = self._inbox, []
        for event in waiting:
            event()
        self.loop.decide()
        self._after_decision()

    def adopt(self, catalog: Catalog) -> None:
        """Somebody applied a new revision."""
        self._when_awake(lambda: self.loop.adopt(self._desired(catalog)))

    def _desired(self, catalog: Catalog) -> Desired:
        return dataclasses.replace(self.loop.desired, catalog=catalog, sizes=scenario.sizes(catalog))

    def plan(self, catalog: Catalog, chance: Chance) -> Plan:
        """What adopting `catalog` would do, as `control.adoption` asks."""
        loop, new = self.loop, self._desired(catalog)
        self.rehearses = True
        plan = make_plan(
            loop.desired, new, loop.fleet, loop.ledger, self.clock.now, chance, loop.timers, base=0
        )
        self.rehearses = False
        return plan

    def act(self, act: Act) -> bool:
        """Somebody lays hands on the fleet. Whether that could be done."""
        done: list[str] = []

        def do() -> None:
            with contextlib.suppress(LlmgwError):
                done.append(self.hands.do(act, self.hands.check(act)))

        self._when_awake(do)
        return bool(done)

    def _forgotten(self, node: str) -> None:
        self.roster -= {node}
        self.disk.roster -= {node}

    def propose(self, catalog: Catalog) -> None:
        """Somebody wants to apply a revision that adoption refuses."""
        if scenario.sound(catalog):
            self.adopt(catalog)

    # --- streams ------------------------------------------------------------------------------

    def accept(self, name: str, path: Path, peer: End) -> Stream:
        """A stream of a peer."""
        line = Line(say.ControlSession(self.epoch, math.inf))

        def hears(data: bytes) -> None:
            self._when_awake(lambda: self._hear(name, line, data))

        def closes() -> None:
            self._when_awake(lambda: self._closed(name, line))

        line.stream = path.connect(peer, End(hears, closes))
        self._streams = [*(stream for stream in self._streams if stream.alive), line.stream]
        return line.stream

    def _when_awake(self, event: Callable[[], None]) -> None:
        if self.life.over:
            return
        if self.paused:
            self._inbox.append(event)
            return
        if not self._inbox:
            self._pulse()
        event()
        if self.loop._news.is_set():
            self._plan(self.clock.now + self._busy)

    def _pulse(self) -> None:
        """The loop proves several times a second that it can listen; here only when it matters."""
        self.loop._listening = self.clock.now

    def _hear(self, name: str, line: Line, data: bytes) -> None:
        line.session, outputs = line.session.received(data)
        for output in outputs:
            match output:
                case say.Send(message=message):
                    line.send(message)
                case say.Admit(message=message):
                    self._admit(name, line, message)
                case say.Deliver(message=message):
                    if self.lines.get(name) is line:
                        self._said(name, line, message)
                case say.Outranked():
                    self.loop.fence("a newer control plane commands the nodes")
                case say.End():
                    self._let_go(line)

    def _admit(self, name: str, line: Line, message: messages.Register | messages.Subscribe) -> None:
        old = self.lines.pop(name, None)
        if old is not None:
            self._let_go(old)
            self._disconnected(name, old)
        self.lines[name] = line
        self._said(name, line, message)
        if line.session.agent:
            self.hands.returned(name)
        if line.session.agent:
            self.disk.roster = self.fleet.roster
        else:
            self.disk.gateways = tuple(sorted({*self.disk.gateways, name}))
            line.send(messages.RoutesUpdate(routes=self.ledger.routes))
        line.session, outputs = line.session.admitted(self.disk.revision, HEARTBEAT)
        for output in outputs:
            if isinstance(output, say.Send):
                line.send(output.message)

    def _said(self, name: str, line: Line, message: messages.Up) -> None:
        event = agent_event(name, message) if line.session.agent else gateway_event(name, message, HOST)
        if event is not None:
            self._tell(event)

    def _closed(self, name: str, line: Line) -> None:
        if self.lines.get(name) is line:
            del self.lines[name]
            self._disconnected(name, line)

    def _disconnected(self, name: str, line: Line) -> None:
        if line.session.agent:
            self._tell(events.Disconnected(name))

    def _let_go(self, line: Line) -> None:
        if line.stream is not None:
            line.stream.hang_up("down")

    def _tell(self, event: events.Event) -> None:
        self._watcher.heard(self, event)
        self.loop.hear(event)

    # --- deciding -----------------------------------------------------------------------------

    @property
    def steady(self) -> bool:
        """Only time and heartbeats will make it decide again."""
        return not (self.loop._news.is_set() or self._inbox or self.loop.fenced)

    def leapt(self, fleet: Fleet, delay: float, instant: float) -> None:
        """Everybody went on speaking for `delay` seconds; that is the `fleet` now, and a pass is due at `instant`."""
        self.loop.fleet = fleet
        self._pulse()
        if self._plans_steadily:
            self._planned += delay
        self._plan(instant)

    def _plan(self, when: float, *, steadily: bool = False) -> None:
        if when >= self._planned:
            return
        self._planned, self._plans_steadily = when, steadily
        self._plans += 1
        later = self.clock.steadily if steadily else self.clock.after
        later(max(0.0, when - self.clock.now), functools.partial(self._due, self._plans), self.life)

    def _due(self, plan: int) -> None:
        if plan != self._plans:
            return
        self._planned = math.inf
        if not self.paused:
            self._pulse()
            self.loop._news.clear()
            self.loop.decide()
            self._after_decision()

    def _after_decision(self) -> None:
        if self.loop._news.is_set():
            self._plan(self.clock.now + self._busy)
        elif self.loop._wake_at is not None:
            self._plan(max(self.loop._wake_at, self.clock.now + AT_ONCE), steadily=True)

    def _dispatch(self, action: actions.Action) -> bool:
        self._watcher.ordered(self, action)
        command = order(action)
        if command is None:
            return True
        node, make = command
        self._newest[node] = action
        return self._command(node, make)

    def _command(self, node: str, make: Callable[[int, int], messages.Command]) -> bool:
        if node not in self.lines:
            return False
        self._seq += 1
        self.lines[node].send(make(self.epoch, self._seq))
        return True

    def collect(self, node: str, entries: tuple[CachedWeights, ...]) -> None:
        """Ask a node to remove what was listed."""
        revision = self.disk.revision
        self._command(
            node,
            lambda epoch, seq: messages.Collect(epoch=epoch, seq=seq, revision=revision, entries=entries),
        )

    def again(self, target: int) -> bool:
        """Give the newest order of a node once more, under a new number; False where none still stands."""
        standing = [action for action in self._newest.values() if self._stands(action)]
        command = order(standing[target % len(standing)]) if standing else None
        return command is not None and self._command(*command)

    def _stands(self, action: actions.Action) -> bool:
        """A shard that its node denied is not assigned again: the next one has another name."""
        return not isinstance(action, actions.Assign) or action.spec.key in self.fleet.shards

    def _publish(self, routes: Routes) -> None:
        self._watcher.published(routes)
        for line in self.lines.values():
            if not line.session.agent:
                line.send(messages.RoutesUpdate(routes=routes))


def _fleet(disk: Disk, now: float) -> Fleet:
    """The fleet as a new control plane knows it: names to wait for."""
    silent = Gateway(acked=0, in_flight={}, green_at={}, queued={}, last_seen=now)
    return Fleet(since=now, roster=disk.roster, gateways=dict.fromkeys(disk.gateways, silent))
