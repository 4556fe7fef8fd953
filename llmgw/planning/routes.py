"""The routing table that follows from a pass: ready replicas, draining ones marked. A step of `reconcile`."""

from collections.abc import Mapping

from llmgw.fleet.replica import Replica
from llmgw.fleet.routes import Endpoint, Routes
from llmgw.planning import handover
from llmgw.planning.changes import changed
from llmgw.planning.ledger import Draining
from llmgw.planning.view import View


def routes(view: View, drains: Mapping[str, Draining]) -> Routes:
    """The table of this pass; the previous one, version and all, where nothing in it changed.

    Without a catalog nobody knows which models there are: that is no word that there are none.
    """
    old, board, names = view.ledger.routes, view.board, handover.held(view, drains)
    models = handover.routed(view, names)
    partial = bool(view.unheard) or board.wants is None
    endpoints = _endpoints(view, drains)
    same = (partial, models, endpoints) == (old.partial, old.models, old.endpoints)
    table = old if same else Routes(old.version + 1, partial, models, endpoints)
    # The very tuples of the table: the next comparison is one of identities.
    board.table = table.endpoints
    if board.wants is not None and not names:
        board.wants.routed = table.models
    return table


def routed(replica: Replica, draining: bool) -> bool:
    """Whether gateways have to know it."""
    # One that waits for an unheard node may still be served by a gateway: it must hear of the drain.
    return replica.serves or (replica.phase == "Unknown" and draining)


def _endpoints(view: View, drains: Mapping[str, Draining]) -> tuple[Endpoint, ...]:
    """In id order; the last table's own where none of them changed."""
    board, known = view.board, view.board.endpoints
    same = True
    for name in board.untold.union(changed(board.tabled, drains)):
        replica = view.replicas.get(name)
        new = (
            _endpoint(replica, name in drains)
            if replica is not None and routed(replica, name in drains)
            else None
        )
        if new == known.get(name):
            continue
        same = False
        if new is None:
            del known[name]
        else:
            known[name] = new
    board.tabled = drains
    board.untold.clear()
    return board.table if same else tuple(known[name] for name in sorted(known))


def _endpoint(replica: Replica, draining: bool) -> Endpoint:
    spec = replica.spec.peers[0]
    slow = any(shard.status.slow for shard in replica.present)
    return Endpoint(replica.id, replica.model, spec.address, spec.port, draining, slow)
