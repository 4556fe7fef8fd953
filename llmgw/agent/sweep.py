"""Ending a tree of processes for sure: TERM, grace, kill, and then proof that nobody is left.

Called by `agent.supervisor` for every stop, every failed shard and every orphan. A GPU is free when
this returns, and not before.
"""

import asyncio
import contextlib
import dataclasses
from collections.abc import Awaitable, Callable

from llmgw.agent import marks, process, procfs
from llmgw.agent.cgroups import Cgroups
from llmgw.agent.kernel import LINUX, Kernel, live
from llmgw.agent.marks import Identity
from llmgw.agent.process import Leader


@dataclasses.dataclass(frozen=True, slots=True)
class SweepTimers:
    """Seconds: between two looks, after how long a survivor is reported, and between looks from then on."""

    look: float = 0.05
    patience: float = 60.0
    slow_look: float = 1.0


Holds = Callable[[frozenset[int]], Awaitable[str]]
"""Which GPU memory is still charged to these pids, in words; empty = none."""


@dataclasses.dataclass(frozen=True, slots=True)
class Sweeping:
    """A sweep so far: when it began, how many looks in a row found nothing, whether it takes long."""

    begun: float
    clean: int = 0
    late: bool = False

    @property
    def over(self) -> bool:
        """Nobody is left and no memory is charged: one look can meet a fork half done, two cannot."""
        return self.clean >= 2

    def looked(self, remains: str, now: float, timers: SweepTimers) -> "Sweeping":
        """After one more look; `remains` is what is left, in words, or empty."""
        late = now - self.begun >= timers.patience
        return Sweeping(self.begun, 0 if remains else self.clean + 1, late)

    def wait(self, timers: SweepTimers) -> float:
        """Seconds until the next look."""
        return timers.slow_look if self.late else timers.look


class Tree:
    """Everything that one launch of a shard has become."""

    def __init__(
        self,
        identity: Identity,
        cgroups: Cgroups | None,
        leader: Leader | None = None,
        kernel: Kernel = LINUX,
    ) -> None:
        self.identity = identity
        self._kernel = kernel
        self._cgroups = cgroups
        self._leader = leader
        self._seen: frozenset[procfs.Stat] = frozenset()

    def members(self) -> tuple[procfs.Stat, ...]:
        """Its live processes now."""
        own = self._session()
        found = marks.members(self.identity, self._kernel, own)
        self._seen = frozenset(stat for stat in found if own and stat.session == own)
        return found

    def kin(self) -> frozenset[procfs.Stat]:
        """Its live processes of the leader's session: these are known again when the leader is not there any more."""
        own = self._session()
        self._seen = marks.in_sessions((own,), self._kernel) if own else frozenset()
        return self._seen

    def _session(self) -> int:
        """The number of its session, 0 where it may be a stranger's: nobody gets it while one of those seen has it."""
        if own := marks.session(self.identity, self._kernel):
            return own
        there = ((stat, live(self._kernel, stat.pid)) for stat in self._seen)
        same = any(
            now is not None and (now.ticks, now.session) == (stat.ticks, stat.session) for stat, now in there
        )
        return self.identity.pid if same else 0

    def processor_time(self) -> int:
        """What the tree has used, in a unit of its own: only whether it grows means anything."""
        group = self.identity.cgroup
        if self._cgroups is not None and group and (used := self._cgroups.processor_time(group)):
            return used
        # Its session alone: reading every environment of the machine at each probe would cost more.
        return sum(stat.cpu for stat in self.kin())

    def ask(self) -> None:
        """TERM to the leader, if it is there."""
        if self._leader is not None:
            self._leader.terminate()

    async def end(self, *, grace: float, term: bool) -> None:
        """Ask the leader to end and give it `grace` seconds. Without `term` it is only waited for."""
        if self._leader is None:
            return
        if term:
            self.ask()
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(grace):
                await self._leader.ended()

    async def sweep(self, timers: SweepTimers, holds: Holds, lingers: Callable[[str], None]) -> None:
        """Kill what is left until two looks in a row find nobody and no card charges them any more.

        `lingers` is told, once it has taken `patience` seconds, who is left.
        """
        loop = asyncio.get_running_loop()
        seen, sweeping = {self.identity.pid} - {0}, Sweeping(loop.time())
        while not sweeping.over:
            remains = await self._round(seen, holds)
            sweeping = sweeping.looked(remains, loop.time(), timers)
            if sweeping.late and remains:
                lingers(remains)
            if not sweeping.over:
                await asyncio.sleep(sweeping.wait(timers))
        self.forget()

    def forget(self) -> None:
        """Nobody is left: let go of what stood for them."""
        self.release()
        if self._cgroups is not None and self.identity.cgroup:
            self._cgroups.remove(self.identity.cgroup)

    async def _round(self, seen: set[int], holds: Holds) -> str:
        """Kill once more. What is left, in words; empty = nothing. `seen` are its pids so far."""
        try:
            left = await asyncio.to_thread(self.kill)
            return self.remains(left, seen) or await holds(frozenset(seen))
        except OSError as error:
            return f"cannot look at its processes: {error.strerror}"

    def remains(self, left: tuple[procfs.Stat, ...], seen: set[int]) -> str:
        """Who a round found, in words; empty = nobody. Their pids join those that were `seen`."""
        seen.update(stat.pid for stat in left)
        return _named(left) if left else ""

    def kill(self) -> tuple[procfs.Stat, ...]:
        """One round: everybody in the tree is sent SIGKILL. Returns who was there."""
        left = self.members()
        if left and self._cgroups is not None and self.identity.cgroup:
            self._cgroups.kill(self.identity.cgroup)
        for stat in left:
            process.kill(stat, self.identity, self._session(), self._kernel)
        return left

    def release(self) -> None:
        """Let go of the leader, whether it has ended or runs on."""
        if self._leader is not None:
            self._leader.close()


def _named(left: tuple[procfs.Stat, ...]) -> str:
    who = ", ".join(f"{stat.pid} (state {stat.state})" for stat in left[:5])
    more = f" and {len(left) - 5} more" if len(left) > 5 else ""
    return f"cannot end pid {who}{more}: SIGKILL has no effect yet"
