"""How many bytes of one source have come, for those who watch: never a transition, never a deadline.

Written by the fetching thread, read by the agent's loop (`Weights.progress`); each value is
replaced whole, so a reader sees an old one or a new one.
"""

import collections

from llmgw.fleet.shard import Progress

_SPAN = 5.0
"""Seconds that the rate is measured over."""


class Meter:
    """Bytes on the disk, the length if a server said one, and when the last byte came."""

    def __init__(self, now: float) -> None:
        self.received = 0
        self._lengths: dict[str, int | None] = {}
        self._last = now
        self._samples: collections.deque[tuple[float, int]] = collections.deque([(now, 0)], maxlen=32)
        self._came = 0

    @property
    def total(self) -> int | None:
        """Bytes of all files; None until the length of each was said."""
        lengths = tuple(self._lengths.values())
        if not lengths or None in lengths:
            return None
        return sum(length for length in lengths if length is not None)

    def start(self, received: int, lengths: dict[str, int | None]) -> None:
        """An attempt begins: `received` bytes are here, of files of these lengths."""
        self.received = received
        self._lengths = lengths

    def said(self, name: str, length: int | None) -> None:
        """A server said how long a file is, or did not."""
        self._lengths = {**self._lengths, name: length}

    def add(self, count: int, now: float) -> None:
        """`count` bytes came and are on the disk."""
        self.received += count
        self._came += count
        self._last = now
        if now - self._samples[-1][0] >= _SPAN / 25:
            self._samples.append((now, self._came))

    def void(self, count: int) -> None:
        """`count` bytes that had come are worth nothing."""
        self.received -= count

    def view(self, cache_name: str, now: float) -> Progress:
        """What is to be seen at `now`."""
        return Progress(
            cache_name=cache_name,
            received=self.received,
            total=self.total,
            rate=self._rate(now),
            idle=max(0.0, now - self._last),
        )

    def _rate(self, now: float) -> float:
        samples = tuple(self._samples)
        at, came = next((each for each in samples if now - each[0] <= _SPAN), samples[-1])
        return max(0.0, (self._came - came) / max(now - at, _SPAN / 25))
