"""Simulated time: one heap of (time, seq, event), and chance in named streams.

`sim.world` owns one; every part of the world schedules its future here. Nothing else moves time,
nothing reads a real clock, and two events of one instant happen in the order they were asked for.
"""

import heapq
from collections.abc import Callable

from llmgw.kit.chance import Chance, seeded


class Life:
    """What dies together: events scheduled for a life that is over never happen."""

    def __init__(self) -> None:
        self.over = False


def _never() -> bool:
    return False


class Clockwork:
    """The heap. `now` is seconds since the world began; `happened` counts events.

    `wall_ahead` is how far people's clock is from it, in seconds; no decision may hang on that.
    """

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.happened = 0
        self.wall_ahead = 0.0
        self.seed = seed
        self._seq = 0
        self._heap: list[tuple[float, int, Life | None, Callable[[], None]]] = []

    def chance(self, name: str) -> Chance:
        """A stream of its own, so that one part drawing more moves no other part's dice."""
        return seeded(f"{self.seed}/{name}")

    def at(self, when: float, event: Callable[[], None], life: Life | None = None) -> None:
        """Let `event` happen at `when`, unless `life` is over by then."""
        self._seq += 1
        heapq.heappush(self._heap, (max(when, self.now), self._seq, life, event))

    def after(self, delay: float, event: Callable[[], None], life: Life | None = None) -> None:
        """Let `event` happen in `delay` seconds, unless `life` is over by then."""
        self.at(self.now + delay, event, life)

    def run(self, until: float, enough: Callable[[], bool] = _never) -> None:
        """Let everything up to `until` happen, or until it was `enough`, whichever ends first."""
        while self._heap and self._heap[0][0] <= until:
            if enough():
                return
            when, _, life, event = heapq.heappop(self._heap)
            self.now = when
            if life is not None and life.over:
                continue
            self.happened += 1
            event()
        self.now = until
