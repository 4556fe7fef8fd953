"""Simulated time: heaps of (time, seq, event), and chance in named streams.

`sim.world` owns one; every part of the world schedules its future here. Nothing else moves time,
nothing reads a real clock, and two events of one instant happen in the order they were asked for.

What goes on by itself (heartbeats, loads, clients) is scheduled `steadily`. While nothing else is due
`sim.leaps` may move all of that to just before the next event of note, as one. It counts as no event, nor
does what is scheduled `quietly`: the way of a heartbeat.
"""

import heapq
import math
from collections.abc import Callable

from llmgw.kit.chance import Chance, seeded


class Life:
    """What dies together: events scheduled for a life that is over never happen."""

    def __init__(self) -> None:
        self.over = False


LEAST = 2.0
"""Seconds without an event of note that are worth a leap."""

_Heap = list[tuple[float, int, Life | None, Callable[[], None], bool]]


def _stay(_: float) -> float:
    return -math.inf


class Clockwork:
    """The heap. `now` is seconds since the world began; `happened` counts events of note.

    `wall_ahead` is how far people's clock is from it, in seconds; no decision may hang on that. `leap`
    is asked how far to leap towards an instant at which something of note is due; the past = not now.
    """

    def __init__(self, seed: int) -> None:
        self.now = 0.0
        self.happened = 0
        self.wall_ahead = 0.0
        self.seed = seed
        self._seq = 0
        self.leap: Callable[[float], float] = _stay
        self._heap: _Heap = []
        self._steady: _Heap = []
        self._moved = 0.0

    def chance(self, name: str) -> Chance:
        """A stream of its own, so that one part drawing more moves no other part's dice."""
        return seeded(f"{self.seed}/{name}")

    def at(self, when: float, event: Callable[[], None], life: Life | None = None) -> None:
        """Let `event` happen at `when`, unless `life` is over by then."""
        self._seq += 1
        heapq.heappush(self._heap, (max(when, self.now), self._seq, life, event, True))

    def quietly(self, when: float, event: Callable[[], None]) -> None:
        """As `at`, for what is of no note; no leap moves it."""
        self._seq += 1
        heapq.heappush(self._heap, (max(when, self.now), self._seq, None, event, False))

    def after(self, delay: float, event: Callable[[], None], life: Life | None = None) -> None:
        """Let `event` happen in `delay` seconds, unless `life` is over by then."""
        self.at(self.now + delay, event, life)

    def steadily(self, delay: float, event: Callable[[], None], life: Life | None = None) -> None:
        """As `after`, for what goes on by itself: a leap moves it along."""
        self._seq += 1
        heapq.heappush(self._steady, (self.now + delay - self._moved, self._seq, life, event, False))

    def run(self, until: float, most: float = math.inf) -> None:
        """Let everything up to `until` happen, or until `most` events of note did, whichever ends first."""
        heap, steadies = self._heap, self._steady
        while self.happened < most:
            _bury(heap)
            _bury(steadies)
            noted = heap[0][0] if heap else math.inf
            steady = steadies[0][0] + self._moved if steadies else math.inf
            if noted > until and steady > until:
                self.now = until
                return
            if steady < noted:
                due = min(until, noted)
                to = self.leap(due) if due - self.now >= LEAST else self.now
                if to > self.now:
                    self._moved += to - self.now
                    self.now = to
                    continue
                _, _, _, event, _ = heapq.heappop(steadies)
                when = steady
            else:
                _, _, _, event, counts = heapq.heappop(heap)
                self.happened += counts
                when = noted
            self.now = max(self.now, when)
            event()


def _bury(heap: _Heap) -> None:
    """What would have happened to the dead is nothing to wait for."""
    while heap and (life := heap[0][2]) is not None and life.over:
        heapq.heappop(heap)
