"""The hands of a simulated agent: the real `agent.core` decides, a `Machine` is acted on.

One `Agent` is one life of the process: kill -9 ends it, the engines and the records on the disk stay,
and the next one adopts what it finds, as the real supervisor does.
"""

import collections
import dataclasses
import functools
import math
from collections.abc import Callable
from typing import Protocol

from llmgw.agent import adopt, core, marks, process
from llmgw.agent.connection import Outbox
from llmgw.agent.inventory import told
from llmgw.agent.marks import Identity
from llmgw.agent.records import Record
from llmgw.agent.sweep import Sweeping, SweepTimers, Tree
from llmgw.catalog.sources import Source, cache_name
from llmgw.engines.base import CommandLine
from llmgw.fleet.node import CachedWeights, NodeInfo
from llmgw.fleet.shard import Progress, ShardKey, ShardStatus
from llmgw.wire import messages
from llmgw.wire import session as say
from tests.sim.clockwork import Clockwork, Life
from tests.sim.links import End, Path, Stream
from tests.sim.machines import Engine, Machine
from tests.sim.weights import UNIT, Flight, Hands

SHARDS, FAILURES = 64, 2
"""Bounds of an agent's tables, small enough to be met."""

REPEATED = 16
"""How many of its newest commands may arrive a second time."""

PATIENCE = 15.0
"""Seconds for the control plane to answer a registration."""

SWEEPS = SweepTimers(look=0.5, slow_look=5.0)
INVENTORY_EVERY = 30.0
"""Seconds in which an agent sees that somebody else took a card or filled the disk."""


class Surroundings(Protocol):
    """What an agent reaches beyond its machine, and who watches what it does."""

    def dial(self, path: Path, end: End) -> Stream | None:
        """A stream to the control plane, or None while nobody answers."""
        ...

    def launching(self, machine: Machine, command: core.Launch) -> None:
        """An engine is about to be executed."""
        ...

    def stepped(self, before: core.AgentState, commands: tuple[core.Command, ...]) -> None:
        """An agent's core made a step."""
        ...

    def adopted(self, agent: "Agent") -> None:
        """An agent has found what an earlier one left."""
        ...

    def contacted(self, agent: "Agent") -> None:
        """An agent has heard the control plane."""
        ...

    def kill_agent(self, name: str) -> None:
        """kill -9."""
        ...

    def start_agent(self, name: str) -> None:
        """The next life of an agent."""
        ...

    def note(self, line: str) -> None:
        """One line of the trace."""
        ...


@dataclasses.dataclass(slots=True)
class Held:
    """What an agent has in hand of one shard. `ends` = it was asked to end and is waited for."""

    record: Record
    tree: Tree | None
    ends: bool = False


class Agent:
    """One life of an agent process."""

    def __init__(
        self, clock: Clockwork, machine: Machine, path: Path, world: Surroundings, count: int
    ) -> None:
        self.clock = clock
        self.machine = machine
        self.path = path
        self.life = Life()
        self.instance = f"{machine.name}#{count}"
        self.state = core.AgentState(machine.name, core.Limits(shards=SHARDS, failures=FAILURES))
        self.stream: Stream | None = None
        self.session = say.AgentSession(epoch=machine.epoch)
        self.orders: collections.deque[core.Order] = collections.deque(maxlen=REPEATED)
        self._world = world
        self._chance = clock.chance(f"agent/{self.instance}")
        self._outbox = Outbox()
        self._flushing = False
        self._held: dict[ShardKey, Held] = {}
        self._orphans: dict[str, Identity] = {}
        self._looks = False
        self._told: NodeInfo | None = None
        self.met = False
        self._flights: dict[str, Flight] = {}
        self._next: dict[str, Source] = {}
        self._asked: set[str] = set()
        self._said: set[tuple[ShardKey, str]] = set()
        self._armed = float("inf")
        self._sleeps = 0

    def start(self) -> None:
        """Find what lives, then call the control plane."""
        kernel, shelf = self.machine.kernel, self.machine.shelf
        kernel.agent = kernel.fork(None)
        marked = marks.scan(self.machine.name, kernel)
        found = shelf.read()
        alive = marks.alive((record.identity for record in found.records), kernel)
        decision = adopt.decide(found, marked, kernel.boot_id(), alive)
        for record in decision.adopt:
            self._take_over(record, process.hold(record.identity, kernel))
        for record in decision.sweep:
            self._take_over(record, None)
        for record in decision.forget:
            shelf.forget(record.spec.key)
        self._orphans = {identity.cookie: identity for identity in decision.orphans}
        self._feed(decision.undescribed())
        self._world.adopted(self)
        self._dial()

    def _take_over(self, record: Record, leader: process.Leader | None) -> None:
        key, engine = record.spec.key, self.machine.engines.get(record.identity.pid)
        kernel = self.machine.kernel
        tree = Tree(record.identity, self.machine.groups, leader, kernel)
        self._held[key] = Held(record, tree)
        age = self.clock.now - engine.born if engine is not None else 0.0
        stands = kernel.age(record.reached_at) if record.reached_at else age
        self._feed(core.Adopted(record.spec, record.identity.pid, record.reached, age, stands))
        if leader is None:
            self._feed(core.Exited(key, "its leader died while no agent was watching"))
        else:
            self.machine.shelf.write(record)
            self._said.add((key, record.reached))
            if engine is not None:
                self.notice(engine)

    def die(self) -> None:
        """kill -9: the kernel closes the stream, nothing else happens."""
        self.life.over = True
        kernel = self.machine.kernel
        self.machine.cache.died()
        if kernel.agent is not None:
            kernel.exit(kernel.agent)
            kernel.agent = None
        if self.stream is not None:
            self.stream.hang_up("up")

    def look_around(self) -> None:
        """Somebody took a card or disk, or let it go; the agent sees it when it looks the next time."""
        if not self._looks:
            self._looks = True
            self._after(self._chance.uniform(0.0, INVENTORY_EVERY), self._look_around)

    def _look_around(self) -> None:
        self._looks = False
        if left := self.state.left:
            alive = {mark.cookie for mark in marks.scan(self.machine.name, self.machine.kernel)}
            for stray in left:
                if stray.cookie not in alive:
                    self._feed(core.OrphanEnded(stray.cookie))
        known, info = self._told, self._info()
        if known is None or told(info) != told(known):
            self._report(info=info)

    def _info(self) -> NodeInfo:
        info = self.machine.info(self.instance, self.state.undescribed())
        if (gpus := self.state.inventory(info.gpus)) is not info.gpus:
            info = dataclasses.replace(info, gpus=gpus)
        if info.gpus is not self.machine.gpus:
            self.look_around()
        self._told = info
        self.state, _ = core.step(self.state, core.Seen(info.gpus, info.memory_total), self.clock.now)
        return info

    @property
    def cookies(self) -> frozenset[str]:
        """The marks of the launches that it keeps."""
        return frozenset(held.record.identity.cookie for held in self._held.values())

    def notice(self, engine: Engine) -> None:
        """Something about an engine changed; polling sees it a moment later."""
        self._after(self._chance.uniform(0.05, 1.0), lambda: self._look(engine))

    # --- talking ------------------------------------------------------------------------------

    def _dial(self) -> None:
        number = self.session.stream + 1
        end = End(lambda data: self._hear(number, data), lambda: self._closed(number))
        self.stream = self._world.dial(self.path, end)
        if self.stream is None:
            self.clock.steadily(self._chance.uniform(1.0, 5.0), self._dial, self.life)
            return
        now = self.clock.now
        self._outbox.registered()
        register = messages.Register(
            info=self._info(),
            shards=self.state.statuses(now),
            failures=self.state.failures(now),
        )
        self.session, register = self.session.opened(register, now, PATIENCE)
        self._say(register)
        self._sleep()

    def _closed(self, number: int) -> None:
        self.session = self.session.ended(number)
        self.stream = None
        self._after(self._chance.uniform(0.1, 3.0), self._dial)

    def _say(self, message: messages.Message, *, quietly: bool = False) -> None:
        if self.stream is not None and not self.life.over:
            self.stream.send("up", messages.encode(message), quietly=quietly)

    def _report(self, statuses: tuple[ShardStatus, ...] = (), info: NodeInfo | None = None) -> None:
        self._outbox.report(statuses, info)
        if not self._flushing:
            self._flushing = True
            self._after(0.001, self._flush)

    def _flush(self) -> None:
        self._flushing = False
        if self.session.phase == "registered":
            for message in self._outbox.take():
                self._say(message)

    def _hear(self, number: int, data: bytes) -> None:
        if not self.life.over:
            self._act(self.session.received(number, data, self.clock.now, self._chance))

    def hears_again(self, command: core.Order) -> bool:
        """A command arrives a second time. Whether it had an effect."""
        data = messages.encode(command)
        before = (self.session, self.state)
        self._act(self.session.received(self.session.stream, data, self.clock.now, self._chance))
        return (self.session, self.state) != before

    @property
    def connected(self) -> bool:
        """It has a stream, as far as it knows."""
        return self.stream is not None

    @property
    def speaks(self) -> bool:
        """What it says arrives."""
        return self.stream is not None and self.stream.carries("up")

    @property
    def steady(self) -> bool:
        """Nothing but heartbeats will come of it by itself."""
        return self.stream is None or (self.stream.still and not self._flushing)

    def leapt(self, delay: float) -> None:
        """Its heartbeats went on meanwhile, and the next one is `delay` seconds later."""
        of = self.session
        if of.phase == "registered":
            self.session = say.AgentSession(
                of.epoch, of.obeyed, of.stream, of.phase, of.heartbeat, of.due + delay
            )

    def _sleep(self) -> None:
        self._sleeps += 1
        delay = max(0.0, self.session.due - self.clock.now)
        if delay < math.inf:
            later = self.clock.steadily if self.session.phase == "registered" else self.clock.after
            later(delay, functools.partial(self._wake, self._sleeps), self.life)

    def _wake(self, sleep: int) -> None:
        if sleep == self._sleeps:
            self._act(self.session.ticked(max(self.clock.now, self.session.due), self._chance))

    def _act(self, step: say.AgentStep) -> None:
        due = self.session.due
        self.session, outputs = step
        for output in outputs:
            match output:
                case say.Adopt(epoch=epoch, revision=revision):
                    self.machine.epoch = epoch
                    self.machine.revision = max(revision, self.machine.revision)
                    self.met = True
                    self._feed(core.Heard())
                    self._world.contacted(self)
                    self._flush()
                case say.Obey(command=command):
                    if isinstance(command, messages.Collect):
                        self._collect(command)
                    elif not isinstance(command, messages.Check | messages.Logs):
                        self.orders.append(command)
                        self._feed(core.Commanded(command))
                case say.Beat():
                    self._say(messages.Heartbeat(idle=self.state.idle()), quietly=True)
                case say.Send(message=message):
                    self._say(message)
                case say.End():
                    self._hang_up()
        if self.session.due != due:
            self._sleep()

    def _hang_up(self) -> None:
        if self.stream is not None:
            self.stream.hang_up("up")
            self._closed(self.session.stream)

    # --- deciding and doing -------------------------------------------------------------------

    def _feed(self, event: core.Event) -> None:
        before = self.state
        self.state, commands = core.step(before, event, self.clock.now)
        self._world.stepped(before, commands)
        for command in commands:
            self._do(command)
        due = core.wake_at(self.state)
        if due is not None and due < self._armed:
            self._armed = due
            self.clock.at(due, self._tick, self.life)

    def _tick(self) -> None:
        self._armed = float("inf")
        self._feed(core.Tick())

    def _do(self, command: core.Command) -> None:
        match command:
            case core.Report(statuses=statuses):
                self._report(statuses)
            case core.Fetch(source=source):
                self._fetch(source)
            case core.Launch():
                self._launch(command)
            case core.Terminate(key=key, grace=grace):
                self._terminate(key, grace)
            case core.Sweep(key=key):
                self._sweep(key)
            case core.EndOrphan(cookie=cookie, cards=cards):
                self._end_orphan(self._orphans.pop(cookie), cards)
            case core.Recount():
                self._report(info=self._info())
            case core.Forget(key=key):
                self._held.pop(key, None)
                self.machine.shelf.forget(key)
            case core.Release(cache_name=name):
                self._release(name)

    def _launch(self, command: core.Launch) -> None:
        """Intent, fork, fact: as `agent.launcher` does it; a kill -9 may come between any two of them."""
        spec, machine, kernel = command.spec, self.machine, self.machine.kernel
        if spec.source.fetched and not machine.cache.whole(spec.cache_name):
            self._after(0.05, lambda: self._feed(core.LaunchFailed(spec.key, "cannot use the weights")))
            return
        self._world.launching(self.machine, command)
        cookie = f"{self.instance}-{machine.launches}"
        machine.launches += 1
        group = machine.groups.make(cookie) if machine.groups is not None else ""
        record = Record(spec, Identity(cookie, group))
        machine.shelf.write(record)
        dies = machine.sprung("killed-in-launch")
        if dies is not None and dies < 0.3:
            self._dies(dies)
            return
        mark = marks.environment(machine.name, spec.key, cookie)
        engine = machine.execute(spec, process.environment({}, CommandLine(()), mark, spec.gpus), group)
        self._world.note(f"{machine.name} executes {engine} as pid {engine.pid}")
        if dies is not None:
            self._dies(dies)
            return
        first = engine.tree[0]
        identity = Identity(cookie, group, kernel.boot_id(), engine.pid, first.ticks, first.inode)
        leader = process.Leader(identity, kernel.hold(engine.pid), kernel=kernel)
        running = dataclasses.replace(record, identity=identity, state="running")
        machine.shelf.write(running)
        self._held[spec.key] = Held(running, Tree(identity, machine.groups, leader, kernel))
        self._after(0.02, lambda: self._feed(core.Launched(spec.key, engine.pid)))

    def _dies(self, size: float) -> None:
        """kill -9 in the middle of it; the next one comes a while later."""
        name = self.machine.name
        self._world.kill_agent(name)
        self.clock.after(1.0 + 60.0 * size, lambda: self._world.start_agent(name))

    def _look(self, engine: Engine) -> None:
        key = engine.spec.key
        held = self._held.get(key)
        if held is None or held.record.identity.pid != engine.pid:
            return  # of another life of the shard, or undescribed
        if not engine.leader:
            self._once(key, "exited", core.Exited(key, "the leader exited"))
            if held.ends:
                self._sweep(key)
        elif not engine.serving:
            self._once(key, "exited", core.Exited(key, "no progress"))
        elif engine.phase == "started":
            self._once(key, "started", core.Milestone(key, "started"))
        elif engine.phase == "ready":
            self._once(key, "ready", core.Milestone(key, "ready"))

    def _once(self, key: ShardKey, what: str, event: core.Event) -> None:
        if (key, what) in self._said:
            return
        self._said.add((key, what))
        if isinstance(event, core.Milestone):
            held = self._held[key]
            held.record = dataclasses.replace(
                held.record, reached=event.reached, reached_at=self.machine.kernel.ticks()
            )
            self.machine.shelf.write(held.record)
        self._feed(event)

    def _terminate(self, key: ShardKey, grace: float) -> None:
        """TERM, and the sweep when the leader is gone or the grace is over, whichever is first."""
        held = self._held.get(key)
        if held is None or held.tree is None:
            self._sweep(key)
            return
        held.ends = True
        held.tree.ask()
        engine = self.machine.engines.get(held.record.identity.pid)
        if engine is not None and not engine.leader:
            self.notice(engine)
        self._after(grace, lambda: self._sweep(key) if held.ends else None)

    def _sweep(self, key: ShardKey) -> None:
        held = self._held.get(key)
        if held is None or held.tree is None:
            self._after(0.1, lambda: self._feed(core.Swept(key)))
            return
        held.ends = False
        tree, held.tree = held.tree, None
        self._sweep_on(tree, held.record.spec.gpus, key, {tree.identity.pid} - {0}, Sweeping(self.clock.now))

    def _end_orphan(self, identity: Identity, cards: tuple[str, ...] | None) -> None:
        tree = Tree(identity, self.machine.groups, kernel=self.machine.kernel)
        self._sweep_on(tree, cards or (), None, {identity.pid} - {0}, Sweeping(self.clock.now))

    def _sweep_on(
        self, tree: Tree, gpus: tuple[str, ...], key: ShardKey | None, seen: set[int], sweeping: Sweeping
    ) -> None:
        """One look of a sweep, and the next one; `key` None = an orphan."""
        remains = tree.remains(tree.kill(), seen) or self.machine.charged(frozenset(seen), gpus)
        after = sweeping.looked(remains, self.clock.now, SWEEPS)
        if after.late and remains and key is not None:
            self._feed(core.Lingers(key, remains))
        if not after.over:
            self._after(after.wait(SWEEPS), lambda: self._sweep_on(tree, gpus, key, seen, after))
            return
        tree.forget()
        self.machine.reap(tree.identity.pid)
        if key is not None:
            self._feed(core.Swept(key))
        else:
            self._feed(core.OrphanEnded(tree.identity.cookie))

    def _fetch(self, source: Source) -> None:
        """One flight a source, however many ask; one that was abandoned ends before the next begins."""
        name, cache = cache_name(source), self.machine.cache
        self._asked.add(name)
        if cache.whole(name) or not source.fetched:
            self._after(0.05, lambda: self._feed(core.Fetched(name)))
            return
        looked = self._chance.uniform(0.05, 2.0) * self.machine.slow_fetch
        self._after(looked, functools.partial(self._looked, source))

    def _looked(self, source: Source) -> None:
        """The weights are not here, that took a while to see."""
        name = cache_name(source)
        if self.machine.sprung("unreadable") is not None:
            self._feed(core.FetchFailed(name, "cannot look at the cache: Input/output error"))
            return
        self._feed(core.Fetching(name))
        flight = self._flights.get(name)
        if flight is None:
            self._take_off(source)
        elif flight.abandoned:
            self._next[name] = source

    def _take_off(self, source: Source) -> None:
        hands = Hands(
            self.clock,
            self.life,
            self._chance,
            self.machine.cache,
            self.machine.kernel.boot_id(),
            self._landed,
            self._came,
        )
        self._flights[cache_name(source)] = flight = Flight(source, hands, self.machine.slow_fetch)
        self._after(self._chance.uniform(0.0, 0.2), flight.open)

    def _came(self, flight: Flight) -> None:
        if self.session.phase == "registered":
            self._say(messages.ProgressReport(progress=(Progress(flight.name, flight.received * UNIT),)))

    def _landed(self, flight: Flight, said: str) -> None:
        del self._flights[flight.name]
        if flight.abandoned:
            source = self._next.pop(flight.name, None)
            if source is not None:
                self._take_off(source)
        elif said:
            self._feed(core.FetchFailed(flight.name, said))
            self.look_around()
        else:
            self._report(info=self._info())
            self._feed(core.Fetched(flight.name))

    def _release(self, name: str) -> None:
        self._next.pop(name, None)
        if name in self._flights:
            self._flights[name].abandoned = True

    @property
    def fetching(self) -> frozenset[str]:
        """The cache names that are under way."""
        return frozenset(self._flights)

    def _collect(self, command: messages.Collect) -> None:
        """One entry after the other, each checked when its turn has come."""
        needed = {kept.spec.cache_name for kept in self.state.shards.values()}
        self._asked.clear()
        machine = self.machine
        revision = machine.revision

        def remove(entry: CachedWeights) -> None:
            opened = {engine.spec.cache_name for engine in machine.living()}
            machine.cache.collect(
                entry, command.revision, revision, self._flights, needed | self._asked, opened
            )

        delay = 0.0
        for entry in command.entries:
            delay += self._chance.uniform(0.01, 0.5)
            self._after(delay, functools.partial(remove, entry))
        self._after(delay + 0.1, lambda: self._report(info=self._info()))

    def _after(self, delay: float, event: Callable[[], None]) -> None:
        self.clock.after(delay, event, self.life)
