"""The agent process: builds everything it is made of, adopts what runs, connects, and lets go again.

Called by `llmgw agent` and, in one process with the others, by `llmgw up`. Cancelling it leaves the
engines running: the next agent of this state directory finds them.
"""

import asyncio
import contextlib
import dataclasses
import importlib.metadata
import logging
import os
import pathlib
import platform
import secrets
import ssl
from collections.abc import Callable, Coroutine, Mapping
from typing import Any

from llmgw.agent import cgroups, core, inventory, launcher, marks, probe, process, procfs
from llmgw.agent.cache import Cache
from llmgw.agent.confine import own_directory
from llmgw.agent.connection import Link
from llmgw.agent.engine_check import EngineCheck
from llmgw.agent.fetch import Limits as FetchLimits
from llmgw.agent.gpus import Gpus, NvmlTimers
from llmgw.agent.inventory import Inventory
from llmgw.agent.launcher import Launcher
from llmgw.agent.log_answers import LogAnswers
from llmgw.agent.metrics import metrics
from llmgw.agent.mounts import Mounts, MountTimers
from llmgw.agent.records import Records
from llmgw.agent.state import Obeyed, StateDir, unusable
from llmgw.agent.supervisor import Supervisor, SupervisorTimers
from llmgw.agent.unit import warning as unit_warning
from llmgw.agent.weights import Weights
from llmgw.catalog.hub import Hub
from llmgw.errors import Failed, LlmgwError
from llmgw.fleet.node import InstalledEngine, NodeInfo
from llmgw.fleet.shard import ShardStatus
from llmgw.kit.chance import unseeded
from llmgw.kit.clock import Clock, SystemClock
from llmgw.kit.tasks import Tasks
from llmgw.kit.text import safe
from llmgw.kit.threads import share_one_heap, use_threads
from llmgw.transport.channel import Channel
from llmgw.transport.client import bearer, connect
from llmgw.transport.scrape import listen
from llmgw.wire import messages
from llmgw.wire.session import Command

log = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, slots=True)
class Settings:
    """Where it keeps its state, whom it obeys, and what it says of itself.

    `control_tls` and `token` are what the control plane is called with. `engines` names programs by engine, in place of the usual names; `ports` is [first, last];
    `address` is where its engines listen; without a `cache` weights lie below the state directory.
    Seconds: `progress_every` while something is fetched, `inventory_every` between looks at cards and ports,
    `check_within` that an engine may take for its version. `metrics` is where Prometheus finds them.
    """

    state_dir: pathlib.Path
    name: str = dataclasses.field(default_factory=platform.node)
    control_host: str = "127.0.0.1"
    control_port: int = 7600
    control_tls: ssl.SSLContext | None = None
    token: str = dataclasses.field(default="", repr=False)
    address: str = "127.0.0.1"
    ports: tuple[int, int] = (20000, 20999)
    labels: tuple[tuple[str, str], ...] = ()
    engines: Mapping[str, str] = dataclasses.field(default_factory=dict)
    cache: pathlib.Path | None = None
    hub: Hub = dataclasses.field(default_factory=Hub)
    fetch: FetchLimits = dataclasses.field(default_factory=FetchLimits)
    timers: SupervisorTimers = dataclasses.field(default_factory=SupervisorTimers)
    nvml: NvmlTimers = dataclasses.field(default_factory=NvmlTimers)
    mounts: MountTimers = dataclasses.field(default_factory=MountTimers)
    limits: core.Limits = dataclasses.field(default_factory=core.Limits)
    progress_every: float = 1.0
    inventory_every: float = 30.0
    check_within: float = 45.0
    metrics: tuple[str, int] | None = None


async def run(settings: Settings, *, ready: Callable[[str], None] | None = None) -> None:
    """Supervise until cancelled. `ready(node id)` is called once everything that ran is adopted.

    Raises errors.Failed where the state directory is somebody else's, or nothing can be made in it.
    """
    process.hear_of_children()
    share_one_heap()
    use_threads()
    with StateDir(settings.state_dir).held() as state:
        try:
            agent = _Agent(settings, state, SystemClock())
        except OSError as error:
            raise unusable(error, settings.state_dir) from error
        try:
            agent.start()
            await agent.listen()
            if ready is not None:
                ready(agent.node)
            await agent.tasks.wait()
        finally:
            await agent.close()


class _Agent:
    """The parts of one agent, wired."""

    def __init__(self, settings: Settings, state: StateDir, clock: Clock) -> None:
        self.node = state.node()
        self.tasks = Tasks()
        self._settings, self._state, self._clock = settings, state, clock
        self._obeyed = state.obeyed()
        self._problems: tuple[str, ...] = ()
        self._unkept = ""
        self._scrape: asyncio.Server | None = None
        self._look = asyncio.Event()
        self._gpus = Gpus(clock, settings.nvml, self._look.set)
        chance = unseeded()
        self._cache = Cache(settings.cache or own_directory(settings.state_dir / "cache"))
        self._weights = Weights(self._cache, self.tasks, clock, chance, settings.fetch, settings.hub)
        self._engines = engines = probe.find(settings.engines, probe.search_path(os.environ.get("PATH", "")))
        self._node_info = self._said = self._describe(engines)
        self._mounts = Mounts(
            self._cache,
            lambda: self._checks.remembered(engines),
            clock,
            settings.mounts,
            self._look.set,
        )
        self._inventory = Inventory(self._node_info, self._gpus, self._mounts)
        self._link = Link(
            self._connect,
            snapshot=self._snapshot,
            heartbeat=lambda: messages.Heartbeat(idle=self._supervisor.state.idle()),
            adopt=self._adopt,
            obey=self._obey,
            clock=clock,
            chance=chance,
            epoch=self._obeyed.epoch,
        )
        self._supervisor = self._supervise(engines)

    def _describe(self, engines: tuple[InstalledEngine, ...]) -> NodeInfo:
        return NodeInfo(
            id=self.node,
            name=self._settings.name,
            instance=secrets.token_hex(8),
            address=self._settings.address,
            build=importlib.metadata.version("llmgw"),
            protocol=messages.PROTOCOL,
            engines=engines,
            labels=self._settings.labels,
            ports=self._settings.ports,
        )

    def _supervise(self, engines: tuple[InstalledEngine, ...]) -> Supervisor:
        logs = own_directory(self._settings.state_dir / "logs")
        self._log_answers = LogAnswers(logs)
        self._cgroups = cgroups.find(self.node)
        hands = Launcher(
            self.node,
            records=Records(self._settings.state_dir / "shards"),
            logs=logs,
            cgroups=self._cgroups,
            engines=inventory.engines_by_name(engines),
            inherited=launcher.inherited(),
        )
        self._checks = EngineCheck(
            self.node,
            self._settings.state_dir,
            cgroups=self._cgroups,
            inherited=launcher.inherited(),
            timers=self._settings.timers.sweep,
            within=self._settings.check_within,
        )
        return Supervisor(
            hands,
            weights=self._weights,
            logs=logs,
            holds=self._gpus.held,
            report=self._report,
            recount=self._look.set,
            clock=self._clock,
            tasks=self.tasks,
            timers=self._settings.timers,
            limits=self._settings.limits,
        )

    def start(self) -> None:
        """Adopt before anybody is connected: the first registration must tell what runs."""
        self._cache.sweep()
        engines = self._cgroups.base if self._cgroups is not None else ""
        try:
            unit = unit_warning(procfs.cgroup(os.getpid()), engines)
            found = self._supervisor.adopt()
            self._problems = (*self._state.recovered, *found, *([unit] if unit else []))
        except OSError as error:
            raise Failed(
                f"cannot look at what runs here: {error.strerror}",
                help="let the agent have more open files (ulimit -n, LimitNOFILE=); its engines run on",
            ) from error
        for problem in self._problems:
            log.warning("%s", problem)
        for key, kept in self._supervisor.state.shards.items():
            log.info("adopted %s, pid %d", marks.shard_name(key), kept.pid)
        self.tasks.start("link", self._link.run())
        self.tasks.start("progress", self._progress())
        self.tasks.start("inventory", self._changes())

    async def listen(self) -> None:
        """For Prometheus."""
        self._scrape = await listen(self._page, self._settings.metrics)

    def _page(self) -> bytes:
        return metrics(
            self._supervisor.state,
            self._said,
            self._weights.progress(),
            registered=self._link.registered,
            epoch=self._obeyed.epoch,
        )

    async def close(self) -> None:
        if self._scrape is not None:
            self._scrape.close()
        await self.tasks.close()
        self._supervisor.close()
        self._weights.close()
        self._mounts.close()
        self._cache.close()
        self._gpus.close()
        if self._cgroups is not None:
            self._cgroups.remove(self._cgroups.base)  # nothing happens while an engine lives in it

    # --- what the control plane hears --------------------------------------------------------

    async def _connect(self) -> Channel:
        s = self._settings
        await asyncio.gather(self._gpus.look(), self._mounts.look())
        headers = bearer(s.token)
        return await connect(s.control_host, s.control_port, "/agent", headers=headers, tls=s.control_tls)

    def _snapshot(self) -> messages.Register:
        now, state = self._clock.now(), self._supervisor.state
        self._tell(self._info())
        return messages.Register(
            epoch=self._obeyed.epoch,
            revision=self._obeyed.revision,
            info=self._said,
            shards=state.statuses(now),
            failures=state.failures(now),
            progress=self._weights.progress(),
        ).with_beyond(state.beyond())

    def _tell(self, info: NodeInfo) -> None:
        """What the control plane decides by from now on is what its orders are judged by."""
        self._said = info
        self._supervisor.tell(core.Seen(info.gpus, info.memory_total))

    def _info(self) -> NodeInfo:
        """The node now; as it was seen last where this machine does not let us look."""
        try:
            self._node_info = self._inventory.read(
                ours=self._ours() if self._gpus.known else (),
                our_ports=self._supervisor.state.ports_taken(),
            )
        except OSError as error:
            log.warning("cannot look at this node: %s", error)
        return dataclasses.replace(
            self._node_info,
            gpus=self._supervisor.state.inventory(self._node_info.gpus),
            warnings=self._warnings(),
        )

    def _ours(self) -> set[int]:
        """The pids of our shards. What nothing describes holds its cards as a stranger does, until it has ended."""
        undescribed = self._supervisor.state.undescribed()
        marked = {mark.pid for mark in marks.scan(self.node) if mark.cookie not in undescribed}
        return marked | self._supervisor.kin()

    def _warnings(self) -> tuple[str, ...]:
        unkept = (self._unkept,) if self._unkept else ()
        silent = (f"cannot see its cards: {silence}",) if (silence := self._gpus.silence) else ()
        old = (
            (f"cannot look at its weights and programs: {trouble}; what it tells of them is older",)
            if (trouble := self._mounts.trouble)
            else ()
        )
        broken = (
            f"{engine.name} does not run: {engine.checked}"
            for engine in self._node_info.engines or ()
            if engine.works is False
        )
        warnings = (
            *self._problems,
            *unkept,
            *silent,
            *old,
            *broken,
            *self._supervisor.warnings(),
        )
        return tuple(map(safe, warnings))

    def _report(self, statuses: tuple[ShardStatus, ...]) -> None:
        self._link.report(statuses)
        if any(status.state in ("held", "gone", "failed") for status in statuses):
            self._look.set()

    async def _progress(self) -> None:
        """Progress while something is fetched, and once more, empty, when nothing is any longer."""
        told = False
        while True:
            now = self._weights.progress()
            if now or told:
                self._link.progress(now)
            told = bool(now)
            await asyncio.sleep(self._settings.progress_every)

    async def _changes(self) -> None:
        """What the node has and holds, told when it is seen to have changed: after a shard, or by itself."""
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(self._settings.inventory_every):
                    await self._look.wait()
            self._look.clear()
            if self._unkept:
                self._keep_obeyed()
            try:
                await self._supervisor.look()
                await asyncio.gather(self._gpus.look(), self._mounts.look())
                info = await asyncio.to_thread(self._info)
            except OSError as error:
                log.warning("cannot look at this node: %s", error)
                continue
            if inventory.told(info) != inventory.told(self._said):
                self._tell(info)
                self._link.report((), info)

    # --- what the control plane says ---------------------------------------------------------

    def _adopt(self, epoch: int, revision: int) -> None:
        self._obeyed = Obeyed(epoch, max(revision, self._obeyed.revision))
        self._keep_obeyed()
        self._supervisor.heard()

    def _keep_obeyed(self) -> None:
        """On disk, or else in memory until the disk takes it: only the next agent would not know."""
        before, self._unkept = self._unkept, ""
        try:
            self._state.obey(self._obeyed)
        except OSError as error:
            self._unkept = (
                f"cannot remember epoch {self._obeyed.epoch} in {self._state.root}: {error.strerror}"
            )
        if self._unkept != before:
            log.warning("%s", self._unkept or f"epoch {self._obeyed.epoch} is remembered again")
            self._look.set()

    def _obey(self, command: Command) -> None:
        if isinstance(command, messages.Collect):
            self._answer(command, "collect", self._collect(command))
        elif isinstance(command, messages.Logs):
            self._answer(command, "read a log", self._read_log(command))
        elif isinstance(command, messages.Check):
            self._answer(command, "check the engines", self._check(command))
        else:
            self._supervisor.order(command)

    def _answer(self, command: Command, what: str, work: Coroutine[Any, Any, messages.Result]) -> None:
        self.tasks.start(f"{command.kind} {command.seq}", self._answered(command.seq, what, work))

    async def _answered(self, seq: int, what: str, work: Coroutine[Any, Any, messages.Result]) -> None:
        """Whatever this machine refuses is an answer too: it ends one command, not the agent."""
        try:
            result = await work
        except LlmgwError as error:
            result = messages.Result(seq=seq, ok=False, said=safe(error.said))
        except OSError as error:
            where = f"{error.filename}: " if error.filename else ""
            said = f"cannot {what}: {where}{error.strerror or error}"
            result = messages.Result(seq=seq, ok=False, said=safe(said))
        self._link.answer(result)

    async def _check(self, command: messages.Check) -> messages.Result:
        engines = await self._checks.run(self._engines)
        self._look.set()
        return messages.Result(
            seq=command.seq, data={"engines": [dataclasses.asdict(engine) for engine in engines]}
        )

    async def _read_log(self, command: messages.Logs) -> messages.Result:
        return await self._log_answers.answer(command, self._supervisor.state.shards)

    async def _collect(self, command: messages.Collect) -> messages.Result:
        shards = self._supervisor.state.shards.values()
        outcomes = await self._weights.collect(
            command.entries,
            command.revision,
            self._obeyed.revision,
            {kept.spec.cache_name for kept in shards},
        )
        self._look.set()
        return messages.Result(
            seq=command.seq, data={"entries": [dataclasses.asdict(outcome) for outcome in outcomes]}
        )
