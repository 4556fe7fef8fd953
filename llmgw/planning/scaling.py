"""How many replicas a model should have between its bounds: what its requests ask for. A step of `reconcile`.

Up at once; down only to the most that was asked for over a whole window, so that a lull costs nobody a
load time. Signals that are stale (no gateway, or a silent one) hold the count: absence is no load of 0.
"""

import dataclasses
import math
from collections.abc import Mapping
from operator import is_not

from llmgw.catalog.model import Model
from llmgw.planning.ledger import Ledger, Scale
from llmgw.planning.view import View


def wanted(view: View, model: Model) -> int:
    """How many replicas the model should have now."""
    bounds, scale = model.scaling, view.ledger.scales.get(model.name)
    return bounds.min if scale is None else max(bounds.min, min(scale.count, bounds.max))


def rescale(view: View) -> Ledger:
    """The ledger with the counts that the requests of this instant ask for.

    While we suspect ourselves the window goes on: what was asked for meanwhile was asked for.
    """
    board, ledger = view.board, view.ledger
    if board.wants is None or not (board.wants.elastic or ledger.scales):
        return ledger
    elastic = board.wants.elastic
    if not view.heard:  # what is there is not known yet, so no count begins
        kept = {name: scale for name, scale in ledger.scales.items() if name in elastic}
        return ledger if kept == ledger.scales else dataclasses.replace(ledger, scales=kept)
    if not board.moved and ledger.scales is board.scales and ledger.scales.keys() == elastic.keys():
        return ledger
    loads = _loads(view)
    known = ledger.scales
    scales = {name: _scale(view, model, known.get(name), loads) for name, model in elastic.items()}
    same = scales.keys() == known.keys() and not any(map(is_not, scales.values(), map(known.get, scales)))
    return ledger if same else dataclasses.replace(ledger, scales=scales)


def _scale(view: View, model: Model, old: Scale | None, loads: Mapping[str, int] | None) -> Scale:
    """The next count; the very `old` where nothing of it changed."""
    bounds = model.scaling
    if old is None:
        # After a restart what is there stays until signals say otherwise.
        there = sum(r.phase not in ("Failed", "Lost") for r in view.of_model(model.name))
        old = Scale(max(bounds.min, min(there, bounds.max)), math.inf, 0)
    count = max(bounds.min, min(old.count, bounds.max))
    load = loads.get(model.name, 0) if loads is not None else None
    asked = (
        count if load is None else max(bounds.min, min(math.ceil(load / bounds.target_in_flight), bounds.max))
    )
    if asked >= count:
        new = Scale(asked, math.inf, 0)
    else:
        since = min(old.since, view.now)
        most = min(max(asked, old.most), count)
        new = Scale(count, since, most)
        if view.now >= since + view.timers.scale_window:
            new = Scale(most, view.now, asked) if asked < most else Scale(most, math.inf, 0)
    return old if new == old else new


def _loads(view: View) -> Mapping[str, int] | None:
    """Requests in flight and waiting, by model; None while not every gateway tells."""
    gateways = view.fleet.gateways.values()
    if not gateways or any(map(view.silent, view.fleet.gateways)):
        return None
    loads: dict[str, int] = {}
    for gateway in gateways:
        for model, count in gateway.queued.items():
            loads[model] = loads.get(model, 0) + count
        for replica, count in gateway.in_flight.items():
            model = replica.rpartition("/")[0]
            loads[model] = loads.get(model, 0) + count
    return loads
