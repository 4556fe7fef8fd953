"""The hands of a simulated agent: the real `agent.core` decides, a `Machine` is acted on.

One `Agent` is one life of the process: kill -9 ends it, the engines and the records on the disk stay,
and the next one adopts what it finds, as the real supervisor does.
"""

import functools
import math
from collections.abc import Callable
from typing import Protocol

from llmgw.agent import core
from llmgw.agent.connection import Outbox
from llmgw.catalog.sources import Source, cache_name
from llmgw.fleet.node import CachedWeights, NodeInfo
from llmgw.fleet.shard import Progress, ShardKey, ShardStatus
from llmgw.wire import messages
from llmgw.wire import session as say
from tests.sim.clockwork import Clockwork, Life
from tests.sim.links import End, Path, Stream
from tests.sim.machines import Engine, Machine

PATIENCE = 15.0
"""Seconds for the control plane to answer a registration."""


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

    def note(self, line: str) -> None:
        """One line of the trace."""
        ...


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
        self.state = core.AgentState(machine.name)
        self.stream: Stream | None = None
        self.session = say.AgentSession(epoch=machine.epoch)
        self.newest: core.Order | None = None
        self._world = world
        self._chance = clock.chance(f"agent/{self.instance}")
        self._outbox = Outbox()
        self._flushing = False
        self._flights: set[str] = set()
        self._said: set[tuple[ShardKey, str]] = set()
        self._armed = float("inf")

    def start(self) -> None:
        """Find what lives, then call the control plane."""
        for spec in list(self.machine.records.values()):
            engine = self.machine.find(spec.key)
            if engine is None:
                del self.machine.records[spec.key]
                continue
            self._feed(core.Adopted(spec, engine.pid, engine.phase, self.clock.now - engine.born))
            self._said |= {(spec.key, engine.phase)}
            self.notice(engine)
        self._dial()

    def die(self) -> None:
        """kill -9: the kernel closes the stream, nothing else happens."""
        self.life.over = True
        if self.stream is not None:
            self.stream.hang_up("up")

    def notice(self, engine: Engine) -> None:
        """Something about an engine changed; polling sees it a moment later."""
        self._after(self._chance.uniform(0.05, 1.0), lambda: self._look(engine))

    # --- talking ------------------------------------------------------------------------------

    def _dial(self) -> None:
        number = self.session.stream + 1
        end = End(lambda data: self._hear(number, data), lambda: self._closed(number))
        self.stream = self._world.dial(self.path, end)
        if self.stream is None:
            self._after(self._chance.uniform(1.0, 5.0), self._dial)
            return
        now = self.clock.now
        self._outbox.registered()
        register = messages.Register(
            info=self.machine.info(self.instance),
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

    def _say(self, message: messages.Message) -> None:
        if self.stream is not None and not self.life.over:
            self.stream.send("up", messages.encode(message))

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

    def hears_again(self) -> bool:
        """The newest command arrives a second time. Whether it had an effect."""
        assert self.newest is not None
        data = messages.encode(self.newest)
        before = (self.session, self.state)
        self._act(self.session.received(self.session.stream, data, self.clock.now, self._chance))
        return (self.session, self.state) != before

    def _sleep(self) -> None:
        due = self.session.due
        if due < math.inf:
            self.clock.at(due, functools.partial(self._wake, due), self.life)

    def _wake(self, due: float) -> None:
        if due == self.session.due:
            self._act(self.session.ticked(self.clock.now, self._chance))

    def _act(self, step: say.AgentStep) -> None:
        due = self.session.due
        self.session, outputs = step
        for output in outputs:
            match output:
                case say.Adopt(epoch=epoch):
                    self.machine.epoch = epoch
                    self._flush()
                case say.Obey(command=command):
                    if not isinstance(command, messages.Collect):
                        self.newest = command
                        self._feed(core.Commanded(command))
                case say.Beat():
                    self._say(messages.Heartbeat(idle=self.state.idle()))
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
            case core.Forget(key=key):
                self.machine.records.pop(key, None)
            case core.Release():
                pass  # a download that nobody waits for fills the cache all the same

    def _launch(self, command: core.Launch) -> None:
        self._world.launching(self.machine, command)
        spec = command.spec
        self.machine.records[spec.key] = spec
        engine = self.machine.execute(spec)
        self._world.note(f"{self.machine.name} executes {engine} as pid {engine.pid}")
        self._after(0.02, lambda: self._feed(core.Launched(spec.key, engine.pid)))

    def _look(self, engine: Engine) -> None:
        key = engine.spec.key
        if not engine.leader:
            self._once(key, "exited", core.Exited(key, "the leader exited"))
        elif not engine.serving:
            self._once(key, "exited", core.Exited(key, "no progress"))
        elif engine.phase == "started":
            self._once(key, "started", core.Milestone(key, "started"))
        elif engine.phase == "ready":
            self._once(key, "ready", core.Milestone(key, "ready"))

    def _once(self, key: ShardKey, what: str, event: core.Event) -> None:
        if (key, what) not in self._said:
            self._said.add((key, what))
            self._feed(event)

    def _terminate(self, key: ShardKey, grace: float) -> None:
        engine = self.machine.find(key)
        if engine is not None:
            patience = min(grace, self._chance.uniform(0.1, 1.3 * grace))
            self.clock.after(patience, lambda: self.machine.kill(engine, others=False), self.machine.power)
            self._after(patience + 0.2, lambda: self._sweep(key))

    def _sweep(self, key: ShardKey) -> None:
        engine = self.machine.find(key)
        if engine is not None and engine.alive:
            self.machine.kill(engine)
        wait = 0.1 if engine is None else max(0.1, engine.free_at - self.clock.now)
        self._after(wait, lambda: self._feed(core.Swept(key)))

    def _fetch(self, source: Source) -> None:
        name, machine = cache_name(source), self.machine
        if name in machine.disk or not source.fetched:
            self._after(0.05, lambda: self._feed(core.Fetched(name)))
            return
        if name in self._flights:
            self._after(0.1, lambda: self._feed(core.Fetching(name)))
            return
        self._flights.add(name)
        fails = machine.bad_fetch
        begins = self._chance.uniform(0.1, 8.0)
        took = self._chance.uniform(0.1, 30.0) * (0.3 if fails else machine.slow_fetch)
        self._after(begins, lambda: self._feed(core.Fetching(name)))
        self._after(begins + took / 2, lambda: self._progress(name))
        self._after(
            took if fails else begins + took,
            lambda: self._landed(source, "cannot fetch: the hub said 503" if fails else ""),
        )

    def _progress(self, name: str) -> None:
        if name in self._flights and self.session.phase == "registered":
            self._say(messages.ProgressReport(progress=(Progress(name, 1 << 29),)))

    def _landed(self, source: Source, said: str) -> None:
        name = cache_name(source)
        self._flights.discard(name)
        if said:
            self._feed(core.FetchFailed(name, said))
            return
        self.machine.disk[name] = CachedWeights(name, source.canonical, 1 << 30)
        self._report(info=self.machine.info(self.instance))
        self._feed(core.Fetched(name))

    def _after(self, delay: float, event: Callable[[], None]) -> None:
        self.clock.after(delay, event, self.life)
