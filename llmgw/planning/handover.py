"""Names that move to another model: who answered for them goes on until the other one does. A step of `reconcile`.

A model that is renamed, or an alias that an edit moves, would otherwise lead nowhere while the new model loads. The last
table tells whose a name was: a control plane that was restarted meanwhile does not know it, and names move at once.
"""

import dataclasses
from collections.abc import Collection, Container, Iterable, Iterator, Mapping

from llmgw.fleet.replica import Replica
from llmgw.fleet.routes import RoutedModel
from llmgw.planning.board import Board
from llmgw.planning.rollout import settled
from llmgw.planning.scaling import wanted
from llmgw.planning.view import View

Moves = Mapping[str, tuple[str, str]]
"""A name that clients ask for → (the model that had it, the model that gets it)."""

SOON = 0.01
"""Seconds after which what was held goes: its heir took over at the end of a pass."""

_COMING = ("Fetching", "Starting", "Ready")


def moves(before: Iterable[RoutedModel], after: Iterable[RoutedModel]) -> Moves:
    """The names of `before` that are another model's `after`."""
    owners = {name: model.name for model in after for name in _names(model)}
    return {
        name: (model.name, owners[name])
        for model in before
        for name in _names(model)
        if owners.get(name, model.name) != model.name
    }


def held(view: View, drains: Container[str]) -> Moves:
    """The names that stay where they are for now: their model serves, and the next one does not yet."""
    board, old = view.board, view.ledger.routes.models
    if board.wants is None or old is board.wants.routed:
        return {}
    return {
        name: (was, heir)
        for name, (was, heir) in _moves(board, old, board.wants.routed).items()
        if any(_serves(replica, drains) for replica in view.of_model(was))
        and not _took_over(view, heir, drains)
    }


def _moves(board: Board, old: tuple[RoutedModel, ...], new: tuple[RoutedModel, ...]) -> Moves:
    if board.moving[0] is not old or board.moving[1] is not new:
        board.moving = (old, new, moves(old, new))
    return board.moving[2]


def _names(model: RoutedModel) -> tuple[str, ...]:
    return (model.name, *model.aliases)


def _serves(replica: Replica, drains: Container[str]) -> bool:
    return replica.serves and replica.id not in drains


def _took_over(view: View, heir: str, drains: Container[str]) -> bool:
    """Whether it has proved that it serves, with all that may be waited for; or nobody wants it to."""
    board = view.board
    want = board.wants.models[heir] if board.wants is not None else None
    count = wanted(view, want.model) if want is not None else 0
    if want is None or not count:
        return True
    fresh = [
        replica
        for replica in view.of_model(heir)
        if replica.generation in want.generations and replica.id not in drains
    ]
    proved = sum(settled(view, replica) for replica in fresh)
    if not proved or any(_comes(view, replica) for replica in fresh):
        return proved >= count
    fails = any((heir, generation) in view.ledger.troubles for generation in want.generations)
    return proved >= count or fails or heir in board.no_place


def _comes(view: View, replica: Replica) -> bool:
    return replica.phase in _COMING and not settled(view, replica)


def routed(view: View, names: Moves) -> tuple[RoutedModel, ...]:
    """The models of the table: those of the catalog, but for the `names` that are held."""
    if view.board.wants is None:
        return view.ledger.routes.models
    models = view.board.wants.routed
    if not names:
        return models
    kept: dict[str, list[str]] = {}
    for name, (was, _) in names.items():
        kept.setdefault(was, []).append(name)
    there = [
        dataclasses.replace(
            model,
            aliases=(
                *(alias for alias in model.aliases if alias not in names),
                *(name for name in kept.get(model.name, ()) if name != model.name),
            ),
        )
        for model in models
        if model.name not in names  # a name that was an alias would hide it
    ]
    known = {model.name for model in models}
    leaving = [
        dataclasses.replace(model, aliases=tuple(name for name in model.aliases if name in names))
        for model in view.ledger.routes.models
        if model.name in kept and model.name not in known
    ]
    return (*there, *leaving)


def give_way(
    view: View, names: Moves, no_place: Collection[str], drains: Container[str]
) -> Iterator[tuple[str, list[str]]]:
    """(heir, replicas that have to go first, the one to miss least first) where nothing of an heir comes and it has no place.

    `no_place` are the models of which that is known.
    """
    for heir in sorted({heir for _, heir in names.values()}.intersection(no_place)):
        if any(_comes(view, replica) for replica in view.of_model(heir)):
            continue
        leaving = {was for was, after in names.values() if after == heir and not _wanted(view, was)}
        olds = [r for was in sorted(leaving) for r in view.of_model(was) if _serves(r, drains)]
        if olds:
            yield heir, [r.id for r in sorted(olds, key=lambda r: (r.phase == "Ready", r.id))]


def _wanted(view: View, model: str) -> bool:
    return view.board.wants is not None and model in view.board.wants.models


def leaving(view: View, names: Moves, drains: Container[str]) -> set[str]:
    """The replicas that go as soon as an heir that comes up has proved itself."""
    coming = {
        heir for _, heir in names.values() if any(_comes(view, replica) for replica in view.of_model(heir))
    }
    left = {was for was, heir in names.values() if heir in coming and not _wanted(view, was)}
    return {replica.id for was in left for replica in view.of_model(was) if _serves(replica, drains)}


def turns(view: View, names: Moves) -> Iterator[float]:
    """The instants at which time alone lets an heir take over, or what it takes over from go."""
    if view.board.staying and not names:
        yield view.now + SOON
    for heir in {heir for _, heir in names.values()}:
        for replica in view.of_model(heir):
            if replica.phase == "Ready":
                yield replica.since + view.timers.min_ready
