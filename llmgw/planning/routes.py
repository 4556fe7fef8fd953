"""The routing table that follows from a pass: ready replicas, draining ones marked. A step of `reconcile`."""

import dataclasses
from collections.abc import Mapping

from llmgw.fleet.replica import Replica
from llmgw.fleet.routes import Endpoint, RoutedModel, Routes
from llmgw.planning.ledger import Draining
from llmgw.planning.view import View


def routes(view: View, drains: Mapping[str, Draining]) -> Routes:
    """The table of this pass; the previous one, version and all, where nothing in it changed."""
    old = view.ledger.routes
    catalog = view.desired.catalog
    models = (
        old.models
        if catalog is None
        else tuple(
            RoutedModel(model.name, model.aliases, model.fallbacks)
            for _, model in sorted(catalog.models.items())
        )
    )
    endpoints = tuple(
        _endpoint(r, r.id in drains)
        for r in view.replicas.values()
        # One that waits for an unheard node may still be served by a gateway: it must hear of the drain.
        if r.serves or (r.phase == "Unknown" and r.id in drains)
    )
    new = Routes(old.version, bool(view.unheard), models, endpoints)
    return old if new == old else dataclasses.replace(new, version=old.version + 1)


def _endpoint(replica: Replica, draining: bool) -> Endpoint:
    spec = replica.spec.peers[0]
    return Endpoint(replica.id, replica.model, spec.address, spec.port, draining)
