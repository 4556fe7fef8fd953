"""How one model looks for a place: what it asks for, why it found none, which old replica is in its way.

The parts of `reconcile`'s one placement a pass; each remembers in `Needs` what holds until the fleet changes.
"""

import dataclasses
from collections.abc import Collection, Mapping

from llmgw.kit.chance import Chance, suffix
from llmgw.planning import gaps
from llmgw.planning.actions import Drain
from llmgw.planning.ledger import Draining
from llmgw.planning.needs import Need, Needs, Search, Unplaced, stays
from llmgw.planning.placement import Request
from llmgw.planning.view import View


def swap_for(view: View, needs: Needs, drains: Mapping[str, Draining]) -> Drain | None:
    """The first old replica without which its successor would have a place, where no gap is open.

    Room that comes anyway is waited for, and one whose drain was taken back a moment ago stays.
    """
    if view.ledger.gap is not None:
        return None
    leaving = gaps.on_their_way_out(view, needs, drains)
    for _, _, model in needs.pending:
        search, old = search_for(view, needs, model), needs.of[model].swap
        if not old or old in view.ledger.returned or search.stuck_at == (view.board.stock.grown, old):
            continue
        if not fits_without(view, search, {old}):
            search.stuck_at = (view.board.stock.grown, old)
        elif not leaving or not fits_without(view, search, leaving):
            return Drain(old, "no room for its successor beside it: the old one goes first")
    return None


def fits_without(view: View, search: Search, names: Collection[str]) -> bool:
    """Whether one of what is looked for would have a place if these replicas were gone."""
    board = view.board
    with board.without(names):
        return any(board.stock.choose(request, board.pressure) for request in search.requests)


def unplaced_for(view: View, needs: Needs, model: str) -> Unplaced:
    """Why its first profile fits nowhere, node by node."""
    board, request = view.board, search_for(view, needs, model).requests[0]
    reasons, short = board.explanations.of(request, board.stock, view.fleet.nodes)
    return Unplaced(
        model,
        request.profile.name,
        needs.of[model].because,
        reasons,
        _staying(view, needs.of[model], model),
        short,
    )


def _staying(view: View, need: Need, model: str) -> tuple[str, ...]:
    """What serves on a node that people want empty, where only its successors are missing."""
    if view.board.wants is None:
        return ()
    generations, marks = view.board.wants.models[model].generations, view.desired.marks
    found = [
        replica.id
        for replica in view.of_model(model)
        if replica.serves and replica.id not in view.ledger.drains and replica.generation in generations
        if not stays(replica, generations, marks)
    ]
    return tuple(found) if need.have + len(found) >= need.count else ()


def search_for(view: View, needs: Needs, model: str) -> Search:
    """How the model looks for a place; it is remembered until something changes what it asks for."""
    if model not in needs.searches:
        needs.searches[model] = Search(_requests(view, model))
    return needs.searches[model]


def _requests(view: View, model: str) -> tuple[Request, ...]:
    """The model under each of its profiles, in order; first without the nodes where it failed, and on no
    cards whose memory ran out under it."""
    if view.board.wants is None:
        return ()
    found: list[Request] = []
    want = view.board.wants.models[model]
    size = view.board.known_size(want.cache_name) or view.desired.sizes.get(want.cache_name, 0)
    for generation, profile in want.generations.items():
        trouble = view.ledger.troubles.get((model, generation))
        plain = Request(want.model, profile, generation, want.cache_name, size)
        if trouble is not None:
            sparing = dataclasses.replace(plain, spare=frozenset(trouble.cards))
            elsewhere = dataclasses.replace(sparing, avoid=frozenset(trouble.nodes))
            found += [request for request in (elsewhere, sparing) if request != plain]
        found.append(plain)
    return tuple(found)


def new_id(view: View, model: str, chance: Chance) -> str:
    """An id that no replica of the fleet has."""
    while (name := f"{model}/{suffix(chance)}") in view.replicas:
        pass
    return name
