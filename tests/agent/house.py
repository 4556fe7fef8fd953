"""One node for the supervisor's tests: real processes, records and logs below a temporary directory."""

import asyncio
import contextlib
import os
import pathlib
import signal
import sys
import time
import uuid
from collections.abc import AsyncIterator, Callable, Iterator
from typing import TypeVar

from llmgw.agent import cgroups, core, launcher, marks, procfs
from llmgw.agent.health import HealthTimers
from llmgw.agent.launcher import Launcher
from llmgw.agent.records import Records
from llmgw.agent.supervisor import Supervisor, SupervisorTimers
from llmgw.agent.sweep import SweepTimers
from llmgw.catalog.sources import Source
from llmgw.fleet.shard import ShardKey, ShardSpec, ShardStatus
from llmgw.kit.clock import SystemClock
from llmgw.kit.tasks import Tasks
from tests.agent.making import assign, spec, start, stop

TIMERS = SupervisorTimers(
    health=HealthTimers(look=0.02, every=0.05, canary=5.0, hang=0.6),
    sweep=SweepTimers(look=0.01, patience=1.0, slow_look=0.1),
    trim=0.2,
    save=0.2,
)
T = TypeVar("T")
PATIENCE = 15.0
CLOCK = SystemClock()


async def until(true: Callable[[], object], what: str = "it") -> None:
    """Wait until `true()`; fails loudly after PATIENCE."""
    end = CLOCK.now() + PATIENCE
    while not true():
        assert CLOCK.now() < end, f"{what} did not happen within {PATIENCE} s"
        await asyncio.sleep(0.01)


async def _nothing(*_: object) -> str:
    """No card charges anybody."""
    return ""


class Here:
    """Weights that are always here: one empty file."""

    def __init__(self, path: pathlib.Path) -> None:
        self.path = path

    async def holds(self, _source: Source) -> bool:
        return True

    async def ensure(self, _source: Source) -> object:
        return None

    def model_path(self, _source: Source) -> pathlib.Path:
        return self.path

    async def beside(self, work: Callable[[], T]) -> T:
        return await asyncio.to_thread(work)


class House:
    """A state directory, and the agents that live in it one after the other."""

    def __init__(self, root: pathlib.Path, *, with_cgroups: bool = True) -> None:
        self.root, self.node = root, f"node-{uuid.uuid4().hex[:8]}"
        self.cgroups = cgroups.find(self.node) if with_cgroups else None
        self.reports: list[ShardStatus] = []
        self.recounts: list[float] = []
        self.engines = {"llamacpp": str(program(root))}
        (root / "logs").mkdir()
        self.model = root / "model.gguf"
        self.model.touch()
        self.records = Records(root / "shards")

    @contextlib.asynccontextmanager
    async def agent(self, *, timers: SupervisorTimers = TIMERS) -> AsyncIterator[Supervisor]:
        """An agent that lives here for a while. It leaves as if it were killed: nothing is stopped."""
        tasks = Tasks()
        hands = Launcher(
            self.node,
            records=self.records,
            logs=self.root / "logs",
            cgroups=self.cgroups,
            engines=self.engines,
            inherited=launcher.inherited(),
        )
        supervisor = Supervisor(
            hands,
            weights=Here(self.model),
            logs=self.root / "logs",
            holds=_nothing,
            report=self.reports.extend,
            recount=lambda: self.recounts.append(CLOCK.now()),
            clock=CLOCK,
            tasks=tasks,
            timers=timers,
            limits=core.Limits(),
        )
        self.problems = supervisor.adopt()
        watch = asyncio.get_running_loop().create_task(tasks.wait())
        try:
            yield supervisor
            assert not watch.done(), f"a task died: {watch.exception()!r}"
        finally:
            watch.cancel()
            await tasks.close()
            supervisor.close()

    def spec(self, replica: str = "alpha/x7qf", does: str = "", **changes: object) -> ShardSpec:
        """A shard of this node at a port of its own."""
        changes.setdefault("port", free_port())
        env = (("DOES", does),)
        return spec(replica, nodes=(self.node,), env=env, **changes)  # type: ignore[arg-type]

    def states(self, key: ShardKey) -> list[str]:
        """The states reported of a shard, in order, each once."""
        states = [status.state for status in self.reports if status.key == key]
        return [state for n, state in enumerate(states) if n == 0 or states[n - 1] != state]

    def last(self, key: ShardKey) -> ShardStatus:
        return [status for status in self.reports if status.key == key][-1]

    def marked(self) -> list[int]:
        """Live processes that carry this node's mark, by environment or group."""
        return [mark.pid for mark in marks.scan(self.node)]

    def clean(self) -> None:
        """End what a test left, by mark and by record."""
        unmarked = marks.kin(record.identity for record in self.records.read().records)
        for pid in {mark.pid for mark in marks.scan(self.node)} | {stat.pid for stat in unmarked}:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        if self.cgroups is not None:
            end = CLOCK.now() + 5
            while self.marked() and CLOCK.now() < end:
                time.sleep(0.01)
            self.cgroups.remove(self.cgroups.base)


async def launched(agent: Supervisor, of: ShardSpec) -> None:
    """Assign and start a shard, up to a live process."""
    agent.order(assign(of))
    await until(lambda: agent.state.shards[of.key].state == "held", "held")
    agent.order(start(of))
    await until(
        lambda: agent.state.shards[of.key].pid or agent.state.shards[of.key].state == "failed", "launch"
    )


async def ready(house: House, agent: Supervisor, of: ShardSpec) -> int:
    """Assign and start a shard until it is ready. Returns its pid."""
    await launched(agent, of)
    await until(lambda: agent.state.shards[of.key].state == "ready", f"ready ({house.last(of.key)})")
    return agent.state.shards[of.key].pid


async def gone(agent: Supervisor, of: ShardSpec, *, grace: float = 0.3) -> None:
    """Stop a shard until nothing of it is left."""
    agent.order(stop(of, grace=grace))
    await until(lambda: of.key not in agent.state.shards, "gone")


def program(root: pathlib.Path) -> pathlib.Path:
    """The test engine as an executable named llama-server."""
    path = root / "bin" / "llama-server"
    path.parent.mkdir()
    script = pathlib.Path(__file__).with_name("engine.py").read_text()
    path.write_text(f"#!{sys.executable} -S\n{script}")
    path.chmod(0o755)
    return path


def alive(pid: int) -> bool:
    """Whether the process lives; a zombie does not."""
    return procfs.live(pid) is not None


_PORTS: Iterator[int] = iter(range(21000 + os.getpid() % 400 * 20, 32000, 10))


def free_port() -> int:
    """A block of ports that no other test of this run has."""
    return next(_PORTS)
