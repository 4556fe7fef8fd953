"""The network between a peer and the control plane: ordered streams over a path that can fail.

A stream keeps order and loses nothing but its tail: what is under way when it is cut. While a
direction is dark its messages wait (TCP would send them again); both ends notice a dark path by
their pings, each at its own time, so one end can still believe in a stream that the other gave up.
"""

import dataclasses
import functools
from collections import deque
from collections.abc import Callable
from typing import Any, Literal

from tests.sim.clockwork import Clockwork

PING_EVERY = 5.0
PING_DEAD = 15.0
"""Seconds between pings, and without an answer until an end gives its stream up."""

Direction = Literal["up", "down"]
DIRECTIONS: tuple[Direction, Direction] = ("up", "down")


@dataclasses.dataclass(slots=True)
class End:
    """One end of a stream: what it does with a message, and with the end of the stream."""

    hears: Callable[[Any], None]
    closes: Callable[[], None]
    open: bool = True


class Path:
    """One peer's way to the control plane. Faults darken directions and stretch the delay."""

    def __init__(self, clock: Clockwork, name: str) -> None:
        self.clock = clock
        self.name = name
        self.slow = 1.0
        self.dark: dict[Direction, int] = {"up": 0, "down": 0}
        self.chance = clock.chance(f"path/{name}")
        self._streams: list[Stream] = []

    @property
    def whole(self) -> bool:
        """Both directions work."""
        return not self.dark["up"] and not self.dark["down"]

    def delay(self) -> float:
        """Seconds one message takes now."""
        return self.chance.uniform(0.001, 0.05) * self.slow

    def darken(self, direction: Direction) -> None:
        """Nothing passes in `direction` any more, until it is lit as often as it was darkened."""
        self.dark[direction] += 1
        for stream in self._streams:
            stream.watch()

    def light(self, direction: Direction) -> None:
        """Take one `darken` back; what waited passes."""
        self.dark[direction] -= 1
        if not self.dark[direction]:
            for stream in list(self._streams):
                stream.pump(direction)

    def cut(self) -> None:
        """Reset every stream: what is under way is lost, both ends know it."""
        for stream in list(self._streams):
            stream.end("up")
            stream.end("down")

    def connect(self, peer: End, server: End) -> "Stream":
        """A new stream; the caller made sure that the path is whole."""
        self._streams = [stream for stream in self._streams if stream.alive]
        stream = Stream(self, peer, server)
        self._streams.append(stream)
        return stream


class Stream:
    """One stream. `up` is towards the control plane; each direction is delivered in order."""

    def __init__(self, path: Path, peer: End, server: End) -> None:
        self.path = path
        self.hearer: dict[Direction, End] = {"up": server, "down": peer}
        self.speaker: dict[Direction, End] = {"up": peer, "down": server}
        self._under_way: dict[Direction, deque[tuple[float, Any]]] = {"up": deque(), "down": deque()}
        self._last: dict[Direction, float] = {"up": 0.0, "down": 0.0}
        self._watches = 0

    @property
    def alive(self) -> bool:
        """Either end still believes in it."""
        return self.hearer["up"].open or self.hearer["down"].open

    @property
    def still(self) -> bool:
        """Nothing is under way that is about to arrive."""
        dark, hearer, under_way = self.path.dark, self.hearer, self._under_way
        return all(not under_way[way] or dark[way] or not hearer[way].open for way in DIRECTIONS)

    def carries(self, direction: Direction) -> bool:
        """What is said in `direction` arrives and is heard."""
        return self.speaker[direction].open and self.hearer[direction].open and not self.path.dark[direction]

    def send(self, direction: Direction, message: Any, *, quietly: bool = False) -> None:
        """Put a message under way. An end that is closed says nothing. `quietly` = it is no event."""
        if self.speaker[direction].open:
            due = self._due(direction)
            self._under_way[direction].append((due, message))
            later = self.path.clock.quietly if quietly else self.path.clock.at
            later(due, functools.partial(self.pump, direction))

    def hang_up(self, direction: Direction) -> None:
        """The speaker of `direction` closes its end; the other one learns it behind the last message."""
        self.speaker[direction].open = False
        self.path.clock.at(self._due(direction), functools.partial(self.pump, direction))

    def pump(self, direction: Direction) -> None:
        """Deliver what is due, in order; behind it, the end of the stream."""
        under_way, hearer = self._under_way[direction], self.hearer[direction]
        while hearer.open and not self.path.dark[direction]:
            if under_way and under_way[0][0] <= self.path.clock.now:
                hearer.hears(under_way.popleft()[1])
            elif not under_way and not self.speaker[direction].open:
                self.end(direction)
            else:
                return

    def end(self, direction: Direction) -> None:
        """The end that hears `direction` learns that the stream is over; the rest of it is lost."""
        hearer = self.hearer[direction]
        if hearer.open:
            hearer.open = False
            self._under_way[direction].clear()
            back: Direction = "down" if direction == "up" else "up"
            self.path.clock.at(self._due(back), functools.partial(self.pump, back))
            hearer.closes()

    def unanswered(self, still: Callable[[], bool]) -> None:
        """The control plane's end answers no ping; the peer gives up unless that is over in time."""
        patience = PING_DEAD + self.path.chance.uniform(0.0, PING_EVERY)
        self.path.clock.after(patience, lambda: self.end("down") if still() else None)

    def watch(self) -> None:
        """Pings go into the dark: each end gives up at its own time, unless they come back first."""
        self._watches += 1
        for direction in DIRECTIONS:
            patience = PING_DEAD + self.path.chance.uniform(0.0, PING_EVERY)
            self.path.clock.after(patience, functools.partial(self._give_up, direction, self._watches))

    def _give_up(self, direction: Direction, watch: int) -> None:
        if not self.path.whole and watch == self._watches:
            self.end(direction)

    def _due(self, direction: Direction) -> float:
        self._last[direction] = max(self._last[direction], self.path.clock.now + self.path.delay())
        return self._last[direction]
