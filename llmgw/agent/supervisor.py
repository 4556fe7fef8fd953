"""The node's hands: it obeys `agent.core`'s commands and tells it what becomes of them.

Built by `agent.serve`; the session hands it the control plane's orders, and it hands the session the
reports. One `_Engine` a shard is all it remembers, and all of it can be found again after a kill -9:
`adopt` does that first, before anybody is connected.
"""

import asyncio
import contextlib
import dataclasses
import logging
import pathlib
from collections.abc import Awaitable, Callable, Coroutine
from typing import Any, Protocol, TypeVar

from llmgw.agent import adopt, core, logs, marks, process, procfs
from llmgw.agent.health import HealthTimers, Watcher
from llmgw.agent.launcher import Launched, Launcher
from llmgw.agent.records import Record
from llmgw.agent.sweep import SweepTimers, Tree
from llmgw.catalog.sources import Source, cache_name
from llmgw.engines.registry import adapter
from llmgw.errors import LlmgwError
from llmgw.fleet.shard import ShardKey, ShardSpec, ShardStatus
from llmgw.kit.clock import Clock
from llmgw.kit.tasks import Tasks
from llmgw.kit.text import safe

log = logging.getLogger(__name__)

T = TypeVar("T")


class Weights(Protocol):
    """What the supervisor needs of the node's weights."""

    async def holds(self, source: Source) -> bool:
        """Whether they are here, whole."""
        ...

    async def ensure(self, source: Source) -> object:
        """Until they are here, whole. Raises LlmgwError."""
        ...

    def model_path(self, source: Source) -> pathlib.Path:
        """What an engine is given. Raises LlmgwError where they are not whole."""
        ...

    async def beside(self, work: Callable[[], T]) -> T:
        """What `work` returns, done where a mount that hangs holds up nobody else. Raises what it raises."""
        ...


Charged = Callable[[frozenset[int], tuple[str, ...] | None], Awaitable[str]]
"""Which GPU memory is still charged to these pids, or to the dead on these cards (None = nobody knows which),
in words; empty = none.
"""


@dataclasses.dataclass(frozen=True, slots=True)
class SupervisorTimers:
    """Every timer of supervising; seconds. `trim` is between two looks at the logs' sizes, `save` between two
    attempts to write down what the disk refused.
    """

    health: HealthTimers = dataclasses.field(default_factory=HealthTimers)
    sweep: SweepTimers = dataclasses.field(default_factory=SweepTimers)
    trim: float = 1.0
    save: float = 30.0


@dataclasses.dataclass(slots=True)
class _Engine:
    """One shard's processes. `lock` keeps its launch and its end apart.

    `unsaved` is why the disk does not have `record` as it is; empty = it has.
    """

    record: Record | None = None
    unsaved: str = ""
    tree: Tree | None = None
    tasks: list["asyncio.Task[None]"] = dataclasses.field(default_factory=list)
    lock: asyncio.Lock = dataclasses.field(default_factory=asyncio.Lock)


class Supervisor:
    """Runs the shards of one node."""

    LOG_KEPT = 32 * 2**20
    """Bytes of a log that stay."""
    LOGS_KEPT = 64
    """Logs of shards that have ended."""
    ENDED_KEPT = 512 * 2**20
    """Bytes of those together."""

    def __init__(
        self,
        launcher: Launcher,
        *,
        weights: Weights,
        logs: pathlib.Path,
        holds: Charged,
        report: Callable[[tuple[ShardStatus, ...]], None],
        recount: Callable[[], None],
        clock: Clock,
        tasks: Tasks,
        timers: SupervisorTimers,
        limits: core.Limits,
    ) -> None:
        self._launcher, self._weights, self._logs = launcher, weights, logs
        self._holds, self._report, self._recount = holds, report, recount
        self._clock, self._tasks, self._timers = clock, tasks, timers
        self._state = core.AgentState(launcher.node, limits)
        self._engines: dict[ShardKey, _Engine] = {}
        self._fetches: dict[str, asyncio.Task[None]] = {}
        self._orphans: dict[str, marks.Identity] = {}
        self._changed = asyncio.Event()
        self._ended = asyncio.Event()

    @property
    def state(self) -> core.AgentState:
        """What the node decides by, for Register and the heartbeat."""
        return self._state

    def warnings(self) -> tuple[str, ...]:
        """What people should know of this node's own disk."""
        return tuple(engine.unsaved for engine in list(self._engines.values()) if engine.unsaved)

    def order(self, command: core.Order) -> None:
        """What the control plane asked, once its session has let it through."""
        self.tell(core.Commanded(command))

    def tell(self, event: core.Event) -> None:
        """Something happened: decide, then do."""
        self._state, commands = core.step(self._state, event, self._clock.now())
        for command in commands:
            self._obey(command)
        self._changed.set()

    def kin(self) -> set[int]:
        """The pids in the sessions of what runs here, whatever their environments say. Raises OSError."""
        records = [engine.record for engine in list(self._engines.values()) if engine.tree is not None]
        return {stat.pid for stat in marks.kin(record.identity for record in records if record is not None)}

    def heard(self) -> None:
        """The control plane has spoken: what is marked as ours and described by nothing ends now."""
        self.tell(core.Heard())

    def close(self) -> None:
        """Let go of everything; the engines run on and are found again."""
        for engine in self._engines.values():
            _unwatch(engine)
            if engine.tree is not None:
                engine.tree.release()

    # --- adopting ----------------------------------------------------------------------------

    def adopt(self) -> tuple[str, ...]:
        """Find what an earlier agent of this node left running. Returns what was odd about it."""
        marked = marks.scan(self._launcher.node)
        found = self._launcher.records.read(self._launcher.node)
        seen = {(mark.cookie, mark.pid) for mark in marked}
        launches = (record.identity for record in found.records)
        alive = marks.alive(each for each in launches if (each.cookie, each.pid) not in seen)
        decision = adopt.decide(found, marked, procfs.boot_id(), alive)
        on_disk = {record.spec.key: record for record in found.records}
        for record in decision.adopt:
            self._take_over(record, process.hold(record.identity), on_disk.get(record.spec.key))
        for record in decision.sweep:
            self._take_over(record, None)
        for record in decision.forget:
            self._forget(record.spec.key)
        if self._launcher.cgroups is not None:
            self._launcher.cgroups.tidy()
        self._orphans = {identity.cookie: identity for identity in decision.orphans}
        self.tell(decision.undescribed())
        self._tasks.start("ticks", self._tick())
        self._tasks.start("trim logs", self._trim())
        self._tasks.start("save records", self._save())
        return found.problems

    def _take_over(
        self, record: Record, leader: process.Leader | None, on_disk: Record | None = None
    ) -> None:
        tree = Tree(record.identity, self._launcher.cgroups, leader)
        key = record.spec.key
        self._engines[key] = engine = _Engine(record, tree=tree)
        age = procfs.age(record.identity.ticks) if record.identity.ticks else 0.0
        stands = procfs.age(record.reached_at) if record.reached_at else age
        pid = record.identity.pid
        self.tell(core.Adopted(record.spec, pid, record.reached, age, stands, record.beyond))
        if leader is None:
            self.tell(core.Exited(key, "its leader died while no agent was watching"))
            return
        if not record.identity.cgroup:
            tree.kin()  # it is no child of ours: when it ends, its session's number is anybody's
        if record != on_disk:  # sixty-four that are as they were would be as many waits for the disk
            self._keep(engine, record)
        self._watch(engine, record, leader)

    async def look(self) -> None:
        """What only a newer release describes may have ended since: nobody watches it. Raises OSError."""
        if left := self._state.left:
            alive = {mark.cookie for mark in await asyncio.to_thread(marks.scan, self._launcher.node)}
            for stray in left:
                if stray.cookie not in alive:
                    self.tell(core.OrphanEnded(stray.cookie))

    async def _end_orphan(self, identity: marks.Identity, cards: tuple[str, ...] | None) -> None:
        tree = Tree(identity, self._launcher.cgroups)
        await tree.sweep(self._timers.sweep, lambda pids: self._holds(pids, cards), log.error)
        self.tell(core.OrphanEnded(identity.cookie))

    # --- obeying -----------------------------------------------------------------------------

    def _obey(self, command: core.Command) -> None:
        match command:
            case core.Fetch():
                name = f"fetch {command.source.canonical}"
                self._fetches[cache_name(command.source)] = self._tasks.start(
                    name, self._fetch(command.source)
                )
            case core.Release():
                if (fetch := self._fetches.pop(command.cache_name, None)) is not None:
                    fetch.cancel()
            case core.Launch(spec=spec):
                self._engines[spec.key] = _Engine()
                self._start(spec.key, "launch", self._launch(command))
            case core.Terminate(key=key, grace=grace):
                self._start(key, "stop", self._end(key, grace))
            case core.Sweep(key=key):
                self._start(key, "sweep", self._end(key, None))
            case core.EndOrphan(cookie=cookie, cards=cards):
                orphan = self._orphans.pop(cookie)
                log.warning(
                    "ending pid %d and its tree: it carries our mark and nothing describes it", orphan.pid
                )
                self._tasks.start(f"end orphan {orphan.pid}", self._end_orphan(orphan, cards))
            case core.Forget(key=key):
                self._engines.pop(key, None)
                self._forget(key)
                self._ended.set()
            case core.Report():
                self._report(command.statuses)
            case core.Recount():
                self._recount()

    def _start(self, key: ShardKey, what: str, work: Coroutine[Any, Any, None]) -> None:
        self._tasks.start(f"{what} {marks.shard_name(key)}", work)

    async def _fetch(self, source: Source) -> None:
        name = cache_name(source)
        try:
            if not await self._weights.holds(source):
                self.tell(core.Fetching(name))
            await self._weights.ensure(source)
        except LlmgwError as error:
            self.tell(core.FetchFailed(name, safe(error.said)))
        except OSError as error:
            self.tell(
                core.FetchFailed(
                    name, safe(f"cannot look at {error.filename or 'its weights'}: {error.strerror}")
                )
            )
        else:
            self.tell(core.Fetched(name))
        finally:
            if self._fetches.get(name) is asyncio.current_task():
                del self._fetches[name]

    async def _launch(self, command: core.Launch) -> None:
        spec = command.spec
        engine = self._engines[spec.key]
        async with engine.lock:
            try:
                model = await self._weights.beside(lambda: self._chosen(spec))
                launched = self._launcher.launch(spec, model, command.beyond)
            except LlmgwError as error:
                self.tell(core.LaunchFailed(spec.key, safe(error.said)))
            except OSError as error:
                self.tell(core.LaunchFailed(spec.key, safe(f"cannot start its process: {error}")))
            else:
                self._launched(engine, launched)

    def _chosen(self, spec: ShardSpec) -> pathlib.Path:
        return self._launcher.chosen(spec, self._weights.model_path(spec.source))

    def _launched(self, engine: _Engine, launched: Launched) -> None:
        engine.record, engine.tree = launched.record, launched.tree
        self._saved(engine, launched.unsaved)
        self.tell(core.Launched(launched.record.spec.key, launched.record.identity.pid))
        self._watch(engine, launched.record, launched.leader)

    async def _end(self, key: ShardKey, grace: float | None) -> None:
        """`grace` None = the leader is dead or must not be asked any more."""
        engine = self._engines[key]
        async with engine.lock:
            _unwatch(engine)
            if engine.tree is not None:
                if grace is not None:
                    await engine.tree.end(grace=grace, term=self._terminates(key))
                gpus = engine.record.spec.gpus if engine.record is not None else ()
                await engine.tree.sweep(
                    self._timers.sweep,
                    lambda pids: self._holds(pids, gpus),
                    lambda said: self.tell(core.Lingers(key, said)),
                )
                engine.tree = None
        self._ended.set()
        self.tell(core.Swept(key))

    def _terminates(self, key: ShardKey) -> bool:
        record = self._engines[key].record
        return record is None or adapter(record.spec.profile.engine).terminates(record.spec.rank)

    # --- watching ----------------------------------------------------------------------------

    def _watch(self, engine: _Engine, record: Record, leader: process.Leader) -> None:
        assert engine.tree is not None
        watcher = Watcher(
            record.spec,
            adapter(record.spec.profile.engine),
            engine.tree,
            tell=self._seen,
            timers=self._timers.health,
            clock=self._clock,
        )
        name = marks.shard_name(record.spec.key)
        engine.tasks = [
            self._tasks.start(f"exit of {name}", self._exit(record, leader)),
            self._tasks.start(f"health of {name}", watcher.run(record.reached)),
        ]

    async def _exit(self, record: Record, leader: process.Leader) -> None:
        code = await leader.ended()
        try:
            tail = await asyncio.to_thread(logs.tail, pathlib.Path(record.log))
        except OSError:  # no thread: its end is told without its last words
            tail = ""
        said = adapter(record.spec.profile.engine).explain(code, tail)
        self.tell(core.Exited(record.spec.key, said))

    def _seen(self, event: core.Event) -> None:
        if isinstance(event, core.Milestone):
            self._remember(event)
        self.tell(event)

    def _remember(self, event: core.Milestone) -> None:
        """A ready shard must still be ready for the agent that comes after us."""
        engine = self._engines[event.key]
        if engine.record is None:
            return
        reached = dataclasses.replace(engine.record, reached=event.reached, reached_at=procfs.ticks())
        self._keep(engine, reached)

    def _keep(self, engine: _Engine, record: Record) -> None:
        engine.record = record
        self._saved(engine, self._launcher.save(record))

    def _saved(self, engine: _Engine, unsaved: str) -> None:
        if unsaved and unsaved != engine.unsaved:
            log.warning("%s", unsaved)
        engine.unsaved = unsaved

    def _forget(self, key: ShardKey) -> None:
        """A record that stays describes nothing that lives: the next start forgets it."""
        try:
            self._launcher.records.forget(key)
        except OSError as error:
            log.warning("cannot remove the record of %s: %s", key, error)

    # --- time --------------------------------------------------------------------------------

    async def _tick(self) -> None:
        while True:
            self._changed.clear()
            due = core.wake_at(self._state)
            try:
                async with asyncio.timeout(None if due is None else max(0.0, due - self._clock.now())):
                    await self._changed.wait()
            except TimeoutError:
                self.tell(core.Tick())

    async def _trim(self) -> None:
        """Look at the logs: at the start, once a shard has ended, and as often as the timer says."""
        more = True
        while True:
            self._ended.clear()
            with contextlib.suppress(OSError):  # no thread: another time
                await asyncio.to_thread(logs.trim_all, self._logs, self.LOG_KEPT)
                if more:
                    live = frozenset(self._engines)
                    await asyncio.to_thread(logs.prune, self._logs, self.LOGS_KEPT, self.ENDED_KEPT, live)
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._timers.trim):
                    await self._ended.wait()
            more = self._ended.is_set()

    async def _save(self) -> None:
        while True:
            for engine in list(self._engines.values()):
                if engine.record is not None and engine.unsaved:
                    self._keep(engine, engine.record)
            await asyncio.sleep(self._timers.save)


def _unwatch(engine: _Engine) -> None:
    for task in engine.tasks:
        task.cancel()
    engine.tasks = []
