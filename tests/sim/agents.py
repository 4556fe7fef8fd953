"""The hands of a simulated agent: the real `agent.core` decides, a `Machine` is acted on.

One `Agent` is one life of the process: kill -9 ends it, the engines and the records on the disk stay,
and the next one adopts what it finds, as the real supervisor does.
"""

from collections.abc import Callable
from typing import Protocol

from llmgw.agent import core
from llmgw.catalog.sources import Source, cache_name
from llmgw.fleet.node import CachedWeights
from llmgw.fleet.shard import ShardKey
from llmgw.wire import messages
from tests.sim.clockwork import Clockwork, Life
from tests.sim.links import End, Path, Stream
from tests.sim.machines import Engine, Machine

HEARTBEAT = 5.0


class Surroundings(Protocol):
    """What an agent reaches beyond its machine, and who watches what it does."""

    def dial(self, path: Path, end: End) -> Stream | None:
        """A stream to the control plane, or None while nobody answers."""
        ...

    def launching(self, machine: Machine, command: core.Launch) -> None:
        """An engine is about to be executed."""
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
        self.obeyed = (machine.epoch, 0)
        self.newest: core.Order | None = None
        self._world = world
        self._chance = clock.chance(f"agent/{self.instance}")
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
        self.stream = self._world.dial(self.path, End(self._hear, self._closed))
        if self.stream is None:
            self._after(self._chance.uniform(1.0, 5.0), self._dial)
            return
        now = self.clock.now
        self._say(
            messages.Register(
                epoch=self.obeyed[0],
                info=self.machine.info(self.instance),
                shards=self.state.statuses(now),
                failures=self.state.failures(now),
            )
        )

    def _closed(self) -> None:
        self.stream = None
        self._after(self._chance.uniform(0.1, 3.0), self._dial)

    def _say(self, message: messages.Up) -> None:
        if self.stream is not None and not self.life.over:
            self.stream.send("up", message)

    def _beat(self, stream: Stream) -> None:
        if self.stream is stream:
            self._say(messages.Heartbeat(idle=self.state.idle()))
            self._after(HEARTBEAT * self._chance.uniform(0.8, 1.2), lambda: self._beat(stream))

    def _hear(self, message: messages.Down) -> None:
        if self.life.over:
            return
        if isinstance(message, messages.Registered):
            if message.epoch > self.obeyed[0]:
                self.obeyed = (message.epoch, 0)
                self.machine.epoch = message.epoch
            if self.stream is not None:
                self._beat(self.stream)
        elif isinstance(message, messages.Assign | messages.Start | messages.Stop):
            self.command(message)

    def command(self, message: core.Order) -> None:
        """Obey a command unless it is older than what was obeyed."""
        if message.epoch != self.obeyed[0] or message.seq <= self.obeyed[1]:
            return
        self.obeyed = (message.epoch, message.seq)
        self.newest = message
        self._feed(core.Commanded(message))

    # --- deciding and doing -------------------------------------------------------------------

    def _feed(self, event: core.Event) -> None:
        self.state, commands = core.step(self.state, event, self.clock.now)
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
                self._say(messages.Report(statuses=statuses))
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
        self._after(0.1, lambda: self._feed(core.Fetching(name)))
        if name in self._flights:
            return
        self._flights.add(name)
        fails = machine.bad_fetch
        took = self._chance.uniform(2.0, 30.0) * (0.3 if fails else machine.slow_fetch)
        self._after(took, lambda: self._landed(source, "cannot fetch: the hub said 503" if fails else ""))

    def _landed(self, source: Source, said: str) -> None:
        name = cache_name(source)
        self._flights.discard(name)
        if said:
            self._feed(core.FetchFailed(name, said))
            return
        self.machine.disk[name] = CachedWeights(name, source.canonical, 1 << 30)
        self._say(messages.Report(info=self.machine.info(self.instance)))
        self._feed(core.Fetched(name))

    def _after(self, delay: float, event: Callable[[], None]) -> None:
        self.clock.after(delay, event, self.life)
