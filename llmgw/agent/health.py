"""Watching one shard from its exec to its end: when it has started, when it is ready, when it is dead.

`agent.supervisor` runs one `Watcher` a shard and passes on what it tells to `agent.core`. Ready means
that rank 0 has answered a real completion under the model's name, on a socket of our own process
tree; a page that says 200 proves none of this. The exit of a process is not seen here but by its pidfd.

Whatever an engine answers, and whatever this machine refuses us meanwhile, the watch goes on: only
what is known of an engine ends it.
"""

import asyncio
import dataclasses
import logging
from collections.abc import Callable
from typing import Any, Literal

from llmgw.agent import core, procfs
from llmgw.agent.asking import Answer, NoAnswer, ask
from llmgw.agent.pulse import Probe, Pulse
from llmgw.agent.sockets import ESTABLISHED, LISTEN
from llmgw.agent.sweep import Tree
from llmgw.engines.base import Adapter
from llmgw.fleet.shard import ShardSpec
from llmgw.kit.clock import Clock
from llmgw.kit.text import safe

log = logging.getLogger(__name__)

FAULTS = (OSError, RuntimeError, ValueError, ArithmeticError)
"""What a look may end with that says nothing of the engine: no descriptor or thread left, a number too large."""


@dataclasses.dataclass(frozen=True, slots=True)
class HealthTimers:
    """Seconds. `look`: between probes of a start. `canary`: how long the first completion may take.

    `hang`: no progress for this long is dead. `every` and `probe` (between probes of a ready engine, and
    of one probe) are the adapter's where they are 0.
    """

    look: float = 0.2
    every: float = 0.0
    probe: float = 0.0
    canary: float = 120.0
    hang: float = 60.0


class _NotYet(Exception):
    """What a start still waits for, in words that do not change from probe to probe."""


class Watcher:
    """One shard, watched until it is cancelled. `tell` takes Milestone, Waits, Idle, Slow and Exited."""

    def __init__(
        self,
        spec: ShardSpec,
        adapter: Adapter,
        tree: Tree,
        *,
        tell: Callable[[core.Event], None],
        timers: HealthTimers,
        clock: Clock,
    ) -> None:
        self._spec, self._adapter, self._tree = spec, adapter, tree
        self._tell, self._timers, self._clock = tell, timers, clock
        self._watch = adapter.watch(spec)

    async def run(self, reached: str) -> None:
        """Watch on from `reached`: "starting", "started" or "ready"."""
        self._reached, said = reached, ""
        while True:
            try:
                await self._go_on()
            except FAULTS as error:
                said, before = f"cannot watch it: {type(error).__name__}: {safe(str(error))[:200]}", said
                if said != before:
                    log.warning("%s: %s", self._spec.key, said)
                self._tell(core.Waits(self._spec.key, said))
                await asyncio.sleep(self._every)
            else:
                return

    @property
    def _every(self) -> float:
        return self._timers.every or self._watch.every

    async def _go_on(self) -> None:
        if self._reached == "starting":
            await self._until(self._started)
            self._has_reached("started")
        if self._reached != "ready":
            await self._until(self._ready)
            self._has_reached("ready")
        if self._watch.ready == "answers":
            await self._live()

    def _has_reached(self, reached: Literal["started", "ready"]) -> None:
        self._reached = reached
        self._tell(core.Milestone(self._spec.key, reached))

    async def _until(self, reached: "Callable[[], Any]") -> None:
        while True:
            try:
                await reached()
            except _NotYet as waiting:
                self._tell(core.Waits(self._spec.key, str(waiting)))
                await asyncio.sleep(self._timers.look)
            else:
                return

    # --- starting ----------------------------------------------------------------------------

    async def _started(self) -> None:
        if self._watch.started == "listening":
            await asyncio.to_thread(self._must_listen)

    async def _ready(self) -> None:
        if self._watch.ready == "joined":
            await asyncio.to_thread(self._must_have_joined)
            return
        await self._must_be_healthy()
        await asyncio.to_thread(self._must_listen)
        await self._must_serve_the_model()
        await self._must_answer()

    def _must_listen(self) -> None:
        """The socket that listens on our port is held by our own tree."""
        port = self._watch.port
        listening = {s.inode for s in procfs.sockets() if s.state == LISTEN and s.local_port == port}
        if not listening:
            raise _NotYet(f"nothing listens on port {port} yet")
        if not listening & self._own_sockets():
            holder = procfs.holder(next(iter(listening)))
            raise _NotYet(f"port {port} is answered by pid {holder or '?'}, which is not of this shard")

    def _must_have_joined(self) -> None:
        """A connection of our tree, from or to the port where the ranks meet."""
        port = self._watch.port
        met = {
            s.inode
            for s in procfs.sockets()
            if s.state == ESTABLISHED and port in (s.local_port, s.remote_port) and s.inode
        }
        if not met & self._own_sockets():
            raise _NotYet(f"no connection with rank 0 on port {port} yet")

    def _own_sockets(self) -> set[int]:
        return {inode for stat in self._tree.members() for inode in procfs.socket_inodes(stat.pid)}

    async def _must_be_healthy(self) -> None:
        answer = await self._ask("GET", self._watch.path)
        if answer.status != 200:
            raise _NotYet(f"{self._watch.path} answers {answer.status}")

    async def _must_serve_the_model(self) -> None:
        answer = await self._ask("GET", "/v1/models")
        names = _names(answer)
        if self._spec.model not in names:
            served = ", ".join(safe(name)[:100] for name in names[:3]) or f"nothing ({answer.status})"
            raise _NotYet(f"/v1/models names {served}, not {self._spec.model}")

    async def _must_answer(self) -> None:
        """The canary: one real answer. Health has been seen to say 200 over engines that cannot do it."""
        canary = self._watch.canary
        body = {"model": self._spec.model, **dict(canary.asks)}
        answer = await self._ask("POST", canary.path, within=self._timers.canary, body=body)
        if answer.status != 200 or not answer.entries(canary.holds):
            said = safe(answer.text[:200]).strip()
            raise _NotYet(f"its first {canary.name} answers {answer.status}: {said}")

    async def _ask(self, method: str, path: str, *, within: float = 0.0, body: object = None) -> Answer:
        try:
            return await self._asked(method, path, within=within, body=body)
        except NoAnswer as none:
            refused = f"port {self._spec.port} refuses connections"
            raise _NotYet(refused if none.outcome == "refused" else none.said) from None

    async def _asked(self, method: str, path: str, *, within: float = 0.0, body: object = None) -> Answer:
        within = within or self._timers.probe or self._watch.timeout
        return await ask(self._spec.address, self._spec.port, method, path, within=within, body=body)

    # --- ready -------------------------------------------------------------------------------

    async def _live(self) -> None:
        pulse, idle = Pulse(self._clock.now()), None
        slow: bool | None = None
        while True:
            probe = await self._probe()
            now = self._clock.now()
            pulse = pulse.after(probe, now)
            if probe.load is not None and probe.load.idle != idle:
                idle = probe.load.idle
                self._tell(core.Idle(self._spec.key, idle))
            self._tell(core.Waits(self._spec.key, still := pulse.slow(probe, now, self._timers.hang)))
            if (graded := pulse.silent or bool(still)) != slow:
                slow = graded
                self._tell(core.Slow(self._spec.key, slow))
            if said := pulse.dead(probe, now, self._timers.hang):
                self._tell(core.Exited(self._spec.key, said))
                return
            await asyncio.sleep(self._every)

    async def _probe(self) -> Probe:
        cpu = await asyncio.to_thread(self._tree.processor_time)
        try:
            health = await self._asked("GET", self._watch.path)
            metrics = await self._counters()
        except NoAnswer as none:
            match none.outcome:
                case "refused":
                    return Probe("refused", cpu)
                case "odd" | "large":
                    return Probe("unwell", cpu, said=none.said)
                case "late" | "broke":
                    said = f"{self._watch.path} does not answer and no processor time is used"
                    return Probe("slow", cpu, said=said)
        load, progress = self._adapter.load(metrics), self._adapter.progress(metrics)
        if health.status == 200:
            return Probe("answered", cpu, load, progress)
        return Probe("unwell", cpu, load, progress, f"{self._watch.path} answers {health.status}")

    async def _counters(self) -> str:
        """The page of metrics; empty where it is too large: half of it would tell half of the load."""
        try:
            return (await self._asked("GET", "/metrics")).text
        except NoAnswer as none:
            if none.outcome != "large":
                raise
            return ""


def _names(answer: Answer) -> list[str]:
    """The model names of a `/v1/models` answer; empty where it is none."""
    entries = answer.entries("data")
    return [str(entry["id"]) for entry in entries if isinstance(entry, dict) and "id" in entry]
