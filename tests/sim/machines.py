"""The machines as they truly are: power, GPUs, disks, process trees. Nobody's opinion is in here.

Agents (`sim.agents`) act on a machine and look at it; faults break it; the oracle judges by it. As
on a real one, a GPU's memory comes back some time after the last process that used it is gone.
"""

import dataclasses
import signal
from collections.abc import Callable, Collection, Iterable, Mapping
from typing import Literal, Protocol

from llmgw.agent import marks
from llmgw.fleet.node import Gpu, InstalledEngine, NodeInfo
from llmgw.fleet.shard import ShardKey, ShardSpec
from tests.sim.clockwork import Clockwork, Life
from tests.sim.processes import NOTHING, Groups, Process, Processes, Shelf
from tests.sim.weights import UNIT, Cache, Judge

MEMORY = 128 << 30
"""Bytes of a machine."""

Phase = Literal["starting", "started", "ready"]


@dataclasses.dataclass(slots=True, eq=False)
class Engine:
    """One engine's process tree. `phase` is how far it came; `serving` turns false when it hangs.

    `leader` and `others` tell who of the tree lives, `tree` names them, its leader first; `free_at` is
    when the GPU memory is back. `ready_at` is when it came to serve, if it ever did. A `doomed` one will
    end by the rules: nothing describes it.
    """

    pid: int
    spec: ShardSpec
    born: float
    phase: Phase = "starting"
    serving: bool = True
    leader: bool = True
    others: bool = True
    free_at: float = float("inf")
    ready_at: float | None = None
    doomed: bool = False
    tree: list[Process] = dataclasses.field(default_factory=list)

    @property
    def cookie(self) -> str:
        """The mark of its launch."""
        return self.tree[0].env[marks.COOKIE]

    @property
    def alive(self) -> bool:
        """Any process of the tree lives."""
        return self.leader or self.others

    @property
    def ready(self) -> bool:
        """It does its part of serving."""
        return self.phase == "ready" and self.leader and self.serving and not self.doomed

    def __str__(self) -> str:
        return f"{self.spec.replica}:{self.spec.rank}"


class Neighbours(Judge, Protocol):
    """What a machine's engines can see of the rest of the world."""

    def engine(self, key: ShardKey) -> Engine | None:
        """The newest engine of a shard, wherever it runs."""
        ...

    def born(self, engine: Engine) -> None:
        """An engine was executed."""
        ...

    def signalled(self, machine: "Machine", process: Process, number: signal.Signals) -> None:
        """A signal is about to reach a process."""
        ...

    def changed(self, engine: Engine) -> None:
        """Whoever watches this engine may look again."""
        ...

    def broken(self, generation: str) -> bool:
        """Engines of this generation cannot come up: its arguments are wrong."""
        ...


class Machine:
    """One node's hardware and operating system. `boot` counts its boots; `fallen` are cards that the driver has lost, and
    since when.
    """

    def __init__(self, clock: Clockwork, name: str, gpus: tuple[Gpu, ...], world: Neighbours) -> None:
        self.clock = clock
        self.name = name
        self.gpus = gpus
        self.boot = 0
        self.power = Life()
        self.cache = Cache(clock, name, world)
        self.revision = 0
        self.shelf = Shelf()
        self.launches = 0
        self.traps: dict[str, float] = {}
        self.fallen: dict[str, float] = {}
        self.strangers: list[Process] = []
        self.squatters: list[Process] = []
        self.epoch = 0
        self.memory = MEMORY
        self.engines: dict[int, Engine] = {}
        self.slow_start = 1.0
        self.late_memory = 0.0
        self.slow_fetch = 1.0
        self.cursed = False
        self._world = world
        self._chance = clock.chance(f"machine/{name}")
        self.kernel = Processes(clock, name, 0, self.power, self)
        self.groups = Groups(self.kernel, name) if self._chance.random() < 0.5 else None

    @property
    def on(self) -> bool:
        """It has power."""
        return not self.power.over

    def info(self, instance: str, undescribed: Collection[str] = ()) -> NodeInfo:
        """What an agent on it can say of it. `undescribed` are the cookies of launches it knows nothing of."""
        return NodeInfo(
            id=self.name,
            name=self.name,
            instance=instance,
            address=self.name,
            gpus=self.cards(undescribed),
            memory_total=self.memory,
            engines=(InstalledEngine("vllm"),),
            disk_free=self.cache.free() * UNIT,
            weights=self.cache.listed(),
        )

    def cards(self, undescribed: Collection[str]) -> tuple[Gpu, ...]:
        """The cards as `agent.gpus` reads them: what is not of a live shard that the agent knows is foreign.

        An engine that has only begun has no memory on its cards yet.
        """
        taken = set(self.taken())
        for engine in self.engines.values():
            charged = engine.cookie in undescribed and engine.phase != "starting"
            if charged if engine.alive else self.clock.now < engine.free_at:
                taken |= set(engine.spec.gpus)
        if not taken and not self.fallen:
            return self.gpus
        return tuple(
            dataclasses.replace(gpu, healthy=False)
            if gpu.uuid in self.fallen
            else dataclasses.replace(gpu, foreign=gpu.memory_total // 2)
            if gpu.uuid in taken
            else gpu
            for gpu in self.gpus
        )

    def taken(self) -> dict[str, float]:
        """The cards on which strangers compute, and since when."""
        return {process.gpu: process.born for process in self.strangers if process.alive and process.gpu}

    def charged(self, pids: frozenset[int], gpus: Collection[str]) -> str:
        """What `agent.gpus.Gpus.held` says: memory of the dead that is not back yet."""
        for engine in self.engines.values():
            if engine.alive or engine.free_at <= self.clock.now:
                continue
            if not pids.isdisjoint(process.pid for process in engine.tree) or set(gpus) & set(
                engine.spec.gpus
            ):
                return f"GPU {engine.spec.gpus[0]} still charges pid {engine.pid}, which has ended"
        return ""

    def sprung(self, trap: str) -> float | None:
        """A fault that lay in wait on this machine strikes now, once; its size, None where there is none."""
        if trap not in self.traps:
            return None
        self._world.struck(trap, self.name)
        return self.traps.pop(trap)

    def holders(self, gpu: str) -> list[Engine]:
        """The engines that have memory on this GPU: living ones, and dead ones until it is back."""
        return [
            engine
            for engine in self.engines.values()
            if gpu in engine.spec.gpus and (engine.alive or self.clock.now < engine.free_at)
        ]

    def memory_left(self) -> int:
        """Bytes that no living engine was promised."""
        return self.memory - sum(engine.spec.profile.cpu_memory for engine in self.living())

    def living(self) -> list[Engine]:
        """The engines of which anything lives, oldest first."""
        return [engine for engine in self.engines.values() if engine.alive]

    def find(self, key: ShardKey) -> Engine | None:
        """The newest engine of a shard on this machine."""
        return next((e for e in reversed(self.engines.values()) if e.spec.key == key), None)

    # --- what happens to it -------------------------------------------------------------------

    def execute(self, spec: ShardSpec, env: Mapping[str, str], cgroup: str) -> Engine:
        """Fork and exec an engine; it comes up in its own time."""
        engine = Engine(0, spec, self.clock.now)
        leader = self.kernel.fork(self.kernel.agent, cgroup=cgroup or "/", engine=engine)
        leader.env = {**env, marks.LEADER: str(leader.pid)}
        engine.pid, engine.tree = leader.pid, [leader]
        for _ in range(1 if self._chance.random() < 0.7 else 2):
            engine.tree.append(self._worker(engine, leader))
        self.engines[engine.pid] = engine
        self._world.born(engine)
        self._later(self._chance.uniform(1.0, 20.0) * self.slow_start, lambda: self._started(engine))
        return engine

    def _worker(self, engine: Engine, leader: Process) -> Process:
        """A child: in its leader's session, in one of its own, or with its environment wiped in their cgroup."""
        shape = self._chance.random()
        wiped = shape > 0.7 and leader.cgroup != "/"
        return self.kernel.fork(
            leader,
            env=NOTHING if wiped else leader.env,
            cgroup=leader.cgroup,
            session=leader.session if shape < 0.4 else 0,
            engine=engine,
        )

    def kill(self, engine: Engine, *, leader: bool = True, others: bool = True) -> None:
        """Let processes of the tree end. The memory comes back when the last of them is gone."""
        first, *rest = engine.tree
        for process in rest if others else ():
            self.kernel.exit(process)
        if leader:
            self.kernel.exit(first)

    def loses(self, card: str) -> None:
        """The driver has lost a card, and with it who computes there."""
        self.fallen[card] = self.clock.now
        for engine in self.living():
            if card in engine.spec.gpus:
                self.kill(engine)
        self._world.room_changed(self.name)

    def finds(self, card: str) -> None:
        """The card was reset."""
        del self.fallen[card]
        self._world.room_changed(self.name)

    def stranger(self, gpu: str = "", like: Process | None = None) -> Process:
        """A process of somebody else, with the pid, the ticks and a session of one that was there before."""
        process = self.kernel.fork(
            None, env={"HOME": "/nowhere"}, like=(like.pid, like.ticks) if like is not None else None
        )
        process.gpu = gpu
        self.strangers = [*(other for other in self.strangers if other.alive), process]
        if gpu:
            self._world.room_changed(self.name)
        return process

    def leaves(self, process: Process) -> None:
        """A stranger goes."""
        if process.alive and self.on:
            self.kernel.exit(process)
            self._world.room_changed(self.name)

    def reap(self, pid: int) -> None:
        """The agent lets go of a child that has ended."""
        if pid in self.kernel.table:
            self.kernel.reap(self.kernel.table[pid])

    # --- what its kernel tells ----------------------------------------------------------------

    def signalled(self, process: Process, number: signal.Signals) -> None:
        """A signal is about to arrive."""
        self._world.signalled(self, process, number)
        if number == signal.SIGTERM and self.sprung("term-ignored") is not None:
            process.stubborn = True
        if number == signal.SIGKILL and (size := self.sprung("unkillable")) is not None:
            process.stuck = 5.0 + 95.0 * size

    def ended(self, process: Process) -> None:
        """A process is dead."""
        engine = process.engine
        if engine is None or not engine.alive:
            return
        first, *rest = engine.tree
        engine.leader, engine.others = first.alive, any(other.alive for other in rest)
        over = not (engine.leader or engine.others)
        if over:
            engine.free_at = self.clock.now + self._chance.uniform(0.0, 0.5) + self.late_memory
        if process is first or over:
            self._world.changed(engine)

    def hang(self, engine: Engine) -> None:
        """The process lives on and does nothing any more."""
        engine.serving = False
        self._world.changed(engine)

    def lose_power(self) -> None:
        """Everything that is not on the disk is gone, at once."""
        self.power.over = True
        self.cache.lose_power()
        for engine in self.engines.values():
            engine.leader = engine.others = False
            engine.free_at = min(engine.free_at, self.clock.now)

    def gain_power(self) -> None:
        """A new boot."""
        self.boot += 1
        self.power = Life()
        self.engines.clear()
        self.strangers.clear()
        self.kernel = Processes(self.clock, self.name, self.boot, self.power, self)
        self.groups = Groups(self.kernel, self.name) if self.groups is not None else None
        for process in self.squatters:
            self.stranger(like=process)
        self.squatters = []

    def _later(self, delay: float, event: Callable[[], None]) -> None:
        self.clock.after(delay, event, self.power)

    # --- how engines come up ------------------------------------------------------------------

    def _started(self, engine: Engine) -> None:
        if not engine.leader:
            return
        if self.cursed or self._world.broken(engine.spec.generation):
            self.kill(engine, others=self._chance.random() < 0.5)
            return
        self._reach(engine, "started")
        if engine.spec.rank == 0:
            soon = max(0.1, self._chance.uniform(-2.0, 40.0) * self.slow_start)
            self._later(soon, lambda: self._joined(engine))

    def _joined(self, engine: Engine) -> None:
        """Rank 0 serves once every worker is there; without one of them it waits for ever."""
        ranks = [self._world.engine((engine.spec.replica, peer.rank)) for peer in engine.spec.peers]
        if engine.leader and all(rank is not None and rank.leader and rank.serving for rank in ranks):
            for rank in _present(ranks):
                self._reach(rank, "ready")

    def _reach(self, engine: Engine, phase: Phase) -> None:
        engine.phase = phase
        if phase == "ready":
            engine.ready_at = self.clock.now
        self._world.changed(engine)


def _present(engines: Iterable[Engine | None]) -> list[Engine]:
    return [engine for engine in engines if engine is not None]
