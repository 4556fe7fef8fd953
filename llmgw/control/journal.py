"""What happened, for people: a bounded list of numbered lines. `llmgw events` and `apply` follow it."""

import asyncio
import collections
import dataclasses
import datetime
from typing import Literal

from llmgw.kit.clock import Clock

KEPT = 5000

Kind = Literal["action", "shard", "node", "catalog", "alarm", "hand"]
"""`hand` = what people did to the fleet."""


@dataclasses.dataclass(frozen=True, slots=True)
class Entry:
    """One thing that happened. `about` is a replica, node, model or revision."""

    number: int
    at: datetime.datetime
    kind: Kind
    about: str
    said: str


class Journal:
    """The newest `KEPT` entries, and a way to wait for the next."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._entries: collections.deque[Entry] = collections.deque(maxlen=KEPT)
        self._number = 0
        self._more = asyncio.Event()

    def note(self, kind: Kind, about: str, said: str) -> None:
        """Add an entry."""
        self._number += 1
        self._entries.append(Entry(self._number, self._clock.wall(), kind, about, said))
        self._more.set()
        self._more = asyncio.Event()

    @property
    def last(self) -> int:
        return self._number

    def after(self, number: int) -> list[Entry]:
        """The kept entries with a greater number."""
        return [entry for entry in self._entries if entry.number > number]

    async def wait(self, number: int, seconds: float) -> list[Entry]:
        """The entries after `number`, waiting at most `seconds` for the first."""
        if self._number <= number:
            try:
                async with asyncio.timeout(seconds):
                    await self._more.wait()
            except TimeoutError:
                return []
        return self.after(number)
