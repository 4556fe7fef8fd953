"""What starts and fetches really took, for the estimates of plans. In memory only, bounded.

`serve` shows it every event of an agent before the loop hears it; `adoption` asks for what was `seen`.
"""

import statistics
from collections import deque

from llmgw.fleet import events
from llmgw.fleet.shard import ShardKey, ShardStatus
from llmgw.fleet.world import Fleet, Shard
from llmgw.planning.costs import Sample, Seen

KEPT = 16
"""Measurements of one thing; the newest count."""
MOST = 1024
"""Things that are measured."""
LEAST_BYTES = 1 << 20
"""A fetch below this says nothing about a network."""


class Measuring:
    """Seconds from the exec to Ready by generation; bytes per second of whole fetches by node."""

    def __init__(self) -> None:
        self._starts: dict[str, deque[float]] = {}
        self._fetches: dict[str, deque[float]] = {}
        self._began: dict[ShardKey, float] = {}

    @property
    def seen(self) -> Seen:
        """The middle of each."""
        return Seen(_middles(self._starts), _middles(self._fetches))

    def saw(self, fleet: Fleet, event: events.Event, now: float) -> None:
        """An event, and the fleet as it was before it."""
        if not isinstance(event, events.Reported):
            return
        for status in event.statuses:
            shard = fleet.shards.get(status.key)
            if shard is not None and shard.status.state != status.state:
                self._moved(fleet, shard, status, now)

    def _moved(self, fleet: Fleet, shard: Shard, status: ShardStatus, now: float) -> None:
        at = now - status.age
        if shard.state == "fetching" and status.state == "held":
            received = next(
                (
                    row.received
                    for row in fleet.progress.get(shard.spec.node, ())
                    if row.cache_name == shard.spec.cache_name
                ),
                0,
            )
            size, took = shard.spec.source_bytes or received, at - shard.since
            if size >= LEAST_BYTES and took > 0:
                _keep(self._fetches, shard.spec.node, size / took)
        if status.state == "starting":
            self._began[status.key] = at
        elif status.state == "ready" and shard.spec.rank == 0:
            began = self._began.get(status.key)
            if began is None and shard.state == "starting":
                began = shard.since
            if began is not None and at >= began:
                _keep(self._starts, shard.spec.generation, at - began)
        if status.state in ("ready", "failed", "stopping", "gone"):
            self._began.pop(status.key, None)
        while len(self._began) > MOST:
            del self._began[next(iter(self._began))]


def _keep(table: dict[str, deque[float]], key: str, value: float) -> None:
    """Add it; what was not added to for longest is forgotten first."""
    kept = table.pop(key, deque(maxlen=KEPT))
    kept.append(value)
    table[key] = kept
    while len(table) > MOST:
        del table[next(iter(table))]


def _middles(table: dict[str, deque[float]]) -> dict[str, Sample]:
    return {key: Sample(statistics.median(values), len(values)) for key, values in table.items()}
