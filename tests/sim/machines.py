"""The machines as they truly are: power, GPUs, disks, process trees. Nobody's opinion is in here.

Agents (`sim.agents`) act on a machine and look at it; faults break it; the oracle judges by it. As
on a real one, a GPU's memory comes back some time after the last process that used it is gone.
"""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Literal, Protocol

from llmgw.fleet.node import CachedWeights, Gpu, InstalledEngine, NodeInfo
from llmgw.fleet.shard import ShardKey, ShardSpec
from tests.sim.clockwork import Clockwork, Life

MEMORY = 128 << 30
"""Bytes of a machine."""

Phase = Literal["starting", "started", "ready"]


@dataclasses.dataclass(slots=True, eq=False)
class Engine:
    """One engine's process tree. `phase` is how far it came; `serving` turns false when it hangs.

    `leader` and `others` tell who of the tree lives; `free_at` is when the GPU memory is back.
    `ready_at` is when it came to serve, if it ever did.
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

    @property
    def alive(self) -> bool:
        """Any process of the tree lives."""
        return self.leader or self.others

    @property
    def ready(self) -> bool:
        """It does its part of serving."""
        return self.phase == "ready" and self.leader and self.serving

    def __str__(self) -> str:
        return f"{self.spec.replica}:{self.spec.rank}"


class Neighbours(Protocol):
    """What a machine's engines can see of the rest of the world."""

    def engine(self, key: ShardKey) -> Engine | None:
        """The newest engine of a shard, wherever it runs."""
        ...

    def born(self, engine: Engine) -> None:
        """An engine was executed."""
        ...

    def next_pid(self) -> int:
        """A process id that no machine had before."""
        ...

    def changed(self, engine: Engine) -> None:
        """Whoever watches this engine may look again."""
        ...

    def broken(self, generation: str) -> bool:
        """Engines of this generation cannot come up: its arguments are wrong."""
        ...


class Machine:
    """One node's hardware and operating system. `boot` counts its boots."""

    def __init__(self, clock: Clockwork, name: str, gpus: tuple[Gpu, ...], world: Neighbours) -> None:
        self.clock = clock
        self.name = name
        self.gpus = gpus
        self.boot = 0
        self.power = Life()
        self.disk: dict[str, CachedWeights] = {}
        self.records: dict[ShardKey, ShardSpec] = {}
        self.epoch = 0
        self.memory = MEMORY
        self.engines: dict[int, Engine] = {}
        self.slow_start = 1.0
        self.late_memory = 0.0
        self.slow_fetch = 1.0
        self.bad_fetch = False
        self._world = world
        self._chance = clock.chance(f"machine/{name}")

    @property
    def on(self) -> bool:
        """It has power."""
        return not self.power.over

    def info(self, instance: str) -> NodeInfo:
        """What an agent on it can say of it."""
        return NodeInfo(
            id=self.name,
            name=self.name,
            instance=instance,
            address=self.name,
            gpus=self.gpus,
            memory_total=self.memory,
            engines=(InstalledEngine("vllm"),),
            weights=tuple(self.disk.values()),
        )

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

    def execute(self, spec: ShardSpec) -> Engine:
        """Fork and exec an engine; it comes up in its own time."""
        engine = Engine(self._world.next_pid(), spec, self.clock.now)
        self.engines[engine.pid] = engine
        self._world.born(engine)
        self._later(self._chance.uniform(1.0, 20.0) * self.slow_start, lambda: self._started(engine))
        return engine

    def kill(self, engine: Engine, *, leader: bool = True, others: bool = True) -> None:
        """Let processes of the tree end. The memory comes back when the last of them is gone."""
        if not engine.alive:
            return
        engine.leader = engine.leader and not leader
        engine.others = engine.others and not others
        if not engine.alive:
            engine.free_at = self.clock.now + self._chance.uniform(0.0, 0.5) + self.late_memory
        self._world.changed(engine)

    def hang(self, engine: Engine) -> None:
        """The process lives on and does nothing any more."""
        engine.serving = False
        self._world.changed(engine)

    def lose_power(self) -> None:
        """Everything that is not on the disk is gone, at once."""
        self.power.over = True
        for engine in self.engines.values():
            engine.leader = engine.others = False
            engine.free_at = min(engine.free_at, self.clock.now)

    def gain_power(self) -> None:
        """A new boot."""
        self.boot += 1
        self.power = Life()
        self.engines.clear()

    def _later(self, delay: float, event: Callable[[], None]) -> None:
        self.clock.after(delay, event, self.power)

    # --- how engines come up ------------------------------------------------------------------

    def _started(self, engine: Engine) -> None:
        if not engine.leader:
            return
        if self._world.broken(engine.spec.generation):
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
