"""What an agent costs while nothing happens, and how fast it finds its engines: `python -m tests.lab bench-agent`.

The real `llmgw agent` as a process of its own, registered at a control plane of a few lines: CPU and
memory from /proc over a while without engines, then with engines that idle, each probed like any other.
Then it is killed and started again over 64 engines; adoption is timed from its exec to the registration
that names them all, beside the same without engines.
"""

import argparse
import asyncio
import contextlib
import os
import pathlib
import signal
import sys
import tempfile
import uuid
from collections.abc import AsyncIterator, Sequence
from typing import Any

from llmgw.agent import marks
from llmgw.fleet.shard import ShardSpec
from llmgw.kit.clock import SystemClock
from llmgw.wire import messages as wire
from tests.agent.house import program
from tests.agent.making import assign, spec, start
from tests.agent.test_connection import Control
from tests.lab.command import Outcome
from tests.support.ports import free_block
from tests.support.proc_figures import cpu_seconds, peak_mib
from tests.support.processes import Process, Processes
from tests.transport.harness import listening

LIMITS = {"idle_percent": 0.5, "mib": 60.0, "adoption_seconds": 2.0}
"""Of one core, at most, without engines; the most memory at any time; from exec to the registration."""
ENGINES = 64
PROBED = 8
PATIENCE = 60.0
CLOCK = SystemClock()


def run(argv: Sequence[str]) -> Outcome:
    """`--seconds` of each idle measurement, `--engines` to adopt."""
    parser = argparse.ArgumentParser(prog="bench-agent", description=__doc__)
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--engines", type=int, default=ENGINES)
    asked = parser.parse_args(argv)
    with tempfile.TemporaryDirectory(prefix="llmgw-bench-") as directory:
        figures, adopted = asyncio.run(_measure(pathlib.Path(directory), asked.seconds, asked.engines))
    over = [name for name, limit in LIMITS.items() if figures[name] > limit]
    for name in over:
        print(f"FAIL {name}: {figures[name]} is more than {LIMITS[name]}", file=sys.stderr)
    return Outcome(not over, {"engines_adopted": adopted}, figures, ", ".join(over))


class Bench:
    """One state directory, its agent, and the control plane that it registers at."""

    def __init__(
        self, root: pathlib.Path, processes: Processes, control: Control, port: int, engines: int
    ) -> None:
        self.root, self.control, self._processes = root, control, processes
        self.node = uuid.uuid4().hex[:12]
        state = root / "state"
        state.mkdir()
        (state / "node-id").write_text(self.node)
        (root / "alpha.gguf").touch()
        self._first = free_block(10 * engines + 10).start
        self._options = (
            *("--control", f"127.0.0.1:{port}", "--state-dir", str(state), "--metrics", "off"),
            *("--ports", f"{self._first}-{self._first + 10 * engines + 9}"),
            *("--engine", f"llamacpp={program(root)}"),
        )
        self._seq = 0

    async def registers(self) -> tuple[Process, float, wire.Register]:
        """Start the agent; a second one finds what the first left. Seconds from its exec to what it registers."""
        began, before = CLOCK.now(), len(self.control.streams)
        agent = self._processes.llmgw("agent", "agent", *self._options)
        await _until(
            lambda: len(self.control.streams) > before and self.control.streams[before], "it registers"
        )
        took, register = CLOCK.now() - began, self.control.streams[before][0]
        assert isinstance(register, wire.Register)
        return agent, took, register

    def shard(self, number: int) -> ShardSpec:
        """The shard with this number, at ports of its own."""
        source, port = f"file://{self.root / 'alpha.gguf'}", self._first + 10 * number
        return spec(f"alpha/n{number:03}", nodes=(self.node,), source=source, port=port)

    async def order(self, command: wire.Command) -> None:
        """The next command of the newest stream."""
        self._seq += 1
        numbered = command.model_copy(update={"seq": self._seq, "epoch": self.control.epoch})
        await self.control.channels[-1].send(wire.encode(numbered))

    async def launch(self, numbers: Sequence[int]) -> None:
        """Have these shards run until they are ready."""
        for number in numbers:
            await self.order(assign(self.shard(number)))
        await _until(lambda: self.in_state("held") >= set(numbers), "the shards are held")
        for number in numbers:
            await self.order(start(self.shard(number)))
        await _until(lambda: self.in_state("ready") >= set(numbers), "the engines are ready")

    def in_state(self, state: str) -> set[int]:
        """The numbers of the shards that were reported so."""
        said = [message for stream in self.control.streams for message in stream]
        reports = [status for m in said if isinstance(m, wire.Report) for status in m.statuses]
        return {int(status.replica[-3:]) for status in reports if status.state == state}

    def end_engines(self) -> None:
        """By mark: nothing of it stays."""
        for mark in marks.scan(self.node):
            with contextlib.suppress(ProcessLookupError):
                os.kill(mark.pid, signal.SIGKILL)


@contextlib.asynccontextmanager
async def _bench(root: pathlib.Path, engines: int) -> AsyncIterator[Bench]:
    control = Control(heartbeat=5.0)
    async with listening(control.serve) as (_, port):
        with Processes(root) as processes:
            bench = Bench(root, processes, control, port, engines)
            try:
                yield bench
            finally:
                bench.end_engines()


async def _measure(root: pathlib.Path, seconds: float, engines: int) -> tuple[dict[str, Any], int]:
    async with _bench(root, engines) as bench:
        agent, started, _ = await bench.registers()
        await asyncio.sleep(3.0)
        alone = await _percent(agent, seconds)
        probed = min(PROBED, engines)
        await bench.launch(range(probed))
        await asyncio.sleep(3.0)
        watching = await _percent(agent, seconds)
        await bench.launch(range(probed, engines))
        mib = peak_mib(agent.pid)
        agent.kill()
        again, took, register = await bench.registers()
        adopted = sum(status.adopted and status.state == "ready" for _, status in register.shards)
        await asyncio.sleep(2.0)
        figures = {
            "idle_percent": round(alone, 2),
            "idle_percent_with_engines": round(watching, 2),
            "engines_probed": probed,
            "mib": round(max(mib, peak_mib(again.pid)), 1),
            "engines": engines,
            "adoption_seconds": round(took, 2),
            "start_seconds_without_engines": round(started, 2),
        }
        return figures, adopted if adopted == engines else 0


async def _until(true: Any, what: str) -> None:
    end = CLOCK.now() + PATIENCE
    while not true():
        assert CLOCK.now() < end, f"{what}: not within {PATIENCE:g} s"
        await asyncio.sleep(0.005)


async def _percent(agent: Process, seconds: float) -> float:
    """Of one core, over `seconds`."""
    before = cpu_seconds(agent.pid)
    await asyncio.sleep(seconds)
    return 100 * (cpu_seconds(agent.pid) - before) / seconds
