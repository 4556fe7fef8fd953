"""When time alone will change the answer, so that the loop sleeps exactly and a test jumps exactly."""

import math
from collections.abc import Iterator

from llmgw.planning import gaps, handover
from llmgw.planning.quarantine import ends_at
from llmgw.planning.troubles import proved_at
from llmgw.planning.view import View


def wake_at(view: View) -> float | None:
    """The next instant after now at which a pass could decide otherwise, or None."""
    now, first = view.now, math.inf
    for at in _instants(view):
        if now < at < first:
            first = at
    return None if first == math.inf else first


def _instants(view: View) -> Iterator[float]:
    fleet, timers, board = view.fleet, view.timers, view.board
    if board.standings is not None:
        yield board.standings.turns_at
    if board.wants is not None and board.wants.elastic and fleet.gateways:
        yield view.now + timers.scale_every
    for (model, generation), trouble in view.ledger.troubles.items():
        yield trouble.until
        yield ends_at(trouble, timers)
        for replica in view.of_model(model):
            if replica.generation == generation and replica.phase == "Ready":
                yield proved_at(view, replica, trouble)
    for drain in view.ledger.drains.values():
        yield drain.limit
        yield fleet.since + timers.gateway_silent
    yield from gaps.turns(view)
    yield from handover.turns(view, handover.held(view, view.ledger.drains))
    for name in board.roll.hanging:
        for gateway in fleet.gateways.values():
            if name in gateway.green_at:
                yield gateway.green_at[name] + timers.evidence
    for instants in board.roll.timed.values():
        yield from instants
    for model in board.needs.ripening if view.may_act() else ():
        ripe = board.needs.of[model].ripe_at
        if ripe is not None:
            yield ripe
