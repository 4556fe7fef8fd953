"""What NVML says of this node's cards, asked in one thread of its own: a driver that hangs holds up nobody.

`agent.inventory` reads them, `agent.sweep` asks whether a dead tree's memory is back. Without NVML no
cards are known, which is not the same as none being free. While a call hangs, the last reading stands
with its cards unhealthy, no second call is made, and no memory is taken for free.
"""

import dataclasses
from collections.abc import Callable, Collection, Generator

from llmgw.agent import cards, procfs, strangers
from llmgw.agent.cards import Card
from llmgw.agent.readings import Readings
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
        self._readings = Readings(
            "nvml", "this machine's cards", _cards, clock=clock, within=timers.within, changed=changed
        )

    @property
    def known(self) -> bool:
        """Whether NVML has told any cards, or that there are none."""
        return self._readings.seen is not None

    @property
    def silence(self) -> str:
        """That NVML hangs, in words that change ever more rarely; empty = it does not."""
        seconds = self._readings.silent_for
        return f"NVML has not answered for {show_seconds(seconds)}" if seconds else ""

    def close(self) -> None:
        """Let go of NVML, as soon as it lets go of us."""
        self._readings.close()

    async def look(self) -> bool:
        """Until there is a reading that began after this call; False where NVML hangs."""
        return await self._readings.look()

    def read(self, ours: Collection[int]) -> tuple[Gpu, ...] | None:
        """Every card or MIG slice as seen last; None without NVML. Memory that pids of `ours` are not charged for is
        foreign. Raises OSError.
        """
        if (seen := self._readings.seen) is None:
            return None
        said = self.silence
        return tuple(_gpu(card, ours, said) for card in seen)

    async def held(self, pids: Collection[int], of: Collection[str] | None = ()) -> str:
        """Which card charges one of `pids` now, in words; empty = none does.

        On the cards `of`, by UUID, whoever has ended counts: a tree that died at once left no pid to ask for.
        None = nobody knows which they are. What cannot be verified is held, as far as there is a card to free.
        """
        if of is not None and not (pids or of):
            return ""
        if await self.look():
            seen = self._readings.seen or ()
            asked = of if of is not None else [card.uuid for card in seen if card.untold]
            found = (_charged(card, pids, asked) for card in seen)
            return next((said for said in found if said), "")
        if of is not None and not of:
            return ""
        return f"cannot verify that the memory of its cards is free: {self.silence or 'NVML was late'}"


def _cards() -> Generator[tuple[Card, ...] | None, None, None]:
    """A reading each time; none where there is no NVML."""
    if cards.start():
        return
    try:
        while True:
            yield cards.read()
    finally:
        cards.end()


def _gpu(card: Card, ours: Collection[int], silence: str) -> Gpu:
    said = card.fault or silence
    if card.fault:
        return Gpu(card.uuid, card.name, card.total, card.used, healthy=False, said=said)
    foreign = strangers.foreign(card, ours)
    holders = strangers.holders(card, ours, foreign)
    return Gpu(card.uuid, card.name, card.total, card.used, foreign, not said, said, holders)


def _charged(card: Card, pids: Collection[int], of: Collection[str]) -> str:
    """What a card still charges the dead for, or that it does not say. One that is lost charges nobody, and hides no
    other.
    """
    if card.untold and card.uuid in of:
        return f"cannot verify that the memory of GPU {card.number} is free: {card.untold}"
    for pid, used in card.charged or ():
        if pid in pids or (card.uuid in of and procfs.live(pid) is None):
            return f"GPU {card.number} still charges {used >> 20} MiB to pid {pid}, which has ended"
    return ""
