"""When time alone will change the answer, so that the loop sleeps exactly and a test jumps exactly."""

from collections.abc import Iterator

from llmgw.planning.view import View


def wake_at(view: View) -> float | None:
    """The next instant after now at which a pass could decide otherwise, or None."""
    return min((at for at in _instants(view) if at > view.now), default=None)


def _instants(view: View) -> Iterator[float]:
    fleet, timers = view.fleet, view.timers
    if view.unheard:
        yield fleet.since + timers.place_grace
        yield fleet.since + timers.lost_grace
    for node in fleet.nodes.values():
        yield node.last_seen + timers.unreachable
        yield node.last_seen + timers.lost
    for trouble in view.ledger.troubles.values():
        yield trouble.until
        yield trouble.at + timers.backoff_reset
    for drain in view.ledger.drains.values():
        yield drain.limit
        yield fleet.since + timers.gateway_silent
    for gateway in fleet.gateways.values():
        for at in gateway.green_at.values():
            yield at + timers.evidence
    for shard in fleet.shards.values():
        if shard.ordered:
            yield shard.ordered_at + timers.ack
        if not shard.confirmed:
            yield shard.since + timers.ack
            yield shard.since + 3 * timers.ack
    for replica in view.replicas.values():
        if replica.phase == "Ready":
            yield replica.since + timers.min_ready
            yield replica.since + timers.backoff_reset
