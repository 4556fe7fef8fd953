"""A loop for whoever is spoken to all the time: what comes within a moment is handled together.

`llmgw serve` runs in it. A thousand agents are a thousand wake-ups a second, each with cold caches and a round
of the loop for one word; twenty words a round cost a third less each.
"""

import asyncio
import selectors
import time

from llmgw.kit.clock import SystemClock

EVERY = 0.01
"""Seconds between two rounds of a loop that is busy."""

AT_ONCE = 50
"""Rounds that come as fast as they can before that: an answer to one person takes fewer."""


def gathering_loop() -> asyncio.AbstractEventLoop:
    """A new event loop that gathers."""
    return asyncio.SelectorEventLoop(_Gathering())


class Rounds:
    """When a loop that could look for news does: `AT_ONCE` times in a row at once, then each `EVERY` seconds. Pure."""

    def __init__(self, now: float) -> None:
        self._left, self._at = float(AT_ONCE), now

    def wait(self, now: float) -> float:
        """Seconds that the round which could begin at `now` waits for what else comes."""
        left = self._left + (now - self._at) / EVERY - 1.0
        self._left, self._at = max(-1.0, min(left, AT_ONCE)), now
        return max(0.0, -self._left) * EVERY


class _Gathering(selectors.DefaultSelector):
    """As its base, but rests first, never beyond the time that it was given."""

    def __init__(self) -> None:
        super().__init__()
        self._clock = SystemClock()
        self._rounds = Rounds(self._clock.now())

    def select(self, timeout: float | None = None) -> list[tuple[selectors.SelectorKey, int]]:
        """What is ready, after at most `timeout` seconds; None = for ever."""
        if timeout is None or timeout > 0:
            rest = self._rounds.wait(self._clock.now())
            if timeout is not None:
                rest = min(rest, timeout)
                timeout -= rest
            if rest:
                time.sleep(rest)
        return super().select(timeout)
