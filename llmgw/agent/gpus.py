"""What NVML says of this node's cards, asked in one thread of its own: a driver that hangs holds up nobody.

`agent.inventory` reads them, `agent.sweep` asks whether a dead tree's memory is back. Without NVML no
cards are known, which is not the same as none being free. While a call hangs, the last reading stands
with its cards unhealthy, no second call is made, and no memory is taken for free.
"""

import asyncio
import dataclasses
import queue
import threading
from collections.abc import Callable, Collection

from llmgw.agent import cards, procfs
from llmgw.agent.cards import Card
from llmgw.errors import Failed
from llmgw.fleet.node import Gpu
from llmgw.kit.clock import Clock
from llmgw.kit.units import show_seconds


@dataclasses.dataclass(frozen=True, slots=True)
class NvmlTimers:
    """Seconds. `within`: how long one reading of all cards may take until NVML counts as hung."""

    within: float = 10.0


class Gpus:
    """NVML, loaded once for the life of the agent. Made and asked in its event loop; `read` in any thread.

    `changed` is called when NVML falls silent, and when it speaks again. Raises Failed where it gets no thread.
    """

    def __init__(self, clock: Clock, timers: NvmlTimers, changed: Callable[[], None]) -> None:
        self._clock, self._timers, self._changed = clock, timers, changed
        self._loop = asyncio.get_running_loop()
        self._seen: tuple[Card, ...] | None = None
        self._absent = ""
        self._silent_since: float | None = None
        self._running: asyncio.Future[bool] | None = None
        self._next: asyncio.Future[bool] | None = None
        self._deadline: asyncio.TimerHandle | None = None
        self._go = queue.SimpleQueue[bool]()
        # Not of a pool: an exit would wait for it, as long as the driver hangs.
        try:
            threading.Thread(target=self._work, name="nvml", daemon=True).start()
        except RuntimeError as error:
            raise Failed(
                "cannot ask for this machine's cards: no thread can be started",
                help="let the agent have more processes (ulimit -u, TasksMax=)",
            ) from error

    @property
    def known(self) -> bool:
        """Whether NVML has told any cards, or that there are none."""
        return self._seen is not None

    @property
    def silence(self) -> str:
        """That NVML hangs, in words that change ever more rarely; empty = it does not."""
        since, step = self._silent_since, self._timers.within
        if since is None:
            return ""
        while since + 2 * step <= self._clock.now():
            step *= 2
        return f"NVML has not answered for {show_seconds(step)}"

    def close(self) -> None:
        """Let go of NVML, as soon as it lets go of us."""
        if self._deadline is not None:
            self._deadline.cancel()
        self._go.put(False)

    async def look(self) -> bool:
        """Until there is a reading that began after this call; False where NVML hangs."""
        if self._absent:
            return True
        if self._silent_since is not None:
            return False
        if self._running is None:
            return await asyncio.shield(self._begin(self._loop.create_future()))
        if self._next is None:
            self._next = self._loop.create_future()
        return await asyncio.shield(self._next)

    def read(self, ours: Collection[int]) -> tuple[Gpu, ...] | None:
        """Every card or MIG slice as seen last; None without NVML. Memory of pids that are not `ours` is foreign."""
        if self._seen is None:
            return None
        said = self.silence
        return tuple(_gpu(card, ours, said) for card in self._seen)

    async def held(self, pids: Collection[int], of: Collection[str] | None = ()) -> str:
        """Which card charges one of `pids` now, in words; empty = none does.

        On the cards `of`, by UUID, whoever has ended counts: a tree that died at once left no pid to ask for.
        None = nobody knows which they are. What cannot be verified is held, as far as there is a card to free.
        """
        if of is not None and not (pids or of):
            return ""
        if await self.look():
            found = (_charged(card, pids, of or ()) for card in self._seen or ())
            return next((said for said in found if said), "")
        if of is not None and not of:
            return ""
        return f"cannot verify that the memory of its cards is free: {self.silence or 'NVML was late'}"

    # --- one reading after the other -------------------------------------------------------------

    def _begin(self, asked: "asyncio.Future[bool]") -> "asyncio.Future[bool]":
        self._running, self._next = asked, None
        self._deadline = self._loop.call_later(self._timers.within, self._late, self._clock.now())
        self._go.put(True)
        return asked

    def _late(self, begun: float) -> None:
        self._silent_since = begun
        for asked in (self._running, self._next):
            if asked is not None:
                asked.set_result(False)
        self._next = None
        self._changed()

    def _answered(self, seen: tuple[Card, ...] | None, absent: str) -> None:
        self._seen, self._absent = seen, absent
        if self._deadline is not None:
            self._deadline.cancel()
        asked, self._running = self._running, None
        if asked is not None and not asked.done():
            asked.set_result(True)
        if self._silent_since is not None:
            self._silent_since = None
            self._changed()
        if self._next is not None and absent:
            self._next.set_result(True)
        elif self._next is not None:
            self._begin(self._next)

    # --- the thread ------------------------------------------------------------------------------

    def _work(self) -> None:
        """Nothing but NVML, one reading at a time, until it is told to end or there is no NVML."""
        if not self._go.get():
            return
        if absent := cards.start():
            self._tell(None, absent)
            return
        while self._tell(cards.read(), "") and self._go.get():
            pass
        cards.end()

    def _tell(self, seen: tuple[Card, ...] | None, absent: str) -> bool:
        try:
            self._loop.call_soon_threadsafe(self._answered, seen, absent)
        except RuntimeError:  # the loop is closed: nobody asks any more
            return False
        return True


def _gpu(card: Card, ours: Collection[int], silence: str) -> Gpu:
    said = card.fault or silence
    foreign = 0 if card.fault else _foreign(card.charged, card.used or 0, ours)
    return Gpu(card.uuid, card.name, card.total, card.used, foreign, healthy=not said, said=said)


def _foreign(charged: Collection[tuple[int, int]], used: int, ours: Collection[int]) -> int:
    """Bytes of strangers. Where the driver does not tell one's, it may have all of `used` that is not known as ours."""
    theirs = [amount for pid, amount in charged if pid not in ours]
    if all(theirs):
        return sum(theirs)
    return max(sum(theirs), used - sum(amount for pid, amount in charged if pid in ours))


def _charged(card: Card, pids: Collection[int], of: Collection[str]) -> str:
    """What a card still charges the dead for. One that is lost charges nobody, and hides no other."""
    for pid, used in card.charged:
        if pid in pids or (card.uuid in of and procfs.live(pid) is None):
            return f"GPU {card.number} still charges {used >> 20} MiB to pid {pid}, which has ended"
    return ""
