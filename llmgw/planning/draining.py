"""Drains on their way to a stop. A step of `reconcile`.

Drained = every gateway serves by a table that says so and has nothing in flight there, and the engine
is not known to be busy. A silent gateway means waiting for the limit. Only then the stop is ordered:
rank 0 first, the workers once it is gone.
"""

import dataclasses

from llmgw.fleet.replica import Replica
from llmgw.fleet.world import Shard
from llmgw.planning.actions import Stop
from llmgw.planning.ledger import Draining
from llmgw.planning.view import View

NEW = -1
"""The version of a drain that no table has told yet; `reconcile` fills it in at the end of the pass."""


def advance(view: View, drains: dict[str, Draining]) -> list[Stop]:
    """The stops that are due. `drains` is updated in place: what is over leaves, what was sent is marked."""
    stops: list[Stop] = []
    for name in sorted(drains):
        replica = view.replicas.get(name)
        if replica is None:
            del drains[name]
            continue
        draining = drains[name]
        if not draining.stop_sent and not _due(view, replica, draining):
            continue
        orders = [
            stop_order(view, shard, draining.because)
            for shard in _next_ranks(replica)
            if may_stop(view, shard)
        ]
        # A node out of reach gets no order: its drain can still be taken back.
        drains[name] = dataclasses.replace(draining, stop_sent=draining.stop_sent or bool(orders))
        stops += orders
    return stops


def _next_ranks(replica: Replica) -> list[Shard]:
    """Rank 0 while it is there, then the others: a worker that goes first looks like a crash to rank 0."""
    head = replica.shards[0]
    return [head] if head is not None else list(replica.present)


def _due(view: View, replica: Replica, draining: Draining) -> bool:
    if view.now >= draining.limit or not (replica.serves or replica.phase == "Unknown"):
        return True
    # Gateways come back to a restarted control plane in their own time; until then they route what
    # was ready before it began, and it does not know them.
    began = view.fleet.since
    if replica.since < began and view.now - began < view.timers.gateway_silent:
        return False
    if draining.version == NEW and view.fleet.gateways:
        return False
    for name, gateway in view.fleet.gateways.items():
        # A version above ours is the table of another control plane: that acknowledges nothing.
        acknowledged = draining.version <= gateway.acked <= view.ledger.routes.version
        if view.silent(name) or not acknowledged or gateway.in_flight.get(replica.id, 0):
            return False
    head = replica.shards[0]
    return head is None or head.status.idle is not False


def may_stop(view: View, shard: Shard) -> bool:
    """Whether a stop of this shard is worth sending now: it would arrive, and it says something new."""
    resend = shard.ordered != "stop" or view.now - shard.ordered_at >= view.timers.ack
    return shard.state != "stopping" and resend and view.reachable(shard.spec.node)


def stop_order(view: View, shard: Shard, because: str) -> Stop:
    """The order that ends `shard`."""
    return Stop(shard.spec.key, shard.spec.node, shard.spec.generation, view.timers.stop_grace, because)
